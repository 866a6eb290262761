// ConnectionTable: the connections of a port, by address, and who makes way when there are too
// many: the oldest one of the address that has the most, and rather one on whose calls nobody
// works. So a stranger's silent connections make way for each other, and not for others' ones.
//
// Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_CONNECTION_TABLE_H_
#define SRU_SERVER_TRANSPORT_CONNECTION_TABLE_H_

#include <atomic>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "server/transport/accepted_socket.h"

namespace sru::server::transport {

// Why a connection is refused, or makes way for another one; for the log.
inline constexpr absl::string_view kTooManyOpen =
    "as many are open as --max_connections, the limit of open files or the memory allows";
inline constexpr absl::string_view kTooManyHandshakes =
    "as many TLS handshakes are under way as may be";
inline constexpr absl::string_view kTooManyWaiting = "as many of one address wait to begin as may";

// A connection as the table knows it.
class TableMember {
 public:
  // Closes it, soon, for another one. Thread-safe.
  virtual void MakeWay() = 0;

 protected:
  ~TableMember() = default;
};

// A connection's place in a table.
class TablePlace {
 public:
  // Says that no call of the connection is being worked on, so that it may make way. Thread-safe.
  void set_idle(bool idle) { idle_.store(idle, std::memory_order_relaxed); }

 private:
  friend class ConnectionTable;

  std::atomic<bool> idle_{true};
  // Guarded by the table's mutex.
  std::weak_ptr<TableMember> member_;
  AddressKey key_{};
  std::list<TablePlace*>::iterator place_;
  bool is_listed_ = false;
};

class ConnectionTable {
 public:
  // With a `limit` of 0 nobody has to make way. With `keeps_calls`, a connection on whose calls
  // somebody works never does; otherwise only if that is true of all.
  ConnectionTable(size_t limit, bool keeps_calls) : limit_(limit), keeps_calls_(keeps_calls) {}
  ConnectionTable(const ConnectionTable&) = delete;
  ConnectionTable& operator=(const ConnectionTable&) = delete;

  enum class Entry {
    kEntered,
    kMadeWay,  // entered, and another one makes way for it
    kFull,     // not entered: the table is full of connections on whose calls somebody works
  };
  Entry Enter(TablePlace* place, const std::shared_ptr<TableMember>& member, const AddressKey& key);
  // One connection makes way, as if the table were full. False if none may.
  bool MakeRoom();
  // Nothing happens for a place that is not in the table.
  void Leave(TablePlace* place);

  size_t size() const;

 private:
  using Address = std::list<TablePlace*>;  // the oldest first

  void List(TablePlace* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unlist(TablePlace* place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes out the one that makes way. Null if it is about to go anyway, or if none may; `found`
  // tells which.
  std::shared_ptr<TableMember> TakeOldest(bool* found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t limit_;
  const bool keeps_calls_;
  mutable Mutex mutex_;
  std::map<AddressKey, Address> addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, AddressKey>> by_count_ ABSL_GUARDED_BY(mutex_);
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_CONNECTION_TABLE_H_
