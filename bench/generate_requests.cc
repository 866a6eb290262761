#include "bench/generate_requests.h"

#include <algorithm>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/names.h"

namespace sru::bench {

void GenerateRequestOptions::AddFlags(Flags* flags) {
  flags->Add("prompt", &prompt,
             absl::StrCat("lengths of the prompts, in random tokens: ", kLengthsHelp));
  flags->Add("output", &output, "lengths of the texts in tokens, likewise");
  flags->Add("shared_prefix", &shared_prefix, {0}, "tokens that all prompts begin with");
  flags->Add("distinct", &distinct, {1, kMaxDistinct},
             "how many different texts there are, before they repeat");
  flags->Add("temperature", &temperature, "0 = the most probable token each time");
  flags->Add("top_k", &top_k, "pick among the most probable tokens, this many; 0 = all");
  flags->Add("top_p", &top_p, "pick among the fewest with this probability together; 0 = all");
  CallOptions::AddFlags("prompts, the lengths, the texts and the arrivals", flags);
}

absl::StatusOr<std::vector<v1::GenerateRequest>> MakeGenerateRequests(
    const GenerateRequestOptions& options, const v1::ModelInfo& info) {
  SRU_ASSIGN_OR_RETURN(auto prompts,
                       DrawLengths(options.prompt, options.distinct, options.seed, "prompt"));
  SRU_ASSIGN_OR_RETURN(auto outputs,
                       DrawLengths(options.output, options.distinct, options.seed + 1, "output"));
  if (info.vocabulary_size() < 1) {
    return InvalidArgument("--model: '", info.name(),
                           "' takes no tokens; expected a language model");
  }
  std::mt19937_64 random(options.seed + 2);
  const auto draw_id = [&] { return static_cast<int32_t>(random() % info.vocabulary_size()); };
  std::vector<int32_t> prefix(static_cast<size_t>(options.shared_prefix));
  std::generate(prefix.begin(), prefix.end(), draw_id);

  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < options.distinct; ++i) {
    v1::GenerateRequest& request = requests.emplace_back();
    request.set_model(info.name());
    request.set_version(options.version);
    request.set_priority(options.priority);
    auto* ids = request.mutable_prompt()->mutable_token_ids()->mutable_values();
    for (int k = 0; k < prompts[i]; ++k) {
      ids->Add(k < options.shared_prefix ? prefix[k] : draw_id());
    }
    request.set_max_new_tokens(outputs[i]);
    request.mutable_sampling()->set_temperature(options.temperature);
    request.mutable_sampling()->set_top_k(options.top_k);
    request.mutable_sampling()->set_top_p(options.top_p);
    request.mutable_sampling()->set_seed(options.seed + static_cast<uint64_t>(i));
  }
  return requests;
}

}  // namespace sru::bench
