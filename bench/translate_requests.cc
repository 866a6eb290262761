#include "bench/translate_requests.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace sru::bench {
namespace {

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

}  // namespace

void TranslateRequestOptions::AddFlags(client::FlagSet* flags) {
  flags->Add("sequences", &sequences, "sequences in each call");
  flags->Add("input", &input,
             "file with one text per line; without it and --lengths, sentences that are built in");
  flags->Add("lengths", &lengths,
             absl::StrCat("random token ids of these lengths instead: ", kLengthsHelp));
  flags->Add("distinct", &distinct, "with --lengths: different calls, before they repeat");
  flags->Add("output", &output,
             "most tokens of the translations of a call, drawn likewise; empty = the model's own");
  flags->Add("beam_size", &beam_size, "hypotheses of each search; 0 = the model's own, 1 = greedy");
  flags->Add("num_hypotheses", &num_hypotheses, "translations of each sequence; 0 = 1");
  flags->Add("alignment", &alignment, "have the alignments sent, too");
  CallOptions::AddFlags("ids, the lengths and the arrivals", flags);
}

absl::StatusOr<std::vector<v1::TranslateRequest>> MakeTranslateRequests(
    const TranslateRequestOptions& options, const v1::ModelInfo& info) {
  SRU_RETURN_UNLESS_OK(CheckRange("distinct", options.distinct, 1, kMaxDistinct));
  if (!options.lengths.empty() && info.vocabulary_size() < 1) {
    return InvalidArgument("--model: '", info.name(), "' takes no tokens; expected a translator");
  }
  SRU_ASSIGN_OR_RETURN(auto sequences, MakeSequences(options, options.distinct, info, kSentences));
  SRU_ASSIGN_OR_RETURN(auto requests, MakeCalls<v1::TranslateRequest>(
                                          options, info.name(), sequences, options.sequences));
  std::vector<int> outputs(requests.size(), 0);
  if (!options.output.empty()) {
    SRU_ASSIGN_OR_RETURN(outputs, DrawLengths(options.output, static_cast<int>(outputs.size()),
                                              options.seed + 2, "output"));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    v1::TranslateRequest& request = requests[i];
    request.set_beam_size(options.beam_size);
    request.set_num_hypotheses(options.num_hypotheses);
    request.set_max_new_tokens(outputs[i]);
    request.set_return_alignment(options.alignment);
  }
  return requests;
}

}  // namespace sru::bench
