// sru_client admin: loads and unloads models.
#include <iostream>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/json_output.h"
#include "client/commands/model_statuses.h"
#include "client/names.h"

namespace sru::client {
namespace {

constexpr char kAdminHelp[] =
    R"(sru_client admin loads and unloads models of a server that runs with --model_control=explicit and
--admin_listen.

usage: sru_client admin [--flag=value ...] load|unload NAME

load answers when the model is served; of a model that is loaded it looks for new and changed
versions. unload answers when calls do not find the model any more; those that did are still answered.

examples:
  sru_client admin load trec
  sru_client admin --address=10.0.0.7:50052 unload trec
)";

int Load(const Command& command, const CommonFlags& common, const std::string& model,
         Client* client) {
  auto response = client->LoadModel(model);
  if (!response.ok()) {
    std::cerr << "sru_client " << command.name << ": "
              << ExplainAdminError(response.status(), common.connect.address,
                                   common.connect.deadline)
              << "\n";
    return kExitFailed;
  }
  PrintStatuses(response->statuses(), common.json);
  return kExitOk;
}

int Unload(const Command& command, const CommonFlags& common, const std::string& model,
           Client* client) {
  if (absl::Status status = client->UnloadModel(model); !status.ok()) {
    return CallError(command, common, status);
  }
  if (common.json) {
    std::cout << Dump({{"name", model}, {"unloaded", true}}) << "\n";
  } else {
    std::cout << "unloaded " << model << "\n";
  }
  return kExitOk;
}

int Admin(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  common.connect.address = "localhost:50052";
  common.connect.deadline = absl::Minutes(10);
  common.connect.max_attempts = 1;
  common.connect.only_serving = false;
  FlagSet flags;
  common.AddTo(&flags, "HOST:PORT of the server's --admin_listen", "SRU_ADMIN_ADDRESS");
  std::vector<std::string> rest;
  if (auto code = ParseArgs(command, args, &flags, &rest)) return *code;
  if (rest.size() != 2 || (rest[0] != "load" && rest[0] != "unload")) {
    return UsageError(command, "expected 'load NAME' or 'unload NAME'");
  }
  int exit_code = kExitOk;
  const auto client = MakeClient(command, common, &exit_code);
  if (client == nullptr) return exit_code;
  return rest[0] == "load" ? Load(command, common, rest[1], client.get())
                           : Unload(command, common, rest[1], client.get());
}

}  // namespace

constexpr Command kAdmin = {"admin", "loads and unloads models", kAdminHelp, Admin};

}  // namespace sru::client
