// libmicrohttpd with epoll and a pool of threads: echoes bodies. Arguments: port, threads.
#include <microhttpd.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

MHD_Result OnRequest(void* /*context*/, MHD_Connection* connection, const char* /*url*/,
                     const char* /*method*/, const char* /*version*/, const char* data,
                     size_t* size, void** state) {
  if (*state == nullptr) {
    *state = new std::string;
    return MHD_YES;
  }
  auto* const body = static_cast<std::string*>(*state);
  if (*size > 0) {
    body->append(data, *size);
    *size = 0;
    return MHD_YES;
  }
  MHD_Response* const response =
      MHD_create_response_from_buffer(body->size(), body->data(), MHD_RESPMEM_MUST_COPY);
  MHD_add_response_header(response, "Content-Type", "application/json");
  const MHD_Result result = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return result;
}

void OnEnd(void* /*context*/, MHD_Connection* /*connection*/, void** state,
           MHD_RequestTerminationCode /*code*/) {
  delete static_cast<std::string*>(*state);
  *state = nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(argv[1])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto threads = static_cast<unsigned>(std::atoi(argv[2]));
  MHD_Daemon* const daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, nullptr, nullptr, OnRequest, nullptr,
      MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_NOTIFY_COMPLETED, OnEnd, nullptr,
      MHD_OPTION_THREAD_POOL_SIZE, threads > 1 ? threads : 0, MHD_OPTION_CONNECTION_LIMIT, 10000,
      MHD_OPTION_END);
  if (daemon == nullptr) return 1;
  for (;;) pause();
}
