// sru_client translate: translations of texts.
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"
#include "client/names.h"

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
  std::string alpha;
  std::string word_penalty;
  int max_new_tokens = 0;
  double max_length_factor = 0;
  std::string prefix;
  bool alignment = false;
};

// Parses a number that may be left out. Not a number is in no range.
absl::Status ParseNumber(absl::string_view flag, const std::string& text, double low, double high,
                         double* value) {
  if (absl::SimpleAtod(text, value) && *value >= low && *value <= high) return absl::OkStatus();
  return InvalidArgument("--", flag, ": expected ", low, " to ", high, ", found '", text, "'");
}

// Parses what flags name, checks them against each other and makes what all requests have.
// kInvalidArgument names the flag.
absl::Status MakeRequest(TranslateFlags* flags, v1::TranslateRequest* request) {
  if (flags->beam_size > 0 && flags->n_best > flags->beam_size) {
    return InvalidArgument("--n_best: expected at most --beam_size, ", flags->beam_size, ", found ",
                           flags->n_best);
  }
  if (flags->alignment && !flags->common.json) {
    return absl::InvalidArgumentError("--alignment: expected --json, found none");
  }
  flags->input.target.SetOn(request);
  request->set_truncate(flags->input.truncate);
  request->set_beam_size(flags->beam_size);
  request->set_num_hypotheses(flags->n_best);
  request->set_max_new_tokens(flags->max_new_tokens);
  request->set_max_length_factor(static_cast<float>(flags->max_length_factor));
  request->set_return_alignment(flags->alignment);
  if (flags->length_penalty != v1::LengthPenalty::FORM_UNSPECIFIED) {
    request->mutable_length_penalty()->set_form(flags->length_penalty);
  }
  if (!flags->alpha.empty()) {
    double alpha = 0;
    SRU_RETURN_UNLESS_OK(ParseNumber("alpha", flags->alpha, 0, kMaxAlpha, &alpha));
    request->mutable_length_penalty()->set_alpha(static_cast<float>(alpha));
  }
  if (!flags->word_penalty.empty()) {
    double penalty = 0;
    SRU_RETURN_UNLESS_OK(ParseNumber("word_penalty", flags->word_penalty, -kMaxWordPenalty,
                                     kMaxWordPenalty, &penalty));
    request->set_word_penalty(static_cast<float>(penalty));
  }
  return absl::OkStatus();
}

v1::TranslateRequest WithTexts(v1::TranslateRequest request, const TranslateFlags& flags,
                               const std::vector<LineInput::Item>& items) {
  for (const LineInput::Item& item : items) {
    request.add_sequences()->set_text(item.text);
    // An empty text has an empty translation.
    const bool is_blank = absl::StripAsciiWhitespace(item.text).empty();
    if (!flags.prefix.empty()) request.add_target_prefixes(is_blank ? "" : flags.prefix);
  }
  return request;
}

// The number of rows of a hypothesis's alignment; 0 if it has none.
int AlignmentRows(const v1::Hypothesis& hypothesis, int source_tokens) {
  if (source_tokens == 0 || hypothesis.alignment_size() % source_tokens != 0) return 0;
  return hypothesis.alignment_size() / source_tokens;
}

class Translator : public TextRunner<v1::TranslateResponse, v1::Translation> {
 public:
  Translator(const Command& command, const TranslateFlags& flags,
             const v1::TranslateRequest& request, Client* client, LineInput* input,
             Printer* printer)
      : TextRunner(
            command, flags.common, flags.input.batch, input, printer,
            &v1::TranslateResponse::translations,
            [=, &flags](const auto& items) {
              return client->Translate(WithTexts(request, flags, items));
            },
            [this](const LineInput::Item& item, const v1::TranslateResponse& response,
                   const v1::Translation& translation, absl::Duration latency) {
              Add(item, response, translation, latency);
              return absl::OkStatus();
            }),
        flags_(flags) {}

