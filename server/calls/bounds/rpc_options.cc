#include "server/calls/bounds/rpc_options.h"

namespace sru::server::calls {

void AddFlags(RpcOptions* options, FlagTable* flags) {
  flags->Add("max_sequence_tokens", &options->limits.max_sequence_tokens, {1, 1 << 22},
             "Most tokens in one sequence. A longer one is refused, or cut when the call asks for "
             "it. At most --max_batch_tokens.");
  flags->Add("max_sequences_per_request", &options->limits.max_sequences, {1, 1 << 20},
             "Most sequences in one call.");
  flags->Add("max_message_bytes", &options->max_message_bytes, {1024, 1 << 30},
             "Largest request message in bytes; larger ones get RESOURCE_EXHAUSTED.");
  flags->Add("max_new_tokens", &options->limits.max_new_tokens, {1, 1 << 22},
             "Most tokens that one call of Generate may ask for, of each sample.");
  flags->Add("max_streams", &options->max_streams, {1, 1 << 20},
             "Most calls of Generate, EncodeStream and ModelStreamInfer that are open at a time; "
             "further ones get RESOURCE_EXHAUSTED. From 8 on, one caller may have a quarter.");
}

}  // namespace sru::server::calls
