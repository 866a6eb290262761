// sru_client translate: translations of texts.
#include <unistd.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/line_input.h"
#include "client/commands/ordered_batches.h"
#include "client/commands/text_input.h"
#include "client/commands/translate_printer.h"
#include "client/names.h"

namespace sru::client {
namespace {

constexpr char kTranslateHelp[] =
    R"(sru_client translate prints the most probable translation of each text.

usage: sru_client translate [--flag=value ...] [TEXT ...]
       sru_client translate --files [--flag=value ...] FILE ...

Without TEXT, reads standard input, one text per line, and prints translations in the same order as
they come; an empty line stays an empty line. A text that the server refuses fails alone: its line
stays empty, standard error says why, and the exit code is 1.

The search keeps the --beam_size most probable beginnings at each step; 1 is the fastest. Without
flags the model's own beam and length penalty hold: sru_client models --json shows them. --n_best
prints a table of the best translations; asking for several may change the first, since the search
then goes on for longer. --prefix is what each translation has to begin with.

--alignment lists, for each token of the translation, the tokens of the text at which the model looked.
--hard_alignment adds to each translation " ||| " and pairs of numbers in the form of Marian and
fast_align: which token of the text, from 0, each of its tokens looked at most, in the order of its
tokens and without its end. --word_scores adds
" ||| WordScores=" and the log-probability of each token, the end included, as Marian does.

examples:
  sru_client translate "A ship sails past the old lighthouse."
  sru_client translate --stats < captions.en > captions.de
  sru_client translate --files --beam_size=1 --in_flight=8 chapter1.txt chapter2.txt
  sru_client translate --n_best=3 --beam_size=8 "A dog runs."
  sru_client translate --prefix="Eine Katze" "A dog runs."
  sru_client translate --alignment "The baker sells warm bread every morning."
  sru_client translate --json --alignment "A dog runs." | jq '.hypotheses[0].alignment'
  sru_client translate --tokens "▁A ▁dog ▁runs ."         (pieces of the model's vocabulary)
)";

// The limits of inference.proto.
constexpr double kMaxAlpha = 10;
constexpr double kMaxWordPenalty = 100;
constexpr double kMaxLengthFactor = 100;

struct TranslateFlags {
  CommonFlags common;
  InputFlags input;
  bool files = false;
  int in_flight = 4;
  int beam_size = 0;
  int n_best = 1;
  std::string length_penalty;
  std::string alpha;
  std::string word_penalty;
  int max_new_tokens = 0;
  double max_length_factor = 0;
  std::string prefix;
  bool alignment = false;
  bool hard_alignment = false;
  bool word_scores = false;
  bool stats = false;
};

// Parses a number that may be left out. Not a number is in no range.
absl::Status ParseNumber(absl::string_view flag, const std::string& text, double low, double high,
                         double* value) {
  if (absl::SimpleAtod(text, value) && *value >= low && *value <= high) return absl::OkStatus();
  return InvalidArgument("--", flag, ": expected ", low, " to ", high, ", found '", text, "'");
}

// Parses what flags name, checks them against each other and makes what all requests have.
// kInvalidArgument names the flag.
absl::StatusOr<v1::TranslateRequest> MakeRequest(size_t num_arguments, TranslateFlags* flags) {
  absl::Status status = flags->input.Check();
  status.Update(CheckAtLeast("in_flight", flags->in_flight, 1));
  status.Update(CheckRange("beam_size", flags->beam_size, 0, kMaxBeam));
  status.Update(CheckRange("n_best", flags->n_best, 1, kMaxBeam));
  status.Update(CheckAtLeast("max_new_tokens", flags->max_new_tokens, 0));
  // Not a number is in no range.
  if (!(flags->max_length_factor >= 0 && flags->max_length_factor <= kMaxLengthFactor)) {
    status.Update(InvalidArgument("--max_length_factor: expected 0 to ", kMaxLengthFactor,
                                  ", found ", flags->max_length_factor));
  }
  v1::LengthPenalty::Form form = v1::LengthPenalty::FORM_UNSPECIFIED;
  status.Update(ParseLengthPenalty(flags->length_penalty, &form));
  if (!status.ok()) return status;
  if (flags->beam_size > 0 && flags->n_best > flags->beam_size) {
    return InvalidArgument("--n_best: expected at most --beam_size, ", flags->beam_size, ", found ",
                           flags->n_best);
  }
  if (flags->files && num_arguments == 0) {
    return absl::InvalidArgumentError("--files: expected the name of a file (- = standard input)");
  }
  v1::TranslateRequest request;
  flags->input.target.SetOn(&request);
  request.set_truncate(flags->input.truncate);
  request.set_beam_size(flags->beam_size);
  request.set_num_hypotheses(flags->n_best);
  request.set_max_new_tokens(flags->max_new_tokens);
  request.set_max_length_factor(static_cast<float>(flags->max_length_factor));
  request.set_return_alignment(flags->alignment);
  request.set_return_hard_alignment(flags->hard_alignment);
  request.set_return_token_log_probs(flags->word_scores);
  if (form != v1::LengthPenalty::FORM_UNSPECIFIED) {
    request.mutable_length_penalty()->set_form(form);
  }
  if (!flags->alpha.empty()) {
    double alpha = 0;
    SRU_RETURN_UNLESS_OK(ParseNumber("alpha", flags->alpha, 0, kMaxAlpha, &alpha));
    request.mutable_length_penalty()->set_alpha(static_cast<float>(alpha));
  }
  if (!flags->word_penalty.empty()) {
    double penalty = 0;
    SRU_RETURN_UNLESS_OK(ParseNumber("word_penalty", flags->word_penalty, -kMaxWordPenalty,
                                     kMaxWordPenalty, &penalty));
    request.set_word_penalty(static_cast<float>(penalty));
  }
  return request;
}

v1::TranslateRequest WithTexts(v1::TranslateRequest request, const TranslateFlags& flags,
                               const std::vector<LineInput::Item>& items) {
  for (const LineInput::Item& item : items) {
    // A sequence of words has one at least; an empty text has an empty translation.
    const bool blank = absl::StripAsciiWhitespace(item.text).empty();
    *request.add_sequences() = MakeSequence(item.text, flags.input.tokens && !blank);
    if (!flags.prefix.empty()) request.add_target_prefixes(blank ? "" : flags.prefix);
  }
  return request;
}

class Translator : public TextRunner<v1::TranslateResponse, v1::Translation> {
 public:
  Translator(const Command& command, const TranslateFlags& flags,
             const v1::TranslateRequest& request, Client* client, LineInput* input,
             TranslatePrinter* printer)
      : TextRunner(
            command, flags.common, flags.input.batch, input, &v1::TranslateResponse::translations,
            [=, &flags](const auto& items) {
              return client->Translate(WithTexts(request, flags, items));
            },
            [=](const LineInput::Item& item, const v1::TranslateResponse& response,
                const v1::Translation& translation, absl::Duration latency) {
              printer->Add(item, response, translation, latency);
              return absl::OkStatus();
            },
            [=] { printer->Flush(); }),
        printer_(printer) {}

