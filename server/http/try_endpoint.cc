#include "server/http/try_endpoint.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "google/rpc/retry.pb.h"
#include "models/json.h"
#include "server/http/page_host.h"

namespace sru::server {
namespace {

using nlohmann::json;

constexpr char kHeader[] = "x-sru-try";
constexpr int64_t kMaxTimeoutMs = 10000;

constexpr char kAskedForBody[] = R"(expected {"text": "...", "model": "NAME", "version": N})";

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kCancelled:
      return 499;
    case absl::StatusCode::kUnimplemented:
      return 501;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

bool IsLoopbackAddress(absl::string_view address) {
  return address == "::1" || absl::StartsWith(address, "127.") ||
         absl::StartsWith(address, "::ffff:127.");
}

// Whether, according to the browser, a web page of another origin sent this.
bool IsCrossOrigin(const PageRequest& request) {
  const std::string site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin") return true;
  const std::string origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t at = origin.find("://");
  return at == std::string::npos || origin.substr(at + 3) != request.header("host");
}

std::string ErrorBody(const absl::Status& status) {
  const json error = {{"error",
                       {{"code", absl::StatusCodeToString(status.code())},
                        {"message", std::string(status.message())}}}};
  return error.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string ResponseBody(const v1::ClassifyResponse& response) {
  json labels = json::array();
  json body = {{"model", response.model()}, {"version", response.version()}};
  if (response.classifications_size() > 0) {
    const v1::Classification& classification = response.classifications(0);
    for (const v1::Label& label : classification.labels()) {
      labels.push_back(
          {{"name", label.name()}, {"probability", label.probability()}, {"logit", label.logit()}});
    }
    body["token_count"] = classification.token_count();
    body["truncated"] = classification.truncated();
  }
  body["labels"] = std::move(labels);
  body["times"] = {{"tokenize_us", response.times().tokenize_us()},
                   {"queue_us", response.times().queue_us()},
                   {"compute_us", response.times().compute_us()},
                   {"total_us", response.times().total_us()}};
  return body.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<absl::Duration> RetryAfter(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::RetryInfo info;
    if (!detail.UnpackTo(&info)) continue;
    return absl::Seconds(info.retry_delay().seconds()) +
           absl::Nanoseconds(info.retry_delay().nanos());
  }
  return std::nullopt;
}

// nullopt for a text that is no integer or too large.
std::optional<int64_t> IntegerOf(const json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  return value.get<int64_t>();
}

absl::Status WrongType(absl::string_view key, absl::string_view expected, const json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected ", expected, ", found ", models::JsonExcerpt(found)));
}

}  // namespace

absl::StatusOr<TryRequest> ParseTryRequest(absl::string_view body) {
  absl::StatusOr<json> object =
      models::ParseJsonObject({body.data(), body.size()}, {/*max_depth=*/4}, "body");
  if (!object.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(object.status().message(), "; ", kAskedForBody));
  }
  TryRequest request;
  bool has_text = false;
  for (const auto& [key, value] : object->items()) {
    if (key == "text") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      request.classify.add_sequences()->set_text(value.get<std::string>());
      has_text = true;
    } else if (key == "model") {
      if (!value.is_string()) return WrongType(key, "a string", value);
      request.classify.set_model(value.get<std::string>());
    } else if (key == "version") {
      const std::optional<int64_t> version = IntegerOf(value);
      if (!version.has_value()) {
        return WrongType(key, "a version number, or 0 for the latest", value);
      }
      request.classify.set_version(*version);
    } else if (key == "timeout_ms") {
      const std::optional<int64_t> timeout_ms = IntegerOf(value);
      if (!timeout_ms.has_value() || *timeout_ms < 1 || *timeout_ms > kMaxTimeoutMs) {
        return WrongType(key, absl::StrCat("1 to ", kMaxTimeoutMs), value);
      }
      request.timeout = absl::Milliseconds(*timeout_ms);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("body: there is no key ", models::Quoted(key),
                                                     ", ", kAskedForBody,
                                                     " and perhaps \"timeout_ms\""));
    }
  }
  if (!has_text) {
    return absl::InvalidArgumentError(absl::StrCat("text: is missing, ", kAskedForBody));
  }
  return request;
}

void TryEndpoint::SetAuthenticator(Authenticator authenticator) {
  MutexLock lock(&mutex_);
  authenticator_ = std::move(authenticator);
}

void TryEndpoint::SetClassify(ClassifyFunction classify) {
  MutexLock lock(&mutex_);
  classify_ = std::move(classify);
}

void TryEndpoint::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  while (!calls_.empty()) call_ended_.Wait(&mutex_);
  classify_ = nullptr;
}

