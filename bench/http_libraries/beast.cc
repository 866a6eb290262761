// Boost.Beast's parser and Asio as server/http has them: echoes bodies. Arguments: port, threads.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "server/http/http_server.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  using sru::server::HttpCall;
  using sru::server::HttpServer;
  using sru::server::PageResponse;
  HttpServer::Options options;
  options.keep_alive = true;
  options.threads = std::atoi(argv[2]);
  options.limits.max_connections = 10000;
  const auto server = HttpServer::Start({"127.0.0.1", std::atoi(argv[1])}, options,
                                        [](const std::shared_ptr<HttpCall>& call) {
                                          PageResponse response;
                                          response.content_type = "application/json";
                                          response.body = call->request().read_body().value_or("");
                                          call->Reply(std::move(response));
                                        });
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}
