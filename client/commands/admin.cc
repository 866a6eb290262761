// sru_client admin: loads and unloads models.
#include <iostream>

#include "client/client.h"
#include "client/command_line.h"
#include "client/commands/commands.h"
#include "client/commands/printer.h"

namespace sru::client {
namespace {

constexpr char kAdminHelp[] =
    R"(sru_client admin loads and unloads models of a server that runs with --model_control=explicit and
--admin_listen.

usage: sru_client admin [--flag=value ...] load|unload NAME

load answers when the model is served; for a loaded model, it picks up new and changed versions.
unload answers when calls do not find the model any more; those that did are still answered.

examples:
  sru_client admin load trec
  sru_client admin --address=10.0.0.7:50052 unload trec
)";

int Admin(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  common.address_help = "HOST:PORT of the server's --admin_listen";
  common.address_variable = "SRU_ADMIN_ADDRESS";
  common.connect.address = "localhost:50052";
  common.connect.deadline = absl::Minutes(10);
  common.connect.max_attempts = 1;
  common.connect.only_serving = false;
  Flags flags;
  const Start start = Begin(command, args, &flags, &common, [](const auto& arguments) {
    if (arguments.size() == 2 && (arguments[0] == "load" || arguments[0] == "unload")) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("expected 'load NAME' or 'unload NAME'");
  });
  if (start.client == nullptr) return start.exit_code;
  const std::string& model = start.arguments[1];
  if (start.arguments[0] == "load") {
    const absl::StatusOr<v1::LoadModelResponse> response = start.client->LoadModel(model);
    if (!response.ok()) {
      return Failure(command, ExplainAdminError(response.status(), common.connect.address,
                                                common.connect.deadline));
    }
    PrintStatuses(command, common.json, response->statuses());
    return kExitOk;
  }
  const absl::Status status = start.client->UnloadModel(model);
  if (!status.ok()) return CallError(command, common, status);
  if (common.json) {
    std::cout << Dump({{"name", model}, {"unloaded", true}}) << "\n";
  } else {
    std::cout << "unloaded " << model << "\n";
  }
  return kExitOk;
}

}  // namespace

constexpr Command kAdmin = {"admin", "loads and unloads models", kAdminHelp, Admin};

}  // namespace sru::client
