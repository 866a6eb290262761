// sru_bench load: unary calls of one method, in a closed or an open loop.
#include "bench/commands.h"
#include "bench/load_flags.h"
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

A line of the file of --requests is a request as JSON, such as
  {"model": "en_de", "sequences": [{"text": "A dog runs."}], "beam_size": 5}
and --method is then any unary method: of sru.v1.InferenceService by its name, of another service by its
path, such as /inference.GRPCInferenceService/ModelInfer.

In an open loop (--rate) latency counts from the time at which a call was meant to be sent, so that
a stall is not hidden. Goodput counts the answers that came within --deadline. Refusals
(RESOURCE_EXHAUSTED, UNAVAILABLE) have a latency of their own. With --json one object is printed;
its latencies are microseconds. Ctrl-C ends a run early with a report.
)";

}  // namespace

int LoadMain(const std::vector<std::string>& args) {
  LoadOptions load;
  load.address = "localhost:50051";
  RequestOptions request;
  bool json = false;
  Flags flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine");
  flags.Variable("SRU_ADDRESS");
  AddLoadFlags(&load, &flags);
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("load", kLoadUsage, args, &flags)) return *exit_code;

  const auto requests = PrepareRequests(request, &load);
  if (!requests.ok()) return Fail("load", requests.status(), load);
  return RunAndReport(load, *requests, json);
}

}  // namespace sru::bench
