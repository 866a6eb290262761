#include "client/commands/translate_printer.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/token_view.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {
namespace {

// A token of the source is listed if it has at least this part of a token's attention.
constexpr float kShownWeight = 0.1f;

// Texts per second and the like; 0 if no time has passed.
double Rate(int64_t count, absl::Duration elapsed) {
  const double seconds = absl::ToDoubleSeconds(elapsed);
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// The names of the tokens of one side: the pieces, or their numbers if the model has none.
std::vector<std::string> TokenNames(const google::protobuf::RepeatedPtrField<std::string>& pieces,
                                    int count) {
  std::vector<std::string> names(pieces.begin(), pieces.end());
  for (int i = pieces.size(); i < count; ++i) names.push_back(absl::StrCat(i + 1));
  names.resize(count);
  return names;
}

// The number of rows of a hypothesis's alignment; 0 if it has none.
int AlignmentRows(const v1::Hypothesis& hypothesis, int source_tokens) {
  if (source_tokens == 0 || hypothesis.alignment_size() % source_tokens != 0) return 0;
  return hypothesis.alignment_size() / source_tokens;
}

// One list for each token of the hypothesis.
Json AlignmentJson(const v1::Hypothesis& hypothesis, int source_tokens) {
  Json rows = Json::array();
  for (int row = 0; row < AlignmentRows(hypothesis, source_tokens); ++row) {
    Json& weights = rows.emplace_back(Json::array());
    for (int s = 0; s < source_tokens; ++s) {
      weights.push_back(Exact(hypothesis.alignment(row * source_tokens + s)));
    }
  }
  return rows;
}

}  // namespace

TranslatePrinter::TranslatePrinter(const TranslatePrinterOptions& options, const LineInput* input)
    : options_(options),
      input_(input),
      table_({{"TEXT", true}, {"SCORE", true}, {"LOG-PROB", true}, {"TRANSLATION"}}, &std::cout) {}

// One line, whatever the model has written.
std::string TranslatePrinter::Text(const v1::Hypothesis& hypothesis) const {
  std::string text = options_.terminal ? PrintableToken(hypothesis.text()) : hypothesis.text();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  for (int t = 0; t < hypothesis.hard_alignment_size(); ++t) {
    absl::StrAppend(&text, t == 0 ? " ||| " : " ", hypothesis.hard_alignment(t), "-", t);
  }
  for (int t = 0; t < hypothesis.token_log_probs_size(); ++t) {
    absl::StrAppend(&text, t == 0 ? " ||| WordScores= " : " ",
                    absl::StrFormat("%.6f", hypothesis.token_log_probs(t)));
  }
  return text;
}

void TranslatePrinter::Add(const LineInput::Item& item, const v1::TranslateResponse& response,
                           const v1::Translation& translation, absl::Duration latency) {
  ++texts_;
  source_tokens_ += translation.token_count();
  unknown_words_.Add(translation.token_count(), translation.unknown_tokens());
  if (translation.hypotheses_size() > 0) {
    target_tokens_ += translation.hypotheses(0).token_ids_size();
    unfinished_ += translation.hypotheses(0).unfinished() ? 1 : 0;
  }
  if (options_.json) {
    std::cout << Dump(TextJson(item, response, translation, latency)) << "\n";
  } else if (options_.alignment) {
    PrintAlignments(item, translation);
  } else if (options_.table) {
    for (const v1::Hypothesis& hypothesis : translation.hypotheses()) {
      table_.AddRow({absl::StrCat(item.line), absl::StrFormat("%.4f", hypothesis.score()),
                     absl::StrFormat("%.4f", hypothesis.log_prob()),
                     absl::StrCat(Text(hypothesis), hypothesis.unfinished() ? " (cut)" : "")});
    }
  } else {
    std::cout << (translation.hypotheses_size() > 0 ? Text(translation.hypotheses(0)) : "") << "\n";
  }
}

void TranslatePrinter::AddFailed() {
  if (!options_.json && !options_.alignment && !options_.table) std::cout << "\n";
}

void TranslatePrinter::Flush() {
  if (options_.table && !options_.json && !options_.alignment) {
    if (texts_ > 0) table_.Flush();  // no head of an empty table
  } else {
    std::cout.flush();
  }
}

void TranslatePrinter::PrintAlignments(const LineInput::Item& item,
                                       const v1::Translation& translation) {
  const int source_tokens = translation.token_count();
  const std::vector<std::string> source = TokenNames(translation.source_tokens(), source_tokens);
  for (const v1::Hypothesis& hypothesis : translation.hypotheses()) {
    std::cout << item.line << ": " << Text(hypothesis)
              << absl::StrFormat("  (score %.4f)\n", hypothesis.score());
    TextTable table({{"TOKEN"}, {"LOOKED AT"}}, &std::cout);
    const int rows = AlignmentRows(hypothesis, source_tokens);
    const std::vector<std::string> target = TokenNames(hypothesis.tokens(), rows);
    for (int row = 0; row < rows; ++row) {
      std::string list;
      for (int s = 0; s < source_tokens; ++s) {
        const float weight = hypothesis.alignment(row * source_tokens + s);
        if (weight < kShownWeight) continue;
        absl::StrAppend(&list, list.empty() ? "" : "  ", QuotedToken(source[s]),
                        absl::StrFormat(" %.0f%%", 100 * weight));
      }
      table.AddRow({QuotedToken(target[row]), std::move(list)});
    }
    table.Flush();
    std::cout << "\n";
  }
}

Json TranslatePrinter::TextJson(const LineInput::Item& item, const v1::TranslateResponse& response,
                                const v1::Translation& translation, absl::Duration latency) const {
  Json json = ResultJson(item.line, item.text, response, translation, latency);
  if (const std::string& file = input_->source_name(item.source); !file.empty()) {
    json["file"] = file;
  }
  if (translation.source_tokens().empty()) json.erase("source_tokens");
  for (int h = 0; h < translation.hypotheses_size(); ++h) {
    Json& hypothesis = json["hypotheses"][h];
    hypothesis.erase("alignment");
    if (translation.hypotheses(h).hard_alignment().empty()) hypothesis.erase("hard_alignment");
    if (translation.hypotheses(h).token_log_probs().empty()) hypothesis.erase("token_log_probs");
    if (!options_.alignment) continue;
    hypothesis["alignment"] = AlignmentJson(translation.hypotheses(h), translation.token_count());
  }
  return json;
}

std::string TranslatePrinter::Stats(absl::Duration elapsed) const {
  std::string line = absl::StrFormat(
      "%d %s, %d tokens, translated into %d in %.2f s: %.1f texts and %.0f tokens per second",
      texts_, texts_ == 1 ? "text" : "texts", source_tokens_, target_tokens_,
      absl::ToDoubleSeconds(elapsed), Rate(texts_, elapsed), Rate(target_tokens_, elapsed));
  if (unfinished_ > 0) {
    absl::StrAppend(&line, ", ", unfinished_, " cut off at the longest length");
  }
  return line;
}

Json TranslatePrinter::StatsJson(absl::Duration elapsed) const {
  return {{"texts", texts_},
          {"source_tokens", source_tokens_},
          {"target_tokens", target_tokens_},
          {"unfinished", unfinished_},
          {"seconds", absl::ToDoubleSeconds(elapsed)},
          {"texts_per_second", Rate(texts_, elapsed)},
          {"tokens_per_second", Rate(target_tokens_, elapsed)}};
}

}  // namespace sru::client
