// The server's options on single requests.
#ifndef SRU_SERVER_CALLS_BOUNDS_RPC_OPTIONS_H_
#define SRU_SERVER_CALLS_BOUNDS_RPC_OPTIONS_H_

#include "base/flags.h"
#include "server/calls/bounds/request_limits.h"

namespace sru::server::calls {

struct RpcOptions {
  // Its max_request_tokens and max_batch_tokens are not read: those of the batcher are taken.
  RequestLimits limits;
  int max_message_bytes = 4 << 20;
  int max_streams = 1024;
};

void AddFlags(RpcOptions* options, Flags* flags);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_RPC_OPTIONS_H_
