#include "server/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "absl/strings/str_cat.h"

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

int NumCores() {
  const size_t allowed = AllowedCores().size();
  return std::max(1, static_cast<int>(allowed > 0 ? allowed : std::thread::hardware_concurrency()));
}

}  // namespace sru::server
