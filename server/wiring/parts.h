// The parts of the server. Each part uses only the parts above it and has a source file of its own:
//
//   Shared        options, clock, memory, metrics, log         shared.cc
//   ServedModels  models, devices, readiness, health           served_models.cc
//   CallMethods   the tables of methods                        call_methods.cc
//   Doors         ports, credentials, loops                    doors.cc
//   HttpCalls     the gateway from HTTP to the methods         http_calls.cc
//   Pages         metrics, probes, status page                 pages.cc
//   Drain()       the order in which the server stops          drain.cc
//
// server/server.cc starts them. The pointers that they hand out are set during the start, before
// the threads that read them run, and stay valid until the server is destroyed.
#ifndef SRU_SERVER_WIRING_PARTS_H_
#define SRU_SERVER_WIRING_PARTS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/base/cores.h"
#include "server/base/file_watcher.h"
#include "server/base/rate_limit.h"
#include "server/base/side_threads.h"
#include "server/batching/device_watch.h"
#include "server/callers/callers.h"
#include "server/calls/bounds/memory_options.h"
#include "server/calls/byte_budget.h"
#include "server/calls/in_flight.h"
#include "server/calls/kinds/open_streams.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"
#include "server/door/door_context.h"
#include "server/door/door_metrics.h"
#include "server/door/grpc_port.h"
#include "server/door/memory_count.h"
#include "server/http/http_server.h"
#include "server/http/metrics_server.h"
#include "server/http/status_page.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/open_inference/open_inference_methods.h"
#include "server/options.h"
#include "server/rest/gateway.h"
#include "server/rpc/health.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/history.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/tracer.h"
#include "server/transport/credentials.h"
#include "server/transport/loop.h"
#include "server/transport/security_metrics.h"
#include "server/wiring/model_loader.h"

namespace sru::server::wiring {

// Holds what all parts use.
struct Shared {
  explicit Shared(const Options& given);

  const Options options;  // with as many connections as there is memory for
  const RealClock clock;
  const calls::MemoryBudgets budgets;
  std::atomic<int64_t> received_bytes{0};
  calls::ByteBudget inflight_budget{budgets.inflight_bytes};
  calls::OpenStreams open_streams{options.rpc.max_streams};
  calls::InFlight in_flight;
  // Apart, so that nobody's request waits for others' answers.
  SideThreads readers{std::max(2, NumCores() / 4)};
  SideThreads writers{std::max(2, NumCores() / 4)};
  telemetry::Metrics metrics{&clock};
  transport::SecurityMetrics security_metrics{metrics.registry()};
  telemetry::AccessLog access_log{options.logging.access, &clock};
  const std::unique_ptr<tracing::Tracer> tracer;  // null: no spans
  callers::Callers callers;
};

// Returns the limits of a request, which the batcher's queue narrows.
calls::RequestLimits LimitsFrom(const Options& options);

// Loads models, watches devices, and tells from both whether the server is healthy and ready. The
// getters are thread-safe; the owner calls the rest from one thread.
class ServedModels final : private lifecycle::ModelObserver {
 public:
  // With a null backend, the options choose one.
  ServedModels(std::unique_ptr<kernels::Backend> backend, Shared* shared);

  // Makes the backend and loads the models of the start.
  absl::Status Load();
  // Publishes the health of all models; from now on lost devices are taken out of service.
  void StartWatch();
  // The server takes calls; ready from now on, if it serves a model.
  void SetStarted() {
    started_ = true;
    UpdateHealth();
  }
  // Not ready any more; nothing is loaded or unloaded from now on.
  void BeginDrain();
  void StopWatch() { device_watch_.Stop(); }
  // Waits for a running load and unloads all models. Nothing reads manager() any more.
  void Unload() { manager_.reset(); }

  ServedModelLoader& loader() { return loader_; }
  const ServedModelLoader& loader() const { return loader_; }
  const lifecycle::ModelRegistry& registry() const { return registry_; }
  lifecycle::ModelManager* manager() const { return serving_manager_; }  // null before Load()
  rpc::Health& health() { return health_; }
  std::set<int> lost_devices() const { return device_watch_.lost(); }

