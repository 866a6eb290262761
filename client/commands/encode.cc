// sru_client encode: vectors for texts.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <iostream>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/state_file.h"
#include "client/commands/text_input.h"
#include "client/find_model.h"
#include "client/names.h"
#include "client/read_file.h"
#include "google/protobuf/descriptor.h"

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
  v1::Pooling pooling = v1::POOLING_DEFAULT;
  v1::OutputFormat format = v1::OUTPUT_FORMAT_RAW_FLOAT32;
  bool normalize = false;
  bool raw = false;
  bool stream = false;
  bool features = false;
  int chunk_frames = 100;
  std::string state_in;
  std::string state_out;
};

// Checks the flags of --stream, which some of them imply.
absl::Status CheckStream(size_t num_arguments, EncodeFlags* flags) {
  flags->stream =
      flags->stream || flags->features || !flags->state_in.empty() || !flags->state_out.empty();
  if (!flags->stream) return absl::OkStatus();
  if (flags->pooling != v1::POOLING_DEFAULT && flags->pooling != v1::POOLING_NONE) {
    return InvalidArgument("--stream gives token vectors; expected --pooling=none, found ",
                           NameOf(*v1::Pooling_descriptor()->FindValueByNumber(flags->pooling)));
  }
  if (flags->input.truncate) {
    return absl::InvalidArgumentError("--stream and --truncate exclude each other");
  }
  if (flags->input.skip_empty) {
    return absl::InvalidArgumentError("--stream and --skip_empty exclude each other");
  }
  if (flags->features && num_arguments > 0) {
    return absl::InvalidArgumentError("--features reads standard input; it takes no TEXT");
  }
  return absl::OkStatus();
}

// Checks the flags against each other. kInvalidArgument names the one that is wrong.
absl::Status Check(size_t num_arguments, EncodeFlags* flags) {
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
  return CheckStream(num_arguments, flags);
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

absl::Status Print(const EncodeFlags& flags, const LineInput::Item& item,
                   const v1::EncodeResponse& response, const v1::Encoding& result,
                   absl::Duration latency, Printer* printer) {
  if (flags.raw) {
    std::cout << result.data();
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
    printer->Object(json);
  } else {
    printer->Row(Cells(item, result, *values));
  }
  return absl::OkStatus();
}

// The chunks of --stream in their order: texts, or frames of standard input.
class Chunks {
 public:
  // `feature_size`: values of a frame, 0 for texts.
  Chunks(const EncodeFlags& flags, int feature_size, LineInput* input)
      : flags_(flags), feature_size_(feature_size), input_(input) {}

  // Returns false at the end, and if the input cannot be read or ends in the middle of a frame: see
  // status().
  bool Next(v1::Sequence* chunk, LineInput::Item* item) {
    return feature_size_ > 0 ? NextFrames(chunk, item) : NextText(chunk, item);
  }

  const absl::Status& status() const { return status_; }

 private:
  bool NextText(v1::Sequence* chunk, LineInput::Item* item) {
    absl::StatusOr<std::vector<LineInput::Item>> items = input_->Next(1);
    status_ = items.status();
    if (!items.ok() || items->empty()) return false;
    *item = std::move((*items)[0]);
    chunk->set_text(item->text);
    return true;
  }

  bool NextFrames(v1::Sequence* chunk, LineInput::Item* item) {
    const size_t frame_bytes = static_cast<size_t>(feature_size_) * sizeof(float);
    std::string data(frame_bytes * static_cast<size_t>(flags_.chunk_frames), '\0');
    std::cin.read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(std::cin.gcount()));
    if (std::ferror(stdin) != 0) {
      status_ = CannotBeRead("standard input", errno);
      return false;
    }
    if (data.size() % frame_bytes != 0) {
      status_ = InvalidArgument("standard input: expected whole frames of ", feature_size_,
                                " float32 values, found ", data.size() % frame_bytes,
                                " bytes after the last one");
      data.resize(data.size() / frame_bytes * frame_bytes);
    }
    if (data.empty()) return false;
    const auto frames = static_cast<int64_t>(data.size() / frame_bytes);
    item->line = ++chunk_;
    item->text = absl::StrCat("frames ", frames_ + 1, " to ", frames_ + frames);
    frames_ += frames;
    chunk->mutable_features()->set_feature_size(feature_size_);
    chunk->mutable_features()->set_data(std::move(data));
    return true;
  }

  const EncodeFlags& flags_;
  const int feature_size_;
  LineInput* const input_;
  int64_t chunk_ = 0;
  int64_t frames_ = 0;
  absl::Status status_;
};

