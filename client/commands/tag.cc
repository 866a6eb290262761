// sru_client tag: a label for each token of texts.
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

constexpr char kTagHelp[] =
    R"(sru_client tag prints the most probable label of each token of each text.

usage: sru_client tag [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line, and prints answers as they come; blank lines
are skipped. The table has a row for each token; the row of a text's first token also shows the
text. Words that the model does not know are shown as it sees them, such as <unk>.

examples:
  sru_client tag "three seven seven two"
  sru_client tag --top_k=3 "three seven seven two"       (the labels that come next, too)
  sru_client tag --json < texts.txt > tags.jsonl
  sru_client tag --tokens "New York is large"            (words that are split already)
)";

struct TagFlags {
  CommonFlags common;
  InputFlags input;
  int top_k = 1;
};

v1::TagRequest MakeRequest(const TagFlags& flags, const std::vector<LineInput::Item>& items) {
  auto request = flags.input.RequestFor<v1::TagRequest>(items);
  request.set_top_k(flags.top_k);
  request.set_truncate(flags.input.truncate);
  return request;
}

// A row per label of a token. A text without tokens has a row, too.
void AddRows(const LineInput::Item& item, const v1::Tagging& result, TextTable* table) {
  std::string text = OneLine(item.text, kTextColumn);
  if (result.tokens_size() == 0) table->AddRow({"-", "-", "-", text});
  for (const v1::TokenTags& tags : result.tokens()) {
    std::string token = OneLine(tags.token(), kTextColumn);
    for (const v1::TagLabel& label : tags.labels()) {
      table->AddRow({std::exchange(token, ""), label.name(),
                     absl::StrFormat("%.4f", label.probability()), std::exchange(text, "")});
    }
  }
}

int Tag(const Command& command, const std::vector<std::string>& args) {
  TagFlags options;
  FlagSet flags;
  options.input.AddTo(&flags);
  options.input.AddSkipEmpty(&flags);
  flags.Add("top_k", &options.top_k, "labels per token, the most probable first");
  options.common.AddTo(&flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs(command, args, &flags, &texts)) return *code;
  absl::Status status = options.input.Check();
  status.Update(CheckAtLeast("top_k", options.top_k, 1));
  if (!status.ok()) return UsageError(command, status.message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  TextTable table({{"TOKEN"}, {"LABEL"}, {"PROBABILITY", true}, {"TEXT"}}, &std::cout);
  LineInput input(std::move(texts), /*files=*/false, options.input.lines());
  UnknownWords words;
  TextRunner<v1::TagResponse, v1::Tagging> runner(
      command, options.common, options.input.batch, &input, &v1::TagResponse::taggings,
      [&](const auto& items) { return client->Tag(MakeRequest(options, items)); },
      [&](const LineInput::Item& item, const v1::TagResponse& response, const v1::Tagging& result,
          absl::Duration latency) {
        words.Add(result.token_count(), result.unknown_tokens());
        if (options.common.json) {
          std::cout << Dump(ResultJson(item.line, item.text, response, result, latency)) << "\n";
        } else {
          AddRows(item, result, &table);
        }
        return absl::OkStatus();
      },
      [&] { options.common.json ? static_cast<void>(std::cout.flush()) : table.Flush(); });
  exit_code = runner.Run(/*in_flight=*/1);
  words.Warn(command);
  return exit_code;
}

}  // namespace

constexpr Command kTag = {"tag", "a label for each token of texts", kTagHelp, Tag};

}  // namespace sru::client
