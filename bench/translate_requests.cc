#include "bench/translate_requests.h"

#include <algorithm>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bench/requests.h"
#include "client/client.h"
#include "client/names.h"

namespace sru::bench {
namespace {

constexpr int kMaxDistinct = 100000;
constexpr int kMaxSequences = 100000;

// Of 4 to 24 words each.
constexpr absl::string_view kSentences[] = {
    "A dog runs along the beach.",
    "Two children are building a castle of sand near the water.",
    "An old man with a gray hat is reading a newspaper on a bench in the park.",
    "The woman is holding a red umbrella.",
    "Three men in orange vests repair a street while cars are waiting behind them.",
    "A girl plays the piano.",
    "People are standing in a long line in front of a small shop that sells bread and cakes.",
    "A boy in a blue shirt jumps over a puddle.",
    "Someone is climbing a steep wall of ice with two axes, above a valley that is white.",
    "A cat sleeps on a chair.",
    "Several musicians are playing guitars and drums on a stage at night.",
    "A cyclist with a yellow helmet waits at a crossing.",
};

absl::StatusOr<std::vector<v1::Sequence>> DrawSequences(const TranslateRequestOptions& options,
                                                        const v1::ModelInfo& info) {
  if (options.distinct < 1 || options.distinct > kMaxDistinct) {
    return absl::InvalidArgumentError(
        absl::StrCat("--distinct: expected 1 to ", kMaxDistinct, ", found ", options.distinct));
  }
  if (info.vocabulary_size() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model: '", info.name(), "' takes no tokens; expected a translator"));
  }
  auto lengths = DrawLengths(options.lengths, options.distinct * std::min(options.sequences, 64),
                             options.seed);
  if (!lengths.ok()) return lengths.status();
  std::mt19937_64 random(options.seed + 1);
  std::vector<v1::Sequence> sequences;
  for (const int length : *lengths) {
    auto* ids = sequences.emplace_back().mutable_token_ids()->mutable_values();
    for (int i = 0; i < length; ++i) {
      ids->Add(static_cast<int32_t>(random() % static_cast<uint64_t>(info.vocabulary_size())));
    }
  }
  return sequences;
}

}  // namespace

void TranslateRequestOptions::AddFlags(client::FlagSet* flags) {
  flags->Add("sequences", &sequences, "sequences in each call");
  flags->Add("input", &input,
             "file with one text per line; without it and --lengths, sentences that are built in");
  flags->Add("lengths", &lengths,
             "random token ids of these lengths instead: fixed:N, uniform:MIN:MAX, "
             "exponential:MEAN:MAX, geometric:MEAN:MAX or lognormal:MEDIAN:SIGMA:MAX");
  flags->Add("distinct", &distinct, "with --lengths: different calls, before they repeat");
  flags->Add("output", &output,
             "most tokens of the translations of a call, drawn likewise; empty = the model's own");
  flags->Add("beam_size", &beam_size, "hypotheses of each search; 0 = the model's own, 1 = greedy");
  flags->Add("num_hypotheses", &num_hypotheses, "translations of each sequence; 0 = 1");
  flags->Add("alignment", &alignment, "have the alignments sent, too");
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  flags->Add("priority", &priority, "low, normal or high");
  flags->Add("seed", &seed, "seed of the ids, the lengths and the arrivals");
}

absl::StatusOr<std::vector<v1::TranslateRequest>> MakeTranslateRequests(
    const TranslateRequestOptions& options, const v1::ModelInfo& info) {
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  if (absl::Status status = client::ParsePriority(options.priority, &priority); !status.ok()) {
    return status;
  }
  if (options.sequences < 1 || options.sequences > kMaxSequences) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences: expected 1 to ", kMaxSequences, ", found ", options.sequences));
  }
  if (!options.input.empty() && !options.lengths.empty()) {
    return absl::InvalidArgumentError("--input and --lengths exclude each other");
  }
  std::vector<v1::Sequence> sequences;
  if (!options.input.empty() || !options.lengths.empty()) {
    auto made = options.input.empty() ? DrawSequences(options, info) : ReadTexts(options.input);
    if (!made.ok()) return made.status();
    sequences = *std::move(made);
  } else {
    for (const absl::string_view text : kSentences) sequences.push_back(client::TextSequence(text));
  }

  // Enough calls to use every sequence, and at least one.
  const auto per_call = static_cast<size_t>(options.sequences);
  std::vector<v1::TranslateRequest> requests((sequences.size() + per_call - 1) / per_call);
  std::vector<int> outputs(requests.size(), 0);
  if (!options.output.empty()) {
    auto drawn =
        DrawLengths(options.output, static_cast<int>(requests.size()), options.seed + 2, "output");
    if (!drawn.ok()) return drawn.status();
    outputs = *std::move(drawn);
  }
  size_t next = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    v1::TranslateRequest& request = requests[i];
    request.set_model(info.name());
    request.set_version(options.version);
    request.set_priority(priority);
    request.set_beam_size(options.beam_size);
    request.set_num_hypotheses(options.num_hypotheses);
    request.set_max_new_tokens(outputs[i]);
    request.set_return_alignment(options.alignment);
    for (size_t k = 0; k < per_call; ++k) {
      *request.add_sequences() = sequences[next++ % sequences.size()];
    }
  }
  return requests;
}

}  // namespace sru::bench
