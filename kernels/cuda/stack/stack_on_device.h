// What a packed stack has on one device: weights, the algorithms of its products, and the table of
// its first layer's products by token id.
#ifndef SRU_KERNELS_CUDA_STACK_STACK_ON_DEVICE_H_
#define SRU_KERNELS_CUDA_STACK_STACK_ON_DEVICE_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/cuda/stack/token_table.h"
#include "kernels/in_parallel.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

struct StackOnDevice {
  std::shared_ptr<Gpu> gpu;  // alone on a device that failed before
  std::unique_ptr<DeviceStack> weights;
  std::unique_ptr<ProductPlans> plans;
  std::unique_ptr<TokenTableSlot> token_table;

  // Uses an idle stream.
  static Status Create(const PackedStack& stack, const std::shared_ptr<Gpu>& gpu, Stream& stream,
                       StackOnDevice* on_device) {
    on_device->gpu = gpu;
    SRU_RETURN_IF_ERROR(DeviceStack::Create(stack.tensors, gpu, stream, &on_device->weights));
    SRU_RETURN_IF_ERROR(ProductPlans::Create(stack, *on_device->weights, gpu, &on_device->plans));
    std::unique_ptr<TokenTable> table;
    SRU_RETURN_IF_ERROR(TokenTable::Create(stack, *on_device->weights, *on_device->plans, gpu,
                                           gpu->options().cuda_token_table_bytes, &table));
    on_device->token_table = std::make_unique<TokenTableSlot>(std::move(table));
    return OkStatus();
  }

  // 0 before Create().
  size_t bytes() const { return weights == nullptr ? 0 : weights->bytes() + token_table->bytes(); }
};

// What an executable does with its devices. State is what it has on one of them: gpu, alone on one
// that failed before, and bytes(), of weights.
template <typename Interface, typename State>
class DeviceExecutable : public Interface {
 public:
  explicit DeviceExecutable(std::vector<State> devices) : devices_(std::move(devices)) {}

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  int workers_per_device() const override { return kWorkersPerDevice; }
  size_t weight_bytes() const override {
    for (const State& device : devices_) {
      if (device.bytes() > 0) return device.bytes();
    }
    return 0;
  }

 protected:
  // That it is one of the devices, and has not failed.
  Status CheckDevice(const char* what, int device) const {
    if (device < 0 || device >= num_devices()) {
      return InvalidArgument(what, ".device: expected 0 to ", num_devices() - 1, ", found ",
                             device);
    }
    const Gpu& gpu = *devices_[device].gpu;
    return gpu.lost() ? gpu.LostError() : OkStatus();
  }

  const std::vector<State> devices_;
};

// Calls prepare(gpu, &state) for each device, for all at the same time, and then sets state.gpu.
// Devices that have failed are left out: they have the gpu alone. kDeviceLost when none is left.
template <typename State, typename Prepare>
Status PrepareDevices(const std::vector<std::shared_ptr<Gpu>>& gpus, const Prepare& prepare,
                      std::vector<State>* states) {
  std::vector<State> prepared(gpus.size());
  std::vector<Status> results(gpus.size());
  InParallel(static_cast<int>(gpus.size()), [&](int i) {
    const std::shared_ptr<Gpu>& gpu = gpus[i];
    results[i] = gpu->lost() ? gpu->LostError() : gpu->Observe(prepare(gpu, &prepared[i]));
  });
  Status lost;
  bool any = false;
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (results[i].code() == StatusCode::kDeviceLost) {
      lost = results[i];
      prepared[i] = State();
    } else if (!results[i].ok()) {
      return results[i];
    } else {
      any = true;
    }
    prepared[i].gpu = gpus[i];
  }
  *states = std::move(prepared);
  return any ? OkStatus() : lost;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_STACK_ON_DEVICE_H_
