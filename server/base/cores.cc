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
#include "server/base/control_groups.h"
#include "server/base/crash_report.h"

namespace sru::server {
namespace {

constexpr int kMaxCores = 1 << 16;

// A cpu_set_t for `cores` cores: the fixed one ends at 1,024.
class CoreSet {
 public:
  explicit CoreSet(int cores)
      : cores_(cores), bytes_(CPU_ALLOC_SIZE(cores)), set_(CPU_ALLOC(cores)) {
    CPU_ZERO_S(bytes_, set_);
  }
  ~CoreSet() { CPU_FREE(set_); }
  CoreSet(const CoreSet&) = delete;
  CoreSet& operator=(const CoreSet&) = delete;

  void Add(int core) { CPU_SET_S(core, bytes_, set_); }
  std::vector<int> List() const {
    std::vector<int> cores;
    for (int core = 0; core < cores_; ++core) {
      if (CPU_ISSET_S(core, bytes_, set_)) cores.push_back(core);
    }
    return cores;
  }
  // Of the calling thread; 0 or -1, as the system calls.
  int Read() { return sched_getaffinity(0, bytes_, set_); }
  int Apply() const { return sched_setaffinity(0, bytes_, set_); }

 private:
  const int cores_;
  const size_t bytes_;
  cpu_set_t* const set_;
};

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
  // The system refuses a set that is smaller than its own.
  for (int cores = CPU_SETSIZE; cores <= kMaxCores; cores *= 2) {
    CoreSet set(cores);
    if (set.Read() == 0) return set.List();
    if (errno != EINVAL) break;
  }
  return {};
}

absl::Status PinThisThread(int core) {
  if (core < 0 || core >= kMaxCores) {
    return absl::InvalidArgumentError(
        absl::StrCat("core: expected 0 to ", kMaxCores - 1, ", found ", core));
  }
  CoreSet set(std::max<int>(CPU_SETSIZE, core + 1));
  set.Add(core);
  if (set.Apply() == 0) return absl::OkStatus();
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