grpc::Status TryEndpoint::Call(grpc::ClientContext* context, const v1::ClassifyRequest& request,
                               v1::ClassifyResponse* response) {
  const grpc::Status closed(grpc::StatusCode::UNAVAILABLE, "the server is shutting down");
  ClassifyFunction classify;
  {
    MutexLock lock(&mutex_);
    if (closed_) return closed;
    if (classify_ == nullptr) {
      return {grpc::StatusCode::UNAVAILABLE,
              "the server is still loading its models; try again soon"};
    }
    classify = classify_;
    calls_.insert(context);
  }
  grpc::Status status = classify(context, request, response);
  classify = nullptr;
  MutexLock lock(&mutex_);
  calls_.erase(context);
  call_ended_.SignalAll();
  if (closed_ && status.error_code() == grpc::StatusCode::CANCELLED) return closed;
  return status;
}

absl::Status TryEndpoint::CheckAccess(const PageRequest& request) const {
  if (access_ == TryAccess::kAll) {
    if (IsAllowedPageHost(request.header("host"), page_hosts_)) return absl::OkStatus();
    return absl::PermissionDeniedError(WrongPageHost(request.header("host")));
  }
  if (access_ == TryAccess::kOff) {
    return absl::PermissionDeniedError(
        "trying a model is turned off on this server (--status_page_try=off, or --tls_client_ca, "
        "whose callers all show a certificate)");
  }
  const bool forwarded = request.headers.count("forwarded") + request.headers.count("via") +
                             request.headers.count("x-forwarded-for") +
                             request.headers.count("x-real-ip") >
                         0;
  const std::optional<PageHost> host = ParsePageHost(request.header("host"));
  if (!forwarded && IsLoopbackAddress(request.remote_address) && host.has_value() &&
      host->is_loopback()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "a model can be tried from the server's own machine only (--status_page_try=local): open "
      "this page as localhost through `kubectl port-forward` or `ssh -L`, or start the server with "
      "--status_page_try=all");
}

absl::StatusOr<std::string> TryEndpoint::Answer(const PageRequest& request, int* http_status,
                                                absl::Duration* retry_after) {
  if (request.method != "POST") {
    *http_status = 405;
    return absl::UnimplementedError(absl::StrCat("/try takes POST; ", kAskedForBody));
  }
  if (absl::Status status = CheckAccess(request); !status.ok()) return status;
  if (IsCrossOrigin(request)) {
    return absl::PermissionDeniedError(
        "the request comes from a page of another origin; open the server's own page");
  }
  if (request.header(kHeader).empty()) {
    return absl::PermissionDeniedError(
        "the header X-Sru-Try is missing; it keeps other web sites from using this server");
  }
  const std::string type = absl::AsciiStrToLower(request.header("content-type"));
  if (absl::StripAsciiWhitespace(type.substr(0, type.find(';'))) != "application/json") {
    *http_status = 415;
    return absl::InvalidArgumentError(
        absl::StrCat("Content-Type: expected application/json, found '", type, "'"));
  }

  Authenticator authenticator;
  {
    MutexLock lock(&mutex_);
    authenticator = authenticator_;
  }
  if (authenticator != nullptr) {
    absl::Status status = authenticator(request.header("authorization"));
    if (!status.ok()) return status;
  }

  {
    MutexLock lock(&mutex_);
    if (running_ >= kMaxConcurrent) {
      *retry_after = absl::Seconds(1);
      return absl::ResourceExhaustedError(
          absl::StrCat("/try answers ", kMaxConcurrent, " requests at a time; use gRPC for more"));
    }
    ++running_;
  }
  const absl::Cleanup leave = [this] {
    MutexLock lock(&mutex_);
    --running_;
  };

  absl::StatusOr<std::string> body = request.read_body();
  if (!body.ok()) {
    switch (body.status().code()) {
      case absl::StatusCode::kInvalidArgument:
        *http_status = 411;
        break;
      case absl::StatusCode::kResourceExhausted:
        *http_status = 413;
        break;
      default:
        *http_status = 408;
    }
    return body.status();
  }
  absl::StatusOr<TryRequest> parsed = ParseTryRequest(*body);
  if (!parsed.ok()) return parsed.status();

  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + parsed->timeout));
  const std::string authorization = request.header("authorization");
  if (!authorization.empty()) context.AddMetadata("authorization", authorization);
  v1::ClassifyResponse response;
  const grpc::Status status = Call(&context, parsed->classify, &response);
  if (!status.ok()) {
    *retry_after = RetryAfter(status).value_or(absl::ZeroDuration());
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  }
  return ResponseBody(response);
}

PageResponse TryEndpoint::Handle(const PageRequest& request) {
  PageResponse response;
  response.content_type = "application/json; charset=utf-8";
  int http_status = 0;
  absl::Duration retry_after = absl::ZeroDuration();
  absl::StatusOr<std::string> body = Answer(request, &http_status, &retry_after);
  if (body.ok()) {
    response.body = *std::move(body);
    return response;
  }
  response.status = http_status != 0 ? http_status : HttpStatusOf(body.status().code());
  response.body = ErrorBody(body.status());
  if (response.status == 405) response.headers.emplace_back("Allow", "POST");
  if (retry_after > absl::ZeroDuration()) {
    // The header is in whole seconds.
    response.headers.emplace_back(
        "Retry-After",
        absl::StrCat(static_cast<int64_t>(std::ceil(absl::ToDoubleSeconds(retry_after)))));
  }
  return response;
}

}  // namespace sru::server
