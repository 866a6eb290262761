// The flags that say how `sru_client generate` picks tokens and when a text ends.
#ifndef SRU_CLIENT_COMMANDS_SAMPLING_FLAGS_H_
#define SRU_CLIENT_COMMANDS_SAMPLING_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/flags.h"
#include "client/messages_fwd.h"

namespace sru::client {

struct SamplingFlags {
  float temperature = 0;
  int top_k = 0;
  float top_p = 0;
  float min_p = 0;
  std::string seed;
  float repetition_penalty = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int num_samples = 1;
  int max_new_tokens = 200;
  int min_new_tokens = 0;
  std::vector<std::string> stop;

  void AddTo(Flags* flags);
  // Writes them into `request`. kInvalidArgument names the flag that is wrong.
  absl::Status WriteTo(v1::GenerateRequest* request) const;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_SAMPLING_FLAGS_H_
