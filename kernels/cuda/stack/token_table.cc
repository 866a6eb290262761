#include "kernels/cuda/stack/token_table.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/stack/stack_pass.h"

namespace sru::kernels::cuda {
namespace {

// Rows are made in chunks, for which the reference algorithms were tried. The table is a whole
// number of them, so that every chunk is as well aligned as a workspace's rows.
constexpr int kChunk = kReferenceRows;

size_t TableRows(const PackedStack& stack) {
  const size_t vocabulary = stack.spec.vocabulary_size;
  return (vocabulary + kChunk - 1) / kChunk * kChunk;
}

// Makes the rows of a table, on an idle stream that it waits for. `x` is null when the first
// layer's input is not kept.
Status MakeRows(const PackedStack& stack, const DeviceStack& weights, const ProductPlans& plans,
                const std::shared_ptr<Gpu>& gpu, const GpuStream& stream, char* u, char* x) {
  const BatchHeader header{kChunk, {}};
  // Rows past the vocabulary repeat its last one.
  std::vector<int32_t> ids(TableRows(stack));
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<int32_t>(std::min<size_t>(i, stack.spec.vocabulary_size - 1));
  }
  StackScratch scratch;
  ArrayView device_header, device_ids;
  ArrayPlan plan;
  plan.AddEach(scratch.arrays(), StackScratch::Bytes(stack, kChunk));
  plan.Add(&device_header, sizeof(header));
  plan.Add(&device_ids, ids.size() * sizeof(int32_t));
  DeviceBuffer memory;
  // Products read whole rows, with their padding.
  SRU_RETURN_IF_ERROR(stream.CreateInitialized(gpu, plan, &memory));
  plan.Place(memory.data());
  const PackedLayer& first = stack.layers[0];
  const size_t x_bytes = kChunk * first.input.stride() * ValueBytes(stack.dtype);
  const size_t u_bytes = kChunk * stack.shape(first.product).n * ValueBytes(stack.dtype);
  StackPass pass;
  pass.stream = stream.get();
  pass.max_tokens = kChunk;
  pass.choice = [&](const PackedProduct& product) {
    return ProductChoice{kChunk, plans.reference(product)};
  };
  pass.header = device_header.as<BatchHeader>();
  pass.scratch = &scratch;
  return RunWork(*stream, [&] {
    SRU_RETURN_IF_ERROR(stream->CopyToDevice(device_header.data(), &header, sizeof(header)));
    SRU_RETURN_IF_ERROR(
        stream->CopyToDevice(device_ids.data(), ids.data(), ids.size() * sizeof(int32_t)));
    for (size_t begin = 0; begin < ids.size(); begin += kChunk) {
      const size_t chunk = begin / kChunk;
      pass.token_ids = device_ids.as<int32_t>() + begin;
      if (x != nullptr) scratch.x = ArrayView(x + chunk * x_bytes, x_bytes);
      scratch.u = ArrayView(u + chunk * u_bytes, u_bytes);
      SRU_RETURN_IF_ERROR(EnqueueFirstProduct(stack, weights, pass));
    }
    return OkStatus();
  });
}

}  // namespace

Status TokenTable::Create(const PackedStack& stack, const DeviceStack& weights,
                          const ProductPlans& plans, const std::shared_ptr<Gpu>& gpu,
                          size_t max_bytes, std::unique_ptr<TokenTable>* table) {
  const PackedLayer& first = stack.layers[0];
  if (stack.embedding == kNoTensor) return OkStatus();
  const bool needs_x = first.highway == Highway::kInput;
  const bool keeps_x = needs_x && stack.input_to_hidden.exists();
  const size_t column_bytes = TableRows(stack) * ValueBytes(stack.dtype);
  const size_t u_bytes = column_bytes * stack.shape(first.product).n;
  const size_t x_bytes = keeps_x ? column_bytes * first.input.stride() : 0;
  const size_t share = gpu->BudgetLeft() / kTokenTableBudgetShare;
  if (u_bytes + x_bytes > std::min(max_bytes, share)) return OkStatus();

  std::unique_ptr<TokenTable> created(new TokenTable(gpu));
  Status status = created->Allocate(u_bytes, x_bytes);
  if (status.ok()) {
    if (keeps_x) {
      created->x_ = created->own_x_.data();
    } else if (needs_x) {
      created->x_ = weights.tensor(stack.embedding);
    }
    GpuStream stream;
    status = GpuStream::Create(gpu, &stream);
    if (status.ok()) {
      status = RunWork(*stream, [&] {
        SRU_RETURN_IF_ERROR(stream->Initialize(created->u_.data(), u_bytes));
        return keeps_x ? stream->Initialize(created->own_x_.data(), x_bytes) : OkStatus();
      });
    }
    if (status.ok()) {
      status = MakeRows(stack, weights, plans, gpu, stream, created->u_.as<char>(),
                        created->own_x_.as<char>());
    }
  }
  if (status.code() == StatusCode::kResourceExhausted) return OkStatus();
  if (status.ok()) *table = std::move(created);
  return status;
}

Status TokenTable::Allocate(size_t u_bytes, size_t x_bytes) {
  Status status = DeviceBuffer::Create(gpu_, u_bytes, &u_);
  if (status.ok()) status = DeviceBuffer::Create(gpu_, x_bytes, &own_x_);
  gpu_->CountWeights(bytes());
  return status;
}

}  // namespace sru::kernels::cuda
