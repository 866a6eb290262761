#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "grpcpp/grpcpp.h"
#include "server/base/clock.h"
#include "server/base/cores.h"
#include "server/base/file_watcher.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/base/rate_limit.h"
#include "server/base/side_threads.h"
#include "server/batching/device_watch.h"
#include "server/batching/engine.h"
#include "server/callers/callers.h"
#include "server/calls/bounds/memory_options.h"
#include "server/calls/byte_budget.h"
#include "server/calls/in_flight.h"
#include "server/calls/kinds/open_streams.h"
#include "server/calls/kinds/unknown_method.h"
#include "server/calls/method.h"
#include "server/door/door_context.h"
#include "server/door/door_metrics.h"
#include "server/door/grpc_port.h"
#include "server/door/memory_count.h"
#include "server/door/native_door.h"
#include "server/http/http_server.h"
#include "server/http/metrics_server.h"
#include "server/http/status_page.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/model_levels.h"
#include "server/model_loader.h"
#include "server/open_inference/open_inference_methods.h"
#include "server/rest/api_routes.h"
#include "server/rest/error_response.h"
#include "server/rest/gateway.h"
#include "server/rest/route.h"
#include "server/rpc/grpc_door.h"
#include "server/rpc/health.h"
#include "server/rpc/inference_methods.h"
#include "server/rpc/reflection.h"
#include "server/state_key_file.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/history.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/tracer.h"
#include "server/transport/credentials.h"
#include "server/transport/file_limit.h"
#include "server/transport/listening_sockets.h"
#include "server/transport/loop.h"
#include "server/transport/security_metrics.h"
#ifdef SRU_TEXTS
#include "server/translation/text_routes.h"
#endif

namespace sru::server {
namespace {

// How long streams that never end by themselves (health Watch, reflection) may live after the last
// call was answered.
constexpr absl::Duration kStreamGrace = absl::Milliseconds(200);

// How long given answers may take to leave while the server drains: enough for a client that reads,
// and the limit for one that does not.
constexpr absl::Duration kAnswerGrace = absl::Seconds(1);

// How long the last spans may take to reach their collector, within the time of the drain.
constexpr absl::Duration kSpanGrace = absl::Seconds(3);

// Of calls over HTTP: from the first byte of a request to its last header, the TLS handshake
// likewise; for the whole body, and for each 16 KiB of it; and between two requests of a
// connection.
constexpr absl::Duration kHttpHeaderTimeout = absl::Seconds(10);
constexpr absl::Duration kHttpBodyTimeout = absl::Seconds(60);
constexpr absl::Duration kHttpProgressTimeout = absl::Seconds(10);
constexpr absl::Duration kHttpIdleTimeout = absl::Seconds(90);

// For messages of gRPC from 64 KiB on.
constexpr int kSideThreads = 2;

// How many calls the boxes of the status page may make at a time, and for how long.
constexpr int kPageCalls = 2;
constexpr absl::Duration kPageTimeout = absl::Seconds(30);

// The paths that the box for texts calls besides the routes of methods.
constexpr const char* kTextBoxPaths[] = {"/translate", "/languages"};

// Enough for a name and what protobuf puts around it.
constexpr uint32_t kMaxAdminMessageBytes = 64 << 10;

constexpr char kReflectionService[] = "grpc.reflection.v1.ServerReflection";

calls::RequestLimits LimitsFrom(const Options& options) {
  const batching::BatcherOptions& batcher = options.batching.engine.batcher;
  calls::RequestLimits limits = options.rpc.limits;
  limits.max_sequences =
      static_cast<int>(std::min<int64_t>(limits.max_sequences, batcher.max_queue_sequences));
  limits.max_request_tokens = batcher.max_queue_tokens;
  limits.max_batch_tokens = batcher.max_batch_tokens;
  return limits;
}

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

// What a client of the HTTP port may take.
http::HttpServer::Limits CallLimits(const Options& options, const calls::MemoryBudgets& budgets) {
  http::HttpServer::Limits limits;
  limits.max_header_bytes = static_cast<size_t>(options.connections.max_metadata_bytes);
  limits.max_body_bytes = static_cast<size_t>(options.rpc.max_message_bytes);
  limits.max_total_body_bytes = static_cast<size_t>(budgets.receive_bytes);
  limits.header_timeout = kHttpHeaderTimeout;
  limits.body_timeout = kHttpBodyTimeout;
  limits.progress_timeout = kHttpProgressTimeout;
  limits.answer_timeout = options.memory.send_timeout;
  limits.idle_timeout = kHttpIdleTimeout;
  limits.max_age = options.connections.max_age;
  limits.max_age_grace = options.connections.max_age_grace;
  return limits;
}

// What does not come as far as a route.
rest::RestError MalformedRequest(int http_status, const std::string& text) {
  rest::RestError error(http_status == 501   ? absl::UnimplementedError(text)
                        : http_status == 431 ? absl::ResourceExhaustedError(text)
                                             : absl::InvalidArgumentError(text));
  error.http_status = http_status;
  return error;
}

lifecycle::ModelManagerOptions ManagerOptionsFrom(const Options& options) {
  lifecycle::ModelManagerOptions manager;
  static_cast<lifecycle::ModelOptions&>(manager) = options.models;
  manager.free_memory = []() -> std::optional<int64_t> {
    const MemoryLimits memory = ReadMemoryLimits();
    if (memory.limit_bytes == 0) return std::nullopt;
    return memory.available_bytes;
  };
  return manager;
}

// With mutual TLS every caller needs a certificate, and the status page asks for none.
http::TryAccess TryAccessFrom(const Options& options) {
  return options.security.tls_client_ca.empty() ? options.http.status_page_try
                                                : http::TryAccess::kOff;
}

// Valid as long as the request; empty where there is none.
absl::string_view FindHeader(const http::PageRequest& request, absl::string_view name) {
  const std::string* const value = request.headers.Find(name);
  return value == nullptr ? absl::string_view() : *value;
}

// The headers that the log knows.
telemetry::CallHeaders HeadersOf(const http::PageRequest& request) {
  return {FindHeader(request, "x-request-id"), FindHeader(request, "traceparent"),
          FindHeader(request, "authorization"), FindHeader(request, "user-agent")};
}

class ServerImpl final : public Server, private lifecycle::ModelObserver {
 public:
  // With a null backend, the options choose one.
  ServerImpl(std::unique_ptr<kernels::Backend> backend, const Options& options)
      : options_(WithinMemory(options)),
        budgets_(calls::ResolveMemoryBudgets(options.memory, ReadMemoryLimits())),
        security_metrics_(metrics_.registry()),
        access_log_(options.logging.access, &clock_),
        tracer_(options_.tracing.enabled()
                    ? std::make_unique<tracing::Tracer>(options_.tracing, &clock_)
                    : nullptr),
        loader_(&options_, std::move(backend), &metrics_, &clock_,
                [this](int device, const absl::Status& error) {
                  device_watch_.Report(device, error);
                }) {}

