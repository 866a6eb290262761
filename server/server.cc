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
#include "grpcpp/resource_quota.h"
#include "models/kernel_status.h"
#include "models/repository.h"
#include "server/access_log.h"
#include "server/clock.h"
#include "server/credentials.h"
#include "server/engine.h"
#include "server/grpc_log.h"
#include "server/in_flight.h"
#include "server/listener.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/metrics_server.h"
#include "server/model_registry.h"
#include "server/security_metrics.h"
#include "server/service.h"
#include "server/unknown_method.h"

namespace sru::server {
namespace {

// How long new calls are answered with UNAVAILABLE before the listeners close: a call that arrives
// while gRPC shuts down gets CANCELLED, which no client takes for "ask another replica".
constexpr absl::Duration kRefusalGrace = absl::Milliseconds(100);

// How long streams that never end by themselves (health Watch, reflection) may live after the last
// call was answered.
constexpr absl::Duration kStreamGrace = absl::Milliseconds(200);

// Most threads of gRPC's synchronous services. Only reflection is one, and each of its streams
// holds a thread: without a bound strangers could make thousands.
constexpr int kMaxSyncThreads = 32;

int Milliseconds(absl::Duration duration) {
  return static_cast<int>(absl::ToInt64Milliseconds(duration));
}

// Bounds that hold for every connection of every listener.
void SetConnectionArguments(const Options& options, grpc::ServerBuilder* builder) {
  const ConnectionLimits& limits = options.connections;
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  // A client that is gone without a word is noticed after at most 80 s.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // After two pings that come too early the connection is closed.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              Milliseconds(limits.min_ping_interval));
  if (limits.max_age != absl::InfiniteDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, Milliseconds(limits.max_age));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                                Milliseconds(limits.max_age_grace));
  }
  if (limits.max_idle != absl::InfiniteDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, Milliseconds(limits.max_idle));
  }
  grpc::ResourceQuota quota("sru_server");
  quota.SetMaxThreads(kMaxSyncThreads);
  builder->SetResourceQuota(quota);
}

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
  explicit ServerImpl(const Options& options)
      : options_(options),
        security_metrics_(metrics_.registry()),
        access_log_(options.logging.access, &clock_) {}

  ~ServerImpl() override {
    if (!drained_) Drain();
    SetHandshakeObserver(nullptr);
    // The metrics pages read the registry, so their server goes first.
    metrics_server_.reset();
    registry_.Replace({});
  }

  absl::Status Start() {
    if (absl::Status status = ValidateOptions(options_); !status.ok()) return status;
    if (absl::Status status = LoadCredentials(); !status.ok()) return status;
    if (absl::Status status = StartMetricsServer(); !status.ok()) return status;
    if (absl::Status status = LoadModels(); !status.ok()) return status;
    if (absl::Status status = StartGrpc(); !status.ok()) return status;
    ready_ = true;
    return absl::OkStatus();
  }

  ListenAddress address() const override { return listener_->address(); }
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
    listener_->Stop();
    grpc_server_->Shutdown(absl::ToChronoTime(clock_.Now() + kStreamGrace));
    grpc_server_->Wait();
    return complete;
  }

 private:
  absl::Status LoadCredentials() {
    TakeOverGrpcLog();
    absl::StatusOr<std::unique_ptr<Credentials>> credentials =
        Credentials::Create(options_.security, &security_metrics_, &access_log_);
    if (!credentials.ok()) return credentials.status();
    credentials_ = *std::move(credentials);
    access_log_.set_caller_names([this](absl::string_view authorization) {
      return credentials_->CallerName(authorization);
    });
    if (options_.security.has_tls()) {
      SetHandshakeObserver([this](HandshakeFailure failure, absl::string_view detail) {
        security_metrics_.OnHandshakeFailure(failure);
        access_log_.OnHandshakeFailure(HandshakeFailureName(failure), detail);
      });
    }
    return absl::OkStatus();
  }

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
    const kernels::Status created = kernels::CreateBackend(name, &backend_);
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
    context.access_log = &access_log_;
    context.limits = LimitsFrom(options_);
    service_ = std::make_unique<Service>(context);

    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    Listener::Options listener_options;
    listener_options.max_connections = options_.connections.max_connections;
    listener_options.on_refused = [this] { security_metrics_.OnConnectionRefused(); };
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        Listener::Open("listen", options_.listen, std::move(listener_options));
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    listener_->AddTo(&builder, credentials_->ForListener());
    builder.RegisterService(service_.get());
    builder.RegisterCallbackGenericService(&unknown_method_service_);
    SetConnectionArguments(options_, &builder);
    grpc_server_ = builder.BuildAndStart();
    if (grpc_server_ == nullptr) {
      return absl::InternalError("gRPC cannot start its server; GRPC_VERBOSITY=error says why");
    }
    listener_->Start();
    serving_listener_ = listener_.get();

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
    levels.suppressed_log_lines = access_log_.suppressed_lines();
    if (Listener* listener = serving_listener_) levels.connections = listener->num_connections();
    for (const auto& served : registry_.List()) {
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
  SecurityMetrics security_metrics_;
  AccessLog access_log_;
  std::unique_ptr<Credentials> credentials_;
  UnknownMethodService unknown_method_service_{&security_metrics_, &access_log_};
  std::unique_ptr<kernels::Backend> backend_;
  ModelRegistry registry_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Listener> listener_;
  std::atomic<Listener*> serving_listener_{nullptr};  // for the metrics port, which starts first
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
