// A specification's weights as float32 matrices in the CPU backend's padded rows (row_layout.h),
// with kExp2GateScale folded into what goes into the gates. Each kind of product packs them further
// in its own way. A function without a WeightSource expects what it reads to be readable.
#ifndef SRU_KERNELS_CPU_BASE_WEIGHT_LAYOUT_H_
#define SRU_KERNELS_CPU_BASE_WEIGHT_LAYOUT_H_

#include <cstddef>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/stack_spec.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Weight and bias of a layer norm in a padded row; empty when there is none.
struct NormWeights {
  AlignedBuffer weight;
  AlignedBuffer bias;
};

// `layout` is that of the rows that the norm of `layer` applies to.
NormWeights PackNorm(const LayerSpec& layer, const RowLayout& layout);

// The first layer's input rows. The highway term adds them to the output, so where it takes the
// input itself both have the same layout.
RowLayout FirstLayerInput(const StackSpec& spec);

// The weights of `size` dimensions of one direction, from `first` on, which may reach into the
// padding: [rows.stride()][num_matrices][size].
void PackGateWeights(const LayerSpec& layer, const RowLayout& rows, int direction, int first,
                     int size, AlignedBuffer* packed);
// v_f, v_r, b_f, b_r of one direction, each [padded hidden].
AlignedBuffer PackGateConstants(const LayerSpec& layer, int direction);
// The scan's parameters for the dimensions [first, first + size) of one direction. They point into
// `constants`, which holds that direction's and must outlive them.
ScanParameters ScanParametersOf(const LayerSpec& layer, const AlignedBuffer& constants, int first,
                                int size);

// layer.weight_proj as [from.stride()][to.stride()].
AlignedBuffer PackProjection(const LayerSpec& layer, const RowLayout& from, const RowLayout& to);

// Whether batches of token ids read the embedding's rows: where the first layer's products are
// looked up, only the highway term may need them.
bool ReadsEmbedding(const StackSpec& spec, bool looks_up_products);
// The embedding, [vocabulary_size][stride] with rows in `layout`, in float32 or rounded; empty
// without one.
template <typename T>
AlignedArray<T> PackEmbedding(WeightSource* weights, const StackSpec& spec, const RowLayout& layout,
                              size_t stride);

// A copy of a vector; empty when there is none.
AlignedBuffer PackVector(WeightSource* weights, const FloatView& vector);

// w [to.width()][from.width()] of a map y = w x as [from.stride()][to.stride()].
AlignedBuffer PackTransposed(const FloatView& w, const RowLayout& from, const RowLayout& to);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_WEIGHT_LAYOUT_H_
