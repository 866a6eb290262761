// cpp-httplib, a thread per connection: echoes bodies. Arguments: port, threads (ignored: 1,100, for 1,000 connections).
#include <httplib.h>

#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  httplib::Server server;
  server.new_task_queue = [] { return new httplib::ThreadPool(1100); };
  server.set_keep_alive_max_count(1 << 30);
  server.set_keep_alive_timeout(60);
  server.set_tcp_nodelay(true);
  server.Post("/", [](const httplib::Request& request, httplib::Response& response) {
    response.set_content(request.body, "application/json");
  });
  server.listen("127.0.0.1", std::atoi(argv[1]));
}
