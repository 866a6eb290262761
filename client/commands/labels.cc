// sru_client classify and tag: labels with probabilities for texts, and for each of their tokens.
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

// Runs a command that calls `method`, and prints the rows of each text or an object.
template <typename Request, typename Response, typename Result>
int PrintLabels(const Command& command, const std::vector<std::string>& args, Flags::Range range,
                const char* top_k_help, std::vector<TextTable::Column> columns,
                absl::StatusOr<Response> (Client::*method)(const Request&, const CallOptions&),
                typename TextRunner<Response, Result>::Results results) {
  CommonFlags common;
  InputFlags input_flags;
  int top_k = 1;
  Flags flags;
  input_flags.AddTo(&flags);
  flags.Add("top_k", &top_k, range, top_k_help);
  const Start start = Begin(command, args, &flags, &common);
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, common.json, std::move(columns));
  using Runner = TextRunner<Response, Result>;
  Runner runner(
      command, common, input_flags, start.arguments, &printer, results,
      [&](const auto& items) {
        auto request = input_flags.RequestFor<Request>(items);
        request.set_top_k(top_k);
        request.set_truncate(input_flags.truncate);
        return (start.client.get()->*method)(request, {});
      },
      [&](const typename Runner::Text& text) {
        if (printer.json()) {
          printer.Object(text.ToJson());
        } else {
          AddRows(text.item, text.result, &printer);
        }
        return absl::OkStatus();
      });
  return runner.Run(/*in_flight=*/1);
}

int Classify(const Command& command, const std::vector<std::string>& args) {
  return PrintLabels<v1::ClassifyRequest, v1::ClassifyResponse, v1::Classification>(
      command, args, {0}, "labels per text, the most probable first; 0 = all",
      {{"LABEL"}, {"PROBABILITY", true}, {"TOKENS", true}, {"TEXT"}}, &Client::Classify,
      &v1::ClassifyResponse::classifications);
}

int Tag(const Command& command, const std::vector<std::string>& args) {
  return PrintLabels<v1::TagRequest, v1::TagResponse, v1::Tagging>(
      command, args, {1}, "labels per token, the most probable first",
      {{"TOKEN"}, {"LABEL"}, {"PROBABILITY", true}, {"TEXT"}}, &Client::Tag,
      &v1::TagResponse::taggings);
}

}  // namespace

constexpr Command kClassify = {"classify", "labels with probabilities for texts", kClassifyHelp,
                               Classify};

constexpr Command kTag = {"tag", "a label for each token of texts", kTagHelp, Tag};

}  // namespace sru::client
