#include <utility>

#include "server/rest/api_routes.h"
#include "server/rest/error_response.h"
#include "server/rest/route.h"
#include "server/wiring/parts.h"
#ifdef SRU_TEXTS
#include "server/translation/text_routes.h"
#endif

namespace sru::server::wiring {
namespace {

// Time limits of HTTP/1.1. A request's header must arrive within the first, from its first byte on.
constexpr absl::Duration kHttpHeaderTimeout = absl::Seconds(10);
constexpr absl::Duration kHttpBodyTimeout = absl::Seconds(60);
constexpr absl::Duration kHttpProgressTimeout = absl::Seconds(10);  // for each 16 KiB of the body
constexpr absl::Duration kHttpIdleTimeout = absl::Seconds(90);      // between two requests

// Returns the limits on the size and time of requests over HTTP.
http::HttpServer::Limits CallLimits(const Options& options, const calls::MemoryBudgets& budgets) {
  http::HttpServer::Limits limits;
  limits.max_header_bytes = static_cast<size_t>(options.connections.max_metadata_bytes);
  limits.max_body_bytes = static_cast<size_t>(options.rpc.max_message_bytes);
  limits.max_total_body_bytes = static_cast<size_t>(budgets.receive_bytes);
  limits.header_timeout = kHttpHeaderTimeout;
  limits.body_timeout = kHttpBodyTimeout;
  limits.progress_timeout = kHttpProgressTimeout;
  limits.answer_timeout = options.memory.send_timeout;
  limits.max_call = options.connections.max_call;
  limits.idle_timeout = kHttpIdleTimeout;
  limits.max_age = options.connections.max_age;
  limits.max_age_grace = options.connections.max_age_grace;
  return limits;
}

// What does not come as far as a route.
rest::RestError MalformedRequest(int http_status, const std::string& text) {
  rest::RestError error(http_status == 501   ? absl::UnimplementedError(text)
                        : http_status == 431 ? absl::ResourceExhaustedError(text)
                        : http_status == 504 ? absl::DeadlineExceededError(text)
                                             : absl::InvalidArgumentError(text));
  error.http_status = http_status;
  return error;
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

}  // namespace

HttpCalls::HttpCalls(Shared* shared, const ServedModels& models, const CallMethods* methods,
                     const Doors* doors)
    : shared_(*shared),
      options_(shared->options),
      probes_(models.probes()),
      methods_(*methods),
      doors_(*doors),
      text_routes_(
#ifdef SRU_TEXTS
          translation::TextRoutes(&models.registry(), LimitsFrom(options_), &texts_in_flight_)
#endif
      ) {
}

absl::StatusOr<callers::CallerPtr> HttpCalls::FindCaller(const http::PageRequest& request) const {
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
  transport::CallVerdict verdict = doors_.check_call()(call);
  if (verdict.refusal != nullptr) return absl::UnauthenticatedError(verdict.refusal);
  return std::move(verdict.caller);
}

rest::Gateway::Options HttpCalls::MakeGatewayOptions() {
  rest::Gateway::Options gateway;
  gateway.methods = methods_.table();
  gateway.authenticate = [this](const http::PageRequest& request) { return FindCaller(request); };
  gateway.asks_for_tokens = !options_.security.auth_tokens_file.empty();
  gateway.auth_probes = options_.security.auth_health;
  gateway.memory = &shared_.inflight_budget;
  gateway.limits = LimitsFrom(options_);
  gateway.max_body_bytes = static_cast<size_t>(options_.rpc.max_message_bytes);
  gateway.readers = &shared_.readers;
  gateway.more = text_routes_;
  gateway.more.push_back(
      rest::FrontPageRoutes(gateway.asks_for_tokens, options_.security.has_tls()));
  gateway.page_hosts = options_.http.status_page_hosts;
  gateway.on_refused = [this](const http::PageRequest& request, const callers::Caller* caller,
                              int http_status, const absl::Status& reason) {
    if (absl::IsUnauthenticated(reason)) return;  // the check has logged it
    shared_.access_log.OnHttpRefusal(request.path, http_status, reason, HeadersOf(request),
                                     request.remote_address(),
                                     caller == nullptr ? "" : caller->name());
  };
  return gateway;
}

void HttpCalls::StartCallServer() {
  if (doors_.loops() == nullptr) return;
  rest::Gateway::Options gateway = MakeGatewayOptions();
  gateway.allow_origins = options_.http.allow_origins;
  gateway.max_body_flag = " (--max_message_bytes)";
  gateway_ = std::make_unique<rest::Gateway>(std::move(gateway));
  http::HttpServer::Options options;
  options.keep_alive = true;
  options.loops = doors_.loops();
  options.limits = CallLimits(options_, shared_.budgets);
  options.make_error = [](int status, const std::string& text) {
    return rest::ErrorResponse(rest::ErrorForm::kV1, MalformedRequest(status, text));
  };
  options.on_not_taken = [this](absl::string_view path, const std::string& peer) {
    shared_.access_log.OnAnswerNotTaken(path, peer, options_.memory.send_timeout);
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

}  // namespace sru::server::wiring