// Sends each text, or each --chunk_frames frames of standard input, as a chunk, and prints the
// answer before it reads the next one. Goes on from `state`, which becomes that at the end, if it
// is asked for.
absl::Status EncodeStream(const EncodeFlags& flags, Client& client, LineInput* input,
                          std::string* state, Printer* printer) {
  const TargetFlags& target = flags.input.target;
  const std::string begin = std::exchange(*state, "");
  SRU_ASSIGN_OR_RETURN(const v1::ModelInfo model,
                       FindModel(client, target.model, target.version, {"classifier", "encoder"}));
  v1::EncodeResponse head;
  head.set_model(model.name());
  head.set_version(model.version());
  Chunks chunks(flags, flags.features ? model.input_size() : 0, input);
  LineInput::Item item;
  bool is_first = true;
  bool is_empty = false;  // the input
  bool asked_for_state = false;
  absl::Time sent;
  absl::Status printed;
  CallOptions call;
  call.deadline = absl::InfiniteDuration();  // it lasts as long as the input
  const absl::Status status = client.EncodeStream(
      [&](v1::EncodeStreamRequest* request) {
        const bool has_chunk = !asked_for_state && chunks.Next(request->mutable_chunk(), &item);
        if (!has_chunk) {
          request->clear_chunk();
          if (flags.state_out.empty() || asked_for_state) {
            is_empty = is_first;
            return false;
          }
          asked_for_state = true;
          request->set_return_state(true);
        }
        if (is_first) {
          v1::EncodeStreamStart* const start = request->mutable_start();
          start->set_model(model.name());
          start->set_version(model.version());
          start->set_output_format(flags.format);
          start->set_normalize(flags.normalize);
          start->set_priority(target.priority);
          start->set_unknown(target.unknown);
          start->set_state(begin);
        }
        is_first = false;
        sent = absl::Now();
        return true;
      },
      [&](const v1::EncodeStreamResponse& response) {
        if (!response.state().empty()) *state = response.state();
        // The last message before an error has a state only.
        if (!response.has_encoding()) return std::cout.good();
        printer->Count(response.encoding());
        printed = Print(flags, item, head, response.encoding(), absl::Now() - sent, printer);
        printer->Flush();
        return printed.ok() && std::cout.good();
      },
      call);
  if (!printed.ok()) return printed;
  // Before the server's error: it may come from the input's early end.
  if (!chunks.status().ok()) return chunks.status();
  if (is_empty) {
    return InvalidArgument("empty input, expected ", flags.features ? "frames" : "a text");
  }
  if (!status.ok()) return status;
  if (!flags.state_out.empty() && state->empty()) {
    return absl::InternalError("the answer has no state, which was asked for");
  }
  return absl::OkStatus();
}

int EncodeInChunks(const Command& command, const EncodeFlags& flags, Client& client,
                   LineInput* input, std::string state, Printer* printer) {
  absl::Status status = EncodeStream(flags, client, input, &state, printer);
  // Also that of a server that ends: the rest of the input can go on from it.
  if (!flags.state_out.empty() && !state.empty()) {
    status.Update(WriteState(flags.state_out, state));
  }
  return status.ok() ? kExitOk : CallError(command, flags.common, status);
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
  flags.Add("stream", &options.stream,
            "the texts are chunks of one sequence, encoded as they come");
  flags.Add("features", &options.features,
            "the chunks are float32 frames of standard input, little-endian; implies --stream");
  flags.Add("chunk_frames", &options.chunk_frames, {1}, "frames per chunk of --features");
  flags.Add("state_in", &options.state_in, "FILE: go on from this state; implies --stream");
  flags.Add("state_out", &options.state_out, "FILE: write the state at the end; implies --stream");
  std::string state;
  const Start start = Begin(command, args, &flags, &options.common, [&](const auto& texts) {
    absl::Status status = Check(texts.size(), &options);
    if (status.ok()) status = ReadState(options.state_in, &state);
    return status;
  });
  if (start.client == nullptr) return start.exit_code;

  Printer printer(command, options.common.json || options.raw,
                  {{"SHAPE"}, {"LENGTH", true}, {"TOKENS", true}, {"FIRST VALUES"}, {"TEXT"}});
  LineInput input(start.arguments, /*files=*/false, options.input.lines());
  TextRunner<v1::EncodeResponse, v1::Encoding> runner(
      command, options.common, options.input.batch, &input, &printer,
      &v1::EncodeResponse::encodings,
      [&](const auto& items) {
        auto request = options.input.RequestFor<v1::EncodeRequest>(items);
        request.set_truncate(options.input.truncate);
        request.set_pooling(options.pooling);
        request.set_normalize(options.normalize);
        request.set_output_format(options.format);
        return start.client->Encode(request);
      },
      [&](const LineInput::Item& item, const v1::EncodeResponse& response,
          const v1::Encoding& result, absl::Duration latency) {
        return Print(options, item, response, result, latency, &printer);
      });
  const int exit_code = options.stream ? EncodeInChunks(command, options, *start.client, &input,
                                                        std::move(state), &printer)
                                       : runner.Run(/*in_flight=*/1);
  printer.WarnOfUnknownWords();
  return exit_code;
}

}  // namespace

constexpr Command kEncode = {"encode", "vectors for texts", kEncodeHelp, Encode};

}  // namespace sru::client
