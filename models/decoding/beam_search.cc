#include "models/decoding/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace sru::models {
namespace {

double Sum(double log_prob, float next) {
  const double sum = log_prob + next;
  return std::isnan(sum) ? -std::numeric_limits<double>::infinity() : sum;
}

// A live hypothesis and one of its candidates.
struct Extension {
  double log_prob;
  int place;
  int candidate;

  bool operator<(const Extension& other) const {
    if (log_prob != other.log_prob) return log_prob > other.log_prob;
    return std::tie(place, candidate) < std::tie(other.place, other.candidate);
  }
};

}  // namespace

BeamSearch::BeamSearch(const SearchOptions& options, int32_t bos_id, int32_t eos_id,
                       std::vector<int32_t> prefix)
    : options_(options),
      bos_id_(bos_id),
      eos_id_(eos_id),
      prefix_(std::move(prefix)),
      live_(1),
      parents_(1, 0),
      width_(options.beam_size),
      length_(static_cast<int>(prefix_.size())),
      done_(length_ >= options.max_length) {}

void BeamSearch::SetPrefixLogProbs(std::vector<float> log_probs) {
  prefix_log_probs_ = std::move(log_probs);
  live_.front().log_prob = std::accumulate(prefix_log_probs_.begin(), prefix_log_probs_.end(), 0.0);
}

int32_t BeamSearch::last_token(int place) const {
  const int32_t node = live_[place].node;
  if (node != kNoNode) return nodes_[node].token;
  return prefix_.empty() ? bos_id_ : prefix_.back();
}

void BeamSearch::Step(const kernels::Candidate* candidates, int count, int stride) {
  std::vector<Extension> extensions;
  extensions.reserve(live_.size() * count);
  for (size_t place = 0; place < live_.size(); ++place) {
    for (int i = 0; i < count; ++i) {
      const kernels::Candidate& candidate = candidates[place * stride + i];
      if (candidate.id == kernels::kNone) continue;
      const double sum = Sum(live_[place].log_prob, candidate.log_prob);
      extensions.push_back({sum, static_cast<int>(place), i});
    }
  }
  ++length_;
  done_ = extensions.empty();
  if (done_) return;
  const auto kept = std::min(extensions.size(), static_cast<size_t>(width_));
  std::partial_sort(extensions.begin(), extensions.begin() + static_cast<std::ptrdiff_t>(kept),
                    extensions.end());
  extensions.resize(kept);

  step_nodes_.push_back(static_cast<int32_t>(nodes_.size()));
  std::vector<Live> next;
  parents_.clear();
  for (const Extension& extension : extensions) {
    const int32_t node = live_[extension.place].node;
    const kernels::Candidate& candidate =
        candidates[static_cast<size_t>(extension.place) * stride + extension.candidate];
    if (candidate.id == eos_id_) {
      AddFinished(node, /*has_ended=*/true, candidate.log_prob, extension.log_prob);
      if (&extension == &extensions.front()) best_has_ended_ = true;
    } else {
      next.push_back({static_cast<int32_t>(nodes_.size()), extension.log_prob});
      nodes_.push_back({candidate.id, node, candidate.log_prob});
      parents_.push_back(extension.place);
    }
  }
  live_ = std::move(next);
  if (options_.narrows) width_ = static_cast<int>(live_.size());
  const bool enough =
      !options_.narrows && best_has_ended_ && num_finished_ >= options_.num_hypotheses;
  done_ = enough || length_ >= options_.max_length || live_.empty();
}

void BeamSearch::AddFinished(int32_t node, bool has_ended, float end_log_prob, double log_prob) {
  ++num_finished_;
  const double score = ScoreOf(options_, log_prob, length_);
  const auto worse = std::find_if(finished_.begin(), finished_.end(),
                                  [score](const Finished& other) { return other.score < score; });
  finished_.insert(worse, {node, has_ended, end_log_prob, log_prob, score});
  if (finished_.size() > static_cast<size_t>(options_.num_hypotheses)) finished_.pop_back();
}

std::vector<FoundHypothesis> BeamSearch::Take(bool with_rows) {
  for (const Live& live : live_) {
    if (!options_.narrows && num_finished_ >= options_.num_hypotheses) break;
    AddFinished(live.node, /*has_ended=*/false, 0, live.log_prob);
  }
  live_.clear();
  std::vector<FoundHypothesis> found;
  found.reserve(finished_.size());
  for (const Finished& finished : finished_) found.push_back(Found(finished, with_rows));
  return found;
}

FoundHypothesis BeamSearch::Found(const Finished& finished, bool with_rows) const {
  FoundHypothesis found;
  found.finished = finished.has_ended;
  found.log_prob = finished.log_prob;
  found.score = finished.score;
  int generated = 0;
  for (int32_t node = finished.node; node != kNoNode; node = nodes_[node].parent) ++generated;
  const size_t length = prefix_.size() + generated;
  found.tokens.resize(length);
  std::copy(prefix_.begin(), prefix_.end(), found.tokens.begin());
  found.log_probs = prefix_log_probs_;
  found.log_probs.resize(prefix_log_probs_.size() + generated);
  if (with_rows) {
    found.rows.resize(length);
    for (size_t i = 0; i < prefix_.size(); ++i) {
      found.rows[i] = {ChoiceRow::kPrefixStep, static_cast<int>(i)};
    }
  }
  // A hypothesis has one node of each step.
  int step = generated;
  for (int32_t node = finished.node; node != kNoNode; node = nodes_[node].parent) {
    --step;
    found.tokens[prefix_.size() + step] = nodes_[node].token;
    found.log_probs[prefix_log_probs_.size() + step] = nodes_[node].log_prob;
    if (!with_rows) continue;
    const int32_t parent = nodes_[node].parent;
    const int place = parent == kNoNode ? 0 : parent - step_nodes_[step - 1];
    found.rows[prefix_.size() + step] = {step, place};
  }
  if (finished.has_ended) found.log_probs.push_back(finished.end_log_prob);
  return found;
}

}  // namespace sru::models
