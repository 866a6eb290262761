// sru_client health: whether the server is serving.
#include <iostream>

#include "client/commands/commands.h"
#include "client/commands/printer.h"

namespace sru::client {
namespace {

constexpr char kHealthHelp[] =
    R"(sru_client health asks whether the server is serving. It exits 0 when the answer is SERVING and 1
otherwise, so that it can be the health check of a container.

usage: sru_client health [--flag=value ...]

examples:
  sru_client health
  sru_client health --address=10.0.0.7:50051 --deadline=1s
  sru_client health --service=trec         (one model)
)";

int Health(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  common.connect.deadline = absl::Seconds(3);
  common.connect.max_attempts = 1;
  common.connect.only_serving = false;
  std::string service;
  Flags flags;
  flags.Add("service", &service, "a model's name; empty = the server as a whole");
  const Start start = Begin(command, args, &flags, &common, [](const auto& arguments) {
    if (arguments.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", arguments[0], "'; a model is named with --service"));
  });
  if (start.client == nullptr) return start.exit_code;
  const absl::StatusOr<ServingStatus> health = start.client->Health(service);
  if (!health.ok()) return CallError(command, common, health.status());
  if (common.json) {
    std::cout << Dump({{"service", service}, {"status", ServingStatusName(*health)}}) << "\n";
  } else {
    std::cout << ServingStatusName(*health) << "\n";
  }
  return *health == ServingStatus::kServing ? kExitOk : kExitFailed;
}

}  // namespace

constexpr Command kHealth = {"health", "whether the server is serving; exits 0 only then",
                             kHealthHelp, Health};

}  // namespace sru::client
