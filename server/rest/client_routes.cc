// Routes that clients of other servers call (client_request.h).
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/build_info.h"
#include "base/status.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/rest/api_routes.h"
#include "server/rest/client_request.h"
#include "server/rest/method_call.h"
#include "server/rest/openapi.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Four bytes of a float are up to 15 characters, and text is copied while it grows.
constexpr int64_t kTextExpansion = 8;

RestError ReadInto(const SharedCall& call, ClientRequest* request,
                   const std::function<RestError(FieldReader* fields)>& read) {
  json tree;
  SRU_RETURN_UNLESS_OK(ParseTree(call->body(), &call->memory(), &tree));
  FieldReader fields(tree);
  request->max_texts = call->limits().max_sequences;
  RestError error = read(&fields);
  request->names.emplace_back("model", "model");
  // The request stays, until it is sent.
  call->memory().ShrinkTo(3 * static_cast<int64_t>(call->body().size()));
  std::string().swap(call->body());
  return error;
}

void Reply(const SharedCall& call, const ClientRequest& request, const calls::LocalAnswer& answer) {
  if (!answer.end.status.ok()) {
    return call->Fail(
        InFieldsOf(request.names, request.is_list, request.advice, ErrorOfCall(answer.end)));
  }
  const absl::Status status = ReadAnswer(call, answer, request.response.get());
  if (!status.ok()) return call->Fail(status);
  if (!call->memory().Grow(kTextExpansion * static_cast<int64_t>(answer.message.size()))) {
    return call->Fail(call->memory().NoMemory());
  }
  std::string text;
  const RestError error = request.append(&text);
  if (!error.status.ok()) return call->Fail(error);
  call->memory().ShrinkTo(static_cast<int64_t>(text.capacity()));
  call->Reply(JsonResponse(std::move(text)));
}

void Run(const SharedCall& call, const std::shared_ptr<const ClientRequest>& request) {
  call->Unary(MethodOf(*request->request), calls::ToCord(*request->request),
              [call, request](const calls::LocalAnswer& answer) { Reply(call, *request, answer); });
}

// The latest version of the only model of these tasks that the caller may use; null if there are
// several, or none.
const v1::ModelInfo* OnlyModel(const RestCall& call, const v1::ListModelsResponse& models,
                               std::initializer_list<absl::string_view> tasks) {
  const v1::ModelInfo* only = nullptr;
  for (const v1::ModelInfo& model : models.models()) {
    const bool fits = std::find(tasks.begin(), tasks.end(), model.task()) != tasks.end();
    if (!fits || !call.MayUse(model.name())) continue;
    // The versions of a model stand together, the latest last.
    if (only != nullptr && only->name() != model.name()) return nullptr;
    only = &model;
  }
  return only;
}

// Calls `next` with the only language model, or with "" if there is none: then the method finds
// another one, or says that it cannot.
void FindLanguageModel(const SharedCall& call,
                       const std::function<void(const std::string& model)>& next) {
  const auto find = [call, next](const v1::ListModelsResponse& models) {
    const v1::ModelInfo* const model = OnlyModel(*call, models, {"language_model"});
    next(model == nullptr ? "" : model->name());
  };
  AskMethod<v1::ListModelsResponse>(call, v1::ListModelsRequest(), find);
}

// Reads the request with `read`, and makes its call.
void Forward(const SharedCall& call, ReadClientRequest read) {
  const auto request = std::make_shared<ClientRequest>();
  bool is_named = false;
  const RestError error = ReadInto(call, request.get(), [&](FieldReader* fields) {
    is_named = fields->Take("model") != nullptr;
    return read(fields, request.get());
  });
  if (!error.status.ok()) return call->Fail(error);
  // Texts for a vocabulary are for the only language model, unless they name another one.
  if (is_named || request->method == calls::MethodId::kEncode) return Run(call, request);
  FindLanguageModel(call, [call, request](const std::string& model) {
    request->SetModel(model);
    Run(call, request);
  });
}

void Pipeline(const SharedCall& call) {
  v1::GetModelRequest wanted;
  wanted.set_model(call->parameter("model"));
  call->Unary(MethodOf(wanted), calls::ToCord(wanted), [call](const calls::LocalAnswer& answer) {
    const FieldNames names = {{"model", "model (/pipelines/MODEL)"}};
    if (!answer.end.status.ok()) {
      return call->Fail(InFieldsOf(names, false, "", ErrorOfCall(answer.end)));
    }
    v1::GetModelResponse found;
    RestError error = ReadAnswer(call, answer, &found);
    const auto request = std::make_shared<ClientRequest>();
    if (error.status.ok()) {
      error = ReadInto(call, request.get(), [&](FieldReader* fields) {
        return ReadPipeline(found.model(), fields, request.get());
      });
    }
    if (error.status.ok()) error = call->Enter(request->method);
    error.status.ok() ? Run(call, request) : call->Fail(error);
  });
}