 private:
  // A line for each text: that of one which could not be translated is empty.
  bool Fail(const Answer& answer) override {
    const bool go_on = TextRunner::Fail(answer);
    if (!printer_->json() && flags_.n_best == 1) std::cout << std::endl;
    return go_on;
  }

  // One line, whatever the model has written.
  static std::string Text(const v1::Hypothesis& hypothesis) {
    static const bool terminal = isatty(STDOUT_FILENO) != 0;
    std::string text = terminal ? Printable(hypothesis.text()) : hypothesis.text();
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    return text;
  }

  void Add(const LineInput::Item& item, const v1::TranslateResponse& response,
           const v1::Translation& translation, absl::Duration latency) {
    if (printer_->json()) {
      printer_->Object(TextJson(item, response, translation, latency));
    } else if (flags_.n_best > 1) {
      for (const v1::Hypothesis& hypothesis : translation.hypotheses()) {
        printer_->Row({absl::StrCat(item.line), Fixed(hypothesis.score(), 4),
                       Fixed(hypothesis.log_prob(), 4),
                       absl::StrCat(Text(hypothesis), hypothesis.unfinished() ? " (cut)" : "")});
      }
    } else {
      std::cout << (translation.hypotheses().empty() ? "" : Text(translation.hypotheses(0)))
                << "\n";
    }
  }

  Json TextJson(const LineInput::Item& item, const v1::TranslateResponse& response,
                const v1::Translation& translation, absl::Duration latency) const {
    Json json = ResultJson(item.line, item.text, response, translation, latency);
    EraseEmpty({"source_tokens"}, &json);
    const int source_tokens = translation.token_count();
    for (int h = 0; h < translation.hypotheses_size(); ++h) {
      Json& hypothesis = json["hypotheses"][h];
      // One list for each token of the hypothesis.
      const Json values = std::exchange(hypothesis["alignment"], Json::array());
      for (int row = 0; row < AlignmentRows(translation.hypotheses(h), source_tokens); ++row) {
        const auto begin = values.begin() + row * source_tokens;
        hypothesis["alignment"].push_back(Json::array_t(begin, begin + source_tokens));
      }
      EraseEmpty({"hard_alignment", "token_log_probs"}, &hypothesis);
      if (!flags_.alignment) hypothesis.erase("alignment");
    }
    return json;
  }

  const TranslateFlags& flags_;
};

int Translate(const Command& command, const std::vector<std::string>& args) {
  TranslateFlags options;
  // A translation takes a step for each of its tokens, and calls wait for each other's.
  options.common.connect.deadline = absl::Minutes(1);
  options.input.batch = 16;
  Flags flags;
  flags.Add("beam_size", &options.beam_size, {0, kMaxBeam},
            "hypotheses that are kept at each step, up to 64; 1 = greedy, 0 = the model's own");
  flags.Add("n_best", &options.n_best, {1, kMaxBeam},
            "translations of each text, at most --beam_size");
  flags.AddChoice(
      "length_penalty", &options.length_penalty, NamedValues<v1::LengthPenalty::Form>(),
      "how translations of different length are compared: gnmt, power or none; without it "
      "as the model says");
  flags.Add("alpha", &options.alpha,
            "strength of the length penalty, 0 to 10; without it the model's own");
  flags.Add("word_penalty", &options.word_penalty,
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
                            [&](const auto& /*texts*/) { return MakeRequest(&options, &request); });
  if (start.client == nullptr) return start.exit_code;

  std::vector<TextTable::Column> columns;
  if (options.n_best > 1) {
    columns = {{"TEXT", true}, {"SCORE", true}, {"LOG-PROB", true}, {"TRANSLATION"}};
  }
  Printer printer(command, options.common.json, std::move(columns));
  LineInput input(start.arguments, /*skips_blank=*/false);
  Translator translator(command, options, request, start.client.get(), &input, &printer);
  const int exit_code = translator.Run(options.in_flight);
  printer.WarnOfUnknownWords();
  return exit_code;
}

}  // namespace

constexpr Command kTranslate = {"translate", "translations of texts", kTranslateHelp, Translate};

}  // namespace sru::client
