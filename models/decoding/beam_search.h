// BeamSearch: which hypotheses of one translation go on, by the rules of OpenNMT-py (2018) or of
// Marian. Knows no model: it is given candidates with their log-probabilities and says which tokens
// come next.
//
//   BeamSearch search(options, bos_id, eos_id, prefix);
//   search.SetPrefixLogProbs(the log-probabilities of its tokens, if there are any);
//   while (!search.done()) {
//     ... for each place < search.live(): the candidates after its tokens, the last of which is
//         search.last_token(place) ...
//     search.Step(candidates, count, stride);
//     ... place i goes on from what place search.parents()[i] was before ...
//   }
//   std::vector<FoundHypothesis> found = search.Take(with_rows);
//
// Of each step, with the live hypotheses in places 0 to live() - 1, at first one with the prefix
// alone:
//   - All live hypotheses are extended by all of their candidates. The best beam_size extensions by
//     the sum of log-probabilities (of equals that of the lower place, then the better candidate)
//     are kept in this order.
//   - Those that end (eos_id) are finished and do not go on; the others are the live ones of the
//     next step, in the same order.
//   - The search is over when num_hypotheses are finished and the best extension of this or an
//     earlier step ended, when hypotheses have max_length tokens, or when none is live.
//   - If fewer than num_hypotheses are finished then, live ones complete the answer in the order of
//     their places.
// Marian's rules (SearchOptions::narrows): the beam is narrower by one for each hypothesis that has
// ended. The search is over when none is live, or when they have max_length tokens; then all that
// are live count as finished.
//
// The answer is ordered by score (ScoreOf()); of equals the one finished earlier, or in the lower
// place, is first.
//
// Log-probabilities are added in double. One that is not a number counts as -infinity. A candidate
// with the id kNone is none, as where fewer words may come than there are places; without any the
// search is over. A step takes O(live * count) time, and memory grows by at most beam_size entries
// of 8 bytes.
#ifndef SRU_MODELS_DECODING_BEAM_SEARCH_H_
#define SRU_MODELS_DECODING_BEAM_SEARCH_H_

#include <cstdint>
#include <vector>

#include "kernels/program.h"
#include "models/decoding/search_options.h"

namespace sru::models {

// Which run computed the row that a token was chosen from, and so its alignment.
struct ChoiceRow {
  static constexpr int kPrefixStep = -1;

  int step = kPrefixStep;  // the number of Step(), from 0, or kPrefixStep for a token of the prefix
  int row = 0;             // the place before that step; of a prefix, the token's place in it
};

struct FoundHypothesis {
  std::vector<int32_t> tokens;   // the prefix first, without BOS and EOS
  std::vector<ChoiceRow> rows;   // [tokens]; empty unless wanted
  bool finished = false;         // it ended with EOS
  double log_prob = 0;           // of all tokens, EOS counted
  std::vector<float> log_probs;  // of each of these, EOS last
  double score = 0;
};

// Not thread-safe. A copy goes on by itself.
class BeamSearch {
 public:
  // `options` are valid (ValidateSearch()).
  BeamSearch(const SearchOptions& options, int32_t bos_id, int32_t eos_id,
             std::vector<int32_t> prefix);

  // The log-probabilities of the prefix' tokens. Before the first step.
  void SetPrefixLogProbs(std::vector<float> log_probs);

  bool done() const { return done_; }
  // Hypotheses that go on; 0 once the search is over.
  int live() const { return done_ ? 0 : static_cast<int>(live_.size()); }
  // The last token of a live hypothesis: BOS or the last one of the prefix before the first step.
  int32_t last_token(int place) const;
  // Candidates that each live hypothesis needs; all tokens of a vocabulary that is smaller.
  int candidates_wanted() const { return options_.beam_size; }
  // Calls of Step() so far.
  int steps() const { return static_cast<int>(step_nodes_.size()); }

  // `candidates` has live() rows of `stride`, of which the first `count` are the best tokens after
  // a hypothesis, the best first. Requires !done() and count <= stride.
  void Step(const kernels::Candidate* candidates, int count, int stride);
  // Where each live hypothesis comes from: its place before the last step. A place may be named any
  // number of times.
  const std::vector<int>& parents() const { return parents_; }

  // The answer: num_hypotheses of them, or as many as there are, with their `rows` if wanted.
  // Requires done(). Ends the use of this search.
  std::vector<FoundHypothesis> Take(bool with_rows);

 private:
  // A generated token, and the one before it.
  struct Node {
    int32_t token;
    int32_t parent;  // index into nodes_, or kNoNode for the first one
    float log_prob;  // of the token
  };
  static constexpr int32_t kNoNode = -1;
  struct Live {
    int32_t node = kNoNode;  // of the last generated token
    double log_prob = 0;
  };
  struct Finished {
    int32_t node;  // of the last token, EOS left out
    bool has_ended;
    float end_log_prob;  // of EOS, if it has ended
    double log_prob;
    double score;
  };

  // Of length_ tokens.
  void AddFinished(int32_t node, bool has_ended, float end_log_prob, double log_prob);
  FoundHypothesis Found(const Finished& finished, bool with_rows) const;

  SearchOptions options_;
  int32_t bos_id_;
  int32_t eos_id_;
  std::vector<int32_t> prefix_;
  std::vector<float> prefix_log_probs_;
  std::vector<Node> nodes_;  // those of the live hypotheses after each step, step after step
  std::vector<int32_t> step_nodes_;  // [step]: where its nodes begin
  std::vector<Live> live_;
  std::vector<int> parents_;        // [live]
  std::vector<Finished> finished_;  // the best num_hypotheses, the best first
  int64_t num_finished_ = 0;        // all of them
  bool best_has_ended_ = false;     // the best extension of this or an earlier step
  int width_;                       // extensions that the next step keeps
  int length_;                      // tokens of every live hypothesis, the prefix counted
  bool done_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_BEAM_SEARCH_H_