 private:
  bool Fail(const Answer& answer) override {
    const bool go_on = TextRunner::Fail(answer);
    printer_->AddFailed();
    printer_->Flush();
    return go_on;
  }

  TranslatePrinter* const printer_;
};

int Translate(const Command& command, const std::vector<std::string>& args) {
  TranslateFlags options;
  // A translation takes a step for each of its tokens, and calls wait for each other's.
  options.common.connect.deadline = absl::Minutes(1);
  options.input.batch = 16;
  FlagSet flags;
  flags.Add("beam_size", &options.beam_size,
            "hypotheses that are kept at each step, up to 64; 1 = greedy, 0 = the model's own");
  flags.Add("n_best", &options.n_best, "translations of each text, at most --beam_size");
  flags.Add("length_penalty", &options.length_penalty,
            "how translations of different length are compared: gnmt, power or none; without it "
            "as the model says");
  flags.Add("alpha", &options.alpha,
            "strength of the length penalty, 0 to 10; without it the model's own");
  flags.Add("word_penalty", &options.word_penalty,
            "what each token takes from the score, -100 to 100; without it the model's own");
  flags.Add("max_new_tokens", &options.max_new_tokens,
            "most tokens of a translation; 0 = the model's own");
  flags.Add("max_length_factor", &options.max_length_factor,
            "most tokens of a translation for each token of its text; 0 = the model's own");
  flags.Add("prefix", &options.prefix, "TEXT: what each translation begins with");
  flags.Add("alignment", &options.alignment, "show at which tokens of the text each token looked");
  flags.Add("hard_alignment", &options.hard_alignment,
            "add to each translation the token of the text that each token looked at most");
  flags.Add("word_scores", &options.word_scores,
            "add to each translation the log-probability of each of its tokens");
  flags.Add("files", &options.files, "the arguments are names of files; - is standard input");
  flags.Add("in_flight", &options.in_flight, "calls at a time");
  flags.Add("stats", &options.stats, "print numbers and speed to standard error");
  options.input.AddTo(&flags);
  options.common.AddTo(&flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs(command, args, &flags, &texts)) return *code;
  absl::StatusOr<v1::TranslateRequest> request = MakeRequest(texts.size(), &options);
  if (!request.ok()) return UsageError(command, request.status().message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  TranslatePrinterOptions output;
  output.json = options.common.json;
  output.table = options.n_best > 1;
  output.alignment = options.alignment;
  output.terminal = isatty(STDOUT_FILENO) != 0;
  LineInput input(std::move(texts), options.files, LineInput::Lines::kAll);
  TranslatePrinter printer(output, &input);
  const absl::Time start = absl::Now();
  exit_code =
      Translator(command, options, *request, client.get(), &input, &printer).Run(options.in_flight);
  printer.unknown_words().Warn(command);
  if (options.stats && options.common.json) {
    std::cerr << Dump(printer.StatsJson(absl::Now() - start)) << "\n";
  } else if (options.stats) {
    std::cerr << printer.Stats(absl::Now() - start) << "\n";
  }
  return exit_code;
}

}  // namespace

constexpr Command kTranslate = {"translate", "translations of texts", kTranslateHelp, Translate};

}  // namespace sru::client
