#include "server/door/connection_table.h"

#include <algorithm>

namespace sru::server::door {
namespace {

// How many connections are looked at for one that may make way.
constexpr int kMaxCandidates = 1000;

}  // namespace

void ConnectionTable::List(TablePlace* place) {
  Address& address = addresses_[place->key_];
  by_count_.erase({address.size(), place->key_});
  place->place_ = address.insert(address.end(), place);
  by_count_.insert({address.size(), place->key_});
  place->is_listed_ = true;
  ++size_;
}

void ConnectionTable::Unlist(TablePlace* place) {
  const auto found = addresses_.find(place->key_);
  by_count_.erase({found->second.size(), place->key_});
  found->second.erase(place->place_);
  if (found->second.empty()) {
    addresses_.erase(found);
  } else {
    by_count_.insert({found->second.size(), place->key_});
  }
  place->is_listed_ = false;
  --size_;
}

TablePlace* ConnectionTable::FindIdle() {
  int looked_at = 0;
  for (auto it = by_count_.rbegin(); it != by_count_.rend(); ++it) {
    for (TablePlace* const place : addresses_[it->second]) {
      if (++looked_at > kMaxCandidates) return nullptr;
      if (place->idle_.load(std::memory_order_relaxed)) return place;
    }
  }
  return nullptr;
}

std::pair<std::shared_ptr<Connection>, bool> ConnectionTable::Enter(
    TablePlace* place, std::shared_ptr<Connection> connection, const AddressKey& key) {
  MutexLock lock(&mutex_);
  std::shared_ptr<Connection> makes_way;
  if (limit_ > 0 && size_ >= limit_) {
    TablePlace* const idle = FindIdle();
    if (idle == nullptr) return {};
    Unlist(idle);
    makes_way = idle->connection_.lock();
  }
  place->connection_ = connection;
  place->key_ = key;
  List(place);
  return {std::move(makes_way), true};
}

void ConnectionTable::Leave(TablePlace* place) {
  MutexLock lock(&mutex_);
  if (place->is_listed_) Unlist(place);
}

size_t ConnectionTable::size() const {
  MutexLock lock(&mutex_);
  return size_;
}

std::shared_ptr<MemoryCount> AddressMemory::Of(const AddressKey& key) {
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
