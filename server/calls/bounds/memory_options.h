// The server's options on the memory that callers can make it take. There are two budgets for the
// whole process, which apply one after the other in the life of a call:
//
//   --max_receive_memory_mb  what gRPC holds of messages that have not arrived whole, and of what
//                            it has read and not handed on; over it gRPC resets streams
//   --max_inflight_mb        what calls hold from then on until their answers have left
//                            (byte_budget.h); over it calls are refused with RESOURCE_EXHAUSTED
#ifndef SRU_SERVER_CALLS_BOUNDS_MEMORY_OPTIONS_H_
#define SRU_SERVER_CALLS_BOUNDS_MEMORY_OPTIONS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/flags.h"
#include "server/base/memory_limit.h"
#include "server/calls/bounds/request_limits.h"

namespace sru::server::calls {

struct MemoryOptions {
  // Accept messages that a client has compressed. gRPC checks their length only when they are
  // unpacked, so a message of n bytes may take a thousand times n.
  bool allow_compression = false;
  int64_t max_receive_mb = 0;   // units of 10^6 bytes; 0 = a quarter of the process' memory
  int64_t max_inflight_mb = 0;  // likewise
  // A client that does not take an answer for this long loses its connection, and so does one that
  // takes an answer of several parts too slowly (transport::TakenRate). Infinite = never.
  absl::Duration send_timeout = absl::Seconds(30);
};

void AddFlags(MemoryOptions* options, Flags* flags);

// The options on single requests.
struct RpcOptions {
  // Its max_request_tokens and max_batch_tokens are not read: those of the batcher are taken.
  RequestLimits limits;
  int max_message_bytes = 4 << 20;
  int max_streams = 1024;
};

void AddFlags(RpcOptions* options, Flags* flags);

// The two budgets in bytes.
struct MemoryBudgets {
  int64_t receive_bytes = 0;
  int64_t inflight_bytes = 0;
};

// Values that the options leave to the server come from `limits`, of which nothing may be known.
MemoryBudgets ResolveMemoryBudgets(const MemoryOptions& options, const MemoryLimits& limits);

// Returns a warning for the log if the budgets together exceed the memory; else an empty text.
std::string BudgetsWarning(const MemoryBudgets& budgets, const MemoryLimits& limits);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_BOUNDS_MEMORY_OPTIONS_H_
