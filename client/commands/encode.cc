// sru_client encode: vectors for texts.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/commands.h"
#include "client/commands/common_flags.h"
#include "client/commands/encode_stream.h"
#include "client/commands/json_output.h"
#include "client/commands/line_input.h"
#include "client/commands/ordered_batches.h"
#include "client/commands/state_file.h"
#include "client/commands/text_input.h"
#include "client/commands/unknown_words.h"
#include "client/find_model.h"
#include "client/names.h"
#include "client/text_table.h"

namespace sru::client {
namespace {

constexpr char kEncodeHelp[] =
    R"(sru_client encode prints a vector for each text, or one per token with --pooling=none.

usage: sru_client encode [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped. The table shows the
first values of each vector; --json prints all, --raw writes them as bytes.

With --stream the texts are chunks of one sequence, whose token vectors come chunk by chunk, as soon
as each line is there: a unidirectional model needs nothing of what follows. Together they have the
bits of the whole. --features reads float32 frames from standard input instead of text. --state_out
keeps what the model remembers at the end, and --state_in goes on from there.

examples:
  sru_client encode "How many moons does Jupiter have ?"
  sru_client encode --normalize --json < texts.txt > vectors.jsonl
  sru_client encode --skip_empty --json < lines.txt   (an object for each line, blank or not)
  sru_client encode --pooling=none "one vector per token"
  sru_client encode --raw < texts.txt > vectors.f32   (numpy.fromfile("vectors.f32", "<f4"))
  tail -f words.txt | sru_client encode --stream
  record | sru_client encode --features --chunk_frames=10 --raw > vectors.f32
)";

constexpr size_t kVectorTextWidth = 30;
constexpr size_t kShownValues = 4;

struct EncodeFlags {
  CommonFlags common;
  InputFlags input;
  std::string pooling_name = "default";
  v1::Pooling pooling = v1::POOLING_DEFAULT;
  std::string format_name = "float32";
  v1::OutputFormat format = v1::OUTPUT_FORMAT_RAW_FLOAT32;
  bool normalize = false;
  bool raw = false;
  bool stream = false;
  bool features = false;
  int chunk_frames = 100;
  std::string state_in;
  std::string state_out;
};

// The same, for the flags of --stream, which some of them imply.
absl::Status CheckStream(size_t num_arguments, EncodeFlags* flags) {
  flags->stream =
      flags->stream || flags->features || !flags->state_in.empty() || !flags->state_out.empty();
  if (!flags->stream) return absl::OkStatus();
  if (flags->pooling != v1::POOLING_DEFAULT && flags->pooling != v1::POOLING_NONE) {
    return InvalidArgument("--stream gives token vectors; expected --pooling=none, found ",
                           flags->pooling_name);
  }
  if (flags->input.truncate) {
    return absl::InvalidArgumentError("--stream and --truncate exclude each other");
  }
  if (flags->input.skip_empty) {
    return absl::InvalidArgumentError("--stream and --skip_empty exclude each other");
  }
  SRU_RETURN_UNLESS_OK(CheckAtLeast("chunk_frames", flags->chunk_frames, 1));
  if (flags->features && num_arguments > 0) {
    return absl::InvalidArgumentError("--features reads standard input; it takes no TEXT");
  }
  return absl::OkStatus();
}

// Parses the names. kInvalidArgument names the flag that is wrong.
absl::Status Check(EncodeFlags* flags) {
  absl::Status status = flags->input.Check();
  status.Update(ParsePooling(flags->pooling_name, &flags->pooling));
  status.Update(ParseOutputFormat(flags->format_name, &flags->format));
  if (!status.ok()) return status;
  if (flags->raw && flags->common.json) {
    return absl::InvalidArgumentError("--raw and --json exclude each other");
  }
  if (flags->raw && flags->input.skip_empty) {
    return absl::InvalidArgumentError(
        "--raw and --skip_empty exclude each other: a text without tokens has no bytes, so that "
        "nobody could tell which one has none");
  }
  if (flags->raw && isatty(STDOUT_FILENO) != 0) {
    return absl::InvalidArgumentError(
        "--raw writes bytes, which a terminal cannot show: send them to a file with > FILE");
  }
  return absl::OkStatus();
}

v1::EncodeRequest MakeRequest(const EncodeFlags& flags, const std::vector<LineInput::Item>& items) {
  auto request = flags.input.RequestFor<v1::EncodeRequest>(items);
  request.set_truncate(flags.input.truncate);
  request.set_pooling(flags.pooling);
  request.set_normalize(flags.normalize);
  request.set_output_format(flags.format);
  return request;
}

// The length and the first values are those of the first vector.
void AddRow(const LineInput::Item& item, const v1::Encoding& result,
            const std::vector<float>& values, TextTable* table) {
  const size_t width = result.shape().empty() ? 0 : *result.shape().rbegin();
  double squares = 0;
  std::vector<std::string> first;
  for (size_t k = 0; k < std::min(width, values.size()); ++k) {
    squares += static_cast<double>(values[k]) * values[k];
    if (k < kShownValues) first.push_back(absl::StrFormat("%7.4f", values[k]));
  }
  table->AddRow({absl::StrCat("[", absl::StrJoin(result.shape(), ", "), "]"),
                 absl::StrFormat("%.4f", std::sqrt(squares)),
                 TokenCell(result.token_count(), result.truncated(), result.unknown_tokens()),
                 absl::StrCat(absl::StrJoin(first, " "), width > kShownValues ? " ..." : ""),
                 OneLine(item.text, kVectorTextWidth)});
}

absl::Status Print(const EncodeFlags& flags, const LineInput::Item& item,
                   const v1::EncodeResponse& response, const v1::Encoding& result,
                   absl::Duration latency, TextTable* table, UnknownWords* words) {
  words->Add(result.token_count(), result.unknown_tokens());
  if (flags.raw) {
    std::cout.write(result.data().data(), static_cast<std::streamsize>(result.data().size()));
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<float>> values = EncodingValues(result, flags.format);
  if (!values.ok()) {
    return absl::InternalError(
        absl::StrCat("the answer is not consistent: ", values.status().message()));
  }
  if (flags.common.json) {
    Json json = ResultJson(item.line, item.text, response, result, latency);
    json["values"] = Json::array();
    for (const float value : *values) json["values"].push_back(Exact(value));
    std::cout << Dump(json) << "\n";
  } else {
    AddRow(item, result, *values, table);
  }
  return absl::OkStatus();
}

void Flush(const EncodeFlags& flags, TextTable* table) {
  if (flags.common.json || flags.raw) {
    std::cout.flush();
  } else {
    table->Flush();
  }
}

int EncodeInChunks(const Command& command, const EncodeFlags& flags, Client& client,
                   std::vector<std::string> texts, std::string state, TextTable* table,
                   UnknownWords* words) {
  absl::StatusOr<v1::ModelInfo> model = FindModel(
      client, flags.input.target.model, flags.input.target.version, {"classifier", "encoder"});
  if (!model.ok()) return CallError(command, flags.common, model.status());
  EncodeStreamOptions options;
  options.start.set_model(model->name());
  options.start.set_version(model->version());
  options.start.set_output_format(flags.format);
  options.start.set_normalize(flags.normalize);
  options.start.set_priority(flags.input.target.priority);
  options.start.set_state(std::move(state));
  options.tokens = flags.input.tokens;
  options.return_state = !flags.state_out.empty();
  if (flags.features) options.feature_size = model->input_size();
  options.chunk_frames = flags.chunk_frames;
  LineInput input(std::move(texts), /*files=*/false, flags.input.lines());
  std::string last;
  absl::Status status = RunEncodeStream(
      client, options, &input,
      [&](const LineInput::Item& item, const v1::Encoding& encoding, absl::Duration latency) {
        v1::EncodeResponse response;
        response.set_model(model->name());
        response.set_version(model->version());
        absl::Status printed = Print(flags, item, response, encoding, latency, table, words);
        Flush(flags, table);
        return printed;
      },
      &last);
  // Also that of a server that ends: the rest of the input can go on from it.
  if (!flags.state_out.empty() && !last.empty()) {
    status.Update(WriteState(flags.state_out, last));
  }
  if (!status.ok()) return CallError(command, flags.common, status);
  return kExitOk;
}

int Encode(const Command& command, const std::vector<std::string>& args) {
  EncodeFlags options;
  FlagSet flags;
  options.input.AddTo(&flags);
  options.input.AddSkipEmpty(&flags);
  flags.Add("pooling", &options.pooling_name,
            "default (the model's own), none (token vectors) or another name, such as max");
  flags.Add("normalize", &options.normalize, "scale each vector to length 1");
  flags.Add("output_format", &options.format_name,
            "values on the wire: float32, float16 or bfloat16");
  flags.Add("raw", &options.raw, "write nothing but the values, little-endian, in --output_format");
  flags.Add("stream", &options.stream,
            "the texts are chunks of one sequence, encoded as they come");
  flags.Add("features", &options.features,
            "the chunks are float32 frames of standard input, little-endian; implies --stream");
  flags.Add("chunk_frames", &options.chunk_frames, "frames per chunk of --features");
  flags.Add("state_in", &options.state_in, "FILE: go on from this state; implies --stream");
  flags.Add("state_out", &options.state_out, "FILE: write the state at the end; implies --stream");
  options.common.AddTo(&flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs(command, args, &flags, &texts)) return *code;
  absl::Status status = Check(&options);
  if (status.ok()) status = CheckStream(texts.size(), &options);
  if (!status.ok()) return UsageError(command, status.message());
  absl::StatusOr<std::string> state = ReadState(options.state_in);
  if (!state.ok()) return UsageError(command, state.status().message());
  int exit_code = kExitOk;
  const auto client = MakeClient(command, options.common, &exit_code);
  if (client == nullptr) return exit_code;

  TextTable table({{"SHAPE"}, {"LENGTH", true}, {"TOKENS", true}, {"FIRST VALUES"}, {"TEXT"}},
                  &std::cout);
  UnknownWords words;
  if (options.stream) {
    exit_code = EncodeInChunks(command, options, *client, std::move(texts), *std::move(state),
                               &table, &words);
    words.Warn(command);
    return exit_code;
  }
  LineInput input(std::move(texts), /*files=*/false, options.input.lines());
  TextRunner<v1::EncodeResponse, v1::Encoding> runner(
      command, options.common, options.input.batch, &input, &v1::EncodeResponse::encodings,
      [&](const auto& items) { return client->Encode(MakeRequest(options, items)); },
      [&](const LineInput::Item& item, const v1::EncodeResponse& response,
          const v1::Encoding& result, absl::Duration latency) {
        return Print(options, item, response, result, latency, &table, &words);
      },
      [&] { Flush(options, &table); });
  exit_code = runner.Run(/*in_flight=*/1);
  words.Warn(command);
  return exit_code;
}

}  // namespace

constexpr Command kEncode = {"encode", "vectors for texts", kEncodeHelp, Encode};

}  // namespace sru::client
