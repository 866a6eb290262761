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
grpc::ByteBuffer TakeRequest(const SharedCall& call, const Message& request) {
  grpc::ByteBuffer bytes = ToByteBuffer(request);
  std::string().swap(call->body());
  call->memory().ShrinkTo(static_cast<int64_t>(bytes.Length()));
  return bytes;
}

// Reads what a service answered. What the memory holds for the request is free by then.
absl::Status ReadAnswer(const SharedCall& call, const grpc::ByteBuffer& bytes, Message* response) {
  // Parsed, numbers are as long as on the wire, and strings and small messages take three times as much.
  if (!call->memory().Grow(3 * static_cast<int64_t>(bytes.Length()))) {
    return NoRequestMemory();
  }
  return FromByteBuffer(bytes, response) ? absl::OkStatus() : BadAnswer().status;
}

http::PageResponse JsonResponse(std::string body) {
  http::PageResponse response;
  response.content_type = kJsonContentType;
  response.body = std::move(body);
  return response;
}

void AnswerWith(const SharedCall& call, const GrpcAnswer& answer,
                std::unique_ptr<Message> response) {
  if (!answer.status.ok()) return call->Fail(ErrorOfCall(answer.status));
  std::string body;
  absl::Status status = ReadAnswer(call, answer.message, response.get());
  if (status.ok()) status = WriteJsonMessage(*response, JsonFields::kAll, &call->memory(), &body);
  if (!status.ok()) return call->Fail(status);
  response.reset();
  call->memory().ShrinkTo(static_cast<int64_t>(body.capacity()));
  call->Reply(JsonResponse(std::move(body)));
}

// A call with one answer.
Route UnaryRoute(const char* path, const char* method, const Message& request,
                 const Message& response, const char* summary) {
  Route route;
  route.method = "POST";
  route.path = path;
  route.content_types = {kJsonContentType};
  route.handle = [name = absl::StrCat(kService, method), &request,
                  &response](const SharedCall& call) {
    const std::unique_ptr<Message> message(request.New());
    absl::Status status = ParseJsonMessage(call->body(), &call->memory(), message.get());
    if (!status.ok()) return call->Fail(status);
    call->Unary(name, TakeRequest(call, *message), [call, &response](const GrpcAnswer& answer) {
      AnswerWith(call, answer, std::unique_ptr<Message>(response.New()));
    });
  };
  route.openapi = [summary, &request, &response] {
    return MessageOperation(summary, request.GetDescriptor(), *response.GetDescriptor());
  };
  return route;
}

// Hands the messages of one Generate over as the client takes them.
class GenerateEvents : public std::enable_shared_from_this<GenerateEvents> {
 public:
  explicit GenerateEvents(SharedCall call)
      : call_(std::move(call)), events_(std::make_shared<EventStream>(call_, ErrorForm::kV1)) {}

  void Start(const grpc::ByteBuffer& request) {
    events_->Start();
    stream_ = call_->ServerStream(
        absl::StrCat(kService, "Generate"), request,
        [self = shared_from_this()](const grpc::ByteBuffer& message) {
          // The service would wait until the call's deadline for somebody to read on.
          Guard([&] { self->OnMessage(message); },
                [&](const RestError& error) { self->Fail(error); });
        },
        [self = shared_from_this()](const GrpcAnswer& answer) { self->OnDone(answer); });
    stream_->Next();
  }

 private:
  void OnMessage(const grpc::ByteBuffer& bytes) {
    v1::GenerateResponse response;
    std::string data;
    const bool read = FromByteBuffer(bytes, &response);
    MemoryHold unlimited(nullptr);  // one message, which the service has reserved
    if (!read || !WriteJsonMessage(response, JsonFields::kSet, &unlimited, &data).ok()) {
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

  void OnDone(const GrpcAnswer& answer) {
    if (answer.status.ok()) {
      events_->End("");
    } else {
      events_->Fail(ErrorOfCall(answer.status));
    }
  }

  const SharedCall call_;
  const std::shared_ptr<EventStream> events_;
  std::shared_ptr<GrpcStream> stream_;  // constant once Start() has returned
};

Route GenerateRoute() {
  Route route;
  route.method = "POST";
  route.path = "/v1/generate";
  route.content_types = {kJsonContentType};
  route.handle = [](const SharedCall& call) {
    v1::GenerateRequest request;
    absl::Status status = ParseJsonMessage(call->body(), &call->memory(), &request);
    if (!status.ok()) return call->Fail(status);
    std::make_shared<GenerateEvents>(call)->Start(TakeRequest(call, request));
  };
  route.openapi = [] {
    return EventsOperation(
        "Goes on from a prompt, as server-sent events of one GenerateResponse each. An event with "
        "an error "
        "ends a text that failed after its beginning.",
        *v1::GenerateRequest::descriptor(), *v1::GenerateResponse::descriptor());
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
    call->Unary(absl::StrCat(kService, "ListModels"), ToByteBuffer(v1::ListModelsRequest()),
                [call, created](const GrpcAnswer& answer) {
                  if (!answer.status.ok()) return call->Fail(ErrorOfCall(answer.status));
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
        absl::StrCat(kService, "GetModel"), ToByteBuffer(request),
        [call, created](const GrpcAnswer& answer) {
          if (!answer.status.ok()) return call->Fail(ErrorOfCall(answer.status));
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

RouteGroup V1Routes() {
  const int64_t created = absl::ToUnixSeconds(absl::Now());
  RouteGroup group;
  group.routes.push_back(UnaryRoute(
      "/v1/classify", "Classify", v1::ClassifyRequest::default_instance(),
      v1::ClassifyResponse::default_instance(), "Labels with probabilities for each sequence."));
  group.routes.push_back(
      UnaryRoute("/v1/encode", "Encode", v1::EncodeRequest::default_instance(),
                 v1::EncodeResponse::default_instance(),
                 "A pooled vector, or one vector per token, for each sequence."));
  group.routes.push_back(UnaryRoute("/v1/score", "Score", v1::ScoreRequest::default_instance(),
                                    v1::ScoreResponse::default_instance(),
                                    "How probable each sequence is, token by token."));
  group.routes.push_back(UnaryRoute("/v1/answer", "Answer", v1::AnswerRequest::default_instance(),
                                    v1::AnswerResponse::default_instance(),
                                    "The spans of passages that answer questions."));
  group.routes.push_back(UnaryRoute("/v1/translate", "Translate",
                                    v1::TranslateRequest::default_instance(),
                                    v1::TranslateResponse::default_instance(),
                                    "The most probable translations of each sequence."));
  group.routes.push_back(GenerateRoute());
  group.routes.push_back(ModelsRoute(created));
  group.routes.push_back(ModelRoute(created));
  return group;
}

}  // namespace sru::server::rest
