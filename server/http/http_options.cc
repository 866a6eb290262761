#include "server/http/http_options.h"

#include "absl/strings/str_join.h"
#include "server/http/allowed_origins.h"
#include "server/http/page_host.h"

namespace sru::server::http {

void AddFlags(HttpOptions* options, Flags* flags) {
  flags->AddParsed("metrics_listen", &options->metrics_listen, options->metrics_listen.ToString(),
                   ParseListenAddress,
                   "HOST:PORT of the status page (/), /metrics, /healthz and /readyz.");
  flags->AddParsed("http_listen", &options->http_listen,
                   options->http_listen.has_value() ? options->http_listen->ToString() : "",
                   ParseOptionalListenAddress,
                   "HOST:PORT for calls as JSON over HTTP. Empty: off; --listen takes these "
                   "calls too.");
  flags->AddParsed("allow_origins", &options->allow_origins,
                   absl::StrJoin(options->allow_origins, ","), ParseAllowedOrigins,
                   "Origins whose web pages may call over HTTP (CORS), separated by commas, "
                   "such as https://app.example.com; * for all. Empty: none.");
  flags->AddChoice<TryAccess>(
      "status_page_try", &options->status_page_try,
      {{"off", TryAccess::kOff}, {"local", TryAccess::kLocal}, {"all", TryAccess::kAll}},
      "off, local or all: who may try a model on the status page. local: only "
      "clients on this machine, also through kubectl port-forward or ssh -L.");
  flags->AddParsed("status_page_host", &options->status_page_hosts,
                   absl::StrJoin(options->status_page_hosts, ","), ParsePageHostNames,
                   "Names of the status page, separated by commas, such as sru.example.org. IP "
                   "addresses, localhost and names without a dot need no entry; other names "
                   "are refused.");
}

}  // namespace sru::server::http
