#include "bench/commands.h"

#include <algorithm>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "bench/loopback.h"
#include "client/client.h"
#include "client/command_line.h"
#include "grpcpp/support/channel_arguments.h"

namespace sru::bench {

void AddRunFlags(const std::string& calls, RunOptions* run, Flags* flags) {
  flags->Add("address", &run->address, "HOST:PORT of the server, on this machine");
  flags->Variable("SRU_ADDRESS");
  flags->Add("rate", &run->rate, {0, 1e6},
             absl::StrCat("open loop: ", calls, " per second; 0 = closed loop"));
  flags->Add("max_outstanding", &run->max_outstanding, {1},
             absl::StrCat("open loop: bound on the ", calls,
                          " on their way; what is over it is not sent, but counted"));
  flags->Add("duration", &run->duration, absl::StrCat("how long ", calls, " are sent and counted"));
  flags->Add("warmup", &run->warmup,
             absl::StrCat("how long ", calls, " are sent before they count"));
  flags->Add("deadline", &run->deadline, absl::StrCat("of each of the ", calls, "; inf = none"));
  flags->Add("connections", &run->connections, {1, 1024},
             absl::StrCat("HTTP/2 connections that the ", calls, " are spread over"));
  flags->Add("token", &run->token, "bearer token that the calls show, which tells callers apart");
  client::AddTlsFlags(run, flags);
}

absl::Status CheckRunOptions(const RunOptions& options) {
  if (options.warmup < absl::ZeroDuration() || options.warmup > absl::Hours(24)) {
    return InvalidArgument("--warmup: expected 0s to 24h, found ",
                           absl::FormatDuration(options.warmup));
  }
  if (options.duration <= absl::ZeroDuration() || options.duration > absl::Hours(24)) {
    return InvalidArgument("--duration: expected more than 0s, at most 24h, found ",
                           absl::FormatDuration(options.duration));
  }
  if (options.deadline <= absl::ZeroDuration() ||
      (options.deadline > absl::Hours(24) && options.deadline != absl::InfiniteDuration())) {
    return InvalidArgument("--deadline: expected more than 0s, at most 24h, or inf, found ",
                           absl::FormatDuration(options.deadline));
  }
  return absl::OkStatus();
}

std::optional<int> ParseFlags(const Command& command, const std::vector<std::string>& args,
                              Flags* flags) {
  if (const absl::Status status = flags->ParseFlagsOnly(args); !status.ok()) {
    std::cerr << "sru_bench " << command.name << ": " << status.message() << "\nsru_bench "
              << command.name << " --help shows the flags\n";
    return kExitUsage;
  }
  if (flags->help_requested()) {
    std::cout << command.help << "\nflags:\n" << flags->Help();
    return kExitOk;
  }
  return std::nullopt;
}

absl::StatusOr<v1::ModelInfo> FindModel(const RunOptions& run, const std::string& model,
                                        int64_t version, const std::vector<std::string>& tasks) {
  SRU_RETURN_UNLESS_OK(ResolveLoopback(run.address).status());
  client::ConnectOptions connect = run;
  connect.deadline = client::ConnectOptions().deadline;
  connect.max_attempts = 1;
  connect.channel_args = {{GRPC_ARG_ENABLE_HTTP_PROXY, 0}};
  SRU_ASSIGN_OR_RETURN(auto client, client::Client::Create(connect));
  if (!model.empty()) return client->GetModel(model, version);
  SRU_ASSIGN_OR_RETURN(v1::ListModelsResponse list, client->ListModels());
  const std::string* found = nullptr;
  for (const v1::ModelInfo& each : list.models()) {
    if (std::find(tasks.begin(), tasks.end(), each.task()) == tasks.end()) continue;
    // Where several models fit, the error of the server says that a name is needed.
    if (found != nullptr && *found != each.name()) return client->GetModel("", version);
    found = &each.name();
  }
  return client->GetModel(found == nullptr ? "" : *found, version);
}

int Fail(const Command& command, const absl::Status& status, const RunOptions& run) {
  const bool usage = status.code() == absl::StatusCode::kInvalidArgument;
  std::string text(status.message());
  if (!usage) {
    // The advice is that of sru_client, whose flag this program does not have.
    text = absl::StrReplaceAll(client::ExplainError(status, run.address, run.deadline),
                               {{"--token_file=FILE", "--token=TOKEN"}});
  }
  std::cerr << "sru_bench " << command.name << ": " << text << "\n";
  return usage ? kExitUsage : kExitFailed;
}

}  // namespace sru::bench
