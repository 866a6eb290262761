#include "client/commands/score_printer.h"

#include <cmath>
#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {
namespace {

// Figures of a text or of all, and their cells in the table.
struct Figures {
  int64_t tokens = 0;
  int64_t scored = 0;
  double log_prob = 0;

  double bits_per_token() const { return Bits(log_prob) / static_cast<double>(scored); }
  double perplexity() const { return std::exp(-log_prob / static_cast<double>(scored)); }

  std::vector<std::string> Cells(std::string text) const {
    if (scored == 0) return {absl::StrCat(tokens), kNothing, kNothing, kNothing, std::move(text)};
    return {absl::StrCat(tokens), absl::StrFormat("%.3f", log_prob),
            absl::StrFormat("%.4f", bits_per_token()),
            perplexity() < 1e6 ? absl::StrFormat("%.3f", perplexity())
                               : absl::StrFormat("%.3g", perplexity()),
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

std::vector<TextTable::Column> TokenColumns(const ScorePrinterOptions& options) {
  std::vector<TextTable::Column> columns = {
      {"LINE", true}, {"POSITION", true}, {"LOG-PROB", true}, {"BITS", true}};
  columns.push_back({"TOKEN"});
  if (options.candidates) columns.push_back({"CANDIDATES"});
  return columns;
}

// "'e' 61.2%  'a' 20.1%".
std::string CandidateList(const v1::Candidates& candidates) {
  std::string list;
  for (const v1::Candidate& candidate : candidates.candidates()) {
    absl::StrAppend(&list, list.empty() ? "" : "  ", QuotedToken(candidate.text()),
                    absl::StrFormat(" %.1f%%", 100 * std::exp(candidate.log_prob())));
  }
  return list;
}

}  // namespace

void ScorePrinter::Total::Add(const LineInput::Item& item, const v1::Score& score) {
  texts += item.num_lines;
  tokens += score.token_count();
  scored += score.scored_count();
  log_prob += score.log_prob();
}

void ScorePrinter::Total::Add(const Total& other) {
  texts += other.texts;
  tokens += other.tokens;
  scored += other.scored;
  log_prob += other.log_prob;
}

ScorePrinter::ScorePrinter(const ScorePrinterOptions& options, const LineInput* input)
    : options_(options),
      input_(input),
      token_rows_(!options.json && !options.totals_only &&
                  (options.candidates || (options.per_token && !options.color))),
      colored_(!options.json && !options.totals_only && options.per_token && !token_rows_),
      texts_(TextColumns(), &std::cout),
      tokens_(TokenColumns(options), &std::cout) {}

void ScorePrinter::Add(const LineInput::Item& item, const v1::ScoreResponse& response,
                       const v1::Score& score, absl::Duration latency) {
  if (totals_.empty() || totals_.back().source != item.source) {
    totals_.emplace_back();
    totals_.back().source = item.source;
  }
  totals_.back().Add(item, score);
  unknown_words_.Add(score.token_count(), score.unknown_tokens());
  if (options_.totals_only) return;
  if (options_.json) {
    std::cout << Dump(TextJson(item, response, score, latency)) << "\n";
  } else if (token_rows_) {
    AddTokenRows(item, score);
  } else if (colored_) {
    PrintColored(item, score);
  } else {
    const Figures figures = {score.token_count(), score.scored_count(), score.log_prob()};
    texts_.AddRow(figures.Cells(OneLine(item.text, kTextColumn)));
  }
}

void ScorePrinter::Flush() {
  if (options_.totals_only || options_.json || colored_) {
    std::cout.flush();
  } else if (token_rows_) {
    tokens_.Flush();
  } else {
    texts_.Flush();
  }
}

std::vector<ScoredToken> ScorePrinter::Tokens(const LineInput::Item& item,
                                              const v1::Score& score) const {
  std::optional<std::vector<std::string>> texts;
  if (options_.tokens_are_split) {
    texts = absl::StrSplit(item.text, absl::ByAnyChar(" \t\r\n"), absl::SkipEmpty());
    if (texts->size() != static_cast<size_t>(score.token_count())) texts = std::nullopt;
  } else {
    texts = SplitTokens(item.text, options_.preprocessing, score.token_count());
  }
  // Those that nothing predicts are the first ones.
  const int unscored = score.token_count() - score.token_log_probs_size();
  std::vector<ScoredToken> tokens;
  for (int i = 0; i < score.token_count(); ++i) {
    ScoredToken token;
    if (texts.has_value()) token.text = (*texts)[i];
    if (i >= unscored) token.log_prob = score.token_log_probs(i - unscored);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

void ScorePrinter::AddTokenRows(const LineInput::Item& item, const v1::Score& score) {
  const std::vector<ScoredToken> tokens = Tokens(item, score);
  const int unscored = score.token_count() - score.token_log_probs_size();
  for (int i = 0; i < static_cast<int>(tokens.size()); ++i) {
    const ScoredToken& token = tokens[i];
    std::vector<std::string> row = {
        absl::StrCat(item.line), absl::StrCat(i + 1),
        token.log_prob.has_value() ? absl::StrFormat("%.4f", *token.log_prob) : kNothing,
        token.log_prob.has_value() ? absl::StrFormat("%.3f", Bits(*token.log_prob)) : kNothing};
    row.push_back(token.text.empty() ? kNothing : QuotedToken(token.text));
    if (options_.candidates) {
      const int at = i - unscored;
      row.push_back(at >= 0 && at < score.candidates_size() ? CandidateList(score.candidates(at))
                                                            : kNothing);
    }
    tokens_.AddRow(std::move(row));
  }
}

void ScorePrinter::PrintColored(const LineInput::Item& item, const v1::Score& score) {
  if (!legend_printed_) std::cout << ColorLegend() << "\n";
  legend_printed_ = true;
  std::vector<ScoredToken> tokens = Tokens(item, score);
  // Words are cut at their spaces, and a token that only the server knows has a number.
  const bool spaced = options_.tokens_are_split ||
                      (options_.preprocessing != "bytes" && options_.preprocessing != "characters");
  std::vector<ScoredToken> shown;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].text.empty()) tokens[i].text = absl::StrCat("token ", i + 1);
    if (spaced && i > 0) shown.push_back({" ", std::nullopt});
    shown.push_back(std::move(tokens[i]));
  }
  const Figures figures = {score.token_count(), score.scored_count(), score.log_prob()};
  const std::vector<std::string> cells = figures.Cells("");
  std::cout << ColoredTokens(shown) << "\n  " << cells[0] << " tokens, log-prob " << cells[1]
            << ", " << cells[2] << " bits per token, perplexity " << cells[3] << "\n";
}

Json ScorePrinter::TextJson(const LineInput::Item& item, const v1::ScoreResponse& response,
                            const v1::Score& score, absl::Duration latency) const {
  Json json = ResultJson(item.line, item.text, response, score, latency);
  if (const std::string& file = input_->source_name(item.source); !file.empty()) {
    json["file"] = file;
  }
  const Figures figures = {score.token_count(), score.scored_count(), score.log_prob()};
  figures.WriteTo(&json);
  if (!options_.per_token) json.erase("token_log_probs");
  if (!options_.candidates) json.erase("candidates");
  return json;
}

std::string ScorePrinter::Name(const Total& total) const {
  const std::string& file = input_->source_name(total.source);
  return absl::StrCat("total of ", file.empty() ? "" : absl::StrCat(file, ", "), total.texts,
                      total.texts == 1 ? " text" : " texts");
}

Json ScorePrinter::TotalJson(const Total& total, bool with_file) const {
  Json json = Json::object();
  if (with_file) json["file"] = input_->source_name(total.source);
  json["texts"] = total.texts;
  const Figures figures = {total.tokens, total.scored, total.log_prob};
  figures.WriteTo(&json);
  return {{"total", json}};
}

void ScorePrinter::Finish() {
  if (totals_.empty()) return;
  Total all;
  for (const Total& total : totals_) all.Add(total);
  const bool files = !input_->source_name(totals_[0].source).empty();
  const bool many_files = totals_.size() > 1;
  if (options_.json) {
    for (const Total& total : totals_) {
      if (files) std::cout << Dump(TotalJson(total, true)) << "\n";
    }
    if (many_files || !files) std::cout << Dump(TotalJson(all, false)) << "\n";
    std::cout.flush();
    return;
  }
  // The table of texts goes on; after tokens there is one of totals alone.
  const bool after_tokens = token_rows_ || colored_;
  if (all.texts < 2 && !after_tokens && !options_.totals_only) return;
  if (after_tokens) std::cout << "\n";
  const auto add = [this](const Total& total, std::string name) {
    const Figures figures = {total.tokens, total.scored, total.log_prob};
    texts_.AddRow(figures.Cells(std::move(name)));
  };
  for (const Total& total : totals_) {
    if (files) add(total, Name(total));
  }
  if (many_files || !files)
    add(all, absl::StrCat("total of ", all.texts, all.texts == 1 ? " text" : " texts"));
  texts_.Flush();
}

}  // namespace sru::client
