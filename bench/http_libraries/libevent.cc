// libevent's evhttp, one thread: echoes bodies. Arguments: port, threads (ignored).
#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>

#include <cstdint>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  event_base* const base = event_base_new();
  evhttp* const server = evhttp_new(base);
  evhttp_set_gencb(
      server,
      [](evhttp_request* request, void* /*context*/) {
        evhttp_add_header(evhttp_request_get_output_headers(request), "Content-Type",
                          "application/json");
        evhttp_send_reply(request, 200, "OK", evhttp_request_get_input_buffer(request));
      },
      nullptr);
  const auto port = static_cast<uint16_t>(std::atoi(argv[1]));
  if (evhttp_bind_socket(server, "127.0.0.1", port) != 0) return 1;
  event_base_dispatch(base);
}
