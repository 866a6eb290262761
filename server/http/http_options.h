// The server's options on its HTTP ports.
#ifndef SRU_SERVER_HTTP_HTTP_OPTIONS_H_
#define SRU_SERVER_HTTP_HTTP_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "base/flags.h"
#include "server/base/listen_address.h"

namespace sru::server::http {

// Who may call a model through the status page. Its port is meant for monitoring, and is often open
// to more machines than the gRPC port.
enum class TryAccess {
  kOff,  // nobody
  // Only from this machine: the connection comes from a loopback address, no proxy has forwarded
  // it, and the page was opened as localhost or by a loopback address. A proxy on this machine that
  // does not say that it forwards opens it to everybody.
  kLocal,
  kAll,  // from everywhere, if the page was opened under a name that cannot be a stranger's
};

struct HttpOptions {
  ListenAddress metrics_listen = {"127.0.0.1", 9090};
  // The calls' port; nothing: they have none of their own.
  std::optional<ListenAddress> http_listen = ListenAddress{"127.0.0.1", 8080};
  std::vector<std::string> allow_origins;  // whose pages may make calls; allowed_origins.h
  TryAccess status_page_try = TryAccess::kLocal;
  std::vector<std::string> status_page_hosts;  // names by which pages are shown; page_host.h
};

void AddFlags(HttpOptions* options, Flags* flags);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_OPTIONS_H_
