#include "server/http/try_endpoint.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/base/metadata_value.h"
#include "server/http/call_error.h"
#include "server/http/page_host.h"
#include "server/http/page_origin.h"

namespace sru::server {
namespace {

using nlohmann::json;

constexpr char kHeader[] = "x-sru-try";
constexpr char kJsonType[] = "application/json; charset=utf-8";

bool IsLoopbackAddress(absl::string_view address) {
  return address == "::1" || absl::StartsWith(address, "127.") ||
         absl::StartsWith(address, "::ffff:127.");
}

std::string ErrorBody(const absl::Status& status) {
  const json error = {{"error",
                       {{"code", absl::StatusCodeToString(status.code())},
                        {"message", std::string(status.message())}}}};
  return error.dump(-1, ' ', false, json::error_handler_t::replace);
}

// A server-sent event. JSON has no line ends of its own.
std::string Event(const std::string& data) { return absl::StrCat("data: ", data, "\n\n"); }

void Prepare(absl::Duration timeout, const std::string& authorization,
             grpc::ClientContext* context) {
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  if (!authorization.empty() && IsMetadataValue(authorization)) {
    context->AddMetadata("authorization", authorization);
  }
}

}  // namespace

void TryEndpoint::SetAuthenticator(Authenticator authenticator) {
  MutexLock lock(&mutex_);
  authenticator_ = std::move(authenticator);
}

void TryEndpoint::SetClassify(ClassifyFunction classify) {
  MutexLock lock(&mutex_);
  classify_ = std::move(classify);
}

void TryEndpoint::SetGenerate(GenerateFunction generate) {
  MutexLock lock(&mutex_);
  generate_ = std::move(generate);
}

void TryEndpoint::SetAnswer(AnswerFunction answer) {
  MutexLock lock(&mutex_);
  answer_ = std::move(answer);
}

void TryEndpoint::SetTranslate(TranslateFunction translate) {
  MutexLock lock(&mutex_);
  translate_ = std::move(translate);
}

void TryEndpoint::Close() {
  MutexLock lock(&mutex_);
  closed_ = true;
  for (grpc::ClientContext* context : calls_) context->TryCancel();
  while (!calls_.empty()) call_ended_.Wait(&mutex_);
  classify_ = nullptr;
  generate_ = nullptr;
  answer_ = nullptr;
  translate_ = nullptr;
}

template <typename Function, typename Call>
grpc::Status TryEndpoint::RunCall(grpc::ClientContext* context, Function TryEndpoint::*function,
                                  const Call& call) {
  const grpc::Status closed(grpc::StatusCode::UNAVAILABLE, "the server is shutting down");
  Function chosen;
  {
    MutexLock lock(&mutex_);
    if (closed_) return closed;
    chosen = this->*function;
    if (chosen == nullptr) {
      return {grpc::StatusCode::UNAVAILABLE,
              "the server is still loading its models; try again soon"};
    }
    calls_.insert(context);
  }
  grpc::Status status = call(chosen);
  chosen = nullptr;
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

absl::StatusOr<std::string> TryEndpoint::Accept(const PageRequest& request, Place* place,
                                                Refusal* refusal) {
  if (request.method != "POST") {
    refusal->http_status = 405;
    return absl::UnimplementedError(
        absl::StrCat(request.path, " takes POST; ", TryBodyAt(request.path)));
  }
  if (absl::Status status = CheckAccess(request); !status.ok()) return status;
  // No person sends this without the page.
  if (IsCrossOrigin(request) || request.header("sec-fetch-site") == "none") {
    return absl::PermissionDeniedError(
        "the request comes from a page of another origin; open the server's own page");
  }
  if (request.header(kHeader).empty()) {
    return absl::PermissionDeniedError(
        "the header X-Sru-Try is missing; it keeps other web sites from using this server");
  }
  const std::string type = absl::AsciiStrToLower(request.header("content-type"));
  if (absl::StripAsciiWhitespace(type.substr(0, type.find(';'))) != "application/json") {
    refusal->http_status = 415;
    return absl::InvalidArgumentError(
        absl::StrCat("Content-Type: expected application/json, found '", type, "'"));
  }

  Authenticator authenticator;
  {
    MutexLock lock(&mutex_);
    authenticator = authenticator_;
  }
  if (authenticator != nullptr) {
    absl::Status status = authenticator(request);
    if (!status.ok()) return status;
  }

  {
    MutexLock lock(&mutex_);
    if (running_ >= kMaxConcurrent) {
      refusal->retry_after = absl::Seconds(1);
      return absl::ResourceExhaustedError(
          absl::StrCat("/try answers ", kMaxConcurrent, " requests at a time; use gRPC for more"));
    }
    ++running_;
  }
  *place = Place(nullptr, [this](void*) {
    MutexLock lock(&mutex_);
    --running_;
  });

  absl::StatusOr<std::string> body = request.read_body();
  if (!body.ok()) {
    switch (body.status().code()) {
      case absl::StatusCode::kInvalidArgument:
        refusal->http_status = 411;
        break;
      case absl::StatusCode::kResourceExhausted:
        refusal->http_status = 413;
        break;
      default:
        refusal->http_status = 408;
    }
    return body.status();
  }
  return body;
}

template <typename Request, typename Response>
absl::StatusOr<PageResponse> TryEndpoint::Ask(
    const PageRequest& request, const Request& call, absl::Duration timeout,
    std::function<grpc::Status(grpc::ClientContext*, const Request&, Response*)> TryEndpoint::*
        function,
    std::string (*to_body)(const Response&), Refusal* refusal) {
  grpc::ClientContext context;
  Prepare(timeout, request.header("authorization"), &context);
  Response response;
  const grpc::Status status = RunCall(
      &context, function, [&](const auto& chosen) { return chosen(&context, call, &response); });
  if (!status.ok()) {
    refusal->retry_after = RetryAfterOf(status).value_or(absl::ZeroDuration());
    return ToAbsl(status);
  }
  PageResponse page;
  page.content_type = kJsonType;
  page.body = to_body(response);
  return page;
}

absl::StatusOr<PageResponse> TryEndpoint::Answer(const PageRequest& request,
                                                 const std::string& body, Place place,
                                                 Refusal* refusal) {
  if (request.path == kTryGeneratePath) return Generate(request, body, std::move(place));
  if (request.path == kTryAnswerPath) {
    absl::StatusOr<TryAnswerRequest> parsed = ParseTryAnswerRequest(body);
    if (!parsed.ok()) return parsed.status();
    return Ask(request, parsed->answer, parsed->timeout, &TryEndpoint::answer_, &AnswerBody,
               refusal);
  }
  if (request.path == kTryTranslatePath) {
    absl::StatusOr<TryTranslateRequest> parsed = ParseTryTranslateRequest(body);
    if (!parsed.ok()) return parsed.status();
    return Ask(request, parsed->translate, parsed->timeout, &TryEndpoint::translate_,
               &TranslateBody, refusal);
  }
  absl::StatusOr<TryRequest> parsed = ParseTryRequest(body);
  if (!parsed.ok()) return parsed.status();
  return Ask(request, parsed->classify, parsed->timeout, &TryEndpoint::classify_, &ClassifyBody,
             refusal);
}

absl::StatusOr<PageResponse> TryEndpoint::Generate(const PageRequest& request,
                                                   const std::string& body, Place place) {
  absl::StatusOr<TryGenerateRequest> parsed = ParseTryGenerateRequest(body);
  if (!parsed.ok()) return parsed.status();
  PageResponse page;
  page.content_type = "text/event-stream; charset=utf-8";
  // A proxy that collects the answer would defeat its purpose.
  page.headers.emplace_back("X-Accel-Buffering", "no");
  page.write_body = [this, parsed = *std::move(parsed), place = std::move(place),
                     authorization = request.header("authorization")](PageStream* stream) {
    WriteText(parsed, authorization, stream);
  };
  return page;
}

void TryEndpoint::WriteText(const TryGenerateRequest& request, const std::string& authorization,
                            PageStream* stream) {
  grpc::ClientContext context;
  Prepare(request.timeout, authorization, &context);
  const grpc::Status status =
      RunCall(&context, &TryEndpoint::generate_, [&](const GenerateFunction& generate) {
        return generate(&context, request.generate, [&](const v1::GenerateResponse& response) {
          const std::string body = GenerateBody(response);
          return stream->Write(body.empty() ? "" : Event(body));
        });
      });
  if (!status.ok()) stream->Write(Event(ErrorBody(ToAbsl(status))));
}

PageResponse TryEndpoint::Handle(const PageRequest& request) {
  Refusal refusal;
  Place place;
  absl::StatusOr<PageResponse> answer = absl::UnknownError("not answered");
  absl::StatusOr<std::string> body = Accept(request, &place, &refusal);
  if (!body.ok()) {
    answer = body.status();
  } else {
    answer = Answer(request, *body, std::move(place), &refusal);
  }
  if (answer.ok()) return *std::move(answer);
  PageResponse response;
  response.content_type = kJsonType;
  response.status =
      refusal.http_status != 0 ? refusal.http_status : HttpStatusOf(answer.status().code());
  response.body = ErrorBody(answer.status());
  if (response.status == 405) response.headers.emplace_back("Allow", "POST");
  if (refusal.retry_after > absl::ZeroDuration()) {
    // The header is in whole seconds.
    response.headers.emplace_back(
        "Retry-After",
        absl::StrCat(static_cast<int64_t>(std::ceil(absl::ToDoubleSeconds(refusal.retry_after)))));
  }
  return response;
}

}  // namespace sru::server
