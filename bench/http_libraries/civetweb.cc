// civetweb, a thread per connection: echoes bodies. Arguments: port, threads (ignored: 1,100, for 1,000 connections).
#include <civetweb.h>
#include <unistd.h>

#include <string>

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  const std::string port = std::string("127.0.0.1:") + argv[1];
  const char* options[] = {"listening_ports",
                           port.c_str(),
                           "num_threads",
                           "1100",
                           "enable_keep_alive",
                           "yes",
                           "keep_alive_timeout_ms",
                           "60000",
                           "tcp_nodelay",
                           "1",
                           nullptr};
  mg_callbacks callbacks{};
  mg_context* const context = mg_start(&callbacks, nullptr, options);
  if (context == nullptr) return 1;
  mg_set_request_handler(
      context, "/",
      [](mg_connection* connection, void* /*state*/) {
        std::string body(static_cast<size_t>(mg_get_request_info(connection)->content_length), 0);
        mg_read(connection, body.data(), body.size());
        const std::string answer =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: keep-alive\r\n"
            "Content-Length: " +
            std::to_string(body.size()) + "\r\n\r\n" + body;
        mg_write(connection, answer.data(), answer.size());
        return 200;
      },
      nullptr);
  for (;;) pause();
}
