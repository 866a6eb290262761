// NativeDoor: a port that speaks gRPC over HTTP/2 without gRPC's library: nghttp2, OpenSSL and
// event loops. It starts the calls of a method table and gives each an Exchange of its own
// (stream.h).
//
//   LoopSet loops(threads, side_threads, metrics.Watch());
//   MemoryCount memory(bytes);
//   auto door = NativeDoor::Open("listen", address, options, &loops, &memory);
//   (*door)->Start();
//   ...
//   (*door)->BeginDrain();   // no new connections; open ones are asked to go elsewhere
//   (*door)->Shutdown(grace);
//
// All functions are thread-safe; the caller keeps this order.
#ifndef SRU_SERVER_DOOR_NATIVE_DOOR_H_
#define SRU_SERVER_DOOR_NATIVE_DOOR_H_

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/listen_address.h"
#include "server/door/connection.h"
#include "server/door/door_context.h"
#include "server/door/grpc_port.h"
#include "server/door/memory_count.h"
#include "server/transport/acceptor.h"
#include "server/transport/loop.h"

namespace sru::server::door {

using transport::LoopSet;

class NativeDoor final : public GrpcPort {
 public:
  // Binds and listens. kUnavailable names `flag`, the address and why it cannot be listened on.
  // `loops` and `memory` must outlive the door.
  static absl::StatusOr<std::unique_ptr<NativeDoor>> Open(absl::string_view flag,
                                                          ListenAddress address,
                                                          DoorOptions options, LoopSet* loops,
                                                          MemoryCount* memory);
  ~NativeDoor() override;
  NativeDoor(const NativeDoor&) = delete;
  NativeDoor& operator=(const NativeDoor&) = delete;

  void Start();

  // GrpcPort:
  const ListenAddress& address() const override { return address_; }
  Counts counts() const override { return {num_connections(), num_unsent(), num_not_taken()}; }
  void Recheck() override;
  void BeginDrain() override;
  void RefuseRest() override;
  bool WaitUntilSent(absl::Duration timeout) const override;
  void Shutdown(absl::Duration grace) override;

  // But for those of HTTP/1.1.
  int64_t num_connections() const { return OpenOnShelves() - context_.sessions.load(); }
  int64_t num_unsent() const { return context_.unsent.load(std::memory_order_relaxed); }
  int64_t num_not_taken() const { return context_.not_taken.load(std::memory_order_relaxed); }

 private:
  // The connections on one loop.
  class Shelf final : public Connection::Owner {
   public:
    Shelf(DoorContext* context, Loop* loop) : context_(*context), loop_(*loop) {}

    Loop& loop() { return loop_; }
    // Thread-safe, like the count.
    void Add(AcceptedSocket socket);
    int64_t size() const { return size_.load(); }
    // On the loop's thread.
    void BeginDrain();
    void RefuseRest();
    void Recheck();
    void StopHttp1();
    void CloseAll();

   private:
    void Count(int change) {
      size_.fetch_add(change);
      loop_.CountConnection(change);
    }
    void Begin(AcceptedSocket socket);
    void OnClosed(Connection* connection) override;
    std::vector<std::shared_ptr<Connection>> All() const;

    DoorContext& context_;
    Loop& loop_;
    std::atomic<int64_t> size_{0};
    bool closed_ = false;  // nothing begins any more
    std::unordered_map<Connection*, std::shared_ptr<Connection>> connections_;
  };

  NativeDoor(ListenAddress address, DoorOptions options, LoopSet* loops, MemoryCount* memory);

  void OnConnection(int fd, const sockaddr_storage& address);
  int64_t OpenOnShelves() const;
  // On all loops, and waits for it.
  void OnEachLoop(void (Shelf::*run)());

  ListenAddress address_;
  DoorContext context_;
  LoopSet& loops_;
  std::vector<std::unique_ptr<Shelf>> shelves_;
  std::unique_ptr<transport::Acceptor> acceptor_;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_NATIVE_DOOR_H_
