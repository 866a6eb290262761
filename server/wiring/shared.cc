#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/transport/file_limit.h"
#include "server/wiring/parts.h"

namespace sru::server::wiring {
namespace {

// `options` with as many connections as there is memory for.
Options WithinMemory(Options options) {
  int* const most = &options.connections.max_connections;
  const int within = transport::ConnectionsWithinMemory(*most, options.security.has_tls(),
                                                        ReadMemoryLimits().limit_bytes);
  if (*most > 0 && within != *most) {
    LogInfo(absl::StrCat("--max_connections: ", within, " of ", *most,
                         ", as many as an eighth of the memory holds"));
  }
  *most = within;
  options.connections.max_age_grace = options.drain_timeout;
  return options;
}

}  // namespace

Shared::Shared(const Options& given)
    : options(WithinMemory(given)),
      budgets(calls::ResolveMemoryBudgets(options.memory, ReadMemoryLimits())),
      tracer(options.tracing.enabled() ? std::make_unique<tracing::Tracer>(options.tracing, &clock)
                                       : nullptr),
      callers(options.security.caller_limits.value_or(callers::CallerLimits()), &clock) {}

calls::RequestLimits LimitsFrom(const Options& options) {
  const batching::BatcherOptions& batcher = options.batching.engine.batcher;
  calls::RequestLimits limits = options.rpc.limits;
  limits.max_sequences =
      static_cast<int>(std::min<int64_t>(limits.max_sequences, batcher.max_queue_sequences));
  limits.max_request_tokens = batcher.max_queue_tokens;
  limits.max_batch_tokens = batcher.max_batch_tokens;
  return limits;
}

}  // namespace sru::server::wiring
