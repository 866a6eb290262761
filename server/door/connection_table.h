// ConnectionTable: the connections of a port, by address, and who makes way when there are too many: the oldest one without a call of the
// address that has the most. So a stranger's silent connections make way for each other, and not for others' ones.
//
// Thread-safe.
#ifndef SRU_SERVER_DOOR_CONNECTION_TABLE_H_
#define SRU_SERVER_DOOR_CONNECTION_TABLE_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/door/memory_count.h"
#include "server/transport/accepted_socket.h"

namespace sru::server::door {

class Connection;

using transport::AddressKey;

// A connection's place in a table.
class TablePlace {
 public:
  // It has no call, so it may make way. Thread-safe.
  void set_idle(bool idle) { idle_.store(idle, std::memory_order_relaxed); }

 private:
  friend class ConnectionTable;

  std::atomic<bool> idle_{true};
  // Guarded by the table's mutex.
  std::weak_ptr<Connection> connection_;
  AddressKey key_{};
  std::list<TablePlace*>::iterator place_;
  bool is_listed_ = false;
};

class ConnectionTable {
 public:
  // With a `limit` of 0 nobody has to make way.
  explicit ConnectionTable(size_t limit) : limit_(limit) {}
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  // Enters a connection, and takes out the one that makes way for it, if one has to: that is to be closed. Null and false: there is no room,
  // and the connection was not entered.
  std::pair<std::shared_ptr<Connection>, bool> Enter(TablePlace* place,
                                                     std::shared_ptr<Connection> connection,
                                                     const AddressKey& key);
  // Nothing happens for a place that is not in the table.
  void Leave(TablePlace* place);

  size_t size() const;

 private:
  using Address = std::list<TablePlace*>;  // the oldest first

  void List(TablePlace* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlist(TablePlace* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  TablePlace* FindIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t limit_;
  mutable Mutex mutex_;
  std::map<AddressKey, Address> addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, AddressKey>> by_count_ ABSL_GUARDED_BY(mutex_);
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
};

// The memory that each address takes, while it has a connection. Thread-safe.
class AddressMemory {
 public:
  AddressMemory(int64_t limit, MemoryCount* above) : limit_(limit), above_(above) {}

  std::shared_ptr<MemoryCount> Of(const AddressKey& key);

 private:
  const int64_t limit_;
  MemoryCount* const above_;
  Mutex mutex_;
  std::map<AddressKey, std::weak_ptr<MemoryCount>> counts_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_CONNECTION_TABLE_H_
