#include "client/commands/encode_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "client/commands/text_input.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

// The chunks in their order: texts, or frames of standard input.
class Chunks {
 public:
  Chunks(const EncodeStreamOptions& options, LineInput* input) : options_(options), input_(input) {}

  // Returns false at the end, and if the input cannot be read or ends in the middle of a frame: see
  // status().
  bool Next(v1::Sequence* chunk, LineInput::Item* item) {
    return options_.feature_size > 0 ? NextFrames(chunk, item) : NextText(chunk, item);
  }

  const absl::Status& status() const { return status_; }

 private:
  bool NextText(v1::Sequence* chunk, LineInput::Item* item) {
    absl::StatusOr<std::vector<LineInput::Item>> items = input_->Next(1);
    status_ = items.status();
    if (!items.ok() || items->empty()) return false;
    *item = std::move((*items)[0]);
    *chunk = MakeSequence(item->text, options_.tokens);
    return true;
  }

  bool NextFrames(v1::Sequence* chunk, LineInput::Item* item) {
    const size_t frame_bytes = static_cast<size_t>(options_.feature_size) * sizeof(float);
    std::string data(frame_bytes * static_cast<size_t>(options_.chunk_frames), '\0');
    std::cin.read(data.data(), static_cast<std::streamsize>(data.size()));
    data.resize(static_cast<size_t>(std::cin.gcount()));
    if (std::ferror(stdin) != 0) {
      status_ = CannotBeRead("standard input", errno);
      return false;
    }
    if (data.size() % frame_bytes != 0) {
      status_ = InvalidArgument("standard input: expected whole frames of ", options_.feature_size,
                                " float32 values, found ", data.size() % frame_bytes,
                                " bytes after the last one");
      data.resize(data.size() / frame_bytes * frame_bytes);
    }
    if (data.empty()) return false;
    const auto frames = static_cast<int64_t>(data.size() / frame_bytes);
    item->line = ++chunk_;
    item->text = absl::StrCat("frames ", frames_ + 1, " to ", frames_ + frames);
    frames_ += frames;
    chunk->mutable_features()->set_feature_size(options_.feature_size);
    chunk->mutable_features()->set_data(std::move(data));
    return true;
  }

  const EncodeStreamOptions& options_;
  LineInput* const input_;
  int64_t chunk_ = 0;
  int64_t frames_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status RunEncodeStream(
    Client& client, const EncodeStreamOptions& options, LineInput* input,
    const std::function<absl::Status(const LineInput::Item& item, const v1::Encoding& encoding,
                                     absl::Duration latency)>& print,
    std::string* state) {
  Chunks chunks(options, input);
  LineInput::Item item;
  bool first = true;
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
          if (!options.return_state || asked_for_state) {
            is_empty = first;
            return false;
          }
          asked_for_state = true;
          request->set_return_state(true);
        }
        if (first) *request->mutable_start() = options.start;
        first = false;
        sent = absl::Now();
        return true;
      },
      [&](const v1::EncodeStreamResponse& response) {
        if (!response.state().empty()) *state = response.state();
        // The last message before an error has a state only.
        if (response.has_encoding()) printed = print(item, response.encoding(), absl::Now() - sent);
        return printed.ok() && std::cout.good();
      },
      call);
  if (!printed.ok()) return printed;
  // Before the server's error: it may come from the input's early end.
  if (!chunks.status().ok()) return chunks.status();
  if (is_empty) {
    return InvalidArgument("empty input, expected ",
                           options.feature_size > 0 ? "frames" : "a text");
  }
  if (!status.ok()) return status;
  if (options.return_state && state->empty()) {
    return absl::InternalError("the answer has no state, which was asked for");
  }
  return absl::OkStatus();
}

}  // namespace sru::client
