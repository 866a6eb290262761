// ServerProcess: an sru_server of this machine for a short measurement, which ends with this object and with
// this process.
#ifndef SRU_BENCH_CAPACITY_PROCESS_H_
#define SRU_BENCH_CAPACITY_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::bench {

// The sru_server beside this program; empty if there is none.
std::string ServerBesideThisProgram();

class ServerProcess {
 public:
  // Returns once the server listens. kUnavailable: it did not start; the message has what it said last.
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(
      const std::string& program, const std::vector<std::string>& flags);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  // The processor time that it has used.
  double cpu_seconds() const;

 private:
  ServerProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  const pid_t pid_;
  const int output_;  // a pipe from it
  std::string address_;
};

// The processor time of this process.
double OwnCpuSeconds();

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_PROCESS_H_
