// Printer: how every subcommand prints: rows of a table for people or, with --json, an object a
// line for programs.
#ifndef SRU_CLIENT_COMMANDS_PRINTER_H_
#define SRU_CLIENT_COMMANDS_PRINTER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/commands/commands.h"
#include "client/text_table.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "sru/v1/inference.pb.h"

namespace sru::client {

using Json = nlohmann::ordered_json;

// The cell of a figure that there is not, such as the probability of a text of one token.
inline constexpr char kNothing[] = "-";
// How much of a text a row shows.
inline constexpr size_t kTextColumn = 60;

// Not thread-safe. Writes to standard output.
class Printer {
 public:
  // Without columns there is no table, and the command writes its lines itself.
  Printer(const Command& command, bool json, std::vector<TextTable::Column> columns = {});
  // Says on standard error if more than half of all words were unknown.
  ~Printer();
  Printer(const Printer&) = delete;
  Printer& operator=(const Printer&) = delete;

  bool json() const { return json_; }
  // A row of the table, of one cell per column. Not with --json.
  void Row(std::vector<std::string> cells) { table_.AddRow(std::move(cells)); }
  // A line with --json.
  void Object(const Json& object);
  // Prints the rows since the last time, after the names of the columns the first time.
  void Flush();

  // Counts the words of an answer that the model's vocabulary does not have.
  template <typename Result>
  void Count(const Result& result) {
    tokens_ += result.token_count();
    unknown_ += result.unknown_tokens();
  }
  void Count(const v1::Tokenization& result) {
    tokens_ += result.tokens_size();
    unknown_ += result.unknown_tokens();
  }
  int64_t tokens() const { return tokens_; }
  int64_t unknown() const { return unknown_; }

 private:
  const Command& command_;
  const bool json_;
  const bool has_table_;
  TextTable table_;
  int64_t tokens_ = 0;
  int64_t unknown_ = 0;
};

// A figure with this many digits behind the point.
std::string Fixed(double value, int digits);

// 'Text' between quotation marks that does nothing to a terminal.
std::string Quoted(absl::string_view text);

// "'e' 61.2%  'a' 20.1%".
std::string CandidateList(const v1::Candidates& candidates);

// Information of something with this log-probability (natural logarithm).
double Bits(double log_prob);

// A text's cell in a column of token counts: "7", "7 (cut)", "7 (cut, 2 unknown)".
std::string TokenCell(int tokens, bool truncated, int unknown);

// One line. Text that is not UTF-8 gets replacement characters.
std::string Dump(const Json& json);

// A number whose JSON reads back as the same float.
double Exact(float value);

// The fields of a message, in their order and under their names. Leaves out bytes and what is not
// set.
Json MessageJson(const google::protobuf::Message& message);

// Takes out the lists of `keys` that are empty, since nothing asked for them.
void EraseEmpty(std::initializer_list<const char*> keys, Json* json);

// The states of versions: those of `models --status` and of `admin load`.
void PrintStatuses(const Command& command, bool json,
                   const google::protobuf::RepeatedPtrField<v1::ModelStatus>& statuses);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_PRINTER_H_
