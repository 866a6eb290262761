// A stack's weights as the CUDA backend multiplies and scans them: packed once on the host, in rows
// of row_layout.h and the storage type, then copied to each device. Immutable once made.
#ifndef SRU_KERNELS_CUDA_STACK_PACKED_STACK_H_
#define SRU_KERNELS_CUDA_STACK_PACKED_STACK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/row_layout.h"
#include "kernels/stack_spec.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cuda {

// Index of a tensor of the stack, the same on the host and on every device.
using TensorIndex = int;
inline constexpr TensorIndex kNoTensor = -1;

// [TensorIndex], each as it will be on the device.
using HostTensors = std::vector<std::vector<uint8_t>>;

// y = x w. Weights are [n][k] in the storage type.
struct PackedProduct {
  int shape = -1;  // index into PackedStack::shapes; -1 = there is no such product
  TensorIndex weights = kNoTensor;

  bool exists() const { return shape >= 0; }
};

struct PackedLayer {
  RowLayout input;
  RowLayout output;
  LayerNorm layer_norm = LayerNorm::kNone;
  TensorIndex norm_weight = kNoTensor;  // float32, in the padded row
  TensorIndex norm_bias = kNoTensor;
  PackedProduct projection;
  PackedProduct product;  // n = [direction][matrix][padded]; of a fused layer only the weights
  int fused_k = 0;        // values of a row that goes into a fused layer (fused.cuh); 0 = not fused
  int matrices = 3;
  TensorIndex constants = kNoTensor;  // float32 [direction][v_f, v_r, b_f, b_r][padded]
  Highway highway = Highway::kNone;
  float alpha = 1.0f;
  Activation activation = Activation::kIdentity;
};

struct PackOptions {
  DataType dtype = DataType::kFloat32;
  bool fuse_layers = false;  // as BackendOptions::cuda_fuse_layers
};

struct PackedStack {
  // Throws std::bad_alloc. `weights` is CompileOptions::weights.
  PackedStack(const StackSpec& stack, const PackOptions& options, WeightSource* weights = nullptr);

  const ProductShape& shape(const PackedProduct& product) const { return shapes[product.shape]; }
  const RowLayout& output() const { return layers.back().output; }

  StackSpec spec;  // without weights
  DataType dtype;
  RowLayout input;                    // of the embedding or of the caller's features
  TensorIndex embedding = kNoTensor;  // [vocabulary][input.stride()]
  PackedProduct input_to_hidden;
  std::vector<PackedLayer> layers;
  TensorIndex classifier_weight = kNoTensor;  // float32 [labels][output stride]
  TensorIndex classifier_bias = kNoTensor;    // float32 [labels]
  std::vector<ProductShape> shapes;           // each once
  HostTensors tensors;                        // emptied by ReleaseHostCopy()

  void ReleaseHostCopy() { tensors.clear(); }
};

// The tensors of a stack on one device. Immutable, thread-safe.
class DeviceStack {
 public:
  // kResourceExhausted when the budget does not hold them.
  static Status Create(const HostTensors& tensors, const std::shared_ptr<Gpu>& gpu, Stream& stream,
                       std::unique_ptr<DeviceStack>* device_stack);
  ~DeviceStack() { gpu_->DiscountWeights(bytes_); }
  DeviceStack(const DeviceStack&) = delete;
  DeviceStack& operator=(const DeviceStack&) = delete;

  // Null for kNoTensor.
  const void* tensor(TensorIndex index) const {
    return index == kNoTensor ? nullptr : tensors_[index].data();
  }
  const float* floats(TensorIndex index) const { return static_cast<const float*>(tensor(index)); }
  size_t bytes() const { return bytes_; }

 private:
  explicit DeviceStack(std::shared_ptr<Gpu> gpu) : gpu_(std::move(gpu)) {}

  const std::shared_ptr<Gpu> gpu_;
  DeviceBuffer memory_;
  std::vector<ArrayView> tensors_;  // in it
  size_t bytes_ = 0;                // counted as weights
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_PACKED_STACK_H_
