#include "server/door/memory_count.h"

#include <algorithm>
#include <iterator>

namespace sru::server::door {

std::shared_ptr<MemoryCount> AddressMemory::Of(const transport::AddressKey& key) {
  MutexLock lock(&mutex_);
  std::weak_ptr<MemoryCount>& known = counts_[key];
  std::shared_ptr<MemoryCount> count = known.lock();
  if (count == nullptr) {
    count = std::make_shared<MemoryCount>(limit_, above_);
    known = count;
  }
  if (counts_.size() > sweep_at_) {
    for (auto it = counts_.begin(); it != counts_.end();) {
      it = it->second.expired() ? counts_.erase(it) : std::next(it);
    }
    sweep_at_ = std::max<size_t>(64, 2 * counts_.size());
  }
  return count;
}

}  // namespace sru::server::door
