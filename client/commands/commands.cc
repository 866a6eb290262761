#include "client/commands/commands.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/command_line.h"

namespace sru::client {
namespace {

void AddTo(Flags* flags, CommonFlags* common) {
  ConnectOptions& connect = common->connect;
  flags->Add("address", &connect.address, common->address_help);
  flags->Variable(common->address_variable);
  flags->Add("deadline", &connect.deadline, "time for each call; inf = no bound");
  AddTlsFlags(&connect, flags);
  flags->Add("token_file", &connect.token_file, "file with the token to send");
  flags->Variable("SRU_TOKEN_FILE");
  flags->Add("traceparent", &connect.traceparent, "trace that the calls are part of (W3C)");
  flags->Variable("TRACEPARENT");
  flags->Add("json", &common->json, "print one JSON object per line");
}

Start UsageError(const Command& command, absl::string_view message) {
  Failure(command, absl::StrCat(message, "\nsru_client ", command.name,
                                " --help shows the flags, with examples"));
  return {{}, nullptr, kExitUsage};
}

}  // namespace

std::string CommonFlags::Explain(const absl::Status& status) const {
  return ExplainError(status, connect.address, connect.deadline);
}

Start Begin(const Command& command, const std::vector<std::string>& args, Flags* flags,
            CommonFlags* common,
            absl::FunctionRef<absl::Status(const std::vector<std::string>& arguments)> check) {
  AddTo(flags, common);
  absl::StatusOr<std::vector<std::string>> arguments = flags->Parse(args);
  if (!arguments.ok()) return UsageError(command, arguments.status().message());
  if (flags->help_requested()) {
    std::cout << command.help << "\nflags:\n" << flags->Help();
    return {};
  }
  if (const absl::Status status = check(*arguments); !status.ok()) {
    return UsageError(command, status.message());
  }
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(common->connect);
  if (!client.ok()) return UsageError(command, absl::StrCat("--", client.status().message()));
  const absl::Status status = (*client)->Connect(common->connect.deadline);
  if (!status.ok()) return {{}, nullptr, CallError(command, *common, status)};
  return {*std::move(arguments), *std::move(client), kExitOk};
}

int Failure(const Command& command, absl::string_view message) {
  std::cerr << "sru_client " << command.name << ": " << message << "\n";
  return kExitFailed;
}

int CallError(const Command& command, const CommonFlags& flags, const absl::Status& status) {
  return Failure(command, flags.Explain(status));
}

}  // namespace sru::client
