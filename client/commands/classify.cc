// sru_client classify: labels with probabilities for texts.
#include <algorithm>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/json_output.h"
#include "client/commands/line_input.h"
#include "client/commands/ordered_batches.h"
#include "client/commands/text_input.h"
#include "client/commands/unknown_words.h"
#include "client/text_table.h"

namespace sru::client {
namespace {

constexpr char kClassifyHelp[] =
    R"(sru_client classify prints the most probable label of each text.

usage: sru_client classify [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line, and prints answers as they come; blank lines
are skipped. A text that the server refuses fails alone: it is reported on standard error and the
exit code is 1.

examples:
  sru_client classify "How many moons does Jupiter have ?"
  sru_client classify --top_k=3 "Who wrote Hamlet ?" "Where is Samarkand ?"
  sru_client classify --json < questions.txt > answers.jsonl
  sru_client classify --skip_empty < lines.txt           (an answer for each line, blank or not)
  sru_client classify --tokens "who wrote hamlet ?"      (words that are split already)
  sru_client classify --model=trec --version=1 --deadline=500ms "What is a haiku ?"
)";

struct ClassifyFlags {
  CommonFlags common;
  InputFlags input;
  int top_k = 1;
  bool times = false;
};

v1::ClassifyRequest MakeRequest(const ClassifyFlags& flags,
                                const std::vector<LineInput::Item>& items) {
  auto request = flags.input.RequestFor<v1::ClassifyRequest>(items);
  request.set_top_k(flags.top_k);
  request.set_truncate(flags.input.truncate);
  return request;
}

TextTable MakeTable(bool times) {
  std::vector<TextTable::Column> columns = {{"LABEL"}, {"PROBABILITY", true}};
  if (times) {
    columns.push_back({"LATENCY", true});
    columns.push_back({"IN SERVER", true});
  }
  columns.push_back({"TOKENS", true});
  columns.push_back({"TEXT"});
  return {std::move(columns), &std::cout};
}

std::string Milliseconds(double us) { return absl::StrFormat("%.2f ms", us / 1000); }

// One row per label; the first also shows what holds for the text as a whole. A text without tokens
// has no labels, but a row.
void AddRows(const ClassifyFlags& flags, const LineInput::Item& item,
             const v1::Classification& result, double latency_us, double server_us,
             TextTable* table) {
  for (int rank = 0; rank < std::max(1, result.labels_size()); ++rank) {
    const bool first = rank == 0;
    std::vector<std::string> row = {"-", "-"};
    if (rank < result.labels_size()) {
      const v1::Label& label = result.labels(rank);
      row = {label.name(), absl::StrFormat("%.4f", label.probability())};
    }
    if (flags.times) {
      row.push_back(first ? Milliseconds(latency_us) : "");
      row.push_back(first ? Milliseconds(server_us) : "");
    }
    row.push_back(
        first ? TokenCell(result.token_count(), result.truncated(), result.unknown_tokens()) : "");
    row.push_back(first ? OneLine(item.text, kTextColumn) : "");
    table->AddRow(std::move(row));
  }
}

int Classify(const Command& command, const std::vector<std::string>& args) {
  ClassifyFlags options;
  FlagSet flags;
  options.input.AddTo(&flags);
  options.input.AddSkipEmpty(&flags);
  flags.Add("top_k", &options.top_k, "labels per text, the most probable first; 0 = all");
  flags.Add("times", &options.times,
            "also show how long each call took, here and inside the server");
  options.common.AddTo(&flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs(command, args, &flags, &texts)) return *code;
  absl::Status status = options.input.Check();
  status.Update(CheckAtLeast("top_k", options.top_k, 0));
  if (!status.ok()) return UsageError(command, status.message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  TextTable table = MakeTable(options.times);
  LineInput input(std::move(texts), /*files=*/false, options.input.lines());
  UnknownWords words;
  TextRunner<v1::ClassifyResponse, v1::Classification> runner(
      command, options.common, options.input.batch, &input, &v1::ClassifyResponse::classifications,
      [&](const auto& items) { return client->Classify(MakeRequest(options, items)); },
      [&](const LineInput::Item& item, const v1::ClassifyResponse& response,
          const v1::Classification& result, absl::Duration latency) {
        words.Add(result.token_count(), result.unknown_tokens());
        if (options.common.json) {
          std::cout << Dump(ResultJson(item.line, item.text, response, result, latency)) << "\n";
        } else {
          AddRows(options, item, result, absl::ToDoubleMicroseconds(latency),
                  response.times().total_us(), &table);
        }
        return absl::OkStatus();
      },
      [&] { options.common.json ? static_cast<void>(std::cout.flush()) : table.Flush(); });
  exit_code = runner.Run(/*in_flight=*/1);
  words.Warn(command);
  return exit_code;
}

}  // namespace

constexpr Command kClassify = {"classify", "labels with probabilities for texts", kClassifyHelp,
                               Classify};

}  // namespace sru::client
