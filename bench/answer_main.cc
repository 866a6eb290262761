// sru_bench answer: asks a reader questions, and measures how fast the answers come.
#include "bench/answer_requests.h"
#include "bench/commands.h"
#include "bench/load_flags.h"

namespace sru::bench {
namespace {

constexpr char kAnswerUsage[] =
    R"(sru_bench answer asks a reader on this machine questions, and reports throughput and latency.

examples:
  sru_bench answer                                  64 calls always in flight, for 10 s
  sru_bench answer --in_flight=8 --check            are the answers the same as one after the other?
  sru_bench answer --rate=200 --deadline=1s --passage=lognormal:130:0.5:800
  sru_bench answer --input=questions.tsv --queries=32

With --check every question is first asked alone, one call after the other, and every answer is
compared with these, all but its times; the exit code is 1 if one is wrong. The rest is as with
sru_bench load --help: in an open loop (--rate) latency counts from the time at which a call was meant
to be sent, goodput counts the answers that came within --deadline. With --json one object is printed;
its latencies are microseconds. Ctrl-C ends a run early with a report.
)";

}  // namespace

int AnswerMain(const std::vector<std::string>& args) {
  LoadOptions load;
  load.address = "localhost:50051";
  load.method = "/sru.v1.InferenceService/Answer";
  AnswerRequestOptions request;
  bool check = false;
  bool json = false;
  client::FlagSet flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine", "SRU_ADDRESS");
  AddRunFlags(&load, &flags);
  AddConnectionFlags(&load, &flags);
  flags.Add("check", &check, "compare every answer with that of the same call alone");
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("answer", kAnswerUsage, args, &flags)) return *exit_code;

  load.seed = request.seed;
  auto model = FindModel(load.address, request.model, request.version, {"reader"});
  if (!model.ok()) return Fail("answer", model.status(), load);
  auto requests = MakeAnswerRequests(request, *model);
  if (!requests.ok()) return Fail("answer", requests.status(), load);
  return RunAndReport("answer", load, Serialize(*requests), check, json);
}

}  // namespace sru::bench
