// sru_client generate: texts that a language model writes.
#include <unistd.h>

#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/generate_printer.h"
#include "client/commands/generate_stats.h"
#include "client/commands/sampling_flags.h"
#include "client/commands/state_file.h"
#include "client/commands/text_input.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

constexpr char kGenerateHelp[] =
    R"(sru_client generate lets a language model go on from a text, and prints what it writes as it comes.

usage: sru_client generate [--flag=value ...] [PROMPT]

Without PROMPT the prompt is --file or standard input, all of it as it is, the newline at its end
too. The text is what follows; --echo prints the prompt before it. As long as --temperature is 0 the
model writes the most probable token each time, which gives the same text each time; the text of a
higher temperature is another one each time, unless --seed fixes it.

--state_out keeps what the model remembers at the end, and --state_in goes on from there: the text
is the same as without the stop. If a server shuts down, the text continues on another one by itself.

examples:
  sru_client generate "It was a dark and stormy night"
  sru_client generate --temperature=0.8 --top_p=0.95 --seed=7 "It was a dark and"
  sru_client generate --num_samples=3 --temperature=1 --stop=. "The prince said"
  sru_client generate --stop=$'\n\n' --stats --file=chapter1.txt
  sru_client generate --top_candidates=3 --max_new_tokens=10 "It was a"   (what else might come?)
  sru_client generate --json "It was a" | jq -j .text
  sru_client generate --state_out=s.bin "It was" ; sru_client generate --state_in=s.bin
)";

struct GenerateFlags {
  CommonFlags common;
  SamplingFlags sampling;
  TargetFlags target;
  bool tokens = false;
  std::string file;
  bool echo = false;
  bool log_probs = false;
  int top_candidates = 0;
  std::string state_in;
  std::string state_out;
  bool stats = false;
};

// Checks the flags and makes the request, all but its prompt and its state. kInvalidArgument names
// the flag.
absl::StatusOr<v1::GenerateRequest> MakeRequest(size_t num_arguments, GenerateFlags* flags) {
  v1::GenerateRequest request;
  absl::Status status = flags->sampling.WriteTo(&request);
  status.Update(flags->target.Check());
  status.Update(CheckRange("top_candidates", flags->top_candidates, 0, kMaxCandidates));
  if (!status.ok()) return status;
  if (num_arguments > 1) {
    return InvalidArgument("expected one PROMPT, found ", num_arguments,
                           "; put quotes around a text with spaces");
  }
  if (num_arguments > 0 && !flags->file.empty()) {
    return absl::InvalidArgumentError("--file and PROMPT exclude each other");
  }
  if (!flags->state_out.empty() && flags->sampling.num_samples > 1) {
    return InvalidArgument("--state_out: expected --num_samples=1, found ",
                           flags->sampling.num_samples);
  }
  flags->target.SetOn(&request);
  request.set_echo(flags->echo);
  request.set_token_log_probs(flags->log_probs || flags->top_candidates > 0);
  request.set_top_candidates(flags->top_candidates);
  request.set_return_state(!flags->state_out.empty());
  return request;
}

// The prompt: the argument, the file, or standard input unless there is a state to go on from.
absl::StatusOr<std::string> ReadPrompt(const GenerateFlags& flags,
                                       const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return arguments[0];
  if (flags.file.empty() && !flags.state_in.empty()) return std::string();
  if (flags.file.empty() || flags.file == "-") {
    if (isatty(STDIN_FILENO) != 0) {
      std::cerr << "reading the prompt from the terminal; end with Ctrl-D\n";
    }
    return ReadAll(STDIN_FILENO, "standard input");
  }
  return ReadFile("--file", flags.file);
}

// Makes one call and prints its answers. A call that is refused as too much is made again, but not
// once something has been printed.
absl::Status GenerateAndPrint(Client& client, const GenerateFlags& flags,
                              const v1::GenerateRequest& request,
                              const std::function<void(const v1::GenerateResponse&)>& on_response) {
  GeneratePrinterOptions output;
  output.json = flags.common.json;
  output.token_rows = !flags.common.json && (flags.log_probs || flags.top_candidates > 0);
  output.terminal = isatty(STDOUT_FILENO) != 0;
  output.num_samples = flags.sampling.num_samples;
  GeneratePrinter printer(output);
  GenerateStats stats(absl::Now());
  absl::Status status;
  static_cast<void>(CallPatiently([&] {
    status = client.Generate(request, [&](const v1::GenerateResponse& response) {
      stats.Add(response, absl::Now());
      printer.Add(response);
      on_response(response);
      return std::cout.good();
    });
    return printer.printed() ? absl::OkStatus() : status;
  }));
  printer.Finish();
  if (flags.stats && flags.common.json) {
    std::cerr << Dump(stats.ToJson()) << "\n";
  } else if (flags.stats) {
    std::cerr << stats.Text() << "\n";
  }
  return status;
}

int RunOnce(const Command& command, const GenerateFlags& flags, Client& client,
            const v1::GenerateRequest& request) {
  std::string state;
  const absl::Status status =
      GenerateAndPrint(client, flags, request, [&](const v1::GenerateResponse& response) {
        if (!response.state().empty()) state = response.state();
      });
  if (!std::cout.good()) return kExitFailed;
  if (!status.ok()) return CallError(command, flags.common, status);
  if (flags.state_out.empty()) return kExitOk;
  if (state.empty()) {
    return CallError(command, flags.common,
                     absl::InternalError("the answer has no state, which was asked for"));
  }
  const absl::Status written = WriteState(flags.state_out, state);
  return written.ok() ? kExitOk : CallError(command, flags.common, written);
}

int Generate(const Command& command, const std::vector<std::string>& args) {
  GenerateFlags options;
  // A text takes as long as it is.
  options.common.connect.deadline = absl::Minutes(5);
  FlagSet flags;
  options.sampling.AddTo(&flags);
  flags.Add("file", &options.file, "FILE: its text is the prompt; - is standard input");
  flags.Add("echo", &options.echo, "print the prompt before the text");
  flags.Add("state_in", &options.state_in, "FILE: go on from this state, also without a prompt");
  flags.Add("state_out", &options.state_out, "FILE: write the state after the text");
  flags.Add("log_probs", &options.log_probs,
            "print a row for each token, with the probability that the model gives it");
  flags.Add("top_candidates", &options.top_candidates,
            "and the most probable tokens in its place, up to 128");
  flags.Add("stats", &options.stats, "print times and speed to standard error");
  options.target.AddTo(&flags);
  flags.Add("tokens", &options.tokens,
            "the words are split by spaces already: look them up as they are");
  options.common.AddTo(&flags);
  std::vector<std::string> arguments;
  if (auto code = ParseArgs(command, args, &flags, &arguments)) return *code;
  absl::StatusOr<v1::GenerateRequest> request = MakeRequest(arguments.size(), &options);
  if (!request.ok()) return UsageError(command, request.status().message());
  absl::StatusOr<std::string> state = ReadState(options.state_in);
  if (!state.ok()) return UsageError(command, state.status().message());
  request->set_state(*std::move(state));
  absl::StatusOr<std::string> prompt = ReadPrompt(options, arguments);
  if (!prompt.ok()) return UsageError(command, prompt.status().message());
  // An empty argument is a mistake that the server should name.
  if (!prompt->empty() || request->state().empty()) {
    *request->mutable_prompt() = MakeSequence(*prompt, options.tokens);
  }
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;
  return RunOnce(command, options, *client, *request);
}

}  // namespace

constexpr Command kGenerate = {"generate", "texts that a language model writes", kGenerateHelp,
                               Generate};

}  // namespace sru::client
