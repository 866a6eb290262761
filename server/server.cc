#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/health_check_service_interface.h"
#include "models/kernel_status.h"
#include "models/repository.h"
#include "server/clock.h"
#include "server/engine.h"
#include "server/in_flight.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/metrics_server.h"
#include "server/model_registry.h"
#include "server/service.h"

namespace sru::server {
namespace {

// How long new calls are answered with UNAVAILABLE before the listeners close: a call that arrives
// while gRPC shuts down gets CANCELLED, which no client takes for "ask another replica".
constexpr absl::Duration kRefusalGrace = absl::Milliseconds(100);

// How long streams that never end by themselves (health Watch, reflection) may live after the last
// call was answered.
constexpr absl::Duration kStreamGrace = absl::Milliseconds(200);

EngineOptions EngineOptionsFrom(const Options& options) {
  EngineOptions engine;
  engine.instances = options.instances;
  engine.batcher.max_batch_tokens = options.max_batch_tokens;
  engine.batcher.max_batch_sequences = options.max_batch_sequences;
  engine.batcher.max_queue_delay = options.max_queue_delay;
  engine.batcher.max_queue_tokens = options.max_queue_tokens;
  engine.batcher.max_queue_sequences = options.max_queue_sequences;
  engine.batcher.admission_by_deadline = options.admission_by_deadline;
  return engine;
}

RequestLimits LimitsFrom(const Options& options) {
  RequestLimits limits;
  limits.max_sequences = static_cast<int>(
      std::min<int64_t>(options.max_sequences_per_request, options.max_queue_sequences));
  limits.max_sequence_tokens = options.max_sequence_tokens;
  limits.max_request_tokens = options.max_queue_tokens;
  return limits;
}

class ServerImpl final : public Server {
 public:
  explicit ServerImpl(const Options& options) : options_(options) {}

  ~ServerImpl() override {
    if (!drained_) Drain();
    // The metrics pages read the registry, so their server goes first.
    metrics_server_.reset();
    registry_.Replace({});
  }

  absl::Status Start() {
    if (absl::Status status = ValidateOptions(options_); !status.ok()) return status;
    if (absl::Status status = StartMetricsServer(); !status.ok()) return status;
    if (absl::Status status = LoadModels(); !status.ok()) return status;
    if (absl::Status status = StartGrpc(); !status.ok()) return status;
    ready_ = true;
    return absl::OkStatus();
  }

  ListenAddress address() const override { return address_; }
  ListenAddress metrics_address() const override { return metrics_server_->address(); }

  bool Drain() override {
    drained_ = true;
    ready_ = false;
    if (grpc_server_ == nullptr) return true;
    const absl::Time start = clock_.Now();
    const absl::Time deadline = start + options_.drain_timeout;
    grpc_server_->GetHealthCheckService()->Shutdown();  // NOT_SERVING, for good
    absl::SleepFor(options_.drain_delay);

    bool complete = true;
    const std::vector<std::shared_ptr<ServedModel>> models = registry_.List();
    for (const auto& served : models) served->engine->batcher().Close();
    const absl::Time closed = clock_.Now();
    for (const auto& served : models) complete &= served->engine->Drain(deadline);
    complete &= in_flight_.WaitUntilNone(std::max(deadline, clock_.Now() + kStreamGrace));
    absl::SleepFor(closed + kRefusalGrace - clock_.Now());
    grpc_server_->Shutdown(absl::ToChronoTime(clock_.Now() + kStreamGrace));
    grpc_server_->Wait();
    return complete;
  }

 private:
  absl::Status StartMetricsServer() {
    MetricsServer::Pages pages;
    pages.metrics = [this] { return metrics_.Text(Levels()); };
    pages.ready = [this] { return ready_.load(); };
    absl::StatusOr<std::unique_ptr<MetricsServer>> server =
        MetricsServer::Start(options_.metrics_listen, std::move(pages));
    if (!server.ok()) return server.status();
    metrics_server_ = *std::move(server);
    return absl::OkStatus();
  }

