// sru_bench load: makes one run against a server.
#include <iostream>

#include "absl/strings/str_format.h"
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/report.h"

namespace sru::bench {
namespace {

constexpr char kUsage[] =
    R"(sru_bench load sends calls to a server on this machine and reports throughput and latency.

examples:
  sru_bench load                                    64 calls always in flight, for 10 s
  sru_bench load --in_flight=1 --calls=1000         one call after the other
  sru_bench load --rate=2000 --deadline=50ms        Poisson arrivals, whatever the server does
  sru_bench load --lengths=uniform:1:300 --json     sequences of 1 to 300 random tokens
  sru_bench load --input=questions.txt --sequences=8

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
  client::FlagSet flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine", "SRU_ADDRESS");
  flags.Add("in_flight", &load.in_flight, "closed loop: calls that are always on their way");
  flags.Add("rate", &load.rate, "open loop: calls per second; 0 = closed loop");
  flags.Add("max_outstanding", &load.max_outstanding,
            "open loop: bound on the calls on their way; what is over it is not sent, but counted");
  flags.Add("duration", &load.duration, "how long calls are sent and counted");
  flags.Add("calls", &load.calls, "end after so many calls; 0 = by --duration only");
  flags.Add("warmup", &load.warmup, "how long calls are sent before they count");
  AddConnectionFlags(&load, &flags);
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("load", kUsage, args, &flags)) return *exit_code;

  auto requests = PrepareRequests(request, &load);
  if (!requests.ok()) return Fail("load", requests.status(), load);
  load.on_progress = ProgressPrinter("");
  load.stop = StopOnSignal();
  auto result = RunLoad(load, *requests);
  EndProgress();
  if (!result.ok()) return Fail("load", result.status(), load);
  if (json) {
    std::cout << ResultJson(load, *result)
                     .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)
              << "\n";
  } else {
    std::cout << ResultText(load, *result);
  }
  if (result->ok == 0) {
    std::cerr << "sru_bench load: no call was answered OK\n";
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace sru::bench
