// sru_bench load, answer and translate: unary calls of one method, in a closed or an open loop.
#include "absl/status/statusor.h"
#include "base/status.h"
#include "bench/answer_requests.h"
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/requests.h"
#include "bench/translate_requests.h"

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

In an open loop (--rate) latency counts from the time at which a call was meant to be sent, so that
a stall is not hidden. Goodput counts the answers that came within --deadline. Refusals
(RESOURCE_EXHAUSTED, UNAVAILABLE) have a latency of their own. With --json one object is printed;
its latencies are microseconds. Ctrl-C ends a run early with a report.
)";

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

// `Options` are those of the requests, which `prepare` makes; it also sets the method and the seed of the load. Only where
// `can_check`, answers can be compared with those of each call alone.
template <typename Options, typename Prepare>
int UnaryMain(const char* command, const char* usage, bool can_check, const Prepare& prepare,
              const std::vector<std::string>& args) {
  LoadOptions load;
  load.address = "localhost:50051";
  Options request;
  bool check = false;
  bool json = false;
  client::FlagSet flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine", "SRU_ADDRESS");
  AddRunFlags(&load, &flags);
  AddConnectionFlags(&load, &flags);
  if (can_check) {
    flags.Add("check", &check, "compare every answer with that of the same call alone");
  }
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags(command, usage, args, &flags)) return *exit_code;

  auto requests = prepare(request, &load);
  if (!requests.ok()) return Fail(command, requests.status(), load);
  return RunAndReport(command, load, *requests, check, json);
}

// Prepares requests that `make` makes for a model with this task.
template <typename Options, typename Make>
absl::StatusOr<std::vector<std::string>> PrepareFor(const char* method, const char* task,
                                                    const Make& make, const Options& options,
                                                    LoadOptions* load) {
  load->method = method;
  load->seed = options.seed;
  SRU_ASSIGN_OR_RETURN(auto model, FindModel(*load, options.model, options.version, {task}));
  SRU_ASSIGN_OR_RETURN(auto requests, make(options, model));
  std::vector<std::string> serialized;
  for (const auto& request : requests) serialized.push_back(request.SerializeAsString());
  return serialized;
}

}  // namespace

int LoadMain(const std::vector<std::string>& args) {
  return UnaryMain<RequestOptions>("load", kLoadUsage, /*can_check=*/false, PrepareRequests, args);
}

int AnswerMain(const std::vector<std::string>& args) {
  return UnaryMain<AnswerRequestOptions>(
      "answer", kAnswerUsage, /*can_check=*/true,
      [](const AnswerRequestOptions& options, LoadOptions* load) {
        return PrepareFor("/sru.v1.InferenceService/Answer", "reader", MakeAnswerRequests, options,
                          load);
      },
      args);
}

int TranslateMain(const std::vector<std::string>& args) {
  return UnaryMain<TranslateRequestOptions>(
      "translate", kTranslateUsage, /*can_check=*/true,
      [](const TranslateRequestOptions& options, LoadOptions* load) {
        return PrepareFor("/sru.v1.InferenceService/Translate", "translator", MakeTranslateRequests,
                          options, load);
      },
      args);
}

}  // namespace sru::bench
