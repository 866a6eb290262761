#include "client/commands/common_flags.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/names.h"

namespace sru::client {

void CommonFlags::AddTo(FlagSet* flags, const char* address_help, const char* address_variable) {
  flags->Add("address", &connect.address, address_help, address_variable);
  flags->Add("deadline", &connect.deadline, "time for each call; inf = no bound");
  flags->Add("tls", &connect.tls, "use TLS, as the other --tls flags do too");
  flags->Add("tls_ca", &connect.tls_ca,
             "PEM file with the authorities to trust; without it those of the system",
             "SRU_TLS_CA");
  flags->Add("tls_cert", &connect.tls_cert, "PEM file with this client's certificate",
             "SRU_TLS_CLIENT_CERT");
  flags->Add("tls_key", &connect.tls_key, "PEM file with its key", "SRU_TLS_CLIENT_KEY");
  flags->Add("tls_server_name", &connect.tls_server_name,
             "name in the server's certificate, if it is not that in --address",
             "SRU_TLS_SERVER_NAME");
  flags->Add("token_file", &connect.token_file, "file with the token to send", "SRU_TOKEN_FILE");
  flags->Add("token_without_tls", &connect.token_without_tls,
             "send it over the network without TLS");
  flags->Add("json", &json, "print one JSON object per line");
}

std::string CommonFlags::Explain(const absl::Status& status) const {
  return ExplainError(status, connect.address, connect.deadline);
}

std::unique_ptr<Client> MakeClient(const Command& command, const CommonFlags& flags,
                                   int* exit_code) {
  auto client = Client::Create(flags.connect);
  if (!client.ok()) {
    *exit_code = UsageError(command, absl::StrCat("--", client.status().message()));
    return nullptr;
  }
  const absl::Status status = (*client)->Connect(flags.connect.deadline);
  if (!status.ok()) {
    *exit_code = CallError(command, flags, status);
    return nullptr;
  }
  return *std::move(client);
}

int CallError(const Command& command, const CommonFlags& flags, const absl::Status& status) {
  std::cerr << "sru_client " << command.name << ": " << flags.Explain(status) << "\n";
  return kExitFailed;
}

}  // namespace sru::client
