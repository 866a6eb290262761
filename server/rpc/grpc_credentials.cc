#include "server/rpc/grpc_credentials.h"

#include <string>
#include <utility>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/security/auth_metadata_processor.h"

namespace sru::server::rpc {
namespace {

// Lives as long as the library's credentials.
struct Files {
  std::function<std::shared_ptr<const transport::TlsPem>()> newest;
  std::shared_ptr<const transport::TlsPem> used;
};

// Runs before each handshake.
grpc_ssl_certificate_config_reload_status Fetch(void* user_data,
                                                grpc_ssl_server_certificate_config** config) {
  auto* const files = static_cast<Files*>(user_data);
  std::shared_ptr<const transport::TlsPem> newest = files->newest();
  if (newest == files->used) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {newest->key.c_str(), newest->certificate.c_str()};
  // gRPC 1.51 insists on authorities even where it asks for no client certificate and so never uses
  // them; any certificate does.
  const std::string& authorities =
      newest->client_ca.empty() ? newest->certificate : newest->client_ca;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  files->used = std::move(newest);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

void DeleteFiles(void* files) { delete static_cast<Files*>(files); }

// The C++ library has no server credentials whose certificates its user can replace; its core has.
class CoreServerCredentials final : public grpc::ServerCredentials {
 public:
  // Takes `credentials` over.
  explicit CoreServerCredentials(grpc_server_credentials* credentials)
      : credentials_(credentials) {}
  CoreServerCredentials(const CoreServerCredentials&) = delete;
  CoreServerCredentials& operator=(const CoreServerCredentials&) = delete;
  ~CoreServerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> MakeCredentials(
    std::function<std::shared_ptr<const transport::TlsPem>()> files) {
  if (files == nullptr) return grpc::InsecureServerCredentials();
  const bool mutual = !files()->client_ca.empty();
  auto* const state = new Files{std::move(files), nullptr};
  grpc_server_credentials* const core = grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                 : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
          Fetch, state));
  // Without a function nothing is processed; the state is deleted with the credentials.
  grpc_server_credentials_set_auth_metadata_processor(core, {nullptr, DeleteFiles, state});
  return std::make_shared<CoreServerCredentials>(core);
}

}  // namespace sru::server::rpc
