// sru_client tokenize: the tokens of texts.
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

namespace sru::client {
namespace {

constexpr char kTokenizeHelp[] =
    R"(sru_client tokenize prints the tokens that a model makes of each text, with their ids and the
bytes of the text that they stand for.

usage: sru_client tokenize [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped.

examples:
  sru_client tokenize --model=trec "How many moons does Jupiter have ?"
  sru_client tokenize --model=trec --json < questions.txt
)";

int Tokenize(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  InputFlags input;  // a call without a priority
  TargetFlags& target = input.target;
  Flags flags;
  flags.Add("model", &target.model, "name of the model; may be left out when the server has one");
  flags.Add("version", &target.version, {0}, "version of the model; 0 = the latest");
  flags.Add("batch", &input.batch, {1}, "texts per call");
  target.AddUnknownTo(&flags);
  const Start start = Begin(command, args, &flags, &common);
  if (start.client == nullptr) return start.exit_code;
  Printer printer(command, common.json,
                  {{"ID", true}, {"TOKEN"}, {"BEGIN", true}, {"END", true}, {"TEXT"}});
  using Runner = TextRunner<v1::TokenizeResponse, v1::Tokenization>;
  Runner runner(
      command, common, input, start.arguments, &printer, &v1::TokenizeResponse::tokenizations,
      [&](const auto& items) {
        v1::TokenizeRequest request;
        request.set_model(target.model);
        request.set_version(target.version);
        request.set_unknown(target.unknown);
        for (const LineInput::Item& item : items) request.add_sequences()->set_text(item.text);
        return start.client->Tokenize(request);
      },
      [&](const Runner::Text& text) {
        if (printer.json()) {
          Json json = {{"line", text.item.line}, {"text", text.item.text}};
          json.update(MessageJson(text.result));
          printer.Object(json);
          return absl::OkStatus();
        }
        std::string shown = OneLine(text.item.text, kTextColumn);
        for (const v1::Token& token : text.result.tokens()) {
          printer.Row({absl::StrCat(token.id()), OneLine(token.text(), kTextColumn),
                       absl::StrCat(token.start_byte()), absl::StrCat(token.end_byte()),
                       std::exchange(shown, "")});
        }
        return absl::OkStatus();
      });
  return runner.Run(/*in_flight=*/1);
}

}  // namespace

constexpr Command kTokenize = {"tokenize", "the tokens of texts, with their ids", kTokenizeHelp,
                               Tokenize};

}  // namespace sru::client
