#include "server/rest/v1_routes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/event_stream.h"
#include "server/rest/guard.h"
#include "server/rest/json_message.h"
#include "server/rest/openapi.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Message;
using SharedCall = std::shared_ptr<RestCall>;

constexpr char kService[] = "/sru.v1.InferenceService/";

RestError BadAnswer() {
  return {absl::InternalError("a service answered with a message that cannot be read")};
}

// The bytes of a message that is sent; the body is no longer needed.
absl::Cord TakeRequest(const SharedCall& call, const Message& request) {
  absl::Cord bytes = calls::ToCord(request);
  std::string().swap(call->body());
  call->memory().ShrinkTo(static_cast<int64_t>(bytes.size()));
  return bytes;
}

// Reads what a service answered. What the memory holds for the request is free by then.
absl::Status ReadAnswer(const SharedCall& call, const absl::Cord& bytes, Message* response) {
  // Parsed, numbers are as long as on the wire, and strings and small messages take three times as much.
  if (!call->memory().Grow(3 * static_cast<int64_t>(bytes.size()))) {
    return NoRequestMemory();
  }
  return calls::ParseCord(bytes, response) ? absl::OkStatus() : BadAnswer().status;
}

http::PageResponse JsonResponse(std::string body) {
  http::PageResponse response;
  response.content_type = kJsonContentType;
  response.body = std::move(body);
  return response;
}

void AnswerWith(const SharedCall& call, const calls::LocalAnswer& answer,
                std::unique_ptr<Message> response) {
  if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
  std::string body;
  absl::Status status = ReadAnswer(call, answer.message, response.get());
  if (status.ok()) status = WriteJsonMessage(*response, JsonFields::kAll, &call->memory(), &body);
  if (!status.ok()) return call->Fail(status);
  response.reset();
  call->memory().ShrinkTo(static_cast<int64_t>(body.capacity()));
  call->Reply(JsonResponse(std::move(body)));
}

// A call with one answer.
Route UnaryRoute(const calls::Method& method) {
  Route route;
  route.method = "POST";
  route.path = method.http_path;
  route.content_types = {kJsonContentType};
  route.handle = [&method](const SharedCall& call) {
    const std::unique_ptr<Message> message(method.request->New());
    absl::Status status = ParseJsonMessage(call->body(), &call->memory(), message.get());
    if (!status.ok()) return call->Fail(status);
    call->Unary(method.path(), TakeRequest(call, *message),
                [call, &method](const calls::LocalAnswer& answer) {
                  AnswerWith(call, answer, std::unique_ptr<Message>(method.response->New()));
                });
  };
  route.openapi = [&method] {
    return MessageOperation(method.summary, method.request->GetDescriptor(),
                            *method.response->GetDescriptor());
  };
  return route;
}

// Hands the messages of one call over as the client takes them.
class MessageEvents : public std::enable_shared_from_this<MessageEvents> {
 public:
  MessageEvents(SharedCall call, const calls::Method& method)
      : call_(std::move(call)),
        method_(method),
        events_(std::make_shared<EventStream>(call_, ErrorForm::kV1)) {}

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
    const std::unique_ptr<Message> response(method_.response->New());
    std::string data;
    const bool read = calls::ParseCord(bytes, response.get());
    MemoryHold unlimited(nullptr);  // one message, which the service has reserved
    if (!read || !WriteJsonMessage(*response, JsonFields::kSet, &unlimited, &data).ok()) {
      return Fail(BadAnswer());
    }
    events_->Send(data, [self = shared_from_this()](bool more) {
      if (more) {
        self->stream_->Next();
      } else {
        self->stream_->Cancel();
      }
    });
  }

  void Fail(const RestError& error) {
    events_->Fail(error);
    stream_->Cancel();  // last: what it ends with is not the reason
  }

  void OnDone(const calls::LocalAnswer& answer) {
    if (answer.end.status.ok()) {
      events_->End("");
    } else {
      events_->Fail(ErrorOfCall(answer.end));
    }
  }

  const SharedCall call_;
  const calls::Method& method_;
  const std::shared_ptr<EventStream> events_;
  std::shared_ptr<calls::LocalStream> stream_;  // constant once Start() has returned
};

// A call that is answered by events.
Route StreamRoute(const calls::Method& method) {
  Route route;
  route.method = "POST";
  route.path = method.http_path;
  route.content_types = {kJsonContentType};
  route.handle = [&method](const SharedCall& call) {
    const std::unique_ptr<Message> message(method.request->New());
    absl::Status status = ParseJsonMessage(call->body(), &call->memory(), message.get());
    if (!status.ok()) return call->Fail(status);
    std::make_shared<MessageEvents>(call, method)->Start(TakeRequest(call, *message));
  };
  route.openapi = [&method] {
    return EventsOperation(method.summary, *method.request->GetDescriptor(),
                           *method.response->GetDescriptor());
  };
  return route;
}

