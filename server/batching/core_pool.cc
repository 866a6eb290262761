#include "server/batching/core_pool.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>

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

CorePool::CorePool(const std::vector<int>& cores) {
  for (int core : cores) workers_[core] = 0;
}

int CorePool::Acquire() {
  MutexLock lock(&mutex_);
  const auto least =
      std::min_element(workers_.begin(), workers_.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least == workers_.end()) return -1;
  ++least->second;
  return least->first;
}

void CorePool::Release(int core) {
  MutexLock lock(&mutex_);
  const auto it = workers_.find(core);
  if (it != workers_.end()) --it->second;
}

CorePool& ProcessCorePool() {
  static CorePool& pool = *new CorePool(AllowedCores());
  return pool;
}

}  // namespace sru::server
