#include <initializer_list>
#include <utility>

#include "server/rpc/inference_methods.h"
#include "server/rpc/reflection.h"
#include "server/wiring/parts.h"

namespace sru::server::wiring {
namespace {

constexpr char kReflectionService[] = "grpc.reflection.v1.ServerReflection";

// The caller for whom the states after prompts are kept. All are one where no credentials are
// asked for.
std::string PrefixOwner(const Options& options, const CallOrigin& call) {
  if (options.batching.prefix_cache_mb == 0) return "";
  const transport::SecurityOptions& security = options.security;
  const bool known = security.has_tokens() || !security.tls_client_ca.empty();
  if (!known) return "everybody";
  const callers::CallerPtr& caller = call.caller();
  return caller != nullptr && caller->is_proven() ? caller->id() : "";
}

// The rows of services, and reflection on them.
std::unique_ptr<calls::MethodTable> MakeTable(
    std::initializer_list<std::vector<calls::Method>> services) {
  std::vector<calls::Method> rows;
  std::vector<std::string> names;
  for (const std::vector<calls::Method>& service : services) {
    names.push_back(service.front().service);
    rows.insert(rows.end(), service.begin(), service.end());
  }
  names.emplace_back(kReflectionService);
  for (calls::Method& row : rpc::ReflectionMethods(std::move(names))) {
    rows.push_back(std::move(row));
  }
  return std::make_unique<calls::MethodTable>(std::move(rows));
}

}  // namespace

void CallMethods::Make(Shared* shared, ServedModels* models) {
  const Options& options = shared->options;
  service_context_.registry = &models->registry();
  service_context_.manager = models->manager();
  service_context_.metrics = &shared->metrics;
  service_context_.in_flight = &shared->in_flight;
  service_context_.tracer = shared->tracer.get();
  service_context_.clock = &shared->clock;
  service_context_.budget = &shared->inflight_budget;
  service_context_.received_bytes = &shared->received_bytes;
  service_context_.streams = &shared->open_streams;
  service_context_.readers = &shared->readers;
  service_context_.writers = &shared->writers;
  service_context_.access_log = &shared->access_log;
  service_context_.limits = LimitsFrom(options);
  service_context_.prefix_owner = [&options](const CallOrigin& call) {
    return PrefixOwner(options, call);
  };
  open_inference_context_.service = &service_context_;
  open_inference_context_.ready = [models] { return models->ready(); };
  open_inference_context_.max_queue_delay = options.batching.engine.batcher.max_queue_delay;
  methods_ = MakeTable({rpc::InferenceMethods(service_context_),
                        open_inference::OpenInferenceMethods(open_inference_context_),
                        models->health().Methods()});
  admin_context_.service = &service_context_;
  admin_context_.control = options.models.control;
  admin_context_.manager = models->manager();
  admin_methods_ =
      MakeTable({rpc::AdminMethods(admin_context_),
                 open_inference::RepositoryMethods(admin_context_), admin_health_.Methods()});
}

}  // namespace sru::server::wiring