// A model as text-embeddings-inference says it.
ordered_json ModelType(const v1::ModelInfo& model) {
  if (model.labels().empty()) {
    const std::string pooling = absl::AsciiStrToLower(v1::Pooling_Name(model.pooling()));
    return {{"embedding", {{"pooling", std::string(absl::StripPrefix(pooling, "pooling_"))}}}};
  }
  ordered_json labels = ordered_json::object();
  for (int i = 0; i < model.labels_size(); ++i) labels[absl::StrCat(i)] = model.labels(i);
  return {{"classifier", {{"id2label", labels}}}};
}

void Info(const SharedCall& call) {
  const auto reply = [call](const v1::ListModelsResponse& models) {
    ordered_json info = {{"max_batch_tokens", call->limits().max_batch_tokens},
                         {"max_client_batch_size", call->limits().max_sequences},
                         {"auto_truncate", false},
                         {"version", BuildVersion()}};
    // That of POST /embed without a name.
    if (const v1::ModelInfo* model = OnlyModel(*call, models, {"classifier", "encoder"})) {
      info["model_id"] = model->name();
      info["model_dtype"] = model->dtype();
      info["model_type"] = ModelType(*model);
      info["max_input_length"] = model->max_sequence_tokens();
    }
    call->Reply(JsonResponse(JsonText(info)));
  };
  AskMethod<v1::ListModelsResponse>(call, v1::ListModelsRequest(), reply);
}

void Health(const SharedCall& call) {
  AskMethod<inference::ServerReadyResponse>(
      call, inference::ServerReadyRequest(),
      [call](const inference::ServerReadyResponse& response) {
        if (response.ready()) return call->Reply(JsonResponse(R"({"status":"ok"})"));
        call->Fail(absl::UnavailableError("the server is not ready; GET /readyz says why"));
      });
}

void TokenizerInfo(const SharedCall& call) {
  FindLanguageModel(call, [call](const std::string& name) {
    v1::GetModelRequest wanted;
    wanted.set_model(name);
    AskMethod<v1::GetModelResponse>(call, wanted, [call](const auto& response) {
      const v1::ModelInfo& model = response.model();
      const ordered_json info = {{"tokenizer_class", model.preprocessing()},
                                 {"model_max_length", model.max_sequence_tokens()},
                                 {"vocab_size", model.vocabulary_size()},
                                 {"name_or_path", model.name()},
                                 // Texts have no end of their own; lm_eval looks for the key.
                                 {"eos_token", nullptr}};
      call->Reply(JsonResponse(JsonText(info)));
    });
  });
}

// `part`: of openapi.json.
Route ClientRoute(const char* method, const char* path, const char* part, ErrorForm error_form,
                  std::function<void(const SharedCall&)> handle) {
  Route route(AnswerMemory::kJson, method, path, error_form);
  route.handle = std::move(handle);
  route.openapi = [part] { return OpenApiPart(part); };
  return route;
}

Route ForwardRoute(const char* path, const char* part, ErrorForm error_form, calls::MethodId calls,
                   ReadClientRequest read) {
  Route route = ClientRoute("POST", path, part, error_form,
                            [read](const SharedCall& call) { Forward(call, read); });
  route.calls = calls;
  return route;
}

}  // namespace

RouteGroup ClientRoutes() {
  using calls::MethodId;
  constexpr ErrorForm kOpenAi = ErrorForm::kOpenAi;
  constexpr ErrorForm kText = ErrorForm::kOpenInference;  // "error" is a text for these clients
  Route health = ClientRoute("GET", "/health", "health", kText, Health);
  health.is_probe = true;
  RouteGroup group;
  group.routes = {
      ForwardRoute("/v1/embeddings", "embeddings", kOpenAi, MethodId::kEncode,
                   ReadOpenAiEmbeddings),
      ForwardRoute("/embed", "embed", kText, MethodId::kEncode, ReadEmbed),
      ClientRoute("GET", "/info", "info", kText, Info),
      std::move(health),
      ClientRoute("POST", "/pipelines/{model}", "pipelines", kText, Pipeline),
      ClientRoute("POST", "/", "pipelines", kText, Pipeline),
      ForwardRoute("/tokenize", "tokenize", kOpenAi, MethodId::kTokenize, ReadTokenize),
      ForwardRoute("/detokenize", "detokenize", kOpenAi, MethodId::kDetokenize, ReadDetokenize),
      ClientRoute("GET", "/tokenizer_info", "tokenizer_info", kOpenAi, TokenizerInfo)};
  group.schemas = [] { return OpenApiPart("client_schemas"); };
  return group;
}

}  // namespace sru::server::rest
