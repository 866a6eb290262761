// Doors: opens the ports for callers and for the operator, with their credentials, their event
// loops and the memory of what they receive.
#ifndef SRU_SERVER_WIRING_DOORS_H_
#define SRU_SERVER_WIRING_DOORS_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "server/base/file_watcher.h"
#include "server/base/rate_limit.h"
#include "server/door/door_context.h"
#include "server/door/door_metrics.h"
#include "server/door/grpc_port.h"
#include "server/door/memory_count.h"
#include "server/http/http_server.h"
#include "server/transport/credentials.h"
#include "server/transport/loop.h"
#include "server/wiring/call_methods.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

// Checks first what would otherwise fail after models were loaded, which may take minutes.
absl::Status CheckPorts(const Options& options);

class Doors {
 public:
  Doors(Shared* shared, const CallMethods* methods);

  // In this order. The first also hands the keys of states to the loader.
  absl::Status LoadCredentials(ServedModelLoader* loader);
  void StartLoops();
  // `http` answers calls over HTTP; null: no native door is opened.
  absl::Status OpenForCallers(http::HttpServer* http);
  absl::Status OpenAdmin();

  // Looks at the files of credentials and keys at once.
  void LookNow();
  // Changed credentials do not end connections any more.
  void StopRechecks() { SetRechecks(false); }

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
  bool is_native() const { return options_.transport.transport == door::GrpcTransport::kNative; }
  door::DoorOptions MakeDoorOptions(const calls::MethodTable& methods);
  door::DoorOptions MakeCallOptions(http::HttpServer* http);
  absl::StatusOr<std::unique_ptr<door::GrpcPort>> OpenPort(absl::string_view flag,
                                                           const ListenAddress& address,
                                                           door::DoorOptions options);
  absl::StatusOr<std::unique_ptr<door::GrpcPort>> OpenNativePort(absl::string_view flag,
                                                                 const ListenAddress& address,
                                                                 door::DoorOptions options);
  void SetRechecks(bool rechecks);
  void RecheckCallers();
  void OnHandshakeFailure(const std::string& detail, const std::string& peer);
  void OnConnectionRefused(absl::string_view reason, const std::string& peer);

  Shared& shared_;
  const Options& options_;
  const CallMethods& methods_;
  RateLimit refused_connections_{1, absl::Seconds(10)};  // limits the log lines on them
  Mutex recheck_mutex_;
  bool rechecks_ ABSL_GUARDED_BY(recheck_mutex_) = false;  // the ports are there
  std::unique_ptr<transport::Credentials> credentials_;
  transport::CallCheck check_call_;
  FileWatcher key_watcher_;
  // Of native ports; the loops also of calls over HTTP.
  transport::ConnectionTable connections_;
  std::unique_ptr<door::DoorMetrics> door_metrics_;
  std::unique_ptr<transport::LoopSet> loops_;
  door::MemoryCount receive_memory_;
  std::unique_ptr<door::GrpcPort> port_;
  std::unique_ptr<door::GrpcPort> http_port_;   // null = none
  std::unique_ptr<door::GrpcPort> admin_port_;  // null = none
  std::atomic<bool> are_open_{false};           // for the metrics port, which starts first
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_DOORS_H_
