// sru_client score: how probable texts are to a language model.
#include <cmath>

#include "absl/strings/str_format.h"
#include "base/limits.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

namespace sru::client {
namespace {

constexpr char kScoreHelp[] =
    R"(sru_client score says how probable a language model finds each text.

usage: sru_client score [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped. The table has the
number of tokens, the natural logarithm of the text's probability, the bits that a token costs on
average, and the perplexity: a model that guesses evenly among that many tokens is as unsure. A
text's first token has no probability, since nothing comes before it, so a text of one token has no
figures.

examples:
  sru_client score "It was a dark and stormy night"
  sru_client score --per_token "It was a dark and stromy night"     (where is the surprise?)
  sru_client score --top_candidates=5 "It was a dark and"           (what else might have come?)
  sru_client score < chapter1.txt                          (the last row has the total)
  sru_client score --json < texts.txt > scores.jsonl       (the last line has the total)
  sru_client score --json --skip_empty < lines.txt         (an object for each line, blank or not)
)";

struct ScoreFlags {
  CommonFlags common;
  InputFlags input;
  bool per_token = false;
  int top_candidates = 0;
  int in_flight = 4;
};

// Figures of a text, or of all texts.
struct Figures {
  int64_t texts = 0;
  int64_t tokens = 0;
  int64_t scored = 0;
  double log_prob = 0;

  void Add(const Figures& other) {
    texts += other.texts;
    tokens += other.tokens;
    scored += other.scored;
    log_prob += other.log_prob;
  }

  double bits_per_token() const { return Bits(log_prob) / static_cast<double>(scored); }
  double perplexity() const { return std::exp(-log_prob / static_cast<double>(scored)); }

  std::vector<std::string> Cells(std::string text) const {
    if (scored == 0) return {absl::StrCat(tokens), kNothing, kNothing, kNothing, std::move(text)};
    return {absl::StrCat(tokens), Fixed(log_prob, 3), Fixed(bits_per_token(), 4),
            perplexity() < 1e6 ? Fixed(perplexity(), 3) : absl::StrFormat("%.3g", perplexity()),
            std::move(text)};
  }

  void WriteTo(Json* json) const {
    (*json)["token_count"] = tokens;
    (*json)["scored_count"] = scored;
    (*json)["log_prob"] = log_prob;
    (*json)["bits_per_token"] = scored == 0 ? Json() : Json(bits_per_token());
    (*json)["perplexity"] = scored == 0 ? Json() : Json(perplexity());
  }
};

std::vector<TextTable::Column> TextColumns() {
  return {
      {"TOKENS", true}, {"LOG-PROB", true}, {"BITS/TOKEN", true}, {"PERPLEXITY", true}, {"TEXT"}};
}

std::vector<TextTable::Column> Columns(const ScoreFlags& flags) {
  if (!flags.per_token) return TextColumns();
  std::vector<TextTable::Column> columns = {
      {"LINE", true}, {"POSITION", true}, {"LOG-PROB", true}, {"BITS", true}, {"TOKEN"}};
  if (flags.top_candidates > 0) columns.push_back({"CANDIDATES"});
  return columns;
}

// Tokens without a probability come first.
void AddTokens(const ScoreFlags& flags, const LineInput::Item& item, const v1::Score& score,
               Printer* printer) {
  const int unscored = score.token_count() - score.token_log_probs_size();
  for (int i = 0; i < score.token_count(); ++i) {
    const int at = i - unscored;
    std::vector<std::string> row = {absl::StrCat(item.line), absl::StrCat(i + 1), kNothing,
                                    kNothing, kNothing};
    if (at >= 0) {
      row[2] = Fixed(score.token_log_probs(at), 4);
      row[3] = Fixed(Bits(score.token_log_probs(at)), 3);
    }
    // An earlier server sends none.
    if (i < score.token_texts_size()) row[4] = Quoted(score.token_texts(i));
    if (flags.top_candidates > 0) {
      row.push_back(at >= 0 && at < score.candidates_size() ? CandidateList(score.candidates(at))
                                                            : kNothing);
    }
    printer->Row(std::move(row));
  }
}

using ScoreRunner = TextRunner<v1::ScoreResponse, v1::Score>;

// Returns the figures of the text.
Figures Print(const ScoreFlags& flags, const ScoreRunner::Text& text, Printer* printer) {
  const v1::Score& score = text.result;
  const Figures figures = {1, score.token_count(), score.scored_count(), score.log_prob()};
  if (printer->json()) {
    Json json = text.ToJson();
    figures.WriteTo(&json);
    // A list that was asked for stays though it is empty: a text may have one token.
    if (!flags.per_token) EraseEmpty({"token_log_probs", "token_texts"}, &json);
    if (flags.top_candidates == 0) EraseEmpty({"candidates"}, &json);
    printer->Object(json);
  } else if (flags.per_token) {
    AddTokens(flags, text.item, score, printer);
  } else {
    printer->Row(figures.Cells(OneLine(text.item.text, kTextColumn)));
  }
  return figures;
}

// Prints the total of all texts.
void PrintTotal(const Command& command, const ScoreFlags& flags, const Figures& total,
                Printer* printer) {
  if (total.texts == 0) return;
  if (printer->json()) {
    Json json = {{"texts", total.texts}};
    total.WriteTo(&json);
    return printer->Object({{"total", json}});
  }
  // The table of texts goes on; after tokens there is one of the total alone.
  if (total.texts < 2 && !flags.per_token) return;
  Printer other(command, false, TextColumns());
  if (flags.per_token) {
    printer = &other;
    std::cout << "\n";
  }
  printer->Row(
      total.Cells(absl::StrCat("total of ", total.texts, total.texts == 1 ? " text" : " texts")));
  printer->Flush();
}

int Score(const Command& command, const std::vector<std::string>& args) {
  ScoreFlags options;
  Flags flags;
  options.input.AddTo(&flags, /*can_truncate=*/false);
  flags.Add("per_token", &options.per_token, "show each token, and how probable it was");
  flags.Add("top_candidates", &options.top_candidates, {0, kMaxCandidates},
            "show each token with the most probable ones in its place, up to 128");
  flags.Add("in_flight", &options.in_flight, {1}, "calls at a time");
  const Start start = Begin(command, args, &flags, &options.common);
  if (start.client == nullptr) return start.exit_code;
  options.per_token = options.per_token || options.top_candidates > 0;

  Printer printer(command, options.common.json, Columns(options));
  Figures total;
  ScoreRunner runner(
      command, options.common, options.input, start.arguments, &printer, &v1::ScoreResponse::scores,
      [&](const auto& items) {
        auto request = options.input.RequestFor<v1::ScoreRequest>(items);
        request.set_token_log_probs(options.per_token);
        request.set_token_texts(options.per_token);
        request.set_top_candidates(options.top_candidates);
        return start.client->Score(request);
      },
      [&](const ScoreRunner::Text& text) {
        total.Add(Print(options, text, &printer));
        return absl::OkStatus();
      });
  const int exit_code = runner.Run(options.in_flight);
  PrintTotal(command, options, total, &printer);
  return exit_code;
}

}  // namespace

constexpr Command kScore = {"score", "how probable texts are to a language model", kScoreHelp,
                            Score};

}  // namespace sru::client
