#include "models/decoding/spans.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>

namespace sru::models {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();
constexpr int kNoToken = -1;

// What is not a number comes last.
double Logit(float value) { return std::isnan(value) ? kMinusInfinity : value; }

// For each token the best span that begins with it, of those that may still be taken, and the best
// of them all in a tournament. The last token of a span is chosen by its end logit, which gives the
// order of the sums without their rounding.
class SpanSearch {
 public:
  SpanSearch(const float* start, const float* end, size_t num_tokens, int max_length)
      : start_(start),
        end_(end),
        num_tokens_(static_cast<int>(num_tokens)),
        max_length_(std::min(max_length, num_tokens_)),
        last_(num_tokens, kNoToken) {
    FindAll();
    while (leaves_ < num_tokens) leaves_ *= 2;
    winners_.assign(2 * leaves_, kNoToken);
    for (int i = 0; i < num_tokens_; ++i) winners_[leaves_ + i] = i;
    Replay(0, num_tokens_);
  }

  // False if there is none.
  bool Best(Span* span) const {
    const int first = winners_[1];
    const double score = BestScore(first);
    if (!(score > kMinusInfinity)) return false;
    span->first = first;
    span->last = last_[first];
    span->log_score = score;
    return true;
  }

  // Leaves out the best span.
  void Take(const Span& best) {
    int next = kNoToken;
    for (int j = best.first; j < WindowEnd(best.first); ++j, ++steps_) {
      const bool after_best = ComesAfter(j, best.last);
      if (after_best && (next == kNoToken || ComesAfter(next, j))) next = j;
    }
    last_[best.first] = next;
    Replay(best.first, best.first + 1);
  }

  // Leaves out the best span and all that overlap it.
  void TakeWithOverlapping(const Span& best) {
    const int reaching = std::max(0, best.first - max_length_ + 1);
    int begin = best.first;
    int last = kNoToken;  // the best from `begin` to the token before the span
    // A span from before a token that is taken already ends before that token.
    while (begin > reaching && last_[begin - 1] != kNoToken) {
      --begin;
      ++steps_;
      if (last == kNoToken || !ComesAfter(begin, last)) last = begin;
      if (last_[begin] >= best.first) last_[begin] = last;
    }
    std::fill(last_.begin() + best.first, last_.begin() + best.last + 1, kNoToken);
    Replay(begin, best.last + 1);
  }

  size_t steps() const { return steps_; }

 private:
  // Whether a span to `j` comes after the one to `other` from the same token.
  bool ComesAfter(int j, int other) const {
    const double end = Logit(end_[j]);
    const double other_end = Logit(end_[other]);
    return end < other_end || (end == other_end && j > other);
  }

  // One past the last token of the longest span.
  int WindowEnd(int first) const {
    return num_tokens_ - first < max_length_ ? num_tokens_ : first + max_length_;
  }

  double BestScore(int first) const {
    if (first == kNoToken || last_[first] == kNoToken) return kMinusInfinity;
    const double score = Logit(start_[first]) + Logit(end_[last_[first]]);
    return std::isnan(score) ? kMinusInfinity : score;  // infinity and minus infinity
  }

  // The best last token of each window, by a queue of tokens that are the best of what follows
  // them.
  void FindAll() {
    std::vector<int> queue(last_.size());
    size_t front = 0;
    size_t back = 0;
    for (int i = num_tokens_ - 1; i >= 0; --i, ++steps_) {
      while (back > front && !ComesAfter(i, queue[back - 1])) {
        --back;
        ++steps_;
      }
      queue[back++] = i;
      if (queue[front] >= WindowEnd(i)) ++front;
      last_[i] = queue[front];
    }
  }

  // Plays the matches of the tokens [begin, end) again.
  void Replay(size_t begin, size_t end) {
    size_t low = leaves_ + begin;
    size_t high = leaves_ + end - 1;
    while (low > 1) {
      low /= 2;
      high /= 2;
      for (size_t node = low; node <= high; ++node, ++steps_) {
        const int left = winners_[2 * node];
        const int right = winners_[2 * node + 1];
        winners_[node] = BestScore(right) > BestScore(left) ? right : left;
      }
    }
  }

  const float* const start_;
  const float* const end_;
  const int num_tokens_;
  const int max_length_;
  std::vector<int> last_;  // by first token; kNoToken: no span begins here any more
  size_t leaves_ = 1;      // a power of two
  // A binary tree: node i has the children 2 i and 2 i + 1, the root is 1. The winner is a first
  // token.
  std::vector<int> winners_;
  size_t steps_ = 0;
};

// exp(value - log_sum) is the softmax.
double LogSum(const float* logits, size_t size) {
  double largest = kMinusInfinity;
  for (size_t i = 0; i < size; ++i) largest = std::max(largest, Logit(logits[i]));
  double sum = 0;
  for (size_t i = 0; i < size; ++i) sum += std::exp(Logit(logits[i]) - largest);
  return largest + std::log(sum);
}

}  // namespace

std::vector<Span> BestSpans(const float* start_logits, const float* end_logits, size_t num_tokens,
                            const SpanOptions& options, size_t* steps) {
  std::vector<Span> spans;
  if (num_tokens == 0) return spans;
  SpanSearch search(start_logits, end_logits, num_tokens, options.max_length);
  const double log_start_sum = LogSum(start_logits, num_tokens);
  const double log_end_sum = LogSum(end_logits, num_tokens);
  for (Span span; static_cast<int>(spans.size()) < options.top_n && search.Best(&span);) {
    const double probability = std::exp((start_logits[span.first] - log_start_sum) +
                                        (end_logits[span.last] - log_end_sum));
    span.probability = std::isnan(probability) ? 0.0f : static_cast<float>(probability);
    spans.push_back(span);
    if (options.no_overlap) {
      search.TakeWithOverlapping(span);
    } else {
      search.Take(span);
    }
  }
  if (steps != nullptr) *steps = search.steps();
  return spans;
}

std::vector<PassageSpan> MergeSpans(const std::vector<std::vector<Span>>& passages, int top_n,
                                    bool one_per_passage) {
  struct Next {
    double log_score;
    size_t passage;
    size_t index;  // in the passage's list
  };
  const auto comes_after = [](const Next& a, const Next& b) {
    return a.log_score < b.log_score || (a.log_score == b.log_score && a.passage > b.passage);
  };
  std::vector<Next> best_of_each;
  for (size_t i = 0; i < passages.size(); ++i) {
    if (!passages[i].empty()) best_of_each.push_back({passages[i].front().log_score, i, 0});
  }
  std::priority_queue queue(comes_after, std::move(best_of_each));
  std::vector<PassageSpan> merged;
  while (static_cast<int>(merged.size()) < top_n && !queue.empty()) {
    Next next = queue.top();
    queue.pop();
    const std::vector<Span>& spans = passages[next.passage];
    merged.push_back({static_cast<int>(next.passage), spans[next.index]});
    if (one_per_passage || ++next.index == spans.size()) continue;
    next.log_score = spans[next.index].log_score;
    queue.push(next);
  }
  return merged;
}

}  // namespace sru::models