// A model as OpenAI describes one, without the braces.
std::string OpenAiModel(const std::string& name, int64_t created) {
  std::string text = "\"id\":";
  AppendJsonString(name, &text);
  absl::StrAppend(&text, ",\"object\":\"model\",\"created\":", created, ",\"owned_by\":\"sru\"");
  return text;
}

// Puts `members` in front of the object's own.
std::string Joined(const std::string& members, const std::string& object) {
  return absl::StrCat("{", members, object.size() > 2 ? "," : "", object.substr(1));
}

Route ModelsRoute(int64_t created) {
  Route route;
  route.method = "GET";
  route.path = "/v1/models";
  route.handle = [created](const SharedCall& call) {
    call->Unary(absl::StrCat(kService, "ListModels"), calls::ToCord(v1::ListModelsRequest()),
                [call, created](const calls::LocalAnswer& answer) {
                  if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
                  v1::ListModelsResponse response;
                  std::string body;
                  absl::Status status = ReadAnswer(call, answer.message, &response);
                  if (status.ok())
                    status = WriteJsonMessage(response, JsonFields::kAll, &call->memory(), &body);
                  if (!status.ok()) return call->Fail(status);
                  std::string members = R"("object":"list","data":[)";
                  const std::string* last = nullptr;  // the versions of a model stand together
                  for (const v1::ModelInfo& model : response.models()) {
                    if (last != nullptr && *last == model.name()) continue;
                    absl::StrAppend(&members, last == nullptr ? "{" : ",{",
                                    OpenAiModel(model.name(), created), "}");
                    last = &model.name();
                  }
                  members += ']';
                  call->Reply(JsonResponse(Joined(members, body)));
                });
  };
  route.openapi = [] {
    return ModelsOperation(
        "The models that are served, as ListModels gives them and as OpenAI's list.",
        *v1::ListModelsResponse::descriptor(), /*is_list=*/true);
  };
  return route;
}

// The only parameter of the query is the version.
absl::Status ParseVersion(const std::string& query, int64_t* version) {
  for (const absl::string_view part : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> parameter =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (parameter.first != "version") {
      return absl::InvalidArgumentError(
          absl::StrCat("query: expected version=NUMBER, found '", part.substr(0, 64), "'"));
    }
    if (!absl::SimpleAtoi(parameter.second, version) || *version < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("query: version: expected a whole number, not negative, found '",
                       parameter.second.substr(0, 32), "'"));
    }
  }
  return absl::OkStatus();
}

Route ModelRoute(int64_t created) {
  Route route;
  route.method = "GET";
  route.path = "/v1/models/{name}";
  route.handle = [created](const SharedCall& call) {
    v1::GetModelRequest request;
    request.set_model(call->parameter("name"));
    int64_t version = 0;
    if (absl::Status status = ParseVersion(call->request().query, &version); !status.ok())
      return call->Fail(status);
    request.set_version(version);
    call->Unary(
        absl::StrCat(kService, "GetModel"), calls::ToCord(request),
        [call, created](const calls::LocalAnswer& answer) {
          if (!answer.end.status.ok()) return call->Fail(ErrorOfCall(answer.end));
          v1::GetModelResponse response;
          std::string body;
          absl::Status status = ReadAnswer(call, answer.message, &response);
          if (status.ok())
            status = WriteJsonMessage(response, JsonFields::kAll, &call->memory(), &body);
          if (!status.ok()) return call->Fail(status);
          call->Reply(JsonResponse(Joined(OpenAiModel(response.model().name(), created), body)));
        });
  };
  route.openapi = [] {
    return ModelsOperation("One model, as GetModel gives it and as OpenAI's model.",
                           *v1::GetModelResponse::descriptor(), /*is_list=*/false);
  };
  return route;
}

}  // namespace

RouteGroup V1Routes(const calls::MethodTable& methods) {
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  RouteGroup group;
  for (const calls::Method& method : methods.rows()) {
    if (method.http_path.empty()) continue;
    const bool streams = method.kind == calls::MethodKind::kServerStream;
    group.routes.push_back(streams ? StreamRoute(method) : UnaryRoute(method));
  }
  group.schemas = [&methods] {
    nlohmann::json schemas = nlohmann::json::object();
    for (const calls::Method& method : methods.rows()) {
      if (method.http_path.empty()) continue;
      AddSchemas(*method.request->GetDescriptor(), &schemas);
      AddSchemas(*method.response->GetDescriptor(), &schemas);
    }
    AddSchemas(*v1::ListModelsResponse::descriptor(), &schemas);
    AddSchemas(*v1::GetModelResponse::descriptor(), &schemas);
    return schemas;
  };
  group.routes.push_back(ModelsRoute(created));
  group.routes.push_back(ModelRoute(created));
  return group;
}

}  // namespace sru::server::rest
