// StateCodec: the state of a sequence as opaque bytes, for a caller to keep.
//
// A header binds the bytes to the model's name, version, weights and data type, so that a state is
// never taken for that of another model; a digest finds what was cut or changed. A plain digest
// anybody can compute: with it, a state is what a caller says, as its other inputs are. With keys
// it is HMAC-SHA256, and a state is one that a server with one of them made. Beside the model's
// state they hold what the text needs to go on (models/decoding/decoding_memo.h). Little-endian:
//
//   offset  size
//        0     8  "SRUstate"
//        8     4  format of these bytes: 2
//       12     4  data type (kernels/data_type.h)
//       16     8  version of the model
//       24    16  digest of the model's name
//       40    16  digest of the model's weights
//       56    16  digest of these bytes without this field
//       72     8  tokens of the sequence so far
//       80     4  1 if the next token begins a text (Detokenizer::Position), else 0
//       84     4  n: number of generated tokens that are counted
//       88     4  p: number of tokens of prompts
//       92     4  b: bytes of pending text
//       96     4  rows of each field, int32, then all values of the fields, float32; then n pairs
//                 of a token id and its count, p token ids, both by ascending id, int32 each; then
//                 b bytes
//
// (the digests are the first 16 bytes of a SHA-256 each)
#ifndef SRU_MODELS_STATE_CODEC_H_
#define SRU_MODELS_STATE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/data_type.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "models/decoding/decoding_memo.h"
#include "models/state_keys.h"

namespace sru::models {

// Everything that a sequence goes on from.
struct SequenceState {
  kernels::StateArena::State state;  // of the model
  DecodingMemo memo;                 // of the text
};

// Whose states they are.
struct StateOwner {
  std::string model;
  int64_t version = 0;
  std::string weights_digest;  // of model.safetensors, as from digest.h
  kernels::DataType dtype = kernels::DataType::kFloat32;
};

// Immutable and thread-safe.
class StateCodec {
 public:
  // `fields` as in the model's program; the tokens of a memo are in [0, vocabulary_size). Null
  // keys: the digest is plain.
  StateCodec(const StateOwner& owner, std::vector<kernels::FieldSpec> fields, int vocabulary_size,
             std::shared_ptr<const StateKeys> keys = nullptr);

  // Bytes of a state whose growing fields and memo are empty.
  size_t bytes() const { return bytes_; }
  // What `memo` adds to them.
  static size_t MemoBytes(const DecodingMemo& memo);

  std::string Encode(const kernels::StateArena::State& state, const DecodingMemo& memo) const;

  // kInvalidArgument says how `bytes` are not a state of this model: cut, changed, of another
  // model, version, weights or data type, signed by none of the keys, with a value that is not a
  // number, or with a memo that no text has. Never reads past their end, and takes no more memory
  // than they do.
  absl::Status Decode(std::string_view bytes, SequenceState* state) const;

 private:
  // The header up to its own digest.
  std::string Header() const;
  absl::Status CheckOwner(std::string_view bytes) const;
  bool HasDigest(std::string_view bytes) const;
  absl::Status DecodeFields(std::string_view bytes, kernels::StateArena::State* state) const;
  absl::Status DecodeMemo(std::string_view bytes, DecodingMemo* memo) const;

  const StateOwner owner_;
  const std::vector<kernels::FieldSpec> fields_;
  const int vocabulary_size_;
  const std::shared_ptr<const StateKeys> keys_;  // null: none
  std::string name_digest_;
  size_t bytes_ = 0;
};

}  // namespace sru::models

#endif  // SRU_MODELS_STATE_CODEC_H_
