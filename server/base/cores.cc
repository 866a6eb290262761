#include "server/base/cores.h"

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "server/base/control_groups.h"
#include "server/base/crash_report.h"

namespace sru::server {
namespace {

constexpr int kMaxCores = 1 << 16;

// How many cores a group's quota pays for, rounded up; nullopt without one.
std::optional<int> QuotaOf(const ControlGroup& group) {
  // "QUOTA PERIOD", microseconds; without a quota version 2 says "max" and version 1 -1.
  const std::string text =
      group.version == 2 ? ReadSystemFile(group.directory + "cpu.max")
                         : absl::StrCat(ReadSystemFile(group.directory + "cpu.cfs_quota_us"), " ",
                                        ReadSystemFile(group.directory + "cpu.cfs_period_us"));
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty());
  int64_t quota = 0;
  int64_t period = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[0], &quota) || quota <= 0 ||
      !absl::SimpleAtoi(words[1], &period) || period <= 0) {
    return std::nullopt;
  }
  return static_cast<int>(std::min<int64_t>((quota - 1) / period + 1, kMaxCores));
}

}  // namespace

std::vector<int> AllowedCores() {
  // The system refuses a set that is smaller than its own, and one cpu_set_t ends at 1,024 cores.
  for (int cores = CPU_SETSIZE; cores <= kMaxCores; cores *= 2) {
    std::vector<cpu_set_t> set(cores / CPU_SETSIZE);
    const size_t bytes = set.size() * sizeof(cpu_set_t);
    if (sched_getaffinity(0, bytes, set.data()) == 0) {
      std::vector<int> allowed;
      for (int core = 0; core < cores; ++core) {
        if (CPU_ISSET_S(core, bytes, set.data())) allowed.push_back(core);
      }
      return allowed;
    }
    if (errno != EINVAL) break;
  }
  return {};
}

absl::Status PinThisThread(int core) {
  if (core < 0 || core >= kMaxCores) {
    return InvalidArgument("core: expected 0 to ", kMaxCores - 1, ", found ", core);
  }
  std::vector<cpu_set_t> set(core / CPU_SETSIZE + 1);
  const size_t bytes = set.size() * sizeof(cpu_set_t);
  CPU_SET_S(core, bytes, set.data());
  if (sched_setaffinity(0, bytes, set.data()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot pin a thread to core ", core));
}

void TakeShortSlices() {
  // struct sched_attr of Linux, for which the C library has no name.
  struct Attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime;  // of a thread without a deadline, the length of its slice in ns
    uint64_t deadline;
    uint64_t period;
  } attributes{};
  constexpr uint64_t kSlice = 100'000;  // the shortest
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof(attributes);
  attributes.runtime = kSlice;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void NameThisThread(const char* name) {
  pthread_setname_np(pthread_self(), name);
  crash::PrepareThread();
}

int NumCores(const std::string& root) {
  const size_t allowed = AllowedCores().size();
  int cores = static_cast<int>(allowed > 0 ? allowed : std::thread::hardware_concurrency());
  for (const ControlGroup& group : FindControlGroups("cpu", root)) {
    cores = std::min(cores, QuotaOf(group).value_or(cores));
  }
  return std::max(1, cores);
}

}  // namespace sru::server
