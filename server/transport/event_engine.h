// PollingEngine: what moves bytes, runs callbacks and keeps time under a gRPC that lets a program
// bring its own (an "event engine", from 1.60 on).
//
// gRPC's own hands every callback and every readiness of a socket from thread to thread. Here a few
// threads wait at one epoll. The one that is woken for a connection reads it, runs what comes of
// it, and only then writes what was answered meanwhile, in one piece a connection, and waits for
// more of it. So
//   * calls that arrive together are answered together,
//   * a connection is not read further before the callbacks that came of what it has sent have run:
//     one that sends more than it is owed cannot pile up work in memory,
//   * it has the thread for a millisecond at a time, then others have their turn.
// Where other threads answer calls, a DeferredWork (server/base) has the same effect for them.
//
// Bytes that arrive are copied into slices of their exact size, which gRPC's resource quota counts,
// and the connection's account in a ReceiveLedger.
//
// Outgoing connections and names are left to one of gRPC's own engines, which is made when it is
// first asked for one. Listeners do not listen: they take connections that were accepted elsewhere
// (ConnectionHandover).
//
// Thread-safe. Callbacks run on the engine's threads, or at the end of a DeferredWork; they must
// not block. The engine may be destroyed on any thread; its work is done before its threads end.
#ifndef SRU_SERVER_TRANSPORT_EVENT_ENGINE_H_
#define SRU_SERVER_TRANSPORT_EVENT_ENGINE_H_

#include "server/compat/grpc_version.h"

#if SRU_GRPC_IS_CURRENT

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpc/event_engine/event_engine.h"
#include "grpc/event_engine/memory_allocator.h"
#include "server/transport/receive_ledger.h"

namespace sru::server::transport {

namespace internal {
class EngineCore;
}

class PollingEngine final : public grpc_event_engine::experimental::EventEngine {
 public:
  struct Options {
    int threads = 2;
  };

  explicit PollingEngine(const Options& options);
  PollingEngine(const PollingEngine&) = delete;
  PollingEngine& operator=(const PollingEngine&) = delete;
  ~PollingEngine() override;

  // An endpoint over the connected, non-blocking stream socket `fd`, which it closes. What arrives
  // is reserved from `allocator` and entered into `account` (null: nowhere).
  std::unique_ptr<Endpoint> MakeEndpoint(int fd,
                                         grpc_event_engine::experimental::MemoryAllocator allocator,
                                         std::shared_ptr<ReceiveLedger::Account> account = nullptr);

  // Hands `fd` to the listener that gRPC has made for `port`, a number that stands for a listener
  // and is never bound. False, and `fd` is closed, when there is none (any more).
  bool Accept(int port, int fd, std::shared_ptr<ReceiveLedger::Account> account = nullptr);

  // EventEngine:
  absl::StatusOr<std::unique_ptr<Listener>> CreateListener(
      Listener::AcceptCallback on_accept, absl::AnyInvocable<void(absl::Status)> on_shutdown,
      const grpc_event_engine::experimental::EndpointConfig& config,
      std::unique_ptr<grpc_event_engine::experimental::MemoryAllocatorFactory>
          memory_allocator_factory) override;
  ConnectionHandle Connect(OnConnectCallback on_connect, const ResolvedAddress& address,
                           const grpc_event_engine::experimental::EndpointConfig& config,
                           grpc_event_engine::experimental::MemoryAllocator allocator,
                           Duration timeout) override;
  bool CancelConnect(ConnectionHandle handle) override;
  bool IsWorkerThread() override;
  absl::StatusOr<std::unique_ptr<DNSResolver>> GetDNSResolver(
      const DNSResolver::ResolverOptions& options) override;
  void Run(Closure* closure) override;
  void Run(absl::AnyInvocable<void()> closure) override;
  TaskHandle RunAfter(Duration when, Closure* closure) override;
  TaskHandle RunAfter(Duration when, absl::AnyInvocable<void()> closure) override;
  bool Cancel(TaskHandle handle) override;

 private:
  const std::shared_ptr<internal::EngineCore> core_;
};

}  // namespace sru::server::transport

#endif  // SRU_GRPC_IS_CURRENT
#endif  // SRU_SERVER_TRANSPORT_EVENT_ENGINE_H_
