#include "client/commands/answer_printer.h"

#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/answer_view.h"
#include "client/token_view.h"

namespace sru::client {
namespace {

constexpr size_t kQuestionWidth = 40;

std::vector<TextTable::Column> Columns(bool questions) {
  std::vector<TextTable::Column> columns = {{"SCORE", true}, {"PROBABILITY", true}, {"WHERE"}};
  if (questions) columns.push_back({"QUESTION"});
  columns.push_back({"ANSWER"});
  return columns;
}

// Offsets are those in the file.
Json AnswerJson(const FoundAnswer& answer) {
  Json json = MessageJson(answer.span);
  if (!answer.file.empty()) json["file"] = answer.file;
  json["passage"] = answer.number;
  if (answer.line > 0) json["line"] = answer.line;
  json["start_byte"] = answer.byte + answer.span.start_byte();
  json["end_byte"] = answer.byte + answer.span.end_byte();
  json["start_char"] = answer.character + answer.span.start_char();
  json["end_char"] = answer.character + answer.span.end_char();
  return json;
}

}  // namespace

absl::Status CheckSpan(const v1::SpanAnswer& span, const std::string& passage) {
  if (span.start_byte() >= 0 && span.start_byte() <= span.end_byte() &&
      static_cast<size_t>(span.end_byte()) <= passage.size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the server answered with bytes ", span.start_byte(),
                                          " to ", span.end_byte(), " of a passage of ",
                                          passage.size(), " bytes"));
}

AnswerPrinter::AnswerPrinter(const AnswerPrinterOptions& options)
    : options_(options), table_(Columns(options.questions), &std::cout) {}

void AnswerPrinter::Print(const FoundAnswers& found, const Json& extra) {
  unknown_words_.Add(found.token_count, found.unknown_tokens);
  if (!options_.json) {
    for (const FoundAnswer& answer : found.answers) {
      std::vector<std::string> row = {absl::StrFormat("%.3f", answer.span.log_score()),
                                      absl::StrFormat("%.4f", answer.span.probability()),
                                      answer.where};
      if (options_.questions) {
        row.push_back(PrintableToken(OneLine(found.question, kQuestionWidth)));
      }
      row.push_back(MarkedSentence(answer.passage, {answer.begin, answer.end}, options_.color));
      table_.AddRow(std::move(row));
    }
    table_.Flush();
    return;
  }
  Json json = extra;
  json["question"] = found.question;
  json["model"] = found.model;
  json["version"] = found.version;
  json["answers"] = Json::array();
  for (const FoundAnswer& answer : found.answers) json["answers"].push_back(AnswerJson(answer));
  json["token_count"] = found.token_count;
  json["unknown_tokens"] = found.unknown_tokens;
  json["latency_us"] = found.latency_us;
  std::cout << Dump(json) << "\n";
  std::cout.flush();
}

}  // namespace sru::client
