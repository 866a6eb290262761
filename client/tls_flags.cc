#include "client/tls_flags.h"

namespace sru::client {

void AddTlsFlags(ConnectOptions* options, Flags* flags) {
  flags->Add("tls", &options->tls, "use TLS, as the other --tls flags do too");
  flags->Add("tls_ca", &options->tls_ca,
             "PEM file with the authorities to trust; without it those of the system");
  flags->Variable("SRU_TLS_CA");
  flags->Add("tls_cert", &options->tls_cert, "PEM file with this client's certificate");
  flags->Variable("SRU_TLS_CLIENT_CERT");
  flags->Add("tls_key", &options->tls_key, "PEM file with its key");
  flags->Variable("SRU_TLS_CLIENT_KEY");
  flags->Add("tls_server_name", &options->tls_server_name,
             "name in the server's certificate, if it is not that in --address");
  flags->Variable("SRU_TLS_SERVER_NAME");
}

}  // namespace sru::client
