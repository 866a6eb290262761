// sru_client score: how probable texts are to a language model.
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/line_input.h"
#include "client/commands/ordered_batches.h"
#include "client/commands/score_printer.h"
#include "client/commands/state_file.h"
#include "client/commands/text_input.h"
#include "client/find_model.h"

namespace sru::client {
namespace {

constexpr char kScoreHelp[] =
    R"(sru_client score says how probable a language model finds each text.

usage: sru_client score [--flag=value ...] [TEXT ...]
       sru_client score --files [--flag=value ...] FILE ...

Without TEXT, reads standard input, one text per line; blank lines are skipped. The table has the
number of tokens, the natural logarithm of the text's probability, the bits that a token costs on
average, and the perplexity: a model that guesses evenly among that many tokens is as unsure. A
text's first token has no probability, since nothing comes before it, so a text of one token has no
figures.

With --carry the texts are one: each goes on where the one before ended, and lines keep their
newlines, so that the lines of a file are scored as the file that they are. Each file begins anew.
--state_out keeps what the model remembers at the end, and --state_in goes on from there.

examples:
  sru_client score "It was a dark and stormy night"
  sru_client score --per_token "It was a dark and stromy night"     (where is the surprise?)
  sru_client score --top_candidates=5 "It was a dark and"           (what else might have come?)
  sru_client score --files --carry --totals chapter1.txt chapter2.txt
  sru_client score --json < texts.txt > scores.jsonl       (the last line has the total)
  sru_client score --json --skip_empty < lines.txt         (an object for each line, blank or not)
  sru_client score --state_out=s.bin "It was a dark" ; sru_client score --state_in=s.bin " night"
)";

constexpr char kLanguageModel[] = "language_model";  // ModelInfo.task
// With --carry --totals, lines go together in one call up to this many bytes.
constexpr size_t kChunkBytes = 1024;

struct ScoreFlags {
  CommonFlags common;
  InputFlags input;
  bool files = false;
  bool carry = false;
  bool totals = false;
  bool per_token = false;
  int top_candidates = 0;
  int in_flight = 4;
  std::string state_in;
  std::string state_out;
};

// Parses what flags name and checks them against each other. kInvalidArgument names the flag.
absl::Status Check(size_t num_arguments, ScoreFlags* flags) {
  absl::Status status = flags->input.Check();
  status.Update(CheckRange("top_candidates", flags->top_candidates, 0, kMaxCandidates));
  status.Update(CheckAtLeast("in_flight", flags->in_flight, 1));
  if (!status.ok()) return status;
  if (flags->files && num_arguments == 0) {
    return absl::InvalidArgumentError("--files: expected the name of a file (- = standard input)");
  }
  const bool keeps_state = !flags->state_in.empty() || !flags->state_out.empty();
  if (keeps_state && flags->files && num_arguments > 1) {
    return InvalidArgument("--state_in, --state_out: expected one file, found ", num_arguments,
                           " that begin anew");
  }
  flags->carry = flags->carry || keeps_state;
  if (flags->carry && flags->input.skip_empty) {
    return absl::InvalidArgumentError(
        "--skip_empty and --carry (with --state_in, --state_out) exclude each other");
  }
  return absl::OkStatus();
}

v1::ScoreRequest MakeRequest(const ScoreFlags& flags, const std::vector<LineInput::Item>& items) {
  auto request = flags.input.RequestFor<v1::ScoreRequest>(items);
  request.set_token_log_probs(flags.per_token || flags.top_candidates > 0);
  request.set_top_candidates(flags.top_candidates);
  return request;
}

class Scorer : public TextRunner<v1::ScoreResponse, v1::Score> {
 public:
  Scorer(const Command& command, const ScoreFlags& flags, Client* client, LineInput* input,
         ScorePrinter* printer)
      : TextRunner(
            command, flags.common, flags.input.batch, input, &v1::ScoreResponse::scores,
            [=, &flags](const auto& items) { return client->Score(MakeRequest(flags, items)); },
            [=](const LineInput::Item& item, const v1::ScoreResponse& response,
                const v1::Score& score, absl::Duration latency) {
              printer->Add(item, response, score, latency);
              return absl::OkStatus();
            },
            [=] { printer->Flush(); }),
        flags_(flags),
        client_(client),
        input_(input) {}

