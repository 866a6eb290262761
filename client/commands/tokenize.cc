// sru_client tokenize and detokenize: the tokens of texts, and the texts of token ids.
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

namespace sru::client {
namespace {

constexpr char kTokenizeHelp[] =
    R"(sru_client tokenize prints the tokens that a model makes of each text, with their ids and the bytes of
the text that they stand for.

usage: sru_client tokenize [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped.

examples:
  sru_client tokenize --model=trec "How many moons does Jupiter have ?"
  sru_client tokenize --model=trec --json < questions.txt
)";

constexpr char kDetokenizeHelp[] =
    R"(sru_client detokenize prints the text of token ids.

usage: sru_client detokenize [--flag=value ...] ["ID ID ..." ...]

Without ids, reads standard input, the ids of one text per line, with spaces between them.

examples:
  sru_client detokenize --model=trec "12 7 306"
)";

// The flags of both commands, which have neither a priority nor times.
struct TokenFlags {
  std::string model;
  int64_t version = 0;
  int batch = 32;

  void AddTo(Flags* flags) {
    flags->Add("model", &model, "name of the model; may be left out when the server has one");
    flags->Add("version", &version, {0}, "version of the model; 0 = the latest");
    flags->Add("batch", &batch, {1}, "texts per call");
  }
  template <typename Request>
  Request Begin() const {
    Request request;
    request.set_model(model);
    request.set_version(version);
    return request;
  }
};

int Tokenize(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  TokenFlags own;
  v1::Unknown unknown{};
  Flags flags;
  own.AddTo(&flags);
  AddUnknownFlag(&unknown, &flags);
  const Start start = Begin(command, args, &flags, &common);
  if (start.client == nullptr) return start.exit_code;
  Printer printer(command, common.json,
                  {{"ID", true}, {"TOKEN"}, {"BEGIN", true}, {"END", true}, {"TEXT"}});
  LineInput input(start.arguments, /*files=*/false, LineInput::Lines::kSkipBlank);
  TextRunner<v1::TokenizeResponse, v1::Tokenization> runner(
      command, common, own.batch, &input, &printer, &v1::TokenizeResponse::tokenizations,
      [&](const auto& items) {
        auto request = own.Begin<v1::TokenizeRequest>();
        request.set_unknown(unknown);
        for (const LineInput::Item& item : items) request.add_sequences()->set_text(item.text);
        return start.client->Tokenize(request);
      },
      [&](const LineInput::Item& item, const v1::TokenizeResponse& /*response*/,
          const v1::Tokenization& result, absl::Duration /*latency*/) {
        if (printer.json()) {
          Json json = {{"line", item.line}, {"text", item.text}};
          json.update(MessageJson(result));
          printer.Object(json);
          return absl::OkStatus();
        }
        std::string text = OneLine(item.text, kTextColumn);
        for (const v1::Token& token : result.tokens()) {
          printer.Row({absl::StrCat(token.id()), OneLine(token.text(), kTextColumn),
                       absl::StrCat(token.start_byte()), absl::StrCat(token.end_byte()),
                       std::exchange(text, "")});
        }
        return absl::OkStatus();
      });
  const int exit_code = runner.Run(/*in_flight=*/1);
  printer.WarnOfUnknownWords();
  return exit_code;
}

int Detokenize(const Command& command, const std::vector<std::string>& args) {
  CommonFlags common;
  TokenFlags own;
  Flags flags;
  own.AddTo(&flags);
  const Start start = Begin(command, args, &flags, &common);
  if (start.client == nullptr) return start.exit_code;
  Printer printer(command, common.json);
  LineInput input(start.arguments, /*files=*/false, LineInput::Lines::kSkipBlank);
  TextRunner<v1::DetokenizeResponse, std::string> runner(
      command, common, own.batch, &input, &printer, &v1::DetokenizeResponse::texts,
      [&](const auto& items) -> absl::StatusOr<v1::DetokenizeResponse> {
        auto request = own.Begin<v1::DetokenizeRequest>();
        for (const LineInput::Item& item : items) {
          v1::TokenIds* const ids = request.add_sequences();
          for (const absl::string_view word :
               absl::StrSplit(item.text, absl::ByAnyChar(" \t,"), absl::SkipEmpty())) {
            int32_t id = 0;
            if (!absl::SimpleAtoi(word, &id)) {
              return absl::InvalidArgumentError(absl::StrCat(
                  "expected token ids with spaces between them, found ", Quoted(word)));
            }
            ids->add_values(id);
          }
        }
        return start.client->Detokenize(request);
      },
      [&](const LineInput::Item& item, const v1::DetokenizeResponse& /*response*/,
          const std::string& text, absl::Duration /*latency*/) {
        if (printer.json()) {
          printer.Object({{"line", item.line}, {"text", text}});
        } else {
          std::cout << text << "\n";
        }
        return absl::OkStatus();
      });
  return runner.Run(/*in_flight=*/1);
}

}  // namespace

constexpr Command kTokenize = {"tokenize", "the tokens of texts, with their ids", kTokenizeHelp,
                               Tokenize};

constexpr Command kDetokenize = {"detokenize", "the texts of token ids", kDetokenizeHelp,
                                 Detokenize};

}  // namespace sru::client
