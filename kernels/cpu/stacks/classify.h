// The classifier: logits and probabilities from pooled vectors.
#ifndef SRU_KERNELS_CPU_STACKS_CLASSIFY_H_
#define SRU_KERNELS_CPU_STACKS_CLASSIFY_H_

#include <memory>

#include "kernels/backend.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/stacks/product.h"

namespace sru::kernels::cpu {

// The product of a specification's classifier for pooled vectors in `rows`; null without one.
std::unique_ptr<Product> PackClassifier(ProductShapes& shapes, WeightSource* weights,
                                        const StackSpec& spec, const RowLayout& rows);

// Logits and probabilities of the sequences that want them. `bias` is that of the classifier, empty
// for zeros. `pool_row` is [num_sequences], -1 for
// those without a pooled vector; `pooled` holds num_pooled rows; `logits` is scratch of as many
// rows and kClassifierRows more. Throws dnnl::error.
void Classify(const StackSpec& spec, const Product& classifier, const AlignedBuffer& bias,
              ProductRunner& runner, int num_sequences, const SequenceOutput* outputs,
              const int* pool_row, int num_pooled, const float* pooled, float* logits);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_CLASSIFY_H_
