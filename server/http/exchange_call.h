// A request of an HttpExchange as an HttpCall: the same handlers answer what comes over HTTP/2 and
// over HTTP/1.1.
#ifndef SRU_SERVER_HTTP_EXCHANGE_CALL_H_
#define SRU_SERVER_HTTP_EXCHANGE_CALL_H_

#include <functional>
#include <memory>
#include <string>

#include "server/calls/http_exchange.h"
#include "server/http/http_server.h"

namespace sru::server::http {

// Makes the handler of an exchange. All functions may run on any thread, until the exchange ends.
struct ExchangeHooks {
  // As HttpServer::Options has it.
  std::function<std::shared_ptr<const PageResponse>(PageRequest* request)> check_headers;
  HttpServer::Handler handle;
  std::function<void(int status)> on_answer;
};

// `hooks` must outlive the exchange.
calls::HttpHandler* StartExchangeCall(calls::HttpExchange* exchange, const ExchangeHooks& hooks);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_EXCHANGE_CALL_H_
