#include "kernels/cpu/stacks/classify.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/base/weight_layout.h"

namespace sru::kernels::cpu {
namespace {

void Softmax(const float* logits, int size, float* probabilities) {
  const float maximum = *std::max_element(logits, logits + size);
  float sum = 0;
  for (int i = 0; i < size; ++i) sum += probabilities[i] = std::exp(logits[i] - maximum);
  for (int i = 0; i < size; ++i) probabilities[i] /= sum;
}

}  // namespace

std::unique_ptr<Product> PackClassifier(ProductShapes& shapes, WeightSource* weights,
                                        const StackSpec& spec, const RowLayout& rows) {
  if (spec.num_labels == 0) return nullptr;
  const ReadWeights readable(weights, spec.classifier_weight);
  const RowLayout labels = {1, spec.num_labels};
  return std::make_unique<Product>(shapes,
                                   PackTransposed(spec.classifier_weight, rows, labels).data(),
                                   rows.stride(), labels.stride(), RowBuckets(kClassifierRows));
}

void Classify(const StackSpec& spec, const Product& classifier, const AlignedBuffer& bias,
              ProductRunner& runner, int num_sequences, const SequenceOutput* outputs,
              const int* pool_row, int num_pooled, const float* pooled, float* logits) {
  if (!std::any_of(outputs, outputs + num_sequences,
                   [](const SequenceOutput& out) { return out.wants_labels(); })) {
    return;
  }
  RunInChunks(classifier, runner, pooled, num_pooled, logits);
  const int labels = spec.num_labels;
  for (int b = 0; b < num_sequences; ++b) {
    const SequenceOutput& out = outputs[b];
    if (!out.wants_labels()) continue;
    float* row = logits + static_cast<size_t>(pool_row[b]) * classifier.n();
    for (size_t i = 0; i < bias.size(); ++i) row[i] += bias.data()[i];
    if (out.logits != nullptr) std::copy_n(row, labels, out.logits);
    if (out.probabilities != nullptr) Softmax(row, labels, out.probabilities);
  }
}

}  // namespace sru::kernels::cpu
