#include "server/batching/core_pool.h"

#include <algorithm>

#include "server/base/cores.h"

namespace sru::server::batching {

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

}  // namespace sru::server::batching
