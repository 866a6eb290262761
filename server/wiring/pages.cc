#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "models/model.h"
#include "server/base/log.h"
#include "server/batching/engine.h"
#include "server/batching/steps/step_service.h"
#include "server/rest/error_response.h"
#include "server/rest/route.h"
#include "server/wiring/parts.h"

namespace sru::server::wiring {
namespace {

// How many calls the boxes of the status page may make at a time, and for how long.
constexpr int kPageCalls = 2;
constexpr absl::Duration kPageTimeout = absl::Seconds(30);

// The paths that the box for texts calls besides the routes of methods.
constexpr const char* kTextBoxPaths[] = {"/translate", "/languages"};

// With mutual TLS every caller needs a certificate, and the status page asks for none.
http::TryAccess TryAccessFrom(const Options& options) {
  return options.security.tls_client_ca.empty() ? options.http.status_page_try
                                                : http::TryAccess::kOff;
}

std::optional<batching::StepStats> StepsOf(const lifecycle::ServedModel& served,
                                           models::Task task) {
  batching::StepService* const steps = served.engine->steps();
  if (steps == nullptr || served.model->task() != task) return std::nullopt;
  return steps->stats();
}

// Adds the models that are served.
void AddModelLevels(const lifecycle::ModelRegistry& registry, telemetry::ServerLevels* levels) {
  for (const auto& served : registry.List()) {
    levels->models.push_back(
        {served->name, served->version, served->engine->queue_stats(), served->engine->instances(),
         served->metrics->refusals(), models::TaskName(served->model->task()),
         served->engine->state_stats(), StepsOf(*served, models::Task::kLanguageModel),
         served->engine->prefix_stats(), StepsOf(*served, models::Task::kTranslator)});
  }
}

// Adds the backend, if there is one yet, and its devices.
void AddBackendLevels(const ServedModels& models, const Options& options,
                      telemetry::ServerLevels* levels) {
  kernels::Backend* const backend = models.loader().backend();
  if (backend == nullptr) return;
  levels->backend = backend->name();
  levels->dtype = kernels::DataTypeName(options.batching.compile.dtype);
  levels->isa = backend->instruction_set();
  const std::set<int> lost = models.lost_devices();
  for (kernels::DeviceInfo& info : backend->devices()) {
    const int index = static_cast<int>(levels->devices.size());
    levels->devices.push_back({std::move(info), lost.count(index) > 0});
  }
  for (const auto& budget : models.loader().state_budgets()) {
    levels->state_budget_bytes.push_back(budget->bytes());
  }
}

// A version as the status page shows it, whether it is served or not.
http::ModelView ViewOf(const lifecycle::ModelRegistry& registry,
                       const telemetry::ModelStatus& status) {
  http::ModelView view;
  view.name = status.model;
  view.version = status.version;
  view.state = telemetry::ModelStateName(status.state);
  view.reason = status.message;
  const auto served = registry.Find(status.model, status.version);
  if (status.version == 0 || !served.ok()) return view;
  const auto latest = registry.Find(status.model, 0);
  view.latest = latest.ok() && (*latest)->version == status.version;
  const models::Model& model = *(*served)->model;
  view.description = model.config().description;
  view.backend = model.backend_name();
  view.backend_description = model.backend_description();
  view.dtype = kernels::DataTypeName(model.dtype());
  view.instances = (*served)->engine->instances();
  view.parameters = model.parameter_count();
  view.task = models::TaskName(model.task());
  view.labels = model.labels();
  view.takes_text = model.tokenizer() != nullptr;
  return view;
}

}  // namespace

Pages::Pages(Shared* shared, const ServedModels* models, const Doors* doors, HttpCalls* http_calls)
    : shared_(*shared),
      options_(shared->options),
      models_(*models),
      doors_(*doors),
      http_calls_(*http_calls),
      status_page_([this] { return Snapshot(); }, TryAccessFrom(options_),
                   options_.http.status_page_hosts) {}

absl::Status Pages::Start() {
  http::MetricsServer::Pages pages;
  pages.metrics = [this] { return shared_.metrics.Text(Levels()); };
  pages.probes = models_.probes();
  pages.call = [this](calls::HttpExchange* exchange, const http::PageRequest& request) {
    return StartPageCall(exchange, request);
  };
  pages.other = [this](const http::PageRequest& request) { return status_page_.Handle(request); };
  SRU_ASSIGN_OR_RETURN(metrics_server_,
                       http::MetricsServer::Start(options_.http.metrics_listen, std::move(pages)));
  history_.Start(
      [this] { return std::pair(shared_.clock.WallNow(), shared_.metrics.Collect(Levels())); });
  return absl::OkStatus();
}

void Pages::OpenBoxes() {
  page_gateway_ = std::make_unique<rest::Gateway>(MakePageGatewayOptions());
  serving_page_gateway_ = page_gateway_.get();
}

// A call of the status page's boxes; null if the path is none of theirs.
std::shared_ptr<http::HttpCall> Pages::StartPageCall(calls::HttpExchange* exchange,
                                                     const http::PageRequest& request) {
  if (!absl::c_linear_search(kTextBoxPaths, request.path) &&
      !absl::StartsWith(request.path, "/v1/")) {
    return nullptr;
  }
  if (rest::Gateway* const gateway = serving_page_gateway_) {
    return gateway->Start(exchange, request);
  }
  return std::make_shared<http::PageCall>(
      exchange, request, [](const std::shared_ptr<http::HttpCall>& call) {
        call->Reply(rest::ErrorResponse(
            rest::ErrorForm::kV1,
            absl::UnavailableError("the server is still loading its models; try again soon")));
      });
}

rest::Gateway::Options Pages::MakePageGatewayOptions() {
  rest::Gateway::Options gateway = http_calls_.MakeGatewayOptions();
  for (size_t i = 0; i < calls::kNumMethods; ++i) {
    const calls::MethodInfo info = calls::Describe(static_cast<calls::MethodId>(i));
    if (info.has_box) gateway.only.push_back(calls::HttpPathOf(info));
  }
  gateway.only.insert(gateway.only.end(), std::begin(kTextBoxPaths), std::end(kTextBoxPaths));
  gateway.max_body_bytes = http::HttpServer::Limits().max_body_bytes;
  gateway.reads_all_aside = true;  // the loop of that port answers probes
  gateway.max_calls = kPageCalls;
  gateway.max_timeout = kPageTimeout;
  gateway.authenticate =
      [this](const http::PageRequest& request) -> absl::StatusOr<callers::CallerPtr> {
    absl::Status access = status_page_.CheckAccess(request);
    // A page of another site can send a body without a type, or a form, but none of this type.
    // The routes of /v1 refuse forms themselves.
    const std::string type = rest::MediaType(request.header("content-type"));
    const bool takes_forms = !absl::StartsWith(request.path, "/v1/");
    if (access.ok() && (type.empty() || (takes_forms && type == rest::kFormContentType))) {
      access = absl::PermissionDeniedError("Content-Type: expected application/json");
    }
    if (!access.ok()) return access;
    return http_calls_.FindCaller(request);
  };
  return gateway;
}

telemetry::ServerLevels Pages::Levels() const {
  telemetry::ServerLevels levels;
  for (callers::Callers::Level& caller : shared_.callers.Levels()) {
    levels.callers.push_back(
        {std::move(caller.name), caller.calls, caller.tokens, caller.refused, caller.in_flight});
  }
  levels.grpc_version = grpc::Version();
  levels.ready = models_.ready();
  levels.requests_in_flight = shared_.in_flight.count();
  if (shared_.tracer != nullptr) levels.spans = shared_.tracer->counts();
  levels.suppressed_log_lines = shared_.access_log.suppressed_lines();
  levels.dropped_log_lines = LogLinesDropped();
  levels.receive_memory_bytes = doors_.receive_memory().used();
  levels.receive_memory_limit_bytes = shared_.budgets.receive_bytes;
  levels.received_message_bytes = shared_.received_bytes;
  levels.inflight_bytes = shared_.inflight_budget.used();
  levels.inflight_limit_bytes = shared_.inflight_budget.limit();
  levels.rejected = shared_.metrics.refusals_without_model();
  levels.open_streams = shared_.open_streams.count();
  if (doors_.are_open()) {
    levels.connections = 0;
    for (const door::GrpcPort* const port : doors_.Ports()) {
      const door::GrpcPort::Counts counts = port->counts();
      if (!counts.connections.has_value()) levels.connections.reset();
      if (levels.connections.has_value()) *levels.connections += *counts.connections;
      levels.unsent_answers += counts.unsent_answers;
      levels.answers_not_taken += counts.answers_not_taken;
    }
  }
  if (const http::HttpServer* const http = http_calls_.server()) {
    const http::HttpServer::Stats stats = http->stats();
    levels.http = {stats.connections, stats.body_bytes, stats.answers};
    levels.answers_not_taken += stats.not_taken;
  }
  AddModelLevels(models_.registry(), &levels);
  if (const lifecycle::ModelManager* manager = models_.manager()) {
    levels.statuses = manager->Statuses();
    levels.load_counts = manager->LoadCounts();
    levels.repository_emptied = manager->repository_emptied();
  }
  AddBackendLevels(models_, options_, &levels);
  return levels;
}

http::StatusSnapshot Pages::Snapshot() const {
  http::StatusSnapshot snapshot;
  snapshot.time = shared_.clock.WallNow();
  snapshot.state = models_.ready() ? "ready" : models_.draining() ? "draining" : "loading";
  const batching::BatcherOptions& batcher = options_.batching.engine.batcher;
  snapshot.flags = options_.changed;
  snapshot.limits.max_batch_tokens = batcher.max_batch_tokens;
  snapshot.limits.max_queue_tokens = batcher.max_queue_tokens;
  snapshot.limits.max_queue_sequences = batcher.max_queue_sequences;
  snapshot.limits.max_sequence_tokens = options_.rpc.limits.max_sequence_tokens;
  const lifecycle::ModelManager* const manager = models_.manager();
  if (manager != nullptr) {
    for (const telemetry::ModelStatus& status : manager->Statuses()) {
      snapshot.models.push_back(ViewOf(models_.registry(), status));
    }
  }
  snapshot.metrics = shared_.metrics.Collect(Levels());
  snapshot.history = &history_;
  snapshot.slow = shared_.access_log.slow();
  snapshot.slow_calls = shared_.access_log.slow_calls();
  snapshot.errors = shared_.access_log.errors();
  return snapshot;
}

}  // namespace sru::server::wiring
