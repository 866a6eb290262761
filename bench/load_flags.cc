#include "bench/load_flags.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/loopback.h"
#include "client/client.h"
#include "client/find_model.h"
#include "client/names.h"

namespace sru::bench {

void AddConnectionFlags(LoadOptions* load, client::FlagSet* flags) {
  flags->Add("deadline", &load->deadline, "of each call; inf = none");
  flags->Add("connections", &load->connections,
             "HTTP/2 connections that the calls are spread over");
  flags->Add("threads", &load->threads, "threads of this client, at most one per connection");
  flags->Add(
      "send_interval", &load->send_interval,
      "open loop: calls that fall due meanwhile are sent together, so that this client takes "
      "less of a machine that it shares with the server; latency counts from their own times");
}

std::optional<int> ParseFlags(const std::string& command, const char* usage,
                              const std::vector<std::string>& args, client::FlagSet* flags) {
  auto positional = flags->Parse(args);
  if (positional.ok() && !positional->empty() && !flags->help_requested()) {
    positional = absl::InvalidArgumentError(
        absl::StrCat("unexpected argument '", positional->front(), "'; flags begin with --"));
  }
  if (!positional.ok()) {
    std::cerr << "sru_bench " << command << ": " << positional.status().message() << "\nsru_bench "
              << command << " --help shows the flags\n";
    return kExitUsage;
  }
  if (flags->help_requested()) {
    std::cout << usage << "\nflags:\n" << flags->Help();
    return kExitOk;
  }
  return std::nullopt;
}

namespace {

// The model that calls without a name reach.
absl::StatusOr<v1::ModelInfo> FindModel(client::Client& client, const RequestOptions& options) {
  std::vector<std::string> tasks = {"classifier", "encoder"};
  if (options.method == "score") tasks = {"language_model"};
  return client::FindModel(client, options.model, options.version, tasks);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load) {
  auto method = MethodPath(options);
  if (!method.ok()) return method.status();
  load->method = *std::move(method);
  load->seed = options.seed;
  // This must fail before anything is sent anywhere.
  if (auto addresses = ResolveLoopback(load->address); !addresses.ok()) return addresses.status();
  v1::ModelInfo info;
  if (!options.lengths.empty()) {
    client::ConnectOptions connect;
    connect.address = load->address;
    connect.max_attempts = 1;
    auto client = client::Client::Create(connect);
    if (!client.ok()) return client.status();
    auto model = FindModel(**client, options);
    if (!model.ok()) return model.status();
    info = *std::move(model);
  }
  return MakeRequests(options, info);
}

int Fail(const std::string& command, const absl::Status& status, const LoadOptions& load) {
  const bool usage = status.code() == absl::StatusCode::kInvalidArgument;
  std::cerr << "sru_bench " << command << ": "
            << (usage ? std::string(status.message())
                      : client::ExplainError(status, load.address, load.deadline))
            << "\n";
  return usage ? kExitUsage : kExitFailed;
}

}  // namespace sru::bench