  ~ServerImpl() override {
    if (!drained_) Drain();
    // Their last job may be the end of a call, with its model.
    readers_.Stop();
    writers_.Stop();
    // The metrics pages and the watch read the registry, so they go first.
    device_watch_.Stop();
    history_.Stop();
    metrics_server_.reset();
    manager_.reset();
  }

  absl::Status Start() {
    if (absl::Status status = ValidateOptions(options_); !status.ok()) return status;
    if (absl::Status status = CheckStart(); !status.ok()) return status;
    const std::string warning = calls::BudgetsWarning(budgets_, ReadMemoryLimits());
    if (!warning.empty()) LogWarning(warning);
    if (absl::Status status = LoadCredentials(); !status.ok()) return status;
    if (absl::Status status = StartMetricsServer(); !status.ok()) return status;
    if (absl::Status status = LoadModels(); !status.ok()) return status;
    MakeMethods();
    StartLoops();
    StartCallServer();
    if (absl::Status status = StartGrpc(); !status.ok()) return status;
    if (absl::Status status = StartAdmin(); !status.ok()) return status;
    ports_are_open_ = true;
    SetRechecks(true);
    started_ = true;
    UpdateHealth();
    if (options_.models.control != lifecycle::ModelControl::kStatic) manager_->StartThread();
    return absl::OkStatus();
  }

  ListenAddress address() const override { return port_->address(); }
  ListenAddress metrics_address() const override { return metrics_server_->address(); }
  std::optional<ListenAddress> admin_address() const override { return AddressOf(admin_port_); }
  std::optional<ListenAddress> http_address() const override { return AddressOf(http_port_); }

  void Reload() override {
    std::vector<std::string> looked_at;
    if (options_.models.control == lifecycle::ModelControl::kPoll) {
      manager_->RequestPoll();
      looked_at.push_back("the repository");
    }
    if (options_.security.has_tls()) looked_at.push_back("the TLS files");
    if (!options_.security.auth_tokens_file.empty()) looked_at.push_back("the file of tokens");
    if (!options_.security.state_key_file.empty()) looked_at.push_back("the file of state keys");
    credentials_->LookNow();
    key_watcher_.LookNow();
    LogInfo(looked_at.empty()
                ? "reload: there is nothing to look at; --model_control=poll lets the server look "
                  "at the repository"
                : absl::StrCat("reload: looking at ", absl::StrJoin(looked_at, ", ")));
  }

