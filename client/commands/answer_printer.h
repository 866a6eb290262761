// Prints what `sru_client answer` has found: each answer marked in its sentence, or JSON.
#ifndef SRU_CLIENT_COMMANDS_ANSWER_PRINTER_H_
#define SRU_CLIENT_COMMANDS_ANSWER_PRINTER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/commands/json_output.h"
#include "client/commands/unknown_words.h"
#include "client/text_table.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

struct AnswerPrinterOptions {
  bool json = false;
  bool color = false;
  bool questions = false;  // of several: each row says which
};

// One answer and where it is from.
struct FoundAnswer {
  v1::SpanAnswer span;
  std::string where;    // "FILE:12", "line 12"
  std::string passage;  // its text
  size_t begin = 0;     // in `passage`, in bytes
  size_t end = 0;
  std::string file;       // "" for standard input
  int64_t line = 0;       // of its beginning, in its file
  int64_t number = 0;     // of its passage: in its file from 1, in its query from 0
  int64_t byte = 0;       // where its passage begins in its file, in bytes
  int64_t character = 0;  // and in code points
};

// kInternal unless `span` is a part of `passage`.
absl::Status CheckSpan(const v1::SpanAnswer& span, const std::string& passage);

// The answers to one question, the best first.
struct FoundAnswers {
  std::string question;
  std::vector<FoundAnswer> answers;
  int64_t token_count = 0;
  int64_t unknown_tokens = 0;
  std::string model;
  int64_t version = 0;
  double latency_us = 0;
};

// Not thread-safe. Writes to standard output.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(const AnswerPrinterOptions& options);

  // `extra` is put into the JSON object before the answers.
  void Print(const FoundAnswers& found, const Json& extra = Json::object());

  // Of all that was printed.
  const UnknownWords& unknown_words() const { return unknown_words_; }

 private:
  const AnswerPrinterOptions options_;
  TextTable table_;
  UnknownWords unknown_words_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_ANSWER_PRINTER_H_