  bool draining() const { return draining_; }
  bool ready() const { return NotReadyReason().empty(); }
  // When every device has failed, only a restart may help.
  http::Probes probes() const;

 private:
  // Why calls should go to another server; empty when this one takes them.
  std::string NotReadyReason() const;
  void OnDeviceLost(int device, const absl::Status& error);
  void UpdateHealth();

  // ModelObserver:
  void OnLoad(const models::ModelLocation& location, absl::Duration duration,
              const absl::Status& status) override;
  void OnServing(const std::string& model, bool serving) override;

  Shared& shared_;
  std::atomic<bool> started_{false};  // and not draining
  std::atomic<bool> draining_{false};
  std::atomic<bool> in_service_{true};  // some model has a worker, or there is no model
  ServedModelLoader loader_;
  batching::DeviceWatch device_watch_;
  lifecycle::ModelRegistry registry_;
  std::unique_ptr<lifecycle::ModelManager> manager_;
  std::atomic<lifecycle::ModelManager*> serving_manager_{nullptr};  // for the pages' threads
  Mutex health_mutex_;  // held while health is computed and published
  rpc::Health health_;
};

// Makes the tables of both ports' methods and holds what the methods work with.
class CallMethods {
 public:
  // When the models are loaded.
  void Make(Shared* shared, ServedModels* models);

  // Of the ports for callers, and of the admin port; null before Make().
  const calls::MethodTable* table() const { return methods_.get(); }
  const calls::MethodTable* admin_table() const { return admin_methods_.get(); }

 private:
  rpc::Health admin_health_;  // of the admin port, which serves as long as it is there
  calls::ServiceContext service_context_;
  calls::AdminContext admin_context_;
  open_inference::OpenInferenceContext open_inference_context_;
  std::unique_ptr<calls::MethodTable> methods_;
  std::unique_ptr<calls::MethodTable> admin_methods_;
};

// Checks open files and addresses before models are loaded, which may take minutes.
absl::Status CheckPorts(const Options& options);

// Opens the ports for callers and for the operator, with their credentials, event loops and memory
// for what they receive.
class Doors {
 public:
  Doors(Shared* shared, const CallMethods* methods) : shared_(*shared), methods_(*methods) {}

  // In this order. The first also hands the keys of states to the loader.
  absl::Status LoadCredentials(ServedModelLoader* loader);
  void StartLoops();
  // `http` answers calls over HTTP; null: no native door is opened.
  absl::Status OpenForCallers(http::HttpServer* http);
  absl::Status OpenAdmin();

  // Looks at the files of credentials and keys at once.
  void LookNow();
  // Whether changed credentials end connections; not before OpenAdmin().
  void SetRechecks(bool rechecks);

  // Of the ports for callers; valid after LoadCredentials().
  const transport::CallCheck& check_call() const { return check_call_; }
  transport::LoopSet* loops() const { return loops_.get(); }  // null: no native door is wanted
  const door::MemoryCount& receive_memory() const { return receive_memory_; }
  bool are_open() const { return are_open_; }  // from any thread

  // The ports that are open: those for callers; all.
  std::vector<door::GrpcPort*> CallPorts() const;
  std::vector<door::GrpcPort*> Ports() const;
  ListenAddress address() const { return port_->address(); }
  std::optional<ListenAddress> http_address() const { return AddressOf(http_port_); }
  std::optional<ListenAddress> admin_address() const { return AddressOf(admin_port_); }

 private:
  static std::optional<ListenAddress> AddressOf(const std::unique_ptr<door::GrpcPort>& port) {
    return port == nullptr ? std::nullopt : std::optional(port->address());
  }
  bool is_native() const {
    return shared_.options.transport.transport == door::GrpcTransport::kNative;
  }
  door::DoorOptions MakeDoorOptions(const calls::MethodTable& methods);
  door::DoorOptions MakeCallOptions(http::HttpServer* http);
  absl::StatusOr<std::unique_ptr<door::GrpcPort>> OpenPort(bool native, absl::string_view flag,
                                                           const ListenAddress& address,
                                                           door::DoorOptions options);
  void RecheckCallers();
  void OnHandshakeFailure(const std::string& detail, const std::string& peer);
  void OnConnectionRefused(absl::string_view reason, const std::string& peer);

