// Crashes in the way that its argument names, for crash_report_test.py.
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/internal/raw_logging.h"
#include "server/base/cores.h"
#include "server/base/crash_report.h"

namespace {

volatile int depth = 0;

// NOLINTNEXTLINE(misc-no-recursion)
int Overflow(int from) {
  if (from < 0) return 0;  // never; the compiler does not know
  volatile char frame[4096];
  frame[from % 4096] = static_cast<char>(from);
  depth = depth + 1;
  return Overflow(from + 1) + frame[0];
}

void Crash(const std::string& how) {
  if (how == "overflow") std::printf("%d\n", Overflow(0));
  if (how == "throw") throw std::runtime_error("it is\tover");
  if (how == "throw_number") throw 7;
  if (how == "bad_alloc") std::printf("%zu\n", std::vector<char>(size_t{1} << 50).size());
  if (how == "terminate") std::terminate();
  if (how == "check") ABSL_RAW_CHECK(how.empty(), "the text has no end");
  if (how == "fault") *reinterpret_cast<volatile int*>(16) = 1;
  if (how == "nothing") {
    void (*volatile call)() = nullptr;
    call();
  }
  if (how == "divide") {
    volatile int zero = 0;
    std::printf("%d\n", 7 / zero);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  sru::server::crash::Install("crash_program");
  const std::string how = argv[1];
  std::vector<std::thread> threads;
  // Two at once, with "both".
  for (int i = 0; i < (how == "both" ? 2 : 1); ++i) {
    threads.emplace_back([&how] {
      sru::server::NameThisThread("crasher");
      const sru::server::crash::InFlight outer("Outer", "not\nthis", 1);
      const sru::server::crash::InFlight call("Classify");
      sru::server::crash::InFlight::innermost->NameModel("a\nb", 3);
      Crash(how == "both" ? "fault" : how);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
