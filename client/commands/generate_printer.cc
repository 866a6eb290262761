#include "client/commands/generate_printer.h"

#include <cmath>
#include <cstddef>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/token_view.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {
namespace {

std::vector<TextTable::Column> TokenColumns() {
  return {{"SAMPLE", true}, {"POSITION", true}, {"TOKEN ID", true}, {"LOG-PROB", true},
          {"BITS", true},   {"TEXT"},           {"CANDIDATES"}};
}

Json ResponseJson(const v1::GenerateResponse& response) {
  Json json = MessageJson(response);
  for (const char* list : {"log_probs", "candidates", "token_texts"}) {
    if (json[list].empty()) json.erase(list);
  }
  if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) return json;
  for (const char* last :
       {"model", "version", "finish_reason", "prompt_tokens", "generated_tokens"}) {
    json.erase(last);
  }
  return json;
}

}  // namespace

GeneratePrinter::GeneratePrinter(const GeneratePrinterOptions& options)
    : options_(options),
      samples_(static_cast<size_t>(options.num_samples)),
      rows_(TokenColumns(), &std::cout) {}

void GeneratePrinter::Add(const v1::GenerateResponse& response) {
  printed_ = true;
  if (options_.json) {
    std::cout << Dump(ResponseJson(response)) << "\n" << std::flush;
    return;
  }
  if (options_.token_rows) {
    AddRows(response);
    return;
  }
  Sample& sample = samples_[response.sample()];
  sample.held_back += response.text();
  sample.complete = response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  for (; current_ < samples_.size(); ++current_) {
    Sample& shown = samples_[current_];
    PrintText(static_cast<int>(current_), std::exchange(shown.held_back, ""));
    if (!shown.complete) break;
    EndText();
  }
  std::cout.flush();
}

void GeneratePrinter::Finish() {
  if (options_.json || options_.token_rows) return;
  for (; printed_ && current_ < samples_.size(); ++current_) {
    Sample& sample = samples_[current_];
    if (sample.begun || !sample.held_back.empty()) {
      PrintText(static_cast<int>(current_), std::exchange(sample.held_back, ""));
      EndText();
    }
  }
  std::cout.flush();
}

void GeneratePrinter::PrintText(int number, const std::string& text) {
  if (samples_.size() > 1 && !samples_[number].begun) {
    std::cout << "--- sample " << number << "\n";
    at_line_start_ = true;
  }
  samples_[number].begun = true;
  if (text.empty()) return;
  std::cout << (options_.terminal ? TerminalText(text) : text);
  at_line_start_ = text.back() == '\n';
}

void GeneratePrinter::EndText() {
  if ((options_.terminal || samples_.size() > 1) && !at_line_start_) std::cout << "\n";
  at_line_start_ = true;
}

void GeneratePrinter::AddRows(const v1::GenerateResponse& response) {
  for (int i = 0; i < response.token_ids_size(); ++i) {
    const bool scored = i < response.log_probs_size();
    std::string candidates;
    if (i < response.candidates_size()) {
      for (const v1::Candidate& candidate : response.candidates(i).candidates()) {
        absl::StrAppend(&candidates, candidates.empty() ? "" : "  ", QuotedToken(candidate.text()),
                        absl::StrFormat(" %.1f%%", 100 * std::exp(candidate.log_prob())));
      }
    }
    // The text belongs to all tokens of the message; it is shown with the last one.
    const bool last = i + 1 == response.token_ids_size();
    rows_.AddRow({absl::StrCat(response.sample()),
                  absl::StrCat(++samples_[response.sample()].tokens),
                  absl::StrCat(response.token_ids(i)),
                  scored ? absl::StrFormat("%.4f", response.log_probs(i)) : kNothing,
                  scored ? absl::StrFormat("%.3f", Bits(response.log_probs(i))) : kNothing,
                  last && !response.text().empty() ? QuotedToken(response.text()) : kNothing,
                  candidates.empty() ? kNothing : candidates});
  }
  rows_.Flush();
}

}  // namespace sru::client
