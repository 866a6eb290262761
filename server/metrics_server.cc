#include "server/metrics_server.h"

#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace sru::server {
namespace {

// What civetweb says when it cannot start; it only tells the log.
class StartLog {
 public:
  static int OnMessage(const mg_connection* connection, const char* message) {
    const auto* server =
        static_cast<const CivetServer*>(mg_get_user_data(mg_get_context(connection)));
    auto* log = server == nullptr
                    ? nullptr
                    : const_cast<StartLog*>(static_cast<const StartLog*>(server->getUserContext()));
    if (log != nullptr) {
      absl::MutexLock lock(&log->mutex_);
      if (log->first_.empty()) log->first_ = message;
    }
    return 1;  // handled: civetweb writes nothing itself
  }
  std::string first() {
    absl::MutexLock lock(&mutex_);
    return first_;
  }

 private:
  absl::Mutex mutex_;
  std::string first_ ABSL_GUARDED_BY(mutex_);
};

class CivetMetricsServer : public MetricsServer, private CivetHandler {
 public:
  explicit CivetMetricsServer(Pages pages) : pages_(std::move(pages)) {}

  ~CivetMetricsServer() override {
    if (server_ == nullptr) return;
    // civetweb sees that it is to stop when its accepting thread wakes up, every two seconds, or
    // when somebody connects.
    absl::Notification stopped;
    std::thread stopper([this, &stopped] {
      server_.reset();
      stopped.Notify();
    });
    std::string host = address_.host;
    if (host == "0.0.0.0") host = "127.0.0.1";
    if (host == "::") host = "::1";
    do {
      char ignored[128];
      mg_connection* connection =
          mg_connect_client(host.c_str(), address_.port, 0, ignored, sizeof(ignored));
      if (connection != nullptr) mg_close_connection(connection);
    } while (!stopped.WaitForNotificationWithTimeout(absl::Milliseconds(10)));
    stopper.join();
  }

  absl::Status Listen(const ListenAddress& address) {
    // Requests are small and rare: a scraper and a few probes.
    const std::vector<std::string> options = {
        "listening_ports", address.ToString(), "num_threads", "3", "request_timeout_ms", "5000"};
    CivetCallbacks callbacks;
    callbacks.log_message = &StartLog::OnMessage;
    try {
      server_ = std::make_unique<CivetServer>(options, &callbacks, &log_);
    } catch (const std::exception&) {
      const std::string why = log_.first();
      return absl::UnavailableError(absl::StrCat("cannot listen on ", address.ToString(),
                                                 " (--metrics_listen)", why.empty() ? "" : ": ",
                                                 why));
    }
    address_ = address;
    const std::vector<int> ports = server_->getListeningPorts();
    if (!ports.empty()) address_.port = ports.front();
    server_->addHandler("/", this);
    return absl::OkStatus();
  }

  const ListenAddress& address() const override { return address_; }

 private:
  bool handleGet(CivetServer* /*server*/, mg_connection* connection) override {
    const mg_request_info* info = mg_get_request_info(connection);
    const std::string path = info->local_uri != nullptr ? info->local_uri : "";
    if (path == "/metrics") {
      Reply(connection, "200 OK", "text/plain; version=0.0.4; charset=utf-8", pages_.metrics());
    } else if (path == "/healthz") {
      const bool alive = pages_.alive == nullptr || pages_.alive();
      Reply(connection, alive ? "200 OK" : "503 Service Unavailable", "text/plain",
            alive ? "ok\n" : "every device has failed; start the server again\n");
    } else if (path == "/readyz") {
      const bool ready = pages_.ready();
      Reply(connection, ready ? "200 OK" : "503 Service Unavailable", "text/plain",
            ready ? "ready\n" : "not ready: loading, draining or without a device\n");
    } else {
      Reply(connection, "404 Not Found", "text/plain",
            "not found; this port has /metrics, /healthz and /readyz\n");
    }
    return true;
  }

  bool handleHead(CivetServer* server, mg_connection* connection) override {
    return handleGet(server, connection);
  }

  static void Reply(mg_connection* connection, const char* status, const char* type,
                    const std::string& body) {
    const bool head = absl::string_view(mg_get_request_info(connection)->request_method) == "HEAD";
    const std::string answer = absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                                            "\r\nContent-Length: ", body.size(),
                                            "\r\nConnection: close\r\n\r\n", head ? "" : body);
    mg_write(connection, answer.data(), answer.size());
  }

  const Pages pages_;
  StartLog log_;
  ListenAddress address_;
  std::unique_ptr<CivetServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const ListenAddress& address,
                                                                    Pages pages) {
  auto server = std::make_unique<CivetMetricsServer>(std::move(pages));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  return std::unique_ptr<MetricsServer>(std::move(server));
}

}  // namespace sru::server
