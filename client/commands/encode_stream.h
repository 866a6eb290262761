// One sequence that is encoded in chunks as it comes: `sru_client encode --stream`.
#ifndef SRU_CLIENT_COMMANDS_ENCODE_STREAM_H_
#define SRU_CLIENT_COMMANDS_ENCODE_STREAM_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/commands/line_input.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

struct EncodeStreamOptions {
  v1::EncodeStreamStart start;  // its model is one that FindModel() has found
  bool tokens = false;          // words are split by spaces already
  bool return_state = false;
  // Float32 values of standard input instead of texts, this many per frame; 0 = texts.
  int feature_size = 0;
  int chunk_frames = 100;
};

// Sends each text, or each `chunk_frames` frames of standard input, as a chunk, and hands the answer
// to `print`, with what the chunk was and the time that it took, before it reads the next one.
// `state` becomes the state at the end if it is asked for. kInvalidArgument if standard input ends
// in the middle of a frame; what was whole until there has been sent.
absl::Status RunEncodeStream(
    Client& client, const EncodeStreamOptions& options, LineInput* input,
    const std::function<absl::Status(const LineInput::Item& item, const v1::Encoding& encoding,
                                     absl::Duration latency)>& print,
    std::string* state);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_ENCODE_STREAM_H_
