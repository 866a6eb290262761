#include "server/translation/translation_call.h"

#include <algorithm>
#include <utility>

#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"
#include "server/rest/openapi.h"

namespace sru::server::translation {
namespace {

using nlohmann::json;
using rest::kFormContentType;
using rest::RestCall;

constexpr char kTranslate[] = "/sru.v1.InferenceService/Translate";
// An answer is kept as it came and as a message, until its texts are put together.
constexpr int64_t kCopies = 2;
// The languages and sentences of so many texts, of so many bytes in all, are found within a part of
// a millisecond. More would keep a loop from its connections, or a worker from its batches.
constexpr size_t kFewTexts = 8;
constexpr size_t kShortTexts = 512;

// The memory of an answer with these texts: as values of JSON, and as JSON in a buffer that grows
// by doubling.
int64_t JsonBytes(const std::vector<TranslatedText>& texts) {
  size_t bytes = 0;
  for (const TranslatedText& text : texts) {
    const auto escapes = std::count_if(text.text.begin(), text.text.end(), [](unsigned char c) {
      return c < 0x20 || c == '"' || c == '\\';
    });
    bytes += 3 * text.text.size() + 2 * 5 * static_cast<size_t>(escapes);
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

void TranslateTexts(const std::shared_ptr<RestCall>& call, TextTranslator& translator,
                    TextRequest request,
                    std::function<void(std::vector<TranslatedText> texts)> done) {
  request.may_use = [call](absl::string_view model) { return call->MayUse(model); };
  size_t size = 0;
  for (const std::string& text : request.texts) size += text.size();
  const bool is_short = request.texts.size() <= kFewTexts && size <= kShortTexts;
  const auto run = [call, is_short](std::function<void()> work) {
    if (is_short) return work();
    call->RunAside(std::move(work));
  };
  const auto reserve = [call](int64_t bytes) {
    return call->memory().Grow(bytes) ? absl::OkStatus() : call->memory().NoMemory();
  };
  const auto make_call = [call, run, reserve](absl::Cord message, calls::LocalCalls::OnDone take) {
    call->Unary(kTranslate, std::move(message), [run, reserve, take](calls::LocalAnswer answer) {
      run([reserve, take, answer = std::move(answer)]() mutable {
        const auto bytes = static_cast<int64_t>(answer.message.size());
        if (answer.end.status.ok()) answer.end.status = reserve(kCopies * bytes);
        take(std::move(answer));
      });
    });
  };
  const auto on_done = [call, reserve, done = std::move(done)](calls::CallEnd end,
                                                               std::vector<TranslatedText> texts) {
    if (end.status.ok()) end.status = reserve(JsonBytes(texts));
    if (!end.status.ok()) return call->Fail(rest::ErrorOfCall(end));
    done(std::move(texts));
  };
  run([&translator, make_call, reserve, on_done,
       texts = std::make_shared<TextRequest>(std::move(request))] {
    translator.Translate(std::move(*texts), make_call, reserve, on_done);
  });
}

absl::Status ReadFields(const std::shared_ptr<RestCall>& call, RequestFields* fields) {
  absl::Status status = fields->AddForm(call->request().query, &call->memory());
  if (!status.ok() || call->body().empty()) return status;
  status = fields->AddBody(call->body(), call->request().header("content-type"), &call->memory());
  std::string().swap(call->body());
  return status;
}

rest::Route TextRoute(const std::string& method, const std::string& path, rest::ErrorForm errors,
                      const std::string& summary, const std::vector<std::string>& fields,
                      std::function<void(const std::shared_ptr<RestCall>&)> handle) {
  rest::Route route(rest::AnswerMemory::kOwn, method, path, errors);
  route.content_types = {kFormContentType, rest::kJsonContentType};
  route.calls = calls::MethodId::kTranslate;
  route.handle = std::move(handle);
  route.openapi = [method, summary, fields] {
    const json any = json::object();
    json operation = {{"summary", summary},
                      {"responses", {{"200", rest::JsonAnswer("Its answer.", any)}}}};
    json properties = json::object();
    for (const std::string& field : fields) {
      properties[field] = any;
      if (method != "GET") continue;
      operation["parameters"].push_back({{"name", field}, {"in", "query"}, {"schema", any}});
    }
    if (method == "GET") return operation;
    const json schema = {{"type", "object"}, {"properties", std::move(properties)}};
    operation["requestBody"] = rest::JsonBody(schema);
    operation["requestBody"]["content"][kFormContentType] = {{"schema", schema}};
    return operation;
  };
  return route;
}

void ReplyJson(const std::shared_ptr<RestCall>& call, const json& answer) {
  call->Reply(rest::JsonResponse(rest::JsonText(answer)));
}

}  // namespace sru::server::translation
