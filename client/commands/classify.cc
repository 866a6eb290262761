// sru_client classify: labels with probabilities for texts.
#include <algorithm>

#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

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
  sru_client classify --model=trec --version=1 --deadline=500ms "What is a haiku ?"
)";

struct ClassifyFlags {
  CommonFlags common;
  InputFlags input;
  int top_k = 1;
};

// One row per label; the first also shows what holds for the text as a whole. A text without tokens
// has no labels, but a row.
void AddRows(const LineInput::Item& item, const v1::Classification& result, Printer* printer) {
  std::string tokens = TokenCell(result.token_count(), result.truncated(), result.unknown_tokens());
  std::string text = OneLine(item.text, kTextColumn);
  if (result.labels().empty()) printer->Row({kNothing, kNothing, tokens, text});
  for (const v1::Label& label : result.labels()) {
    printer->Row({label.name(), Fixed(label.probability(), 4), std::exchange(tokens, ""),
                  std::exchange(text, "")});
  }
}

int Classify(const Command& command, const std::vector<std::string>& args) {
  ClassifyFlags options;
  Flags flags;
  options.input.AddTo(&flags);
  flags.Add("top_k", &options.top_k, {0}, "labels per text, the most probable first; 0 = all");
  const Start start = Begin(command, args, &flags, &options.common);
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, options.common.json,
                  {{"LABEL"}, {"PROBABILITY", true}, {"TOKENS", true}, {"TEXT"}});
  LineInput input(start.arguments, /*files=*/false, options.input.lines());
  TextRunner<v1::ClassifyResponse, v1::Classification> runner(
      command, options.common, options.input.batch, &input, &printer,
      &v1::ClassifyResponse::classifications,
      [&](const auto& items) {
        auto request = options.input.RequestFor<v1::ClassifyRequest>(items);
        request.set_top_k(options.top_k);
        request.set_truncate(options.input.truncate);
        return start.client->Classify(request);
      },
      [&](const LineInput::Item& item, const v1::ClassifyResponse& response,
          const v1::Classification& result, absl::Duration latency) {
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

constexpr Command kClassify = {"classify", "labels with probabilities for texts", kClassifyHelp,
                               Classify};

}  // namespace sru::client
