// sru_client tag: a label for each token of texts.
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

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
)";

struct TagFlags {
  CommonFlags common;
  InputFlags input;
  int top_k = 1;
};

// A row per label of a token. A text without tokens has a row, too.
void AddRows(const LineInput::Item& item, const v1::Tagging& result, Printer* printer) {
  std::string text = OneLine(item.text, kTextColumn);
  if (result.tokens().empty()) printer->Row({kNothing, kNothing, kNothing, text});
  for (const v1::TokenTags& tags : result.tokens()) {
    std::string token = OneLine(tags.token(), kTextColumn);
    for (const v1::TagLabel& label : tags.labels()) {
      printer->Row({std::exchange(token, ""), label.name(), Fixed(label.probability(), 4),
                    std::exchange(text, "")});
    }
  }
}

int Tag(const Command& command, const std::vector<std::string>& args) {
  TagFlags options;
  Flags flags;
  options.input.AddTo(&flags);
  flags.Add("top_k", &options.top_k, {1}, "labels per token, the most probable first");
  const Start start = Begin(command, args, &flags, &options.common);
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, options.common.json,
                  {{"TOKEN"}, {"LABEL"}, {"PROBABILITY", true}, {"TEXT"}});
  LineInput input(start.arguments, /*files=*/false, options.input.lines());
  TextRunner<v1::TagResponse, v1::Tagging> runner(
      command, options.common, options.input.batch, &input, &printer, &v1::TagResponse::taggings,
      [&](const auto& items) {
        auto request = options.input.RequestFor<v1::TagRequest>(items);
        request.set_top_k(options.top_k);
        request.set_truncate(options.input.truncate);
        return start.client->Tag(request);
      },
      [&](const LineInput::Item& item, const v1::TagResponse& response, const v1::Tagging& result,
          absl::Duration latency) {
        if (printer.json()) {
          printer.Object(ResultJson(item.line, item.text, response, result, latency));
        } else {
          AddRows(item, result, &printer);
        }
        return absl::OkStatus();
      });
  const int exit_code = runner.Run(/*in_flight=*/1);
  printer.WarnOfUnknownWords();
  return exit_code;
}

}  // namespace

constexpr Command kTag = {"tag", "a label for each token of texts", kTagHelp, Tag};

}  // namespace sru::client
