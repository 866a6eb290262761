// sru_bench translate: has a translator translate, and measures how fast the translations come.
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/translate_requests.h"

namespace sru::bench {
namespace {

constexpr char kTranslateUsage[] =
    R"(sru_bench translate has a translator on this machine translate, and reports throughput and latency.

examples:
  sru_bench translate                               64 calls always in flight, for 10 s
  sru_bench translate --in_flight=8 --check         are the translations the same as one after the other?
  sru_bench translate --rate=50 --deadline=2s --lengths=lognormal:14:0.4:80 --output=fixed:100
  sru_bench translate --input=sentences.txt --sequences=16 --beam_size=1

With --check every call is first made alone, one after the other, and every answer is compared with
these, all but its times; the exit code is 1 if one is wrong. The rest is as with sru_bench load --help:
in an open loop (--rate) latency counts from the time at which a call was meant to be sent, goodput
counts the answers that came within --deadline. With --json one object is printed; its latencies are
microseconds. Ctrl-C ends a run early with a report.
)";

}  // namespace

int TranslateMain(const std::vector<std::string>& args) {
  LoadOptions load;
  load.address = "localhost:50051";
  load.method = "/sru.v1.InferenceService/Translate";
  TranslateRequestOptions request;
  bool check = false;
  bool json = false;
  client::FlagSet flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine", "SRU_ADDRESS");
  AddRunFlags(&load, &flags);
  AddConnectionFlags(&load, &flags);
  flags.Add("check", &check, "compare every answer with that of the same call alone");
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("translate", kTranslateUsage, args, &flags)) return *exit_code;

  load.seed = request.seed;
  auto model = FindModel(load.address, request.model, request.version, {"translator"});
  if (!model.ok()) return Fail("translate", model.status(), load);
  auto requests = MakeTranslateRequests(request, *model);
  if (!requests.ok()) return Fail("translate", requests.status(), load);
  return RunAndReport("translate", load, Serialize(*requests), check, json);
}

}  // namespace sru::bench
