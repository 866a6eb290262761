#include "server/http/http_options.h"

#include "absl/strings/str_join.h"
#include "server/http/allowed_origins.h"
#include "server/http/page_host.h"

namespace sru::server::http {

void AddFlags(HttpOptions* options, FlagTable* flags) {
  flags->AddParsed("metrics_listen", &options->metrics_listen, options->metrics_listen.ToString(),
                   ParseListenAddress,
                   "HOST:PORT of the status page (/), /metrics, /healthz and /readyz. Port 0 lets "
                   "the system choose one.");
  flags->AddParsed("http_listen", &options->http_listen,
                   options->http_listen.has_value() ? options->http_listen->ToString() : "",
                   ParseOptionalListenAddress,
                   "HOST:PORT of the same calls for those who make them over HTTP with JSON. Port "
                   "0 lets the system "
                   "choose one. Empty: there is none; --listen takes these calls too.");
  flags->AddParsed("allow_origins", &options->allow_origins,
                   absl::StrJoin(options->allow_origins, ","), ParseAllowedOrigins,
                   "Origins whose web pages may make calls over HTTP, separated by commas, "
                   "such as https://app.example.com, or * for all. Browsers ask for it "
                   "by CORS. Empty: pages of other origins are refused.");
  flags->AddChoice<TryAccess>(
      "status_page_try", &options->status_page_try,
      {{"off", TryAccess::kOff}, {"local", TryAccess::kLocal}, {"all", TryAccess::kAll}},
      "off, local or all: who may try a model in the boxes of the status page, which "
      "call /v1/classify, generate, answer and translate on its port. local: only who "
      "comes from this machine, also through kubectl port-forward or ssh -L.");
  flags->AddParsed("status_page_host", &options->status_page_hosts,
                   absl::StrJoin(options->status_page_hosts, ","), ParsePageHostNames,
                   "Names by which people may open the status page, separated by commas, such as "
                   "sru.example.org. IP addresses, localhost and names without a dot need not be "
                   "listed. Other names are refused, since a web site could have its own point "
                   "here. /metrics, /healthz and /readyz answer by every name.");
}

}  // namespace sru::server::http
