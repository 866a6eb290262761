#include "client/commands/sampling_flags.h"

#include <cstdint>

#include "absl/strings/numbers.h"
#include "base/limits.h"
#include "base/status.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {
namespace {

// The limits of inference.proto.
constexpr float kMaxTemperature = 100;
constexpr float kMaxPenalty = 100;

}  // namespace

void SamplingFlags::AddTo(Flags* flags) {
  flags->Add("max_new_tokens", &max_new_tokens, {0},
             "length of the text in tokens; 0 = as many as the server allows");
  flags->Add("min_new_tokens", &min_new_tokens, {0},
             "nothing ends the text before it has this many");
  flags->AddRepeated(
      "stop", &stop,
      "end the text before this string; may be given several times ($'\\n' is a newline)");
  flags->Add("temperature", &temperature, {0, kMaxTemperature},
             "0 = always the most probable token; 1 = as probable as the model finds them; more is "
             "wilder");
  flags->Add("top_k", &top_k, {0}, "pick among the most probable tokens, this many; 0 = all");
  flags->Add("top_p", &top_p, {0, 1},
             "pick among the fewest with this probability together; 0 = all");
  flags->Add("min_p", &min_p, {0, 1},
             "pick among those with at least this part of the largest probability");
  flags->Add("seed", &seed, "fixes the text for good; without one each run gives another text");
  flags->Add("repetition_penalty", &repetition_penalty, {0, kMaxPenalty},
             "makes tokens of the prompt and the text less probable; 1.1 is mild, 0 = off");
  flags->Add("presence_penalty", &presence_penalty, {-kMaxPenalty, kMaxPenalty},
             "the same for tokens of the text");
  flags->Add("frequency_penalty", &frequency_penalty, {-kMaxPenalty, kMaxPenalty},
             "the same, for each time that one came");
  flags->Add("num_samples", &num_samples, {1, kMaxSamples}, "how many texts");
}

absl::Status SamplingFlags::WriteTo(v1::GenerateRequest* request) const {
  if (max_new_tokens > 0 && min_new_tokens > max_new_tokens) {
    return InvalidArgument("--min_new_tokens: expected at most ", max_new_tokens,
                           " (--max_new_tokens), found ", min_new_tokens);
  }
  v1::Sampling* sampling = request->mutable_sampling();
  uint64_t parsed_seed = 0;
  if (!seed.empty()) {
    if (!absl::SimpleAtoi(seed, &parsed_seed)) {
      return InvalidArgument("--seed: expected a whole number from 0 to 2^64 - 1, found '", seed,
                             "'");
    }
    sampling->set_seed(parsed_seed);
  }
  for (const std::string& text : stop) {
    if (text.empty()) return absl::InvalidArgumentError("--stop: expected text, found ''");
    request->add_stop(text);
  }
  sampling->set_temperature(temperature);
  sampling->set_top_k(top_k);
  sampling->set_top_p(top_p);
  sampling->set_min_p(min_p);
  sampling->set_repetition_penalty(repetition_penalty);
  sampling->set_presence_penalty(presence_penalty);
  sampling->set_frequency_penalty(frequency_penalty);
  request->set_max_new_tokens(max_new_tokens);
  request->set_min_new_tokens(min_new_tokens);
  request->set_num_samples(num_samples);
  return absl::OkStatus();
}

}  // namespace sru::client
