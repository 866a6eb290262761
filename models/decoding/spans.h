// The answers that a reader's logits give: the spans of a passage with the largest sum of the start
// logit of their first token and the end logit of their last.
#ifndef SRU_MODELS_DECODING_SPANS_H_
#define SRU_MODELS_DECODING_SPANS_H_

#include <cstddef>
#include <vector>

namespace sru::models {

// Tokens of one passage.
struct Span {
  int first = 0;
  int last = 0;  // not one past it
  // start[first] + end[last], in float64: comparable between the passages of one question.
  double log_score = 0;
  // softmax(start)[first] * softmax(end)[last], over the tokens of the passage: comparable within
  // it only.
  float probability = 0;
};

struct SpanOptions {
  int max_length = 1;  // of a span in tokens, at least 1
  int top_n = 1;       // at least 1
  // A span that overlaps one that was taken before it, which is better, is left out.
  bool no_overlap = false;
};

// The best spans of a passage, the best first; of equals the one with the smaller first token, then
// the smaller last token. Fewer than top_n if there are no more. A sum that is not a number, or
// minus infinity, is no span.
//
// Takes O(num_tokens + top_n * (length + log num_tokens)) steps, length being the smaller of
// max_length and num_tokens; `steps`, if not null, gets their number (for tests).
std::vector<Span> BestSpans(const float* start_logits, const float* end_logits, size_t num_tokens,
                            const SpanOptions& options, size_t* steps = nullptr);

struct PassageSpan {
  int passage = 0;  // index into MergeSpans()'s list
  Span span;
};

// The best of all passages' spans, each list being the result of a BestSpans(): by descending
// log_score, of equals the earlier passage's first. With `one_per_passage` only the first of each
// list is looked at.
std::vector<PassageSpan> MergeSpans(const std::vector<std::vector<Span>>& passages, int top_n,
                                    bool one_per_passage);

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_SPANS_H_
