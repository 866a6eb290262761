// How many labels a request asks for, and how they are written. Pure functions, thread-safe.
#ifndef SRU_SERVER_TASKS_CLASSIFY_LABELS_H_
#define SRU_SERVER_TASKS_CLASSIFY_LABELS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

// How many labels to return: min(top_k, num_labels), all of them for 0. kInvalidArgument for a
// negative number.
inline absl::StatusOr<int> ParseTopK(int32_t top_k, int num_labels) {
  if (top_k < 0) {
    return InvalidArgument("top_k: ", top_k,
                           " is negative, expected 0 for all labels or how many to return");
  }
  return top_k == 0 ? num_labels : std::min<int>(top_k, num_labels);
}

// The `top_k` best labels in descending order of logit, equal ones in the order of their indices.
// `logits` and `probabilities` have labels.size() values; top_k <= labels.size().
inline void WriteLabels(const std::vector<std::string>& labels, const float* logits,
                        const float* probabilities, int top_k, v1::Classification* classification) {
  std::vector<int> order(labels.size());
  std::iota(order.begin(), order.end(), 0);
  // A NaN (from broken weights) goes last, since it must not break the ordering of the sort.
  const auto key = [logits](int i) {
    return std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
  };
  std::partial_sort(order.begin(), order.begin() + top_k, order.end(), [&key](int a, int b) {
    const float key_a = key(a);
    const float key_b = key(b);
    return key_a != key_b ? key_a > key_b : a < b;
  });
  classification->mutable_labels()->Reserve(top_k);
  for (int k = 0; k < top_k; ++k) {
    const int i = order[k];
    v1::Label* label = classification->add_labels();
    label->set_name(labels[i]);
    label->set_index(i);
    label->set_probability(probabilities[i]);
    label->set_logit(logits[i]);
  }
}

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_CLASSIFY_LABELS_H_