  bool Drain() override {
    SetRechecks(false);
    drained_ = true;
    draining_ = true;
    started_ = false;
    if (manager_ != nullptr) manager_->BeginStop();
    if (port_ == nullptr) return true;
    const absl::Time start = clock_.Now();
    const absl::Time deadline = start + options_.drain_timeout;
    health_.Shutdown();  // NOT_SERVING, for good
    absl::SleepFor(options_.drain_delay);
    // Before the batchers close: what clients have sent before they know is answered.
    port_->BeginDrain();
    if (http_port_ != nullptr) http_port_->BeginDrain();

    bool complete = true;
    // Before the batchers close: streams that wait for their clients end with their states.
    open_streams_.Drain();
    if (call_server_ != nullptr) call_server_->BeginDrain();
    // Likewise: a text is translated by call after call.
    complete &= texts_in_flight_.WaitUntilNone(deadline - clock_.Now());
    // Including those that were unloaded but still have calls.
    std::vector<std::shared_ptr<lifecycle::ServedModel>> models = manager_->InMemory();
    for (const auto& served : models) served->engine->Close();
    for (const auto& served : models) complete &= served->engine->Drain(deadline);
    models.clear();
    complete &= in_flight_.WaitUntilNone(std::max(deadline - clock_.Now(), kStreamGrace));
    // Does not wait for clients that do not read. A call of HTTP has its answer when the client has
    // taken the last part but one.
    const absl::Time sent_by = clock_.Now() + kAnswerGrace;
    if (gateway_ != nullptr) gateway_->Close(kAnswerGrace);
    for (door::GrpcPort* const port : {port_.get(), http_port_.get()}) {
      if (port == nullptr) continue;
      port->RefuseRest();
      port->WaitUntilSent(sent_by - clock_.Now());
    }
    if (page_gateway_ != nullptr) page_gateway_->Close();
    for (door::GrpcPort* const port : Ports()) port->Shutdown(kStreamGrace);
    if (call_server_ != nullptr) call_server_->Stop();
    if (tracer_ != nullptr) tracer_->Stop(std::min(deadline - clock_.Now(), kSpanGrace));
    return complete;
  }

 private:
  absl::Status LoadCredentials() {
    SRU_ASSIGN_OR_RETURN(credentials_, transport::Credentials::Create(
                                           options_.security, &callers_, &security_metrics_,
                                           &access_log_, &clock_, [this] { RecheckCallers(); }));
    SRU_ASSIGN_OR_RETURN(auto keys, WatchStateKeys(options_.security.state_key_file, &key_watcher_,
                                                   &security_metrics_));
    loader_.set_state_keys(std::move(keys));
    key_watcher_.Start();
    check_call_ = credentials_->CheckForListener(
        [this](absl::string_view path) { return methods_->NeedsToken(path); });
    return absl::OkStatus();
  }

  // Other tokens or certificates are in use.
  void RecheckCallers() {
    MutexLock lock(&recheck_mutex_);
    if (!rechecks_) return;
    for (door::GrpcPort* const port : Ports()) port->Recheck();
  }

  void SetRechecks(bool rechecks) {
    MutexLock lock(&recheck_mutex_);
    rechecks_ = rechecks;
  }

  // Runs on the watch's thread.
  void OnDeviceLost(int device, const absl::Status& error) {
    for (const auto& served : registry_.List()) served->engine->TakeOutDevice(device, error);
    const std::vector<kernels::DeviceInfo> devices = loader_.backend()->devices();
    const auto index = static_cast<size_t>(device);
    const std::string name =
        index < devices.size()
            ? absl::StrCat("device ", devices[index].ordinal, " (", devices[index].name, ")")
            : absl::StrCat("device ", device);
    LogError(absl::StrCat(
        name, " has failed and is out of service until the next start: ", error.message()));
    for (const auto& served : registry_.List()) {
      LogError(absl::StrCat("model ", served->model->name(), " version ", served->model->version(),
                            ": ", served->engine->instances(), " instances left"));
    }
    UpdateHealth();
  }

  // Updates the health of every served model and of the server. A model with several versions is
  // healthy when all of them are: a health check does not name a version. The server as a whole is
  // healthy and ready as long as any version is: with only some of its GPUs it is still worth its
  // place behind a load balancer.
  void UpdateHealth() {
    MutexLock lock(&health_mutex_);
    std::map<std::string, bool> serving;
    const std::vector<std::shared_ptr<lifecycle::ServedModel>> models = registry_.List();
    bool any = models.empty();
    for (const auto& served : models) {
      const bool in_service = served->engine->instances() > 0;
      const auto [it, added] = serving.emplace(served->name, in_service);
      if (!added) it->second &= in_service;
      any |= in_service;
    }
    in_service_ = any;
    for (const auto& [model, in_service] : serving) health_.Set(model, in_service);
    for (const char* service : {calls::kInferenceService, calls::kOpenInferenceService, ""}) {
      health_.Set(service, ready());
    }
  }

