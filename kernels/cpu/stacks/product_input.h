// What precedes the products of a layer: layer norm and the low-rank projection.
#ifndef SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_
#define SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_

#include <cstddef>
#include <memory>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16_rows.h"
#include "kernels/cpu/base/layer_norm.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/stacks/product.h"

namespace sru::kernels::cpu {

// Made once per worker and layer. Not thread-safe.
class ProductInput {
 public:
  explicit ProductInput(const Layer& layer) : layer_(layer) {
    if (layer.projection != nullptr) {
      projection_ = std::make_unique<ProductRunner>(*layer.projection);
    }
  }

  // Values of a row that Run() needs of its two arrays, which layers may share.
  static size_t NormalizedWidth(const Layer& layer) {
    return layer.layer_norm == LayerNorm::kBefore ? layer.input.stride() : 0;
  }
  static size_t ProjectedWidth(const Layer& layer) {
    return layer.projection != nullptr ? layer.projection->n() : 0;
  }

  // x [rows][layer.input.stride()]; the result is x itself or in one of the arrays, which have room
  // for kMaxChunkRows more rows.
  const float* Run(const float* x, int rows, float* normalized, float* projected) {
    if (layer_.layer_norm == LayerNorm::kBefore) {
      NormalizeRows(layer_.input, layer_.norm.weight.data(), layer_.norm.bias.data(), x, rows,
                    normalized);
      Round(normalized, rows, layer_.input.stride());
      x = normalized;
    }
    if (projection_ != nullptr) {
      RunInChunks(*layer_.projection, *projection_, x, rows, projected);
      Round(projected, rows, layer_.projection->n());
      x = projected;
    }
    return x;
  }

 private:
  void Round(float* values, int rows, int stride) const {
    RoundRow(layer_.rounding, values, static_cast<size_t>(rows) * stride);
  }

  const Layer& layer_;
  std::unique_ptr<ProductRunner> projection_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_PRODUCT_INPUT_H_
