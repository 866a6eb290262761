#include "server/http/metrics_server.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "CivetServer.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace sru::server {
namespace {

// Of a request's body.
constexpr int64_t kMaxBodyBytes = 64 << 10;
constexpr absl::Duration kBodyTimeout = absl::Seconds(5);

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
      MutexLock lock(&log->mutex_);
      if (log->first_.empty()) log->first_ = message;
    }
    return 1;  // handled: civetweb writes nothing itself
  }
  std::string first() {
    MutexLock lock(&mutex_);
    return first_;
  }

 private:
  Mutex mutex_;
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
    // Requests are small and rare: a scraper, a few probes, people who watch. By default civetweb
    // answers the question of a browser whether another site's script may call with "yes, any".
    const std::vector<std::string> options = {"listening_ports",
                                              address.ToString(),
                                              "num_threads",
                                              "8",
                                              "request_timeout_ms",
                                              "5000",
                                              "access_control_allow_origin",
                                              "",
                                              "access_control_allow_methods",
                                              "",
                                              "access_control_allow_headers",
                                              ""};
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
  bool handleGet(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handleHead(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handlePost(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handlePut(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handlePatch(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handleDelete(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }
  bool handleOptions(CivetServer* /*server*/, mg_connection* c) override { return Handle(c); }

  bool Handle(mg_connection* connection) {
    const mg_request_info& info = *mg_get_request_info(connection);
    const PageRequest request = RequestOf(info, connection);
    Reply(connection, request, Answer(request));
    return true;
  }

  PageResponse Answer(const PageRequest& request) const {
    PageResponse response;
    const bool known =
        request.path == "/metrics" || request.path == "/healthz" || request.path == "/readyz";
    if (known && request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
      response.body = absl::StrCat(request.path, " takes GET and HEAD\n");
      response.headers.emplace_back("Allow", "GET, HEAD");
    } else if (request.path == "/metrics") {
      response.content_type = "text/plain; version=0.0.4; charset=utf-8";
      response.body = pages_.metrics();
    } else if (request.path == "/healthz") {
      const bool alive = pages_.alive == nullptr || pages_.alive();
      response.status = alive ? 200 : 503;
      response.body = alive ? "ok\n" : "every device has failed; start the server again\n";
    } else if (request.path == "/readyz") {
      const bool ready = pages_.ready();
      response.status = ready ? 200 : 503;
      response.body = ready ? "ready\n" : "not ready: loading, draining or without a device\n";
    } else {
      std::optional<PageResponse> other;
      if (pages_.other != nullptr) other = pages_.other(request);
      if (other.has_value()) return *std::move(other);
      response.status = 404;
      response.body = "not found; this port has /, /status.json, /metrics, /healthz and /readyz\n";
    }
    return response;
  }

  static PageRequest RequestOf(const mg_request_info& info, mg_connection* connection) {
    PageRequest request;
    request.method = info.request_method;
    request.path = info.local_uri != nullptr ? info.local_uri : "";
    request.remote_address = info.remote_addr;
    for (int i = 0; i < info.num_headers; ++i) {
      std::string& value = request.headers[absl::AsciiStrToLower(info.http_headers[i].name)];
      absl::StrAppend(&value, value.empty() ? "" : ", ", info.http_headers[i].value);
    }
    const int64_t length = info.content_length;
    request.read_body = [connection, length] { return ReadBody(connection, length); };
    return request;
  }

  static absl::StatusOr<std::string> ReadBody(mg_connection* connection, int64_t length) {
    if (length < 0) {
      return absl::InvalidArgumentError("Content-Length: expected the size of the body");
    }
    if (length > kMaxBodyBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the body has ", length, " bytes, expected at most ", kMaxBodyBytes));
    }
    const absl::Time deadline = absl::Now() + kBodyTimeout;
    std::string body(static_cast<size_t>(length), '\0');
    size_t size = 0;
    while (size < body.size()) {
      // civetweb's own limit of time is one for each read.
      const int count =
          mg_read(connection, &body[size], std::min<size_t>(4096, body.size() - size));
      if (count <= 0 || absl::Now() > deadline) {
        return absl::DeadlineExceededError(absl::StrCat("the body did not come whole within ",
                                                        absl::FormatDuration(kBodyTimeout)));
      }
      size += static_cast<size_t>(count);
    }
    return body;
  }

  static void Reply(mg_connection* connection, const PageRequest& request,
                    const PageResponse& response) {
    std::string answer = absl::StrCat(
        "HTTP/1.1 ", response.status, " ", mg_get_response_code_text(connection, response.status),
        "\r\nContent-Type: ", response.content_type, "\r\nContent-Length: ", response.body.size());
    for (const auto& [name, value] : response.headers) {
      absl::StrAppend(&answer, "\r\n", name, ": ", value);
    }
    absl::StrAppend(&answer, "\r\nConnection: close\r\n\r\n",
                    request.method == "HEAD" ? "" : response.body);
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