  absl::Status StartMetricsServer() {
    http::MetricsServer::Pages pages;
    pages.metrics = [this] { return metrics_.Text(Levels()); };
    pages.probes = probes_;
    pages.call = [this](calls::HttpExchange* exchange, const http::PageRequest& request) {
      return StartPageCall(exchange, request);
    };
    pages.other = [this](const http::PageRequest& request) { return status_page_.Handle(request); };
    SRU_ASSIGN_OR_RETURN(metrics_server_, http::MetricsServer::Start(options_.http.metrics_listen,
                                                                     std::move(pages)));
    history_.Start([this] { return std::pair(clock_.WallNow(), metrics_.Collect(Levels())); });
    return absl::OkStatus();
  }

  // A call of the status page's boxes; null if the path is none of theirs.
  std::shared_ptr<http::HttpCall> StartPageCall(calls::HttpExchange* exchange,
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

  absl::Status LoadModels() {
    if (absl::Status status = loader_.MakeBackend(); !status.ok()) return status;
    lifecycle::ModelObserver* const observer = this;
    manager_ = std::make_unique<lifecycle::ModelManager>(ManagerOptionsFrom(options_), &loader_,
                                                         &registry_, &clock_, observer);
    manager_pages_ = manager_.get();
    return manager_->Start();
  }

  // ModelObserver:
  void OnLoad(const models::ModelLocation& /*location*/, absl::Duration duration,
              const absl::Status& status) override {
    if (status.ok()) metrics_.OnModelLoaded(duration);
  }
  void OnServing(const std::string& model, bool serving) override {
    if (!serving) {
      // A running UpdateHealth() may have listed the model before it was unloaded.
      MutexLock lock(&health_mutex_);
      health_.Set(model, false);
    }
    UpdateHealth();
  }

  bool ready() const { return NotReadyReason().empty(); }

  // Why calls should go to another server; empty when this one takes them.
  std::string NotReadyReason() const {
    if (draining_) return "draining";
    if (!started_) return "loading";
    if (!in_service_) return "every device has failed";
    if (options_.models.control == lifecycle::ModelControl::kExplicit || !registry_.List().empty())
      return "";
    return "no model is loaded; see sru_client models --status";
  }

  // Runs on the ports' threads.
  void OnConnectionRefused(absl::string_view reason, const std::string& peer) {
    security_metrics_.OnConnectionRefused();
    int64_t before = 0;
    if (!refused_connections_.Take(clock_.Now(), &before)) return;
    Log(LogLevel::kWarning, absl::StrCat("connections are refused: ", reason),
        {{"peer", peer}, {"refused_connections", before + 1}});
  }

  // Checks first what would otherwise fail after models were loaded, which may take minutes.
  absl::Status CheckStart() {
    const int files = transport::RaiseFileLimit();
    if (absl::Status status = transport::CheckFileLimit(files); !status.ok()) return status;
    const std::string warning =
        transport::FileLimitWarning(files, options_.connections.max_connections);
    if (!warning.empty()) LogWarning(warning);
    // The ports are opened and closed again: until the server takes calls, it should refuse
    // connections.
    std::vector<transport::ListenFlag> flags = {{"listen", options_.listen},
                                                {"metrics_listen", options_.http.metrics_listen}};
    if (options_.http.http_listen.has_value()) {
      flags.emplace_back("http_listen", *options_.http.http_listen);
    }
    if (options_.admin_listen.has_value()) {
      flags.emplace_back("admin_listen", *options_.admin_listen);
    }
    return transport::CheckListening(flags);
  }

  // The caller for whom the states after prompts are kept. All are one where no credentials are
  // asked for.
  std::string PrefixOwner(const CallOrigin& call) const {
    if (options_.batching.prefix_cache_mb == 0) return "";
    const transport::SecurityOptions& security = options_.security;
    const bool known = security.has_tokens() || !security.tls_client_ca.empty();
    if (!known) return "everybody";
    const callers::CallerPtr& caller = call.caller();
    return caller != nullptr && caller->is_proven() ? caller->id() : "";
  }

  // Makes the tables of both ports' methods.
  void MakeMethods() {
    service_context_.registry = &registry_;
    service_context_.manager = manager_.get();
    service_context_.metrics = &metrics_;
    service_context_.in_flight = &in_flight_;
    service_context_.tracer = tracer_.get();
    service_context_.clock = &clock_;
    service_context_.budget = &inflight_budget_;
    service_context_.received_bytes = &received_bytes_;
    service_context_.streams = &open_streams_;
    service_context_.readers = &readers_;
    service_context_.writers = &writers_;
    service_context_.access_log = &access_log_;
    service_context_.limits = LimitsFrom(options_);
    service_context_.prefix_owner = [this](const CallOrigin& call) { return PrefixOwner(call); };
    open_inference_context_.service = &service_context_;
    open_inference_context_.ready = [this] { return ready(); };
    open_inference_context_.max_queue_delay = options_.batching.engine.batcher.max_queue_delay;
    methods_ = MakeTable({rpc::InferenceMethods(service_context_),
                          open_inference::OpenInferenceMethods(open_inference_context_),
                          health_.Methods()});
    admin_context_.service = &service_context_;
    admin_context_.control = options_.models.control;
    admin_context_.manager = manager_.get();
    admin_methods_ =
        MakeTable({rpc::AdminMethods(admin_context_),
                   open_inference::RepositoryMethods(admin_context_), admin_health_.Methods()});
  }

  // The rows of services, and reflection on them.
  static std::unique_ptr<calls::MethodTable> MakeTable(
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

  bool is_native() const { return options_.transport.transport == door::GrpcTransport::kNative; }

  void StartLoops() {
    if (!is_native() && !options_.http.http_listen.has_value()) return;
    door_metrics_ = std::make_unique<door::DoorMetrics>(metrics_.registry());
    loops_ = std::make_unique<transport::LoopSet>(options_.transport.num_io_threads(), kSideThreads,
                                                  door_metrics_->Watch());
  }

  static std::optional<ListenAddress> AddressOf(const std::unique_ptr<door::GrpcPort>& port) {
    return port == nullptr ? std::nullopt : std::optional(port->address());
  }

  // All ports that are open.
  std::vector<door::GrpcPort*> Ports() const {
    std::vector<door::GrpcPort*> ports;
    for (const auto* port : {&port_, &http_port_, &admin_port_}) {
      if (*port != nullptr) ports.push_back(port->get());
    }
    return ports;
  }

  // All ports have these in common.
  door::DoorOptions MakeDoorOptions(const calls::MethodTable& methods) {
    door::DoorOptions door;
    door.methods = &methods;
    door.metrics = door_metrics_.get();
    door.unknown = [this](calls::Exchange* exchange) {
      return calls::StartUnknownMethod(exchange, &metrics_, &access_log_);
    };
    door.refused = [this](calls::Exchange* exchange, calls::MethodId method,
                          const absl::Status& refusal) {
      return calls::StartRefusedCall(exchange, method, refusal, &metrics_, &access_log_);
    };
    door.on_failed = [this, &methods](const calls::Exchange& exchange, const absl::Status& status) {
      return calls::EndFailedCall(exchange, methods.Find(exchange.method()), status, &metrics_,
                                  &access_log_);
    };
    if (options_.security.has_tls()) {
      door.tls_context = [this] { return credentials_->TlsContext(); };
    }
    door.on_handshake_failure = [this](const std::string& detail, const std::string& peer) {
      OnHandshakeFailure(detail, peer);
    };
    door.on_refused = [this](absl::string_view reason, const std::string& peer) {
      OnConnectionRefused(reason, peer);
    };
    door.on_not_taken = [this](absl::string_view method, const std::string& peer) {
      access_log_.OnAnswerNotTaken(method, peer, options_.memory.send_timeout);
    };
    door.limits = options_.connections;
    door.connections = &connections_;
    door.allow_compression = options_.memory.allow_compression;
    door.asks_for_tokens = !options_.security.auth_tokens_file.empty();
    door.send_timeout = options_.memory.send_timeout;
    return door;
  }

  // By the transport that --grpc_transport chooses.
  absl::StatusOr<std::unique_ptr<door::GrpcPort>> OpenPort(absl::string_view flag,
                                                           const ListenAddress& address,
                                                           door::DoorOptions options) {
    if (!is_native()) {
      rpc::GrpcDoor::TlsFiles tls_files;
      if (options_.security.has_tls()) tls_files = [this] { return credentials_->TlsFiles(); };
      return rpc::GrpcDoor::Open(flag, address, std::move(options), budgets_.receive_bytes,
                                 std::move(tls_files));
    }
    return OpenNativePort(flag, address, std::move(options));
  }

  absl::StatusOr<std::unique_ptr<door::GrpcPort>> OpenNativePort(absl::string_view flag,
                                                                 const ListenAddress& address,
                                                                 door::DoorOptions options) {
    SRU_ASSIGN_OR_RETURN(
        std::unique_ptr<door::NativeDoor> door,
        door::NativeDoor::Open(flag, address, std::move(options), loops_.get(), &receive_memory_));
    door->Start();
    return std::unique_ptr<door::GrpcPort>(std::move(door));
  }

  absl::Status StartAdmin() {
    if (!options_.admin_listen.has_value()) return absl::OkStatus();
    door::DoorOptions options = MakeDoorOptions(*admin_methods_);
    options.max_message_bytes = kMaxAdminMessageBytes;
    options.connections = nullptr;  // callers do not keep the operator out
    options.check_call = credentials_->CheckForAdminListener(
        [this](absl::string_view path) { return admin_methods_->NeedsToken(path); });
    SRU_ASSIGN_OR_RETURN(admin_port_,
                         OpenPort("admin_listen", *options_.admin_listen, std::move(options)));
    return absl::OkStatus();
  }

  // The two ports for callers have these.
  door::DoorOptions MakeCallOptions() {
    door::DoorOptions options = MakeDoorOptions(*methods_);
    options.max_message_bytes = static_cast<uint32_t>(options_.rpc.max_message_bytes);
    options.check_call = check_call_;
    options.start_http = [this](calls::HttpExchange* exchange) {
      return call_server_->Answer(exchange);
    };
    options.start_http1 = [this](door::SessionHost* host, const door::PeerInfo& peer) {
      return call_server_->StartSession(host, peer);
    };
    return options;
  }

  // Like the port of --listen, that of --http_listen refuses connections until the server takes
  // calls, so that balancers and clients go to another server meanwhile. The native door serves it
  // whatever serves gRPC: only it takes HTTP/1.1.
  absl::Status StartGrpc() {
    SRU_ASSIGN_OR_RETURN(port_, OpenPort("listen", options_.listen, MakeCallOptions()));
    if (options_.http.http_listen.has_value()) {
      SRU_ASSIGN_OR_RETURN(
          http_port_, OpenNativePort("http_listen", *options_.http.http_listen, MakeCallOptions()));
    }
    page_gateway_ = std::make_unique<rest::Gateway>(MakePageGatewayOptions());
    serving_page_gateway_ = page_gateway_.get();
    for (const telemetry::ModelStatus& model : manager_->Statuses()) {
      health_.Set(model.model, false);
    }
    UpdateHealth();
    device_watch_.Start();
    return absl::OkStatus();
  }

  absl::StatusOr<callers::CallerPtr> FindCaller(const http::PageRequest& request) const {
    transport::CallToCheck call;
    call.path = request.path;
    call.headers = HeadersOf(request);
    call.authorizations = call.headers.authorization.empty() ? 0 : 1;
    call.x_forwarded_for = FindHeader(request, "x-forwarded-for");
    // Only a server with tokens refuses callers, and it logs their address.
    const std::string address =
        options_.security.auth_tokens_file.empty() ? "" : request.remote_address();
    call.peer = address.empty() ? absl::string_view(request.peer) : address;
    call.certificate = [&request] { return request.certificate; };
    transport::CallVerdict verdict = check_call_(call);
    if (verdict.refusal != nullptr) return absl::UnauthenticatedError(verdict.refusal);
    return std::move(verdict.caller);
  }

  rest::Gateway::Options MakeGatewayOptions() {
    rest::Gateway::Options gateway;
    gateway.methods = methods_.get();
    gateway.authenticate = [this](const http::PageRequest& request) { return FindCaller(request); };
    gateway.asks_for_tokens = !options_.security.auth_tokens_file.empty();
    gateway.auth_probes = options_.security.auth_health;
    gateway.memory = &inflight_budget_;
    gateway.limits = LimitsFrom(options_);
    gateway.max_body_bytes = static_cast<size_t>(options_.rpc.max_message_bytes);
    gateway.readers = &readers_;
    gateway.more = text_routes_;
    gateway.more.push_back(
        rest::FrontPageRoutes(gateway.asks_for_tokens, options_.security.has_tls()));
    gateway.page_hosts = options_.http.status_page_hosts;
    gateway.on_refused = [this](const http::PageRequest& request, const callers::Caller* caller,
                                int http_status, const absl::Status& reason) {
      if (absl::IsUnauthenticated(reason)) return;  // the check has logged it
      access_log_.OnHttpRefusal(request.path, http_status, reason, HeadersOf(request),
                                request.remote_address(), caller == nullptr ? "" : caller->name());
    };
    return gateway;
  }

  rest::Gateway::Options MakePageGatewayOptions() {
    rest::Gateway::Options gateway = MakeGatewayOptions();
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
      return FindCaller(request);
    };
    return gateway;
  }

  // Answers calls over HTTP, which come by native doors.
  void StartCallServer() {
    if (loops_ == nullptr) return;
    rest::Gateway::Options gateway = MakeGatewayOptions();
    gateway.allow_origins = options_.http.allow_origins;
    gateway.max_body_flag = " (--max_message_bytes)";
    gateway_ = std::make_unique<rest::Gateway>(std::move(gateway));
    http::HttpServer::Options options;
    options.keep_alive = true;
    options.loops = loops_.get();
    options.limits = CallLimits(options_, budgets_);
    options.make_error = [](int status, const std::string& text) {
      return rest::ErrorResponse(rest::ErrorForm::kV1, MalformedRequest(status, text));
    };
    options.on_not_taken = [this](absl::string_view path, const std::string& peer) {
      access_log_.OnAnswerNotTaken(path, peer, options_.memory.send_timeout);
    };
    options.start = [this](calls::HttpExchange* exchange,
                           http::PageRequest request) -> std::shared_ptr<http::HttpCall> {
      if (!http::IsProbe(request)) return gateway_->Start(exchange, std::move(request));
      return std::make_shared<http::PageCall>(
          exchange, std::move(request),
          [this](const std::shared_ptr<http::HttpCall>& call) {
            call->Reply(http::AnswerProbe(call->request(), probes_));
          },
          /*max_body=*/0);
    };
    call_server_ = std::make_unique<http::HttpServer>(std::move(options));
    serving_call_server_ = call_server_.get();
  }

  // On the loops.
  void OnHandshakeFailure(const std::string& detail, const std::string& peer) {
    const transport::HandshakeFailure failure = detail.empty()
                                                    ? transport::HandshakeFailure::kClosedByClient
                                                    : transport::ClassifyHandshakeFailure(detail);
    security_metrics_.OnHandshakeFailure(failure);
    access_log_.OnHandshakeFailure(transport::kHandshakeFailureNames[static_cast<size_t>(failure)],
                                   detail, peer);
  }

  telemetry::ServerLevels Levels() const {
    telemetry::ServerLevels levels;
    for (callers::Callers::Level& caller : callers_.Levels()) {
      levels.callers.push_back(
          {std::move(caller.name), caller.calls, caller.tokens, caller.refused, caller.in_flight});
    }
    levels.grpc_version = grpc::Version();
    levels.ready = ready();
    levels.requests_in_flight = in_flight_.count();
    if (tracer_ != nullptr) levels.spans = tracer_->counts();
    levels.suppressed_log_lines = access_log_.suppressed_lines();
    levels.dropped_log_lines = LogLinesDropped();
    levels.receive_memory_bytes = receive_memory_.used();
    levels.receive_memory_limit_bytes = budgets_.receive_bytes;
    levels.received_message_bytes = received_bytes_;
    levels.inflight_bytes = inflight_budget_.used();
    levels.inflight_limit_bytes = inflight_budget_.limit();
    levels.rejected = metrics_.refusals_without_model();
    levels.open_streams = open_streams_.count();
    if (ports_are_open_) {
      levels.connections = 0;
      for (const door::GrpcPort* const port : Ports()) {
        const door::GrpcPort::Counts counts = port->counts();
        if (!counts.connections.has_value()) levels.connections.reset();
        if (levels.connections.has_value()) *levels.connections += *counts.connections;
        levels.unsent_answers += counts.unsent_answers;
        levels.answers_not_taken += counts.answers_not_taken;
      }
    }
    if (const http::HttpServer* const http = serving_call_server_.load()) {
      const http::HttpServer::Stats stats = http->stats();
      levels.http = {stats.connections, stats.body_bytes, stats.answers};
      levels.answers_not_taken += stats.not_taken;
    }
    AddModelLevels(registry_, &levels);
    if (const lifecycle::ModelManager* manager = manager_pages_.load()) {
      levels.statuses = manager->Statuses();
      levels.load_counts = manager->LoadCounts();
      levels.repository_emptied = manager->repository_emptied();
    }
    AddBackendLevels(loader_, options_, device_watch_.lost(), &levels);
    return levels;
  }

  // Everything that the status page shows.
  http::StatusSnapshot Snapshot() const {
    http::StatusSnapshot snapshot;
    snapshot.time = clock_.WallNow();
    snapshot.state = ready() ? "ready" : draining_ ? "draining" : "loading";
    const batching::BatcherOptions& batcher = options_.batching.engine.batcher;
    snapshot.flags = options_.changed;
    snapshot.limits.max_batch_tokens = batcher.max_batch_tokens;
    snapshot.limits.max_queue_tokens = batcher.max_queue_tokens;
    snapshot.limits.max_queue_sequences = batcher.max_queue_sequences;
    snapshot.limits.max_sequence_tokens = options_.rpc.limits.max_sequence_tokens;
    const lifecycle::ModelManager* const manager = manager_pages_.load();
    if (manager != nullptr) {
      for (const telemetry::ModelStatus& status : manager->Statuses()) {
        snapshot.models.push_back(ViewOf(registry_, status));
      }
    }
    snapshot.metrics = metrics_.Collect(Levels());
    snapshot.history = &history_;
    snapshot.slow = access_log_.slow();
    snapshot.slow_calls = access_log_.slow_calls();
    snapshot.errors = access_log_.errors();
    return snapshot;
  }

  // In the order of their dependencies: the last one is destroyed first. Pointers are set while the
  // server starts, before the threads that read them, and stay until its destructor.
  const Options options_;
  const RealClock clock_;
  std::atomic<bool> started_{false};  // and not draining
  std::atomic<bool> draining_{false};
  std::atomic<bool> in_service_{true};  // some model has a worker, or there is no model
  bool drained_ = false;                // of the owner
  const calls::MemoryBudgets budgets_;
  std::atomic<int64_t> received_bytes_{0};
  calls::ByteBudget inflight_budget_{budgets_.inflight_bytes};
  calls::OpenStreams open_streams_{options_.rpc.max_streams};
  calls::InFlight in_flight_;
  // Apart, so that nobody's request waits for others' answers.
  SideThreads readers_{std::max(2, NumCores() / 4)};
  SideThreads writers_{std::max(2, NumCores() / 4)};
  telemetry::Metrics metrics_{&clock_};
  transport::SecurityMetrics security_metrics_;
  telemetry::AccessLog access_log_;
  telemetry::History history_;
  const std::unique_ptr<tracing::Tracer> tracer_;        // null: no spans
  RateLimit refused_connections_{1, absl::Seconds(10)};  // limits the log lines on them
  Mutex recheck_mutex_;
  bool rechecks_ ABSL_GUARDED_BY(recheck_mutex_) = false;  // the ports are there
  mutable callers::Callers callers_{
      options_.security.caller_limits.value_or(callers::CallerLimits()), &clock_};
  std::unique_ptr<transport::Credentials> credentials_;
  transport::CallCheck check_call_;  // of the port for callers
  FileWatcher key_watcher_{options_.security.poll_interval};
  ServedModelLoader loader_;
  batching::DeviceWatch device_watch_{
      [this](int device, const absl::Status& error) { OnDeviceLost(device, error); }};
  lifecycle::ModelRegistry registry_;
  calls::InFlight texts_in_flight_;
#ifdef SRU_TEXTS
  const std::vector<rest::RouteGroup> text_routes_ =
      translation::TextRoutes(&registry_, LimitsFrom(options_), &texts_in_flight_);
#else
  const std::vector<rest::RouteGroup> text_routes_;
#endif
  std::unique_ptr<lifecycle::ModelManager> manager_;
  std::atomic<const lifecycle::ModelManager*> manager_pages_{
      nullptr};         // for the metrics pages' threads
  Mutex health_mutex_;  // held while health is computed and published
  rpc::Health health_;
  rpc::Health admin_health_;  // of the admin port, which serves as long as it is there
  calls::ServiceContext service_context_;
  calls::AdminContext admin_context_;
  open_inference::OpenInferenceContext open_inference_context_;
  std::unique_ptr<calls::MethodTable> methods_;
  std::unique_ptr<calls::MethodTable> admin_methods_;
  transport::ConnectionTable connections_{
      // of native ports
      static_cast<size_t>(options_.connections.max_connections), /*keeps_calls=*/true};
  std::unique_ptr<door::DoorMetrics> door_metrics_;  // of native ports
  std::unique_ptr<transport::LoopSet> loops_;        // of native ports and of calls over HTTP
  door::MemoryCount receive_memory_{budgets_.receive_bytes};  // of native ports
  std::unique_ptr<door::GrpcPort> port_;
  std::unique_ptr<door::GrpcPort> http_port_;   // null = none
  std::unique_ptr<door::GrpcPort> admin_port_;  // null = none
  std::atomic<bool> ports_are_open_{false};     // for the metrics port, which starts first
  // When every device has failed, only a restart may help.
  const http::Probes probes_{[this] { return NotReadyReason(); },
                             [this] { return in_service_.load(); }};
  http::StatusPage status_page_{[this] { return Snapshot(); }, TryAccessFrom(options_),
                                options_.http.status_page_hosts};
  std::unique_ptr<http::MetricsServer> metrics_server_;
  std::unique_ptr<rest::Gateway> page_gateway_;                  // of the metrics port
  std::atomic<rest::Gateway*> serving_page_gateway_{nullptr};    // null while models are loaded
  std::unique_ptr<rest::Gateway> gateway_;                       // null = none
  std::unique_ptr<http::HttpServer> call_server_;                // likewise
  std::atomic<http::HttpServer*> serving_call_server_{nullptr};  // for the metrics port
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      std::unique_ptr<kernels::Backend> backend) {
  auto server = std::make_unique<ServerImpl>(std::move(backend), options);
  if (absl::Status status = server->Start(); !status.ok()) return status;
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sru::server
