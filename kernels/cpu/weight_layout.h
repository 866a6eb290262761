// A specification's weights as float32 matrices in the CPU backend's padded rows (row_layout.h),
// with kExp2GateScale folded into what goes into the gates. Each kind of product packs them further
// in its own way.
#ifndef SRU_KERNELS_CPU_WEIGHT_LAYOUT_H_
#define SRU_KERNELS_CPU_WEIGHT_LAYOUT_H_

#include <cstddef>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/scan.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

// The first layer's U depends on the token alone. Where it fits into this much memory for the whole
// vocabulary it is computed at load and looked up while serving.
inline constexpr size_t kMaxTokenProductBytes = size_t{64} << 20;

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

// The weights of one direction, [rows.stride()][num_matrices][padded hidden].
AlignedBuffer PackGateWeights(const LayerSpec& layer, const RowLayout& rows, int direction);
// v_f, v_r, b_f, b_r of one direction, each [padded hidden].
AlignedBuffer PackGateConstants(const LayerSpec& layer, int direction);
// `constants` is borrowed.
ScanParameters ScanParametersOf(const LayerSpec& layer, const AlignedBuffer& constants);

// layer.weight_proj as [from.stride()][to.stride()].
AlignedBuffer PackProjection(const LayerSpec& layer, const RowLayout& from, const RowLayout& to);

// w [to.width()][from.width()] of a map y = w x as [from.stride()][to.stride()].
AlignedBuffer PackTransposed(const FloatView& w, const RowLayout& from, const RowLayout& to);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_WEIGHT_LAYOUT_H_
