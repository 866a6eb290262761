#include "server/transport/connection_table.h"

#include <algorithm>

namespace sru::server::transport {
namespace {

// So many connections are looked at for one that may make way.
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

std::shared_ptr<TableMember> ConnectionTable::TakeOldest(bool* found) {
  TablePlace* chosen = nullptr;
  int looked_at = 0;
  for (auto it = by_count_.rbegin(); it != by_count_.rend() && looked_at < kMaxCandidates; ++it) {
    for (TablePlace* const place : addresses_[it->second]) {
      const bool idle = place->idle_.load(std::memory_order_relaxed);
      if (idle || (chosen == nullptr && !keeps_calls_)) chosen = place;
      looked_at = idle ? kMaxCandidates : looked_at + 1;
      if (looked_at >= kMaxCandidates) break;
    }
  }
  *found = chosen != nullptr;
  if (chosen == nullptr) return nullptr;
  Unlist(chosen);
  return chosen->member_.lock();
}

ConnectionTable::Entry ConnectionTable::Enter(TablePlace* place,
                                              const std::shared_ptr<TableMember>& member,
                                              const AddressKey& key) {
  bool found = false;
  std::shared_ptr<TableMember> makes_way;
  {
    MutexLock lock(&mutex_);
    if (limit_ > 0 && size_ >= limit_) {
      makes_way = TakeOldest(&found);
      if (!found) return Entry::kFull;
    }
    place->member_ = member;
    place->key_ = key;
    List(place);
  }
  if (makes_way != nullptr) makes_way->MakeWay();
  return found ? Entry::kMadeWay : Entry::kEntered;
}

bool ConnectionTable::MakeRoom() {
  bool found = false;
  std::shared_ptr<TableMember> makes_way;
  {
    MutexLock lock(&mutex_);
    makes_way = TakeOldest(&found);
  }
  if (makes_way != nullptr) makes_way->MakeWay();
  return found;
}

void ConnectionTable::Leave(TablePlace* place) {
  MutexLock lock(&mutex_);
  if (place->is_listed_) Unlist(place);
}

size_t ConnectionTable::size() const {
  MutexLock lock(&mutex_);
  return size_;
}

}  // namespace sru::server::transport
