// How many labels a request asks for, and how they are written. Pure functions, thread-safe.
#ifndef SRU_SERVER_TASKS_CLASSIFY_LABELS_H_
#define SRU_SERVER_TASKS_CLASSIFY_LABELS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

// How many labels to return: min(top_k, num_labels), all of them for 0. kInvalidArgument for a
// negative number.
absl::StatusOr<int> ParseTopK(int32_t top_k, int num_labels);

// The `top_k` best labels in descending order of logit, equal ones in the order of their indices.
// `logits` and `probabilities` have labels.size() values; top_k <= labels.size().
void WriteLabels(const std::vector<std::string>& labels, const float* logits,
                 const float* probabilities, int top_k, v1::Classification* classification);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_CLASSIFY_LABELS_H_
