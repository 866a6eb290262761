#include "server/rest/translation_call.h"

#include <utility>

#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"
#include "server/rest/openapi.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

constexpr char kTranslate[] = "/sru.v1.InferenceService/Translate";
// An answer is kept as it came and as a message, until its texts are put together.
constexpr int64_t kCopies = 2;
// To put longer texts together takes longer than a worker should be kept from its batches.
constexpr size_t kLongTexts = 8 << 10;

}  // namespace

void TranslateTexts(const std::shared_ptr<RestCall>& call, translation::TextTranslator& translator,
                    translation::TextRequest request,
                    std::function<void(std::vector<translation::TranslatedText> texts)> done) {
  size_t size = 0;
  for (const std::string& text : request.texts) size += text.size();
  translator.Translate(
      std::move(request),
      [call, is_long = size > kLongTexts](absl::Cord message, calls::LocalCalls::OnDone take) {
        const auto on_answer = [call, take = std::move(take)](calls::LocalAnswer answer) {
          const auto bytes = static_cast<int64_t>(answer.message.size());
          if (answer.end.status.ok() && !call->memory().Grow(kCopies * bytes)) {
            answer.end.status = call->memory().NoMemory();
          }
          take(std::move(answer));
        };
        if (!is_long) {
          call->Unary(kTranslate, std::move(message), on_answer);
          return;
        }
        call->Unary(kTranslate, std::move(message), [call, on_answer](calls::LocalAnswer answer) {
          call->RunAside([on_answer, answer = std::move(answer)] { on_answer(answer); });
        });
      },
      [call](int64_t bytes) {
        return call->memory().Grow(bytes) ? absl::OkStatus() : call->memory().NoMemory();
      },
      [call, done = std::move(done)](const calls::CallEnd& end,
                                     std::vector<translation::TranslatedText> texts) {
        if (!end.status.ok()) return call->Fail(ErrorOfCall(end));
        done(std::move(texts));
      });
}

absl::Status ReadFields(const std::shared_ptr<RestCall>& call, RequestFields* fields) {
  absl::Status status = fields->AddForm(call->request().query, &call->memory());
  if (!status.ok() || call->body().empty()) return status;
  status = fields->AddBody(call->body(), call->request().header("content-type"), &call->memory());
  std::string().swap(call->body());
  return status;
}

Route TextRoute(const std::string& method, const std::string& path, ErrorForm errors,
                const std::string& summary, const std::vector<std::string>& fields,
                std::function<void(const std::shared_ptr<RestCall>&)> handle) {
  Route route;
  route.method = method;
  route.path = path;
  route.content_types = {kFormContentType, kJsonContentType};
  route.errors = errors;
  route.calls = calls::MethodId::kTranslate;
  route.handle = std::move(handle);
  route.openapi = [method, summary, fields] {
    const json any = json::object();
    json operation = {{"summary", summary},
                      {"responses", {{"200", JsonAnswer("Its answer.", any)}}}};
    json properties = json::object();
    for (const std::string& field : fields) {
      properties[field] = any;
      if (method != "GET") continue;
      operation["parameters"].push_back({{"name", field}, {"in", "query"}, {"schema", any}});
    }
    if (method == "GET") return operation;
    const json schema = {{"type", "object"}, {"properties", std::move(properties)}};
    operation["requestBody"] = JsonBody(schema);
    operation["requestBody"]["content"][kFormContentType] = {{"schema", schema}};
    return operation;
  };
  return route;
}

void ReplyJson(const std::shared_ptr<RestCall>& call, const json& answer) {
  call->Reply(JsonResponse(JsonText(answer)));
}

}  // namespace sru::server::rest
