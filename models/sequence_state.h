// SequenceState: everything that a sequence goes on from. StateCodec (state_codec.h) makes bytes of
// it.
#ifndef SRU_MODELS_SEQUENCE_STATE_H_
#define SRU_MODELS_SEQUENCE_STATE_H_

#include "kernels/state_arena.h"
#include "models/decoding/decoding_memo.h"

namespace sru::models {

struct SequenceState {
  kernels::StateArena::State state;  // of the model
  DecodingMemo memo;                 // of the text
};

}  // namespace sru::models

#endif  // SRU_MODELS_SEQUENCE_STATE_H_
