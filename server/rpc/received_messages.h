// Counts the messages that have arrived whole: in all, for a metric, and by connection, for the
// connection guard, which closes those that send parts of messages only. Thread-safe.
#ifndef SRU_SERVER_RPC_RECEIVED_MESSAGES_H_
#define SRU_SERVER_RPC_RECEIVED_MESSAGES_H_

#include <atomic>
#include <cstdint>

#include "grpcpp/server_context.h"
#include "server/transport/listener.h"

namespace sru::server::rpc {

class ReceivedMessages {
 public:
  // Notes a message of `bytes` that `call` has received, with the headers of the call, at
  // `listener` (null: the connection is not known). Small messages are counted at one call in 16,
  // sixteenfold: to find a connection takes as long as a tenth of a small call.
  void Note(transport::Listener* listener, const grpc::CallbackServerContext& call, int64_t bytes);

  // Of messages, without headers.
  int64_t total_bytes() const { return total_bytes_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> total_bytes_{0};
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_RECEIVED_MESSAGES_H_
