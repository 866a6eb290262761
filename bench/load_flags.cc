#include "bench/load_flags.h"

#include <iostream>

#include "absl/strings/str_replace.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/loopback.h"
#include "bench/report.h"
#include "client/client.h"
#include "client/find_model.h"
#include "client/names.h"
#include "grpcpp/support/channel_arguments.h"

namespace sru::bench {

void AddLoadFlags(LoadOptions* load, Flags* flags) {
  flags->Add("in_flight", &load->in_flight, {1, 100000},
             "closed loop: calls that are always on their way");
  flags->Add("rate", &load->rate, {0, 1e7}, "open loop: calls per second; 0 = closed loop");
  flags->Add(
      "max_outstanding", &load->max_outstanding, {1},
      "open loop: bound on the calls on their way; what is over it is not sent, but counted");
  flags->Add("duration", &load->duration, "how long calls are sent and counted");
  flags->Add("calls", &load->calls, {0}, "end after so many calls; 0 = by --duration only");
  flags->Add("warmup", &load->warmup, "how long calls are sent before they count");
  flags->Add("deadline", &load->deadline, "of each call; inf = none");
  flags->Add("connections", &load->connections, {1, 1024},
             "HTTP/2 connections that the calls are spread over");
  flags->Add("token", &load->token, "bearer token that the calls show, which tells callers apart");
  flags->Add("threads", &load->threads, {1, 64},
             "threads of this client, at most one per connection");
  flags->Add(
      "send_interval", &load->send_interval,
      "open loop: calls that fall due meanwhile are sent together, so that this client takes "
      "less of a machine that it shares with the server; latency counts from their own times");
}

std::optional<int> ParseFlags(const std::string& command, const char* usage,
                              const std::vector<std::string>& args, Flags* flags) {
  if (const absl::Status status = flags->ParseFlagsOnly(args); !status.ok()) {
    std::cerr << "sru_bench " << command << ": " << status.message() << "\nsru_bench " << command
              << " --help shows the flags\n";
    return kExitUsage;
  }
  if (flags->help_requested()) {
    std::cout << usage << "\nflags:\n" << flags->Help();
    return kExitOk;
  }
  return std::nullopt;
}

absl::StatusOr<v1::ModelInfo> FindModel(const LoadOptions& load, const std::string& model,
                                        int64_t version, const std::vector<std::string>& tasks) {
  SRU_RETURN_UNLESS_OK(ResolveLoopback(load.address).status());
  client::ConnectOptions connect;
  connect.address = load.address;
  connect.max_attempts = 1;
  connect.channel_args = {{GRPC_ARG_ENABLE_HTTP_PROXY, 0}};
  connect.token = load.token;
  SRU_ASSIGN_OR_RETURN(auto client, client::Client::Create(connect));
  return client::FindModel(*client, model, version, tasks);
}

absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load) {
  SRU_ASSIGN_OR_RETURN(load->method, MethodPath(options));
  load->seed = options.seed;
  // This must fail before anything is sent anywhere.
  SRU_RETURN_UNLESS_OK(ResolveLoopback(load->address).status());
  v1::ModelInfo info;
  if (!options.lengths.empty()) {  // the model says how many words there are, or features
    std::vector<std::string> tasks = {"classifier", "encoder"};
    if (options.method == "score") tasks = {"language_model"};
    SRU_ASSIGN_OR_RETURN(info, FindModel(*load, options.model, options.version, tasks));
  }
  return MakeRequests(options, info);
}

int RunAndReport(LoadOptions load, const std::vector<std::string>& requests, bool json) {
  load.stop = StopOnSignal();
  load.on_progress = ProgressPrinter();
  auto result = RunLoad(load, requests);
  EndProgress();
  if (!result.ok()) return Fail("load", result.status(), load);
  std::cout << (json ? JsonLine(ResultJson(load, *result)) : ResultText(load, *result));
  if (result->ok == 0) {
    std::cerr << "sru_bench load: no call was answered OK\n";
    return kExitFailed;
  }
  return kExitOk;
}

int Fail(const std::string& command, const absl::Status& status, const LoadOptions& load) {
  const bool usage = status.code() == absl::StatusCode::kInvalidArgument;
  std::string text(status.message());
  if (!usage) {
    // The advice is that of sru_client, whose flag this program does not have.
    text = absl::StrReplaceAll(client::ExplainError(status, load.address, load.deadline),
                               {{"--token_file=FILE", "--token=TOKEN"}});
  }
  std::cerr << "sru_bench " << command << ": " << text << "\n";
  return usage ? kExitUsage : kExitFailed;
}

}  // namespace sru::bench