  // Scores all texts as one (each file as one), from `state` on. Returns the exit code; `state` is
  // what the model remembers at the end.
  int ScoreAsOne(bool newline_is_token, std::string* state) {
    size_t source = 0;
    int64_t version = flags_.input.target.version;
    while (true) {
      absl::StatusOr<Items> next = Next();
      if (!next.ok()) return CallError(command_, common_, next.status());
      if (next->empty()) return exit_code_;
      for (LineInput::Item& item : Chunks(*std::move(next), newline_is_token)) {
        if (item.source != source) state->clear();
        source = item.source;
        v1::ScoreRequest request = MakeRequest(flags_, {item});
        // A version that is loaded meanwhile could not go on from this state.
        request.set_version(version);
        request.set_return_states(true);
        if (!state->empty()) request.add_states(*state);
        const Answer answer = AskOnce<LineInput::Item, v1::ScoreResponse>(
            [&](const auto& /*items*/) { return Checked(client_->Score(request), 1); },
            {std::move(item)});
        if (!Take({answer}) || !answer.response.ok()) return kExitFailed;
        *state = answer.response->scores(0).state();
        version = answer.response->version();
        if (state->empty()) {
          return CallError(command_, common_,
                           absl::InternalError("the answer has no state, which was asked for"));
        }
      }
    }
  }

 private:
  // The texts as they are sent: where a newline gives no token, without blank ones, and together if
  // only their total is wanted.
  Items Chunks(Items items, bool newline_is_token) const {
    Items chunks;
    for (LineInput::Item& item : items) {
      // An empty argument is a mistake that the server should name.
      const bool is_line = input_->has_lines();
      if (!newline_is_token && is_line && absl::StripAsciiWhitespace(item.text).empty()) {
        continue;
      }
      if (flags_.totals && newline_is_token && is_line && !chunks.empty() &&
          chunks.back().text.size() + item.text.size() <= kChunkBytes) {
        chunks.back().text += item.text;
        ++chunks.back().num_lines;
      } else {
        chunks.push_back(std::move(item));
      }
    }
    return chunks;
  }

  const ScoreFlags& flags_;
  Client* const client_;
  LineInput* const input_;
};

int Score(const Command& command, const std::vector<std::string>& args) {
  ScoreFlags options;
  FlagSet flags;
  options.input.AddTo(&flags, /*can_truncate=*/false);
  options.input.AddSkipEmpty(&flags);
  flags.Add("files", &options.files, "the arguments are names of files; - is standard input");
  flags.Add("carry", &options.carry, "score the texts as one: each goes on from the one before");
  flags.Add("totals", &options.totals, "print nothing but the total, or that of each file");
  flags.Add("per_token", &options.per_token,
            "show each token: in colors on a terminal, else (and with NO_COLOR=1) in columns");
  flags.Add("top_candidates", &options.top_candidates,
            "show each token with the most probable ones in its place, up to 128");
  flags.Add("in_flight", &options.in_flight, "calls at a time; --carry has one");
  flags.Add("state_in", &options.state_in, "FILE: go on from this state; implies --carry");
  flags.Add("state_out", &options.state_out,
            "FILE: write the state after the last text; implies --carry");
  options.common.AddTo(&flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs(command, args, &flags, &texts)) return *code;
  if (absl::Status status = Check(texts.size(), &options); !status.ok()) {
    return UsageError(command, status.message());
  }
  absl::StatusOr<std::string> state = ReadState(options.state_in);
  if (!state.ok()) return UsageError(command, state.status().message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  ScorePrinterOptions output;
  output.json = options.common.json;
  output.totals_only = options.totals;
  output.per_token = options.per_token;
  output.candidates = options.top_candidates > 0;
  output.tokens_are_split = options.input.tokens;
  output.color =
      WantsColor(isatty(STDOUT_FILENO) != 0, std::getenv("NO_COLOR"), std::getenv("TERM"));
  if (options.carry || options.per_token || options.top_candidates > 0) {
    absl::StatusOr<v1::ModelInfo> model = FindModel(*client, options.input.target.model,
                                                    options.input.target.version, {kLanguageModel});
    if (!model.ok()) return CallError(command, options.common, model.status());
    output.preprocessing = model->preprocessing();
  }

  const LineInput::Lines lines =
      options.carry ? LineInput::Lines::kWithEnds : options.input.lines();
  LineInput input(texts, options.files, lines);
  ScorePrinter printer(output, &input);
  Scorer scorer(command, options, client.get(), &input, &printer);
  if (!options.carry) {
    exit_code = scorer.Run(options.in_flight);
  } else {
    const bool newline_is_token = !options.input.tokens && HasNewlineToken(output.preprocessing);
    exit_code = scorer.ScoreAsOne(newline_is_token, &*state);
  }
  printer.Finish();
  printer.unknown_words().Warn(command);
  if (exit_code == kExitOk && !options.state_out.empty()) {
    const absl::Status status = state->empty() ? InvalidArgument("empty input, expected a text")
                                               : WriteState(options.state_out, *state);
    if (!status.ok()) return CallError(command, options.common, status);
  }
  return exit_code;
}

}  // namespace

constexpr Command kScore = {"score", "how probable texts are to a language model", kScoreHelp,
                            Score};

}  // namespace sru::client
