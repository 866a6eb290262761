// What a process leaves behind that dies of a fault or of abort(), by which failed checks and
// std::terminate() end it after a line of their own: a block on standard error.
//
//   CRASH signal SIGSEGV (11), code 1, address 0x10         or "sent by process 77"
//   CRASH thread 1234 (sru_worker) of process 1200, which had up to 123 MB resident
//   CRASH build sru_server 0.1.0, commit f3b37f5e, build id 98b3c74c..
//   CRASH in flight batch, model trec version 1             or "nothing"
//   CRASH #0 0x55d0c0ffee04 /usr/bin/sru_server+0x1ee04     a return address, and the instruction
//                                                           before it as addr2line wants it
//   CRASH ~1 0x55d0c0ffa17f /usr/bin/sru_server+0x1a17e     found on the stack above code without
//                                                           tables, such as what oneDNN makes
//   CRASH resolve addr2line -Cfipe /usr/bin/sru_server 0x1ee04 ..
//
// Afterwards the signal does what it does by default. The handler takes no lock and no memory, and
// gives up on a standard error that nobody reads after a second. A second thread that crashes waits
// for the block of the first. A fault in the handler ends the process at once. With a sanitizer,
// which has reports of its own, Install() does nothing.
//
// The unit is in server/base, as all rooms above have something in flight.
#ifndef SRU_SERVER_BASE_CRASH_REPORT_H_
#define SRU_SERVER_BASE_CRASH_REPORT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace sru::server::crash {

// From now on crashes are reported, as those of `program`. To be called once, before other threads
// start.
void Install(absl::string_view program);

// Gives the calling thread a stack for the handler, so that an overflow of its own is reported too.
// NameThisThread() calls it. Does nothing before Install().
void PrepareThread();

// What the thread works on while the object exists. The innermost of a thread counts.
struct InFlight {
  // `doing` must stay: the name of a method, or "batch".
  explicit InFlight(const char* doing, absl::string_view of_model = {}, int64_t of_version = 0)
      : what(doing) {
    NameModel(of_model, of_version);
    innermost = this;
  }
  ~InFlight() { innermost = outer; }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  void NameModel(absl::string_view of_model, int64_t of_version) {
    model[of_model.copy(model, sizeof(model) - 1)] = '\0';
    version = of_version;
  }

  static inline thread_local InFlight* innermost = nullptr;

  const char* const what;
  InFlight* const outer = innermost;
  int64_t version = 0;  // 0: not known
  char model[160];      // a name has at most 128 bytes
};

}  // namespace sru::server::crash

#endif  // SRU_SERVER_BASE_CRASH_REPORT_H_
