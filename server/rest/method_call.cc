#include "server/rest/method_call.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/calls/message_cord.h"
#include "server/rest/event_stream.h"
#include "server/rest/json_message.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Message;

// A parsed message with strings and small messages takes three times its size on the wire, and so
// do a message and its frame in base64.
constexpr int64_t kAnswerExpansion = 3;

RestError BadAnswer() {
  return {absl::InternalError("a service answered with a message that cannot be read")};
}

// Takes the bytes of the message out of the body.
absl::StatusOr<absl::Cord> TakeRequest(const SharedCall& call, const calls::Method& method,
                                       const CallForm& form) {
  std::string& body = call->body();
  if (form.is_base64) {
    if (!call->memory().Grow(static_cast<int64_t>(body.size()))) return call->memory().NoMemory();
    SRU_ASSIGN_OR_RETURN(body, DecodeBase64Pieces(body));
  }
  absl::string_view text = body;
  if (IsFramed(form.answer)) {
    SRU_ASSIGN_OR_RETURN(text, OnlyMessage(body));
  }
  absl::Cord bytes;
  if (form.is_json) {
    std::string wire;
    SRU_RETURN_UNLESS_OK(ParseJsonMessage(*method.request->GetDescriptor(), text, &call->memory(),
                                          &wire, &call->limits()));
    bytes = std::move(wire);
  } else {
    const size_t prefix = body.size() - text.size();
    bytes = std::move(body);
    bytes.RemovePrefix(prefix);
  }
  std::string().swap(body);
  call->memory().ShrinkTo(static_cast<int64_t>(bytes.size()));
  return bytes;
}

// Writes the message of an answer in the encoding of the form, without a frame.
absl::Status WriteAnswer(const calls::Method& method, const CallForm& form, JsonFields fields,
                         const absl::Cord& bytes, MemoryHold* memory, std::string* text) {
  if (!form.is_json) {
    absl::CopyCordToString(bytes, text);
    return absl::OkStatus();
  }
  return WriteJsonMessage(*method.response->GetDescriptor(), bytes, fields, memory, text);
}

void AnswerWith(const SharedCall& call, const calls::Method& method, const CallForm& form,
                const calls::LocalAnswer& answer) {
  if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
  const auto size = static_cast<int64_t>(answer.message.size());
  if (!call->memory().Grow(kAnswerExpansion * size)) return call->Fail(call->memory().NoMemory());
  http::PageResponse response;
  absl::Status status =
      WriteAnswer(method, form, JsonFields::kAll, answer.message, &call->memory(), &response.body);
  if (!status.ok()) return call->Fail(status);
  if (IsFramed(form.answer)) {
    response.content_type = WebContentType(form.answer);
    const std::string end = ErrorBody(form.answer, ErrorOfCall(answer.end));
    response.body = WebFrame(form.answer, response.body, /*is_end=*/false) +
                    WebFrame(form.answer, end, /*is_end=*/true);
  } else {
    response.content_type = form.is_json ? kJsonContentType : kProtoContentType;
    if (form.answer == ErrorForm::kConnect) AddConnectTrailers(answer.end.trailers, &response);
  }
  call->memory().ShrinkTo(static_cast<int64_t>(response.body.capacity()));
  call->Reply(std::move(response));
}

// Hands the messages of one call over as the client takes them.
class MessageEvents : public std::enable_shared_from_this<MessageEvents> {
 public:
  MessageEvents(SharedCall call, const calls::Method& method, const CallForm& form)
      : call_(std::move(call)),
        method_(method),
        form_(form),
        events_(std::make_shared<EventStream>(call_, form.answer)) {}

  void Start(const absl::Cord& request) {
    events_->Start();
    stream_ = call_->ServerStream(
        method_.path(), request,
        [self = shared_from_this()](const absl::Cord& message) {
          // The service would wait until the call's deadline for somebody to read on.
          Guard([&] { self->OnMessage(message); },
                [&](const RestError& error) { self->Fail(error); });
        },
        [self = shared_from_this()](const calls::LocalAnswer& answer) { self->OnDone(answer); });
    stream_->Next();
  }

 private:
  void OnMessage(const absl::Cord& bytes) {
    std::string data;
    MemoryHold unlimited(nullptr);  // one message, which the service has reserved
    if (!WriteAnswer(method_, form_, JsonFields::kSet, bytes, &unlimited, &data).ok()) {
      return Fail(BadAnswer());
    }
    events_->Send(data, [self = shared_from_this()](bool more) {
      more ? self->stream_->Next() : self->stream_->Cancel();
    });
  }

  void Fail(const RestError& error) {
    events_->Fail(error);
    stream_->Cancel();  // last: what it ends with is not the reason
  }

  void OnDone(const calls::LocalAnswer& answer) {
    const RestError end = ErrorOfCall(answer.end);
    if (!end.status.ok()) return events_->Fail(end);
    events_->End(IsFramed(form_.answer) ? ErrorBody(form_.answer, end) : "");
  }

  const SharedCall call_;
  const calls::Method& method_;
  const CallForm form_;
  const std::shared_ptr<EventStream> events_;
  std::shared_ptr<calls::LocalStream> stream_;  // constant once Start() has returned
};

}  // namespace

void CallMethod(const SharedCall& call, const calls::Method& method, const CallForm& form) {
  absl::StatusOr<absl::Cord> request = TakeRequest(call, method, form);
  if (!request.ok()) return call->Fail(request.status());
  if (method.kind == calls::MethodKind::kServerStream) {
    return std::make_shared<MessageEvents>(call, method, form)->Start(*request);
  }
  call->Unary(method.path(), *std::move(request),
              [call, &method, form](const calls::LocalAnswer& answer) {
                AnswerWith(call, method, form, answer);
              });
}

absl::Status ReadAnswer(const SharedCall& call, const calls::LocalAnswer& answer,
                        Message* response) {
  const absl::Cord& bytes = answer.message;
  if (!call->memory().Grow(kAnswerExpansion * static_cast<int64_t>(bytes.size()))) {
    return call->memory().NoMemory();
  }
  return calls::ParseCord(bytes, response) ? absl::OkStatus() : BadAnswer().status;
}

std::string MethodOf(const Message& request) {
  const google::protobuf::Descriptor& type = *request.GetDescriptor();
  const absl::string_view package = type.file()->package();
  return absl::StrCat("/", package, package == "inference" ? ".GRPC" : ".", "InferenceService/",
                      absl::StripSuffix(type.name(), "Request"));
}

RouteGroup MethodRoutes(const calls::MethodTable& methods) {
  RouteGroup group;
  for (const calls::Method& method : methods.rows()) {
    Route route(AnswerMemory::kJsonIfAsked, "POST", method.path(), ErrorForm::kConnect);
    route.content_types = WebContentTypes(method);
    if (!method.needs_token) route.most_body = calls::Method::kMostOpenMessage;
    route.calls = method.id;
    route.handle = [&method](const SharedCall& call) {
      if (method.kind != calls::MethodKind::kBidirectional) {
        return CallMethod(call, method, WebFormOf(call->request()));
      }
      call->Fail(absl::UnimplementedError(
          absl::StrCat(method.path(), " has a stream of requests, which needs gRPC")));
    };
    group.routes.push_back(std::move(route));
  }
  return group;
}

}  // namespace sru::server::rest
