#include "server/calls/bounds/rpc_options.h"

namespace sru::server::calls {

void AddFlags(RpcOptions* options, Flags* flags) {
  flags->Add("max_sequence_tokens", &options->limits.max_sequence_tokens, {1, 1 << 22},
             "Most tokens in one sequence, at most --max_batch_tokens. A longer one is "
             "refused, or cut if the call asks for it.");
  flags->Add("max_message_bytes", &options->max_message_bytes, {1024, 1 << 30},
             "Largest request message in bytes; a larger one gets RESOURCE_EXHAUSTED.");
  flags->Add("max_new_tokens", &options->limits.max_new_tokens, {1, 1 << 22},
             "Most tokens that a call may ask for: per sample of Generate, per "
             "translation of Translate.");
  flags->Add("max_streams", &options->max_streams, {1, 1 << 20},
             "Most open calls of Generate, EncodeStream and ModelStreamInfer; further "
             "ones get RESOURCE_EXHAUSTED. From 8 on, one caller may have a quarter.");

  flags->Group(Flags::kRarelyChanged);
  flags->Add("max_sequences_per_request", &options->limits.max_sequences, {1, 1 << 20},
             "Most sequences in one call; for Answer, most passages.");
}

}  // namespace sru::server::calls
