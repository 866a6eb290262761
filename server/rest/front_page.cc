// The page at / of the HTTP port, for who opens it: what this is, a call that works, and where to
// read on. HTML for browsers, JSON for programs; and the documents at /docs.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/build_info.h"
#include "nlohmann/json.hpp"
#include "server/http/page_host.h"
#include "server/http/status_page.h"
#include "server/rest/api_routes.h"
#include "server/rest/method_call.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using nlohmann::ordered_json;

constexpr char kAbout[] =
    "An inference server for Simple Recurrent Units (SRUs). An SRU is a recurrent layer that "
    "computes its matrix products for all tokens at once, so it runs about as fast as a "
    "convolution, and still keeps a state of constant size.";

// The call that a model of a task answers: its path, and the body besides the model.
constexpr char kText[] = R"("text":"Where is Lake Titicaca ?")";
constexpr const char* kExamples[][3] = {
    {"classifier", "/v1/classify", kText},
    {"encoder", "/v1/encode", kText},
    {"language_model", "/v1/completions", R"("prompt":"It was","max_tokens":20)"},
    {"reader", "/v1/answer", R"("question":"Who stayed?","passages":["Anna left. Bob stayed."])"},
    {"tagger", "/v1/tag", kText},
    {"translator", "/v1/translate", kText},
};

// `model`: one that takes texts; null: none that the caller may know.
http::PageResponse FrontPage(const http::PageRequest& request, bool has_tls,
                             const v1::ModelInfo* model) {
  const std::string sent = request.header("host");
  const std::string server =
      absl::StrCat("curl -s ", has_tls ? "https://" : "",
                   http::ParsePageHost(sent).has_value() ? sent : "localhost:8080");
  std::string curl = absl::StrCat(server, "/v1/models -H 'Authorization: Bearer TOKEN'");
  for (const auto& [task, path, body] : kExamples) {
    if (model == nullptr || model->task() != task) continue;
    curl = absl::StrCat(server, path, " --json '{\"model\":\"", model->name(), "\",", body, "}'");
  }
  const ordered_json page = {
      {"name", "sru_server"},
      {"version", BuildVersion()},
      {"about", kAbout},
      {"example", curl},
      {"openapi", "/openapi.json"},
      {"models", "/v1/models"},
      {"documents", "/docs/rest.md"},
      {"operations", "/docs/operations.md"},
      {"health", "/healthz"},
      {"ready", "/readyz"},
      {"status_page", "at the port of --metrics_listen: charts, errors, boxes to try the models"}};
  http::PageResponse response = JsonResponse(absl::StrCat(page.dump(2), "\n"));
  if (absl::StrContains(request.header("accept"), "text/html")) {
    response.content_type = "text/html; charset=utf-8";
    response.body =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>SRU server</title>"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
        "<meta name=\"color-scheme\" content=\"light dark\"></head>\n<body><h1>SRU "
        "server</h1>\n<dl>";
    for (const auto& [name, value] : page.items()) {
      const std::string text = absl::StrReplaceAll(value.get<std::string>(),
                                                   {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
      absl::StrAppend(&response.body, "\n<dt><b>", name, "</b></dt><dd>",
                      text[0] == '/' ? absl::StrCat("<a href=\"", text, "\">", text, "</a>") : text,
                      "</dd>");
    }
    response.body += "\n</dl></body></html>\n";
    http::AddSecurityHeaders(&response);
  }
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

void Front(const SharedCall& call, bool asks_for_tokens, bool has_tls) {
  if (asks_for_tokens && call->request().headers.count("authorization") == 0) {
    return call->Reply(FrontPage(call->request(), has_tls, nullptr));
  }
  AskMethod<v1::ListModelsResponse>(
      call, v1::ListModelsRequest(), [call, has_tls](const v1::ListModelsResponse& response) {
        const v1::ModelInfo* shown = nullptr;
        for (const v1::ModelInfo& model : response.models()) {
          if (shown == nullptr && model.vocabulary_size() > 0 && call->MayUse(model.name())) {
            shown = &model;
          }
        }
        call->Reply(FrontPage(call->request(), has_tls, shown));
      });
}

Route Get(const char* path, std::function<void(const SharedCall&)> handle) {
  Route route(AnswerMemory::kOwn, "GET", path);
  route.token_in_body = true;  // there is no body: whoever has no token is let in
  route.handle = std::move(handle);
  return route;
}

}  // namespace

RouteGroup FrontPageRoutes(bool asks_for_tokens, bool has_tls) {
  RouteGroup group;
  group.routes = {Get("/", [=](const SharedCall& call) { Front(call, asks_for_tokens, has_tls); }),
                  Get("/docs/{name}", [](const SharedCall& call) {
                    auto document = http::DocumentAt(call->request());
                    if (document.has_value()) return call->Reply(*std::move(document));
                    call->Fail(absl::NotFoundError("there is no such document; GET / has a list"));
                  })};
  return group;
}

}  // namespace sru::server::rest
