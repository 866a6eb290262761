// sru_bench load: unary calls of one method, in a closed or an open loop.
#include <csignal>
#include <iostream>

#include "base/status.h"
#include "bench/commands.h"
#include "bench/load_generator.h"
#include "bench/report.h"
#include "bench/requests.h"

namespace sru::bench {
namespace {

constexpr char kLoadUsage[] =
    R"(sru_bench load sends calls to a server on this machine and reports throughput and latency.

examples:
  sru_bench load                                    64 calls always in flight, for 10 s
  sru_bench load --in_flight=1 --calls=1000         one call after the other
  sru_bench load --rate=2000 --deadline=50ms        Poisson arrivals, whatever the server does
  sru_bench load --lengths=uniform:1:300 --json     sequences of 1 to 300 random tokens
  sru_bench load --input=questions.txt --sequences=8
  sru_bench load --method=Translate --requests=calls.jsonl
  sru_bench load --tls_ca=cert.pem --token=TOKEN

A line of the file of --requests is a request as JSON, such as
  {"model": "en_de", "sequences": [{"text": "A dog runs."}], "beam_size": 5}
and --method is then any unary method: of sru.v1.InferenceService by its name, of another service by its
path, such as /inference.GRPCInferenceService/ModelInfer.

In an open loop (--rate) latency counts from the time at which a call was meant to be sent, so that
a stall is not hidden. Goodput counts the answers that came within --deadline. Refusals
(RESOURCE_EXHAUSTED, UNAVAILABLE) have a latency of their own. With --json one object is printed;
its latencies are microseconds. Ctrl-C ends a run early with a report.
)";

absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load) {
  SRU_ASSIGN_OR_RETURN(load->method, MethodPath(options));
  load->seed = options.seed;
  v1::ModelInfo info;
  if (!options.lengths.empty()) {  // the model says how many words there are, or features
    std::vector<std::string> tasks = {"classifier", "encoder"};
    if (options.method == "score") tasks = {"language_model"};
    SRU_ASSIGN_OR_RETURN(info, FindModel(*load, options.model, options.version, tasks));
  }
  return MakeRequests(options, info);
}

int Load(const Command& command, const std::vector<std::string>& args) {
  LoadOptions load;
  RequestOptions request;
  bool json = false;
  Flags flags;
  AddRunFlags("calls", &load, &flags);
  flags.Add("in_flight", &load.in_flight, {1, 100000},
            "closed loop: calls that are always on their way");
  flags.Add("calls", &load.calls, {0}, "end after so many calls; 0 = by --duration only");
  flags.Add("threads", &load.threads, {1, 64},
            "threads of this client, at most one per connection");
  flags.Add(
      "send_interval", &load.send_interval,
      "open loop: calls that fall due meanwhile are sent together, so that this client takes "
      "less of a machine that it shares with the server; latency counts from their own times");
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags(command, args, &flags)) return *exit_code;

  const auto requests = PrepareRequests(request, &load);
  if (!requests.ok()) return Fail(command, requests.status(), load);
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
  load.stop = StopOnSignal();
  load.on_progress = ProgressPrinter("calls");
  auto result = RunLoad(load, *requests);
  EndProgress();
  if (!result.ok()) return Fail(command, result.status(), load);
  std::cout << (json ? JsonLine(ResultJson(load, *result)) : ResultText(load, *result));
  if (result->ok == 0) {
    std::cerr << "sru_bench load: no call was answered OK\n";
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace

constexpr Command kLoad = {"load", "send calls to a server and report throughput and latency",
                           kLoadUsage, Load};

}  // namespace sru::bench