  absl::Status LoadModels() {
    const std::string name =
        options_.backend == "auto" ? kernels::AvailableBackends().front() : options_.backend;
    kernels::BackendOptions backend_options;
    backend_options.cpu_isa = options_.cpu_isa;
    backend_options.cpu_threads = options_.cpu_threads;
    const kernels::Status created = kernels::CreateBackend(name, backend_options, &backend_);
    if (!created.ok()) {
      return absl::Status(models::ToAbslStatus(created).code(),
                          absl::StrCat("--backend: ", created.message()));
    }
    kernels::CompileOptions compile_options;
    compile_options.dtype = options_.dtype;
    absl::StatusOr<std::vector<std::shared_ptr<const models::Model>>> loaded =
        models::LoadRepository(options_.model_repository, models::VersionPolicy::kAll, *backend_,
                               compile_options);
    if (!loaded.ok()) return loaded.status();

    std::vector<std::shared_ptr<ServedModel>> served_models;
    for (const std::shared_ptr<const models::Model>& model : *loaded) {
      auto served = std::make_shared<ServedModel>();
      served->model = model;
      served->metrics =
          metrics_.ForModel(model->name(), model->version(), options_.max_batch_tokens);
      absl::StatusOr<std::unique_ptr<Engine>> engine =
          Engine::Create(model, EngineOptionsFrom(options_), &clock_, served->metrics.get());
      if (!engine.ok()) {
        return absl::Status(engine.status().code(),
                            absl::StrCat("model ", model->name(), " version ", model->version(),
                                         ": ", engine.status().message()));
      }
      served->engine = *std::move(engine);
      LogInfo(absl::StrCat("loaded model ", model->name(), " version ", model->version(), ": ",
                           model->parameter_count(), " parameters, backend ", model->backend_name(),
                           " (", model->backend_description(), "), ",
                           kernels::DataTypeName(model->dtype()), ", ", served->engine->instances(),
                           " instances"));
      served_models.push_back(std::move(served));
    }
    registry_.Replace(std::move(served_models));
    return absl::OkStatus();
  }

  absl::Status StartGrpc() {
    ServiceContext context;
    context.registry = &registry_;
    context.metrics = &metrics_;
    context.in_flight = &in_flight_;
    context.clock = &clock_;
    context.limits = LimitsFrom(options_);
    service_ = std::make_unique<Service>(context);

    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options_.listen.ToString(), grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    builder.SetMaxReceiveMessageSize(options_.max_message_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.max_concurrent_streams);
    // Two servers on one port would each get a part of the calls: an error instead.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    // A client that is gone without a word is noticed after at most 80 s; clients may ping idle
    // connections every 10 s.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10000);
    grpc_server_ = builder.BuildAndStart();
    if (grpc_server_ == nullptr || port == 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", options_.listen.ToString(),
                       " (--listen): the port is taken or the address is not of this machine"));
    }
    address_ = options_.listen;
    address_.port = port;

    grpc::HealthCheckServiceInterface* health = grpc_server_->GetHealthCheckService();
    for (const auto& served : registry_.List()) {
      health->SetServingStatus(served->model->name(), true);
    }
    health->SetServingStatus(v1::InferenceService::service_full_name(), true);
    health->SetServingStatus("", true);
    return absl::OkStatus();
  }

  ServerLevels Levels() const {
    ServerLevels levels;
    levels.ready = ready_;
    levels.requests_in_flight = in_flight_.count();
    for (const auto& served : registry_.List()) {
      levels.backend = served->model->backend_name();
      levels.dtype = kernels::DataTypeName(served->model->dtype());
      levels.isa = backend_->instruction_set();
      levels.models.push_back(
          {served->model->name(), served->model->version(), served->engine->batcher().stats()});
    }
    return levels;
  }

  // In the order in which they depend on each other: the last is destroyed first.
  const Options options_;
  const RealClock clock_;
  std::atomic<bool> ready_{false};
  bool drained_ = false;
  InFlight in_flight_;
  Metrics metrics_;
  std::unique_ptr<kernels::Backend> backend_;
  ModelRegistry registry_;
  std::unique_ptr<Service> service_;
  ListenAddress address_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<MetricsServer> metrics_server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options) {
  auto server = std::make_unique<ServerImpl>(options);
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sru::server