  Shared& shared_;
  const CallMethods& methods_;
  RateLimit refused_connections_{1, absl::Seconds(10)};  // limits the log lines on them
  Mutex recheck_mutex_;
  bool rechecks_ ABSL_GUARDED_BY(recheck_mutex_) = false;  // the ports are there
  std::unique_ptr<transport::Credentials> credentials_;
  transport::CallCheck check_call_;
  FileWatcher key_watcher_{shared_.options.security.poll_interval};
  // Of native ports; the loops also of calls over HTTP.
  transport::ConnectionTable connections_{
      static_cast<size_t>(shared_.options.connections.max_connections), /*keeps_calls=*/true};
  std::unique_ptr<door::DoorMetrics> door_metrics_;
  std::unique_ptr<transport::LoopSet> loops_;
  door::MemoryCount receive_memory_{shared_.budgets.receive_bytes};
  std::unique_ptr<door::GrpcPort> port_;
  std::unique_ptr<door::GrpcPort> http_port_;   // null = none
  std::unique_ptr<door::GrpcPort> admin_port_;  // null = none
  std::atomic<bool> are_open_{false};           // for the metrics port, which starts first
};

// Answers calls over HTTP, which native doors bring: an HTTP server in front of the gateway to the
// methods.
class HttpCalls {
 public:
  HttpCalls(Shared* shared, const ServedModels& models, const CallMethods* methods,
            const Doors* doors);

  // When the doors' loops run; without loops there is no server.
  void StartCallServer();
  // Of every gateway. To be called when the methods are there.
  rest::Gateway::Options MakeGatewayOptions();
  // Who sends it; kUnauthenticated for wrong credentials.
  absl::StatusOr<callers::CallerPtr> FindCaller(const http::PageRequest& request) const;

  // Null = none; from any thread.
  http::HttpServer* server() const { return serving_call_server_; }
  rest::Gateway* gateway() const { return gateway_.get(); }
  calls::InFlight& texts_in_flight() { return texts_in_flight_; }

 private:
  Shared& shared_;
  const Options& options_;
  const http::Probes probes_;
  const CallMethods& methods_;
  const Doors& doors_;
  calls::InFlight texts_in_flight_;
  const std::vector<rest::RouteGroup> text_routes_;              // empty with SRU_TEXTS=OFF
  std::unique_ptr<rest::Gateway> gateway_;                       // null = none
  std::unique_ptr<http::HttpServer> call_server_;                // likewise
  std::atomic<http::HttpServer*> serving_call_server_{nullptr};  // for the metrics port
};

// Serves the port for monitoring: metrics, probes, the status page with its boxes, and history.
class Pages {
 public:
  Pages(Shared* shared, const ServedModels* models, const Doors* doors, HttpCalls* http_calls);

  // Opens the port; may be called before all else.
  absl::Status Start();
  // From now on the boxes make calls.
  void OpenBoxes();
  void CloseBoxes() {
    if (page_gateway_ != nullptr) page_gateway_->Close();
  }
  // Closes the port. The pages read everything, so this comes before anything else is destroyed.
  void Stop() {
    history_.Stop();
    metrics_server_.reset();
  }

  const ListenAddress& address() const { return metrics_server_->address(); }

 private:
  rest::Gateway::Options MakePageGatewayOptions();
  std::shared_ptr<http::HttpCall> StartPageCall(calls::HttpExchange* exchange,
                                                const http::PageRequest& request);
  // What /metrics shows, and what the status page does.
  telemetry::ServerLevels Levels() const;
  http::StatusSnapshot Snapshot() const;

  Shared& shared_;
  const Options& options_;
  const ServedModels& models_;
  const Doors& doors_;
  HttpCalls& http_calls_;
  telemetry::History history_;
  http::StatusPage status_page_;
  std::unique_ptr<http::MetricsServer> metrics_server_;
  std::unique_ptr<rest::Gateway> page_gateway_;
  std::atomic<rest::Gateway*> serving_page_gateway_{nullptr};  // null while models are loaded
};

// As Server::Drain(). The server may have started in part.
bool Drain(Shared* shared, ServedModels* models, Doors* doors, HttpCalls* http_calls, Pages* pages);

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_PARTS_H_
