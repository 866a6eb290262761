// What comes before a layer's scan, for rows of tokens: the stack's input, layer norm, projection.
// Both users, a batch (forward.h) and the whole vocabulary (token_table.h), must compute the same.
#ifndef SRU_KERNELS_CUDA_STACK_BEFORE_SCAN_H_
#define SRU_KERNELS_CUDA_STACK_BEFORE_SCAN_H_

#include <cstdint>
#include <functional>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/row_layout.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

class BeforeScan {
 public:
  // y = x w for all rows, by an algorithm of the user's choice.
  using Multiply = std::function<Status(const PackedProduct& product, const void* x, void* y)>;

  // `header` is in device memory; there are at most `max_tokens` rows. All must outlive the object.
  BeforeScan(const PackedStack& stack, const DeviceStack& weights, Stream& stream,
             const BatchHeader* header, int max_tokens, Multiply multiply);

  // The first layer's input, from one of `token_ids` and `features`, whose rows are
  // `feature_stride` values apart. `embedded` is for the rows before input_to_hidden, not used
  // where there is none.
  Status MakeInput(const int32_t* token_ids, const float* features, int feature_stride,
                   void* embedded, void* x) const;

  // What the layer's product multiplies: x itself, or what layer norm and projection make of it.
  Status Prepare(const PackedLayer& layer, const void* x, void* normalized, void* projected,
                 const void** input) const;

  // y may be x.
  Status Normalize(const PackedLayer& layer, const RowLayout& rows, const void* x, void* y) const;

 private:
  const PackedStack& stack_;
  const DeviceStack& weights_;
  Stream& stream_;
  const BatchHeader* const header_;
  const int max_tokens_;
  const Multiply multiply_;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_BEFORE_SCAN_H_
