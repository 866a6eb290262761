#include "server/rest/front_page.h"

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
#include "server/rest/method_call.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using nlohmann::ordered_json;
using SharedCall = std::shared_ptr<RestCall>;

constexpr char kWhat[] =
    "An inference server for Simple Recurrent Units (SRUs). An SRU is a recurrent layer that "
    "computes its matrix products for all tokens at once, so it runs about as fast as a "
    "convolution, and still keeps a state of constant size.";
// The policy below has the hash of this text.
constexpr char kStyle[] =
    ":root{color-scheme:light dark}body{max-width:46rem;margin:2rem auto;padding:0 1rem;"
    "font:16px/1.5 system-ui,sans-serif}"
    "pre{padding:.8rem;overflow-x:auto;border:1px solid;border-radius:.5rem}li{margin:.3rem 0}";
constexpr char kStyleHash[] = "'sha256-E4MHABenu/cixWugKoZb+W8s303EmM4TLSeI9PKnGWw='";

// Where to read on: the member of the JSON, a path and what is there.
constexpr const char* kLinks[][3] = {
    {"openapi", "/openapi.json", "every route, in OpenAPI 3.1"},
    {"models", "/v1/models", "the models that are served"},
    {"documents", "/docs/rest.md", "calls over HTTP"},
    {"operations", "/docs/operations.md", "flags, metrics, and what to do when"},
    {"health", "/healthz", "whether the process is well"},
    {"ready", "/readyz", "whether it takes calls"},
};

// The path and the body of a call that this model answers.
std::pair<const char*, ordered_json> ExampleFor(const v1::ModelInfo& model) {
  const std::string& task = model.task();
  ordered_json body = {{"model", model.name()}};
  if (task == "language_model") {
    body.update({{"prompt", "It was"}, {"max_tokens", 20}});
  } else if (task == "reader") {
    body.update({{"question", "Who stayed?"}, {"passages", {"Anna left. Bob stayed."}}});
  } else {
    body["text"] = "Where is Lake Titicaca ?";
  }
  return {task == "language_model" ? "/v1/completions"
          : task == "reader"       ? "/v1/answer"
          : task == "tagger"       ? "/v1/tag"
          : task == "translator"   ? "/v1/translate"
          : task == "encoder"      ? "/v1/encode"
                                   : "/v1/classify",
          body};
}

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

// `model`: one that takes texts; null: none that the caller may know.
http::PageResponse FrontPage(const http::PageRequest& request, bool has_tls,
                             const v1::ModelInfo* model) {
  const std::string sent = request.header("host");
  const std::string host = absl::StrCat(
      has_tls ? "https://" : "", http::ParsePageHost(sent).has_value() ? sent : "localhost:8080");
  std::string curl = absl::StrCat("curl -s ", host, "/v1/models");
  if (model != nullptr) {
    const auto& [path, body] = ExampleFor(*model);
    curl = absl::StrCat("curl -s ", host, path, " --json '", body.dump(), "'");
  }
  http::PageResponse response;
  if (!absl::StrContains(request.header("accept"), "text/html")) {
    ordered_json page = {
        {"name", "sru_server"}, {"version", BuildVersion()}, {"about", kWhat}, {"example", curl}};
    for (const auto& [member, path, text] : kLinks) page[member] = path;
    response.content_type = "application/json";
    response.body = absl::StrCat(page.dump(2), "\n");
  } else {
    response.content_type = "text/html; charset=utf-8";
    response.body = absl::StrCat(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>SRU server</title>"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><style>",
        kStyle, "</style></head>\n<body><h1>SRU server ", BuildVersion(), "</h1>\n<p>", kWhat,
        "</p>\n<p>A call to try",
        model == nullptr
            ? ", with <code>-H 'Authorization: Bearer TOKEN'</code> if the server asks for tokens"
            : "",
        ":</p>\n<pre>", Escaped(curl), "</pre>\n<ul>");
    for (const auto& [member, path, text] : kLinks) {
      absl::StrAppend(&response.body, "<li><a href=\"", path, "\">", path, "</a> ", text, "</li>");
    }
    absl::StrAppend(
        &response.body,
        "\n</ul>\n<p>Charts, errors and boxes to try the models are on the status page, "
        "at the port of <code>--metrics_listen</code>, by default 9090.</p></body></html>\n");
    http::AddSecurityHeaders(&response, kStyleHash);
  }
  response.headers.emplace_back("Vary", "Accept");
  return response;
}

void Front(const SharedCall& call, bool asks_for_tokens, bool has_tls) {
  if (asks_for_tokens && call->request().headers.count("authorization") == 0) {
    return call->Reply(FrontPage(call->request(), has_tls, nullptr));
  }
  AskMethod<v1::ListModelsResponse>(
      call, "/sru.v1.InferenceService/ListModels", v1::ListModelsRequest(),
      [call, has_tls](const v1::ListModelsResponse& response) {
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
