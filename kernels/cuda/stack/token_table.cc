#include "kernels/cuda/stack/token_table.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/stack/before_scan.h"

namespace sru::kernels::cuda {
namespace {

// Rows are made in chunks, for which the reference algorithms were tried. The table is a whole
// number of them, so that every chunk is as well aligned as a workspace's rows.
constexpr int kChunk = kReferenceRows;

size_t TableRows(const PackedStack& stack) {
  const size_t vocabulary = stack.spec.vocabulary_size;
  return (vocabulary + kChunk - 1) / kChunk * kChunk;
}

// Makes the rows of a table. What it allocates is needed until its work is done.
class TableMaker {
 public:
  TableMaker(const PackedStack& stack, const DeviceStack& weights, const ProductPlans& plans)
      : stack_(stack), weights_(weights), plans_(plans) {}

  // Uses an idle stream and waits for it. `x` is null when the first layer's input is not kept.
  Status Run(const std::shared_ptr<Gpu>& gpu, Stream& stream, char* u, char* x) {
    const BatchHeader header{kChunk, {}};
    // Rows past the vocabulary repeat its last one.
    std::vector<int32_t> ids(TableRows(stack_));
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<int32_t>(std::min<size_t>(i, stack_.spec.vocabulary_size - 1));
    }
    SRU_RETURN_IF_ERROR(Allocate(gpu, ids.size() * sizeof(int32_t), x == nullptr));
    const BeforeScan before_scan(stack_, weights_, stream, header_.as<BatchHeader>(), kChunk,
                                 [&](const PackedProduct& product, const void* from, void* to) {
                                   return Multiply(stream, product, from, to);
                                 });
    return RunWork(stream, [&] {
      SRU_RETURN_IF_ERROR(stream.CopyToDevice(header_.data(), &header, sizeof(header)));
      SRU_RETURN_IF_ERROR(
          stream.CopyToDevice(ids_.data(), ids.data(), ids.size() * sizeof(int32_t)));
      // Products read whole rows, with their padding.
      for (const DeviceBuffer* rows : {&x_, &projected_}) {
        if (rows->bytes() == 0) continue;
        SRU_RETURN_IF_ERROR(stream.Initialize(rows->data(), rows->bytes()));
      }
      for (size_t begin = 0; begin < ids.size(); begin += kChunk) {
        void* const chunk_x = x == nullptr ? x_.data() : x + begin * InputBytes();
        const void* input = nullptr;
        SRU_RETURN_IF_ERROR(before_scan.MakeInput(ids_.as<int32_t>() + begin, nullptr, 0,
                                                  embedded_.data(), chunk_x));
        SRU_RETURN_IF_ERROR(
            before_scan.Prepare(first(), chunk_x, normalized_.data(), projected_.data(), &input));
        SRU_RETURN_IF_ERROR(Multiply(stream, first().product, input, u + begin * ProductBytes()));
      }
      return OkStatus();
    });
  }

 private:
  const PackedLayer& first() const { return stack_.layers[0]; }
  // Of one row.
  size_t InputBytes() const { return first().input.stride() * ValueBytes(stack_.dtype); }
  size_t ProductBytes() const { return stack_.shape(first().product).n * ValueBytes(stack_.dtype); }

  Status Allocate(const std::shared_ptr<Gpu>& gpu, size_t id_bytes, bool temporary_x) {
    const bool maps_input = stack_.input_to_hidden.exists();
    const bool normalizes = first().layer_norm == LayerNorm::kBefore;
    const size_t projected = first().projection.exists()
                                 ? stack_.shape(first().projection).n * ValueBytes(stack_.dtype)
                                 : 0;
    struct Array {
      DeviceBuffer* buffer;
      size_t bytes;
    };
    const Array arrays[] = {
        {&header_, sizeof(BatchHeader)},
        {&ids_, id_bytes},
        {&embedded_, maps_input ? kChunk * stack_.input.stride() * ValueBytes(stack_.dtype) : 0},
        {&x_, temporary_x ? kChunk * InputBytes() : 0},
        {&normalized_, normalizes ? kChunk * InputBytes() : 0},
        {&projected_, kChunk * projected},
    };
    for (const Array& array : arrays) {
      SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu, array.bytes, array.buffer));
    }
    return OkStatus();
  }

  Status Multiply(Stream& stream, const PackedProduct& product, const void* x, void* y) {
    return stream.Multiply(stack_.shape(product), plans_.reference(product), kChunk, x,
                           weights_.tensor(product.weights), y);
  }

  const PackedStack& stack_;
  const DeviceStack& weights_;
  const ProductPlans& plans_;
  DeviceBuffer header_, ids_;
  DeviceBuffer embedded_, x_, normalized_, projected_;  // of one chunk
};

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
    TableMaker maker(stack, weights, plans);
    status = GpuStream::Create(gpu, &stream);
    if (status.ok()) {
      status = RunWork(*stream, [&] {
        SRU_RETURN_IF_ERROR(stream->Initialize(created->u_.data(), u_bytes));
        return keeps_x ? stream->Initialize(created->own_x_.data(), x_bytes) : OkStatus();
      });
    }
    if (status.ok()) {
      status = maker.Run(gpu, *stream, created->u_.as<char>(), created->own_x_.as<char>());
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
