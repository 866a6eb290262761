#include "server/calls/bounds/memory_options.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sru::server::calls {
namespace {

constexpr int64_t kMegabyte = 1000000;
constexpr int64_t kMostMegabytes = 1 << 30;
// With less than this, gRPC has no room for the buffers of a few connections.
constexpr int64_t kLeastReceiveMegabytes = 16;
// Less than the largest call takes with the default options.
constexpr int64_t kLeastInflightMegabytes = 1;
// Used where the system does not say how much memory there is.
constexpr int64_t kAssumedLimit = int64_t{4} << 30;

}  // namespace

void AddFlags(MemoryOptions* options, Flags* flags) {
  flags->Add("allow_compression", &options->allow_compression,
             "Accept compressed messages; otherwise they get UNIMPLEMENTED. With "
             "--grpc_transport=library their size is checked only after unpacking: for "
             "trusted callers.");
  flags->Add("max_inflight_mb", &options->max_inflight_mb,
             {kLeastInflightMegabytes, kMostMegabytes, /*or_zero=*/true},
             "Memory that calls may hold until their answers have left, in units of 10^6 "
             "bytes; no caller gets all of it. Beyond it calls get RESOURCE_EXHAUSTED at "
             "once. 0 = a quarter of the memory that the process may use.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("max_receive_memory_mb", &options->max_receive_mb,
             {kLeastReceiveMegabytes, kMostMegabytes, /*or_zero=*/true},
             "Memory for messages that are still arriving, in units of 10^6 bytes; "
             "beyond it calls get RESOURCE_EXHAUSTED. 0 = a quarter of the memory that "
             "the process may use (its control group's limit, or the machine's).");
  flags->AddTime("send_timeout_s", &options->send_timeout, absl::Seconds(1),
                 {absl::Milliseconds(10), absl::Hours(24 * 7), /*or_never=*/true},
                 "Seconds after which a client that does not take its answer loses its "
                 "connection. 0 = never.");
}

void AddFlags(RpcOptions* options, Flags* flags) {
  flags->Add("max_sequence_tokens", &options->limits.max_sequence_tokens, {1, 1 << 22},
             "Most tokens in one sequence, at most --max_batch_tokens. A longer one is "
             "refused, or cut if the call asks for it.");
  flags->Add("max_message_bytes", &options->max_message_bytes, {1024, 1 << 30},
             "Largest request message in bytes; a larger one gets RESOURCE_EXHAUSTED.");
  flags->Add("max_new_tokens", &options->limits.max_new_tokens, {1, 1 << 22},
             "Most tokens that a call may ask for: per sample of Generate, per "
             "translation of Translate.");
  flags->Add("max_streams", &options->max_streams, {1, 1 << 20},
             "Most open calls of Generate, EncodeStream and ModelStreamInfer; further "
             "ones get RESOURCE_EXHAUSTED. From 8 on, one caller may have a quarter.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("max_sequences_per_request", &options->limits.max_sequences, {1, 1 << 20},
             "Most sequences in one call; for Answer, most passages.");
}

MemoryBudgets ResolveMemoryBudgets(const MemoryOptions& options, const MemoryLimits& limits) {
  const int64_t quarter = (limits.limit_bytes > 0 ? limits.limit_bytes : kAssumedLimit) / 4;
  MemoryBudgets budgets;
  budgets.receive_bytes = options.max_receive_mb > 0
                              ? options.max_receive_mb * kMegabyte
                              : std::max(quarter, kLeastReceiveMegabytes * kMegabyte);
  budgets.inflight_bytes = options.max_inflight_mb > 0 ? options.max_inflight_mb * kMegabyte
                                                       : std::max(quarter, kMegabyte);
  return budgets;
}

std::string BudgetsWarning(const MemoryBudgets& budgets, const MemoryLimits& limits) {
  const int64_t both = budgets.receive_bytes + budgets.inflight_bytes;
  if (limits.limit_bytes == 0 || both <= limits.limit_bytes) return "";
  return absl::StrCat("--max_receive_memory_mb and --max_inflight_mb: ", both / kMegabyte,
                      " MB together, but this process may take ", limits.limit_bytes / kMegabyte,
                      " MB; it may be killed before they are reached");
}

}  // namespace sru::server::calls
