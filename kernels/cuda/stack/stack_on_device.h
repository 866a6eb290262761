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
  std::unique_ptr<DeviceStack> weights;
  std::unique_ptr<ProductPlans> plans;
  std::unique_ptr<TokenTableSlot> token_table;

  // Uses an idle stream. `token_table_bytes` as in BackendOptions.
  static Status Create(const PackedStack& stack, const std::shared_ptr<Gpu>& gpu, Stream& stream,
                       size_t token_table_bytes, StackOnDevice* on_device) {
    Status status = DeviceStack::Create(stack, gpu, stream, &on_device->weights);
    if (status.ok()) {
      status = ProductPlans::Create(stack, *on_device->weights, gpu, &on_device->plans);
    }
    std::unique_ptr<TokenTable> table;
    if (status.ok()) {
      status = TokenTable::Create(stack, *on_device->weights, *on_device->plans, gpu,
                                  token_table_bytes, &table);
    }
    on_device->token_table = std::make_unique<TokenTableSlot>(std::move(table));
    return status;
  }

  size_t bytes() const { return weights->bytes() + token_table->bytes(); }
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
