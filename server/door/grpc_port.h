// GrpcPort: a port that takes gRPC calls, whatever serves it: NativeDoor, or GrpcDoor with gRPC's
// library.
//
// All functions are thread-safe; the caller keeps their order.
#ifndef SRU_SERVER_DOOR_GRPC_PORT_H_
#define SRU_SERVER_DOOR_GRPC_PORT_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "server/base/listen_address.h"

namespace sru::server::door {

class GrpcPort {
 public:
  struct Counts {
    std::optional<int64_t> connections;  // that are open; gRPC's library does not tell
    int64_t unsent_answers = 0;
    int64_t answers_not_taken = 0;  // since the start
  };

  virtual ~GrpcPort() = default;
  // With the port that is really listened on.
  virtual const ListenAddress& address() const = 0;
  virtual Counts counts() const = 0;

  // Other tokens or certificates are in use: soon ends the connections, and the streams of
  // messages, of callers that are no longer accepted. gRPC's library does not.
  virtual void Recheck() {}
  // Takes the connections that wait, closes the listening sockets and asks all connections to go
  // elsewhere (GOAWAY). Returns when no new call can come, or after a second. Calls that have come
  // are answered. gRPC's library does so in Shutdown() only.
  virtual void BeginDrain() {}
  // After BeginDrain(): answers the calls whose messages have not come whole; their clients can ask
  // another server. gRPC's library cancels them in Shutdown().
  virtual void RefuseRest() {}
  // Waits until no answer waits to be sent; false after `timeout`.
  virtual bool WaitUntilSent(absl::Duration timeout) const = 0;
  // Waits up to `grace` for calls to end, then cancels them, and waits until all have ended.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_GRPC_PORT_H_
