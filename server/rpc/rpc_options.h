// The server's options on single requests.
#ifndef SRU_SERVER_RPC_RPC_OPTIONS_H_
#define SRU_SERVER_RPC_RPC_OPTIONS_H_

#include "server/base/flag_table.h"
#include "server/rpc/request_limits.h"

namespace sru::server::rpc {

struct RpcOptions {
  // Its max_request_tokens and max_batch_tokens are not read: those of the batcher are taken.
  RequestLimits limits;
  int max_message_bytes = 4 << 20;
  int max_streams = 1024;
};

void AddFlags(RpcOptions* options, FlagTable* flags);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_RPC_OPTIONS_H_
