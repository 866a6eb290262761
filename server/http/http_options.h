// The server's options on its HTTP port.
#ifndef SRU_SERVER_HTTP_HTTP_OPTIONS_H_
#define SRU_SERVER_HTTP_HTTP_OPTIONS_H_

#include <string>
#include <vector>

#include "server/base/flag_table.h"
#include "server/base/listen_address.h"
#include "server/http/try_access.h"

namespace sru::server {

struct HttpOptions {
  ListenAddress listen = {"0.0.0.0", 9090};
  TryAccess status_page_try = TryAccess::kLocal;
  std::vector<std::string> status_page_hosts;  // names by which pages are shown; page_host.h
};

void AddFlags(HttpOptions* options, FlagTable* flags);

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_HTTP_OPTIONS_H_
