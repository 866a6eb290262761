// sru_client encode: vectors for texts.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/client.h"
#include "client/command_line.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"

namespace sru::client {
namespace {

constexpr char kEncodeHelp[] =
    R"(sru_client encode prints a vector for each text, or one per token with --pooling=none.

usage: sru_client encode [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped. The table shows the
first values of each vector; --json prints all, --raw writes them as bytes.

examples:
  sru_client encode "How many moons does Jupiter have ?"
  sru_client encode --normalize --json < texts.txt > vectors.jsonl
  sru_client encode --skip_empty --json < lines.txt   (an object for each line, blank or not)
  sru_client encode --pooling=none "one vector per token"
  sru_client encode --raw < texts.txt > vectors.f32   (numpy.fromfile("vectors.f32", "<f4"))
)";

constexpr size_t kVectorTextWidth = 30;
constexpr size_t kShownValues = 4;

struct EncodeFlags {
  CommonFlags common;
  InputFlags input;
  v1::Pooling pooling = v1::POOLING_DEFAULT;
  v1::OutputFormat format = v1::OUTPUT_FORMAT_RAW_FLOAT32;
  bool normalize = false;
  bool raw = false;
};

// Checks the flags against each other. kInvalidArgument names the one that is wrong.
absl::Status Check(const EncodeFlags& flags) {
  if (flags.raw && flags.common.json) {
    return absl::InvalidArgumentError("--raw and --json exclude each other");
  }
  if (flags.raw && flags.input.skip_empty) {
    return absl::InvalidArgumentError(
        "--raw and --skip_empty exclude each other: a text without tokens has no bytes, so that "
        "nobody could tell which one has none");
  }
  if (flags.raw && isatty(STDOUT_FILENO) != 0) {
    return absl::InvalidArgumentError(
        "--raw writes bytes, which a terminal cannot show: send them to a file with > FILE");
  }
  return absl::OkStatus();
}

// The length and the first values are those of the first vector.
std::vector<std::string> Cells(const LineInput::Item& item, const v1::Encoding& result,
                               const std::vector<float>& values) {
  const size_t width = result.shape().empty() ? 0 : *result.shape().rbegin();
  double squares = 0;
  std::vector<std::string> first;
  for (size_t k = 0; k < std::min(width, values.size()); ++k) {
    squares += static_cast<double>(values[k]) * values[k];
    if (k < kShownValues) first.push_back(absl::StrFormat("%7.4f", values[k]));
  }
  return {absl::StrCat("[", absl::StrJoin(result.shape(), ", "), "]"), Fixed(std::sqrt(squares), 4),
          TokenCell(result.token_count(), result.truncated(), result.unknown_tokens()),
          absl::StrCat(absl::StrJoin(first, " "), width > kShownValues ? " ..." : ""),
          OneLine(item.text, kVectorTextWidth)};
}

using EncodeRunner = TextRunner<v1::EncodeResponse, v1::Encoding>;

absl::Status Print(const EncodeFlags& flags, const EncodeRunner::Text& text, Printer* printer) {
  if (flags.raw) {
    std::cout << text.result.data();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> values = EncodingValues(text.result, flags.format);
  if (!values.ok()) {
    return absl::InternalError(
        absl::StrCat("the answer is not consistent: ", values.status().message()));
  }
  if (flags.common.json) {
    Json json = text.ToJson();
    json["values"] = Json::array();
    for (const float value : *values) json["values"].push_back(Exact(value));
    printer->Object(json);
  } else {
    printer->Row(Cells(text.item, text.result, *values));
  }
  return absl::OkStatus();
}

int Encode(const Command& command, const std::vector<std::string>& args) {
  EncodeFlags options;
  Flags flags;
  options.input.AddTo(&flags);
  flags.AddChoice("pooling", &options.pooling, NamedValues<v1::Pooling>(),
                  "default (the model's own), none (token vectors) or another name, such as max");
  flags.Add("normalize", &options.normalize, "scale each vector to length 1");
  flags.AddChoice("output_format", &options.format, NamedValues<v1::OutputFormat>(),
                  "values on the wire: float32, float16 or bfloat16");
  flags.Add("raw", &options.raw, "write nothing but the values, little-endian, in --output_format");
  const Start start = Begin(command, args, &flags, &options.common,
                            [&](const auto& /*texts*/) { return Check(options); });
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, options.common.json || options.raw,
                  {{"SHAPE"}, {"LENGTH", true}, {"TOKENS", true}, {"FIRST VALUES"}, {"TEXT"}});
  EncodeRunner runner(
      command, options.common, options.input, start.arguments, &printer,
      &v1::EncodeResponse::encodings,
      [&](const auto& items) {
        auto request = options.input.RequestFor<v1::EncodeRequest>(items);
        request.set_truncate(options.input.truncate);
        request.set_pooling(options.pooling);
        request.set_normalize(options.normalize);
        request.set_output_format(options.format);
        return start.client->Encode(request);
      },
      [&](const EncodeRunner::Text& text) { return Print(options, text, &printer); });
  return runner.Run(/*in_flight=*/1);
}

}  // namespace

constexpr Command kEncode = {"encode", "vectors for texts", kEncodeHelp, Encode};

}  // namespace sru::client
