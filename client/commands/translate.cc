// sru_client translate: translations of texts.
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/command_line.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

namespace sru::client {
namespace {

constexpr char kTranslateHelp[] =
    R"(sru_client translate prints the most probable translation of each text.

usage: sru_client translate [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line, and prints translations in the same order as
they come; an empty line stays an empty line. A text that the server refuses fails alone: its line
stays empty, standard error says why, and the exit code is 1.

The search keeps the --beam_size most probable beginnings at each step; 1 is the fastest. Without
flags the model's own beam and length penalty hold: sru_client models --json shows them. --n_best
prints a table of the best translations; asking for several may change the first, since the search
then goes on for longer. --prefix is what each translation has to begin with.

With --json, --alignment has, for each token of the translation, how much the model looked at each
token of the text.

examples:
  sru_client translate "A ship sails past the old lighthouse."
  sru_client translate < captions.en > captions.de
  cat chapter1.txt chapter2.txt | sru_client translate --beam_size=1 --in_flight=8
  sru_client translate --n_best=3 --beam_size=8 "A dog runs."
  sru_client translate --prefix="Eine Katze" "A dog runs."
  sru_client translate --json --alignment "A dog runs." | jq '.hypotheses[0].alignment'
)";

// The limits of inference.proto.
constexpr double kMaxAlpha = 10;
constexpr double kMaxWordPenalty = 100;
constexpr double kMaxLengthFactor = 100;

struct TranslateFlags {
  CommonFlags common;
  InputFlags input;
  int in_flight = 4;
  int beam_size = 0;
  int n_best = 1;
  v1::LengthPenalty::Form length_penalty{};
  std::optional<float> alpha;
  std::optional<float> word_penalty;
  int max_new_tokens = 0;
  double max_length_factor = 0;
  std::string prefix;
  bool alignment = false;
};

// Parses a number that may be left out. Not a number is in no range.
auto NumberFrom(double low, double high) {
  return [=](absl::string_view flag,
             absl::string_view text) -> absl::StatusOr<std::optional<float>> {
    double value = 0;
    if (text.empty()) return std::nullopt;
    if (absl::SimpleAtod(text, &value) && value >= low && value <= high) return value;
    return InvalidArgument("--", flag, ": expected ", low, " to ", high, ", found '", text, "'");
  };
}

// Checks the flags against each other and makes what all requests have.
// kInvalidArgument names the flag.
absl::Status MakeRequest(const TranslateFlags& flags, v1::TranslateRequest* request) {
  if (flags.beam_size > 0 && flags.n_best > flags.beam_size) {
    return InvalidArgument("--n_best: expected at most --beam_size, ", flags.beam_size, ", found ",
                           flags.n_best);
  }
  if (flags.alignment && !flags.common.json) {
    return absl::InvalidArgumentError("--alignment: expected --json, found none");
  }
  flags.input.target.SetOn(request);
  request->set_truncate(flags.input.truncate);
  request->set_beam_size(flags.beam_size);
  request->set_num_hypotheses(flags.n_best);
  request->set_max_new_tokens(flags.max_new_tokens);
  request->set_max_length_factor(static_cast<float>(flags.max_length_factor));
  request->set_return_alignment(flags.alignment);
  if (flags.length_penalty != v1::LengthPenalty::FORM_UNSPECIFIED) {
    request->mutable_length_penalty()->set_form(flags.length_penalty);
  }
  if (flags.alpha) request->mutable_length_penalty()->set_alpha(*flags.alpha);
  if (flags.word_penalty) request->set_word_penalty(*flags.word_penalty);
  return absl::OkStatus();
}

using TranslateRunner = TextRunner<v1::TranslateResponse, v1::Translation>;

// One line, whatever the model has written.
std::string OneLineOf(const v1::Hypothesis& hypothesis) {
  static const bool terminal = isatty(STDOUT_FILENO) != 0;
  std::string text = terminal ? Printable(hypothesis.text()) : hypothesis.text();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return text;
}

Json TextJson(const TranslateFlags& flags, const TranslateRunner::Text& text) {
  Json json = text.ToJson();
  EraseEmpty({"source_tokens"}, &json);
  const int source_tokens = text.result.token_count();
  for (int h = 0; h < text.result.hypotheses_size(); ++h) {
    Json& hypothesis = json["hypotheses"][h];
    // One list for each token of the hypothesis.
    const Json values = std::exchange(hypothesis["alignment"], Json::array());
    const int size = static_cast<int>(values.size());
    if (source_tokens > 0 && size % source_tokens == 0) {
      for (auto row = values.begin(); row != values.end(); row += source_tokens) {
        hypothesis["alignment"].push_back(Json::array_t(row, row + source_tokens));
      }
    }
    EraseEmpty({"hard_alignment", "token_log_probs"}, &hypothesis);
    if (!flags.alignment) hypothesis.erase("alignment");
  }
  return json;
}

void Print(const TranslateFlags& flags, const TranslateRunner::Text& text, Printer* printer) {
  const auto& hypotheses = text.result.hypotheses();
  if (printer->json()) {
    printer->Object(TextJson(flags, text));
  } else if (flags.n_best > 1) {
    for (const v1::Hypothesis& hypothesis : hypotheses) {
      printer->Row({absl::StrCat(text.item.line), Fixed(hypothesis.score(), 4),
                    Fixed(hypothesis.log_prob(), 4),
                    absl::StrCat(OneLineOf(hypothesis), hypothesis.unfinished() ? " (cut)" : "")});
    }
  } else {
    std::cout << (hypotheses.empty() ? "" : OneLineOf(hypotheses[0])) << "\n";
  }
}

int Translate(const Command& command, const std::vector<std::string>& args) {
  TranslateFlags options;
  // A translation takes a step for each of its tokens, and calls wait for each other's.
  options.common.connect.deadline = absl::Minutes(1);
  options.input.batch = 16;
  options.input.skip_empty = true;  // an empty line stays an empty line
  Flags flags;
  flags.Add("beam_size", &options.beam_size, {0, kMaxBeam},
            "hypotheses that are kept at each step, up to 64; 1 = greedy, 0 = the model's own");
  flags.Add("n_best", &options.n_best, {1, kMaxBeam},
            "translations of each text, at most --beam_size");
  flags.AddChoice(
      "length_penalty", &options.length_penalty, NamedValues<v1::LengthPenalty::Form>(),
      "how translations of different length are compared: gnmt, power or none; without it "
      "as the model says");
  flags.AddParsed("alpha", &options.alpha, "", NumberFrom(0, kMaxAlpha),
                  "strength of the length penalty, 0 to 10; without it the model's own");
  flags.AddParsed("word_penalty", &options.word_penalty, "",
                  NumberFrom(-kMaxWordPenalty, kMaxWordPenalty),
                  "what each token takes from the score, -100 to 100; without it the model's own");
  flags.Add("max_new_tokens", &options.max_new_tokens, {0},
            "most tokens of a translation; 0 = the model's own");
  flags.Add("max_length_factor", &options.max_length_factor, {0, kMaxLengthFactor},
            "most tokens of a translation for each token of its text; 0 = the model's own");
  flags.Add("prefix", &options.prefix, "TEXT: what each translation begins with");
  flags.Add("alignment", &options.alignment,
            "with --json: how much each token looked at each token of the text");
  flags.Add("in_flight", &options.in_flight, {1}, "calls at a time");
  options.input.AddTo(&flags, /*can_truncate=*/true, /*can_skip_empty=*/false);
  v1::TranslateRequest request;
  const Start start = Begin(command, args, &flags, &options.common,
                            [&](const auto& /*texts*/) { return MakeRequest(options, &request); });
  if (start.client == nullptr) return start.exit_code;

  std::vector<TextTable::Column> columns;
  if (options.n_best > 1) {
    columns = {{"TEXT", true}, {"SCORE", true}, {"LOG-PROB", true}, {"TRANSLATION"}};
  }
  Printer printer(command, options.common.json, std::move(columns));
  TranslateRunner translator(
      command, options.common, options.input, start.arguments, &printer,
      &v1::TranslateResponse::translations,
      [&](const auto& items) {
        v1::TranslateRequest with_texts = request;
        for (const LineInput::Item& item : items) {
          with_texts.add_sequences()->set_text(item.text);
          // An empty text has an empty translation.
          const bool is_blank = absl::StripAsciiWhitespace(item.text).empty();
          if (!options.prefix.empty()) {
            with_texts.add_target_prefixes(is_blank ? "" : options.prefix);
          }
        }
        return start.client->Translate(with_texts);
      },
      [&](const TranslateRunner::Text& text) {
        Print(options, text, &printer);
        return absl::OkStatus();
      },
      // A line for each text: that of one which could not be translated is empty.
      [&] {
        if (!printer.json() && options.n_best == 1) std::cout << std::endl;
      });
  return translator.Run(options.in_flight);
}

}  // namespace

constexpr Command kTranslate = {"translate", "translations of texts", kTranslateHelp, Translate};

}  // namespace sru::client
