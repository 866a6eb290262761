#include "server/http/metrics_server.h"

#include <exception>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/http/status_json.h"

namespace sru::server::http {
namespace {

// The answer of `page`, or one that says why there is none.
template <typename Page>
PageResponse Guarded(const Page& page) {
  try {
    return page();
  } catch (const std::bad_alloc&) {
    return TextResponse(503, "memory does not suffice for this answer; try again\n");
  } catch (const std::exception& error) {
    return TextResponse(500, absl::StrCat("this answer could not be made: ", error.what(), "\n"));
  }
}

PageResponse ShuttingDown() {
  PageResponse response = TextResponse(503, "the server is shutting down\n");
  response.headers.emplace_back("Retry-After", "1");
  return response;
}

}  // namespace

bool IsProbe(const PageRequest& request) {
  return request.path == "/healthz" || request.path == "/readyz";
}

PageResponse AnswerProbe(const PageRequest& request, const Probes& probes) {
  if (!IsRead(request)) return NotARead(request);
  if (request.path == "/healthz") {
    return probes.alive == nullptr || probes.alive()
               ? TextResponse(200, "ok\n")
               : TextResponse(503, "every device has failed; start the server again\n");
  }
  const std::string reason = probes.not_ready();
  return reason.empty() ? TextResponse(200, "ready\n")
                        : TextResponse(503, absl::StrCat("not ready: ", reason, "\n"));
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(
    const ListenAddress& address, Pages pages, const HttpServer::Limits& limits) {
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(pages)));
  HttpServer::Options options;
  options.limits = limits;
  options.start = [started = server.get()](calls::HttpExchange* exchange, PageRequest request) {
    return started->Start(exchange, std::move(request));
  };
  SRU_ASSIGN_OR_RETURN(server->http_,
                       HttpServer::Start("metrics_listen", address, std::move(options)));
  return server;
}

MetricsServer::~MetricsServer() {
  // Requests are answered before their connections are closed; those that come now, or have not
  // come whole, with 503.
  stopping_ = true;
  metrics_worker_.Stop();
  page_workers_.Stop();
  if (http_ != nullptr) http_->Stop();
}

std::shared_ptr<HttpCall> MetricsServer::Start(calls::HttpExchange* exchange, PageRequest request) {
  std::shared_ptr<HttpCall> call;
  if (pages_.call != nullptr) call = pages_.call(exchange, request);
  if (call != nullptr) return call;
  return std::make_shared<PageCall>(
      exchange, std::move(request),
      [this](const std::shared_ptr<HttpCall>& page) { Handle(page); });
}

// Runs on the thread that serves all connections. Probes are answered right here, so that they wait
// for nothing that takes long.
void MetricsServer::Handle(const std::shared_ptr<HttpCall>& call) {
  const PageRequest& request = call->request();
  if (IsProbe(request)) {
    call->Reply(AnswerProbe(request, pages_.probes));
  } else if (stopping_) {
    call->Reply(ShuttingDown());
  } else if (request.path == "/version") {
    if (!IsRead(request)) return call->Reply(NotARead(request));
    PageResponse version;
    version.content_type = "application/json";
    version.body = BuildJson();
    call->Reply(std::move(version));
  } else if (request.path == "/metrics") {
    if (!IsRead(request)) return call->Reply(NotARead(request));
    QueueMetrics(call);
  } else {
    page_workers_.Post([this, call] {
      if (!call->gone()) call->Reply(Guarded([&] { return OtherPage(call->request()); }));
    });
  }
}

PageResponse MetricsServer::OtherPage(const PageRequest& request) const {
  std::optional<PageResponse> other;
  if (pages_.other != nullptr) other = pages_.other(request);
  if (other.has_value()) return *std::move(other);
  return TextResponse(404,
                      "not found; this port has /, /status.json, /version, /metrics, /healthz and "
                      "/readyz\n");
}

// All requests that come before the text is begun share it, so that one text is made at a time.
void MetricsServer::QueueMetrics(const std::shared_ptr<HttpCall>& call) {
  MutexLock lock(&mutex_);
  metrics_calls_.push_back(call);
  if (metrics_calls_.size() > 1) return;
  try {
    metrics_worker_.Post([this] { AnswerMetrics(); });
  } catch (const std::exception&) {
    metrics_calls_.clear();
    throw;
  }
}

void MetricsServer::AnswerMetrics() {
  std::vector<std::shared_ptr<HttpCall>> calls;
  {
    MutexLock lock(&mutex_);
    calls.swap(metrics_calls_);
  }
  std::shared_ptr<const PageResponse> response;
  for (const auto& call : calls) {
    if (call->gone()) continue;
    if (response == nullptr) {
      response = std::make_shared<const PageResponse>(Guarded([this] {
        PageResponse made;
        made.content_type = "text/plain; version=0.0.4; charset=utf-8";
        made.body = pages_.metrics();
        return made;
      }));
    }
    call->Reply(response);
  }
}

}  // namespace sru::server::http
