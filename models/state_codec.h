// StateCodec: the state of a sequence as opaque bytes, for a caller to keep.
//
// A header binds the bytes to the model's name, version, weights and data type, so that a state is
// never taken for that of another model; a digest finds what was cut or changed. Little-endian:
//
//   offset  size
//        0     8  "SRUstate"
//        8     4  format of these bytes: 1
//       12     4  data type (kernels/data_type.h)
//       16     8  version of the model
//       24    16  digest of the model's name
//       40    16  digest of the model's weights
//       56    16  digest of these bytes without this field
//       72     4  rows of each field, int32, then all values of the fields, float32
//
// (the first 16 bytes of a SHA-256 each)
#ifndef SRU_MODELS_STATE_CODEC_H_
#define SRU_MODELS_STATE_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/data_type.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"

namespace sru::models {

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
  // `fields` as in the model's program.
  StateCodec(const StateOwner& owner, std::vector<kernels::FieldSpec> fields);

  // Bytes of a state whose growing fields are empty.
  size_t bytes() const { return bytes_; }

  std::string Encode(const kernels::StateArena::State& state) const;

  // kInvalidArgument says how `bytes` are not a state of this model: cut, changed, of another model,
  // version, weights or data type, with a value that is not a number. Never reads past their end.
  absl::Status Decode(std::string_view bytes, kernels::StateArena::State* state) const;

 private:
  // The header up to its own digest.
  std::string Header() const;

  const StateOwner owner_;
  const std::vector<kernels::FieldSpec> fields_;
  std::string name_digest_;
  size_t bytes_ = 0;
};

}  // namespace sru::models

#endif  // SRU_MODELS_STATE_CODEC_H_
