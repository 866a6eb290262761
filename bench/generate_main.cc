// sru_bench generate: has a server write texts, and measures how fast they come.
#include <iostream>

#include "base/status.h"
#include "bench/commands.h"
#include "bench/generate_load.h"
#include "bench/report.h"
#include "bench/requests.h"

namespace sru::bench {
namespace {

constexpr char kGenerateUsage[] =
    R"(sru_bench generate has a language model on this machine write texts, and reports tokens per second,
the time to the first token and the time between tokens.

examples:
  sru_bench generate                                one session, texts of 100 tokens, for 10 s
  sru_bench generate --sessions=64 --check          64 at a time; are their tokens the same as alone?
  sru_bench generate --rate=5 --prompt=lognormal:200:0.8:2000 --output=geometric:100:1000

In an open loop (--rate) the time to the first token counts from the time at which a text was meant
to begin. The time between tokens is that between two messages with tokens of one text. With --check
each text is first made alone, and every token is compared with these; the exit code is 1 if one is
wrong. Texts that end in the middle, before their deadline and without a state to go on from, count
as lost. With --json one object is printed; its times are microseconds. Ctrl-C ends a run early with
a report.
)";

absl::StatusOr<std::vector<v1::GenerateRequest>> Prepare(const GenerateRequestOptions& options,
                                                         const RunOptions& run) {
  SRU_ASSIGN_OR_RETURN(auto model,
                       FindModel(run, options.model, options.version, {"language_model"}));
  return MakeGenerateRequests(options, model);
}

int Generate(const Command& command, const std::vector<std::string>& args) {
  GenerateLoadOptions load;
  GenerateRequestOptions request;
  bool json = false;
  Flags flags;
  AddRunFlags("texts", &load, &flags);
  flags.Add("sessions", &load.sessions, {1}, "closed loop: texts that are always on their way");
  flags.Add("texts", &load.texts, {0}, "end after so many texts; 0 = by --duration only");
  flags.Add("check", &load.check, "compare every token with those of each text alone");
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags(command, args, &flags)) return *exit_code;

  auto requests = Prepare(request, load);
  if (!requests.ok()) return Fail(command, requests.status(), load);
  load.seed = request.seed;
  load.on_progress = ProgressPrinter("tokens");
  load.stop = StopOnSignal();
  auto result = RunGenerateLoad(load, *requests);
  EndProgress();
  if (!result.ok()) return Fail(command, result.status(), load);
  std::cout << (json ? JsonLine(ResultJson(load, *result)) : ResultText(load, *result));
  if (result->tokens == 0) {
    std::cerr << "sru_bench generate: no token came\n";
    return kExitFailed;
  }
  return result->wrong_tokens > 0 ? kExitFailed : kExitOk;
}

}  // namespace

constexpr Command kGenerate = {
    "generate", "have a language model write texts and report tokens/s and their times",
    kGenerateUsage, Generate};

}  // namespace sru::bench
