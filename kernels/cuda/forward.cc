#include "kernels/cuda/forward.h"

#include <utility>

#include "kernels/common/outputs.h"
#include "kernels/cuda/before_scan.h"

namespace sru::kernels::cuda {
namespace {

#define SRU_RETURN_IF_ERROR(expression)             \
  do {                                              \
    if (Status s = (expression); !s.ok()) return s; \
  } while (false)

class Forward {
 public:
  Forward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
          const Bucket& bucket, CudaWorkspace& workspace)
      : stack_(stack),
        weights_(weights),
        table_(bucket.has(Bucket::kFeatures) ? nullptr : table),
        bucket_(bucket),
        ws_(workspace),
        layout_(stack, bucket),
        before_scan_(stack, weights, *workspace.stream, header(), bucket.tokens,
                     [this](const PackedProduct& product, const void* x, void* y) {
                       return Multiply(product, x, y);
                     }),
        x_(workspace.x.data()),
        h_(workspace.h.data()) {}

  Status Enqueue() {
    if (table_ == nullptr) SRU_RETURN_IF_ERROR(MakeInput());
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      SRU_RETURN_IF_ERROR(RunLayer(i));
      std::swap(x_, h_);
    }
    if (!ScanFinishesOutputs()) SRU_RETURN_IF_ERROR(Pool());
    if (bucket_.has(Bucket::kLabels)) SRU_RETURN_IF_ERROR(Classify());
    SRU_RETURN_IF_ERROR(CopyRows(Bucket::kLabels, ws_.labels));
    SRU_RETURN_IF_ERROR(CopyRows(Bucket::kPooled, ws_.pooled));
    return CopyRows(Bucket::kFinalState, ws_.final_state);
  }

 private:
  template <typename T>
  const T* Input(size_t offset) const {
    return reinterpret_cast<const T*>(ws_.input.as<char>() + offset);
  }
  const BatchHeader* header() const { return Input<BatchHeader>(layout_.header); }
  const SequenceEntry* sequences() const { return Input<SequenceEntry>(layout_.sequences); }
  bool ScanFinishesOutputs() const { return kernels::ScanFinishesOutputs(stack_.spec); }
  bool Pools() const { return bucket_.has(Bucket::kLabels) || bucket_.has(Bucket::kPooled); }
  float* TokenVectors() const {
    return bucket_.has(Bucket::kTokenVectors) ? ws_.token_vectors.device.as<float>() : nullptr;
  }
  float* Pooled() const { return Pools() ? ws_.pooled.device.as<float>() : nullptr; }

  Status Multiply(const PackedProduct& product, const void* x, void* y) const {
    const ProductChoice& choice = ws_.choice(product, bucket_);
    return ws_.stream->Multiply(stack_.shape(product), choice.algorithm, choice.rows, x,
                                weights_.tensor(product.weights), y);
  }

  // The first layer's input, into x_.
  Status MakeInput() {
    const bool features = bucket_.has(Bucket::kFeatures);
    return before_scan_.MakeInput(features ? nullptr : Input<int32_t>(layout_.tokens),
                                  features ? Input<float>(layout_.tokens) : nullptr, h_, x_);
  }

  // x_ -> h_.
  Status RunLayer(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    SRU_RETURN_IF_ERROR(FromTable(index) ? Scan(index) : MultiplyAndScan(index));
    if (layer.layer_norm == LayerNorm::kAfter) {
      SRU_RETURN_IF_ERROR(before_scan_.Normalize(layer, layer.output, h_, h_));
    }
    return OkStatus();
  }

  // Whether the layer's U is looked up.
  bool FromTable(size_t index) const { return index == 0 && table_ != nullptr; }

  Status MultiplyAndScan(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    const void* input = nullptr;
    SRU_RETURN_IF_ERROR(
        before_scan_.Prepare(layer, x_, ws_.normalized.data(), ws_.projected.data(), &input));
    if (layer.fused_k > 0) return RunFused(index, input);
    SRU_RETURN_IF_ERROR(Multiply(layer.product, input, ws_.u.data()));
    return Scan(index);
  }

  Status Scan(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    ScanArgs args = ArgsOfScan(index);
    args.u = ws_.u.data();
    args.u_stride = stack_.shape(layer.product).n;
    if (FromTable(index)) {
      args.token_ids = Input<int32_t>(layout_.tokens);
      args.u = table_->u();
    }
    if (layer.highway == Highway::kInput) {
      if (FromTable(index)) args.highway = table_->x();
    } else {
      // U's fourth plane, or anything where the scale is 0.
      const int plane = layer.highway == Highway::kMatrix ? 3 : 0;
      args.highway =
          static_cast<const char*>(args.u) + plane * args.padded * ValueBytes(stack_.dtype);
      args.highway_stride = args.u_stride;
      args.highway_direction_stride = layer.matrices * args.padded;
    }
    return ws_.stream->Scan(stack_.dtype, args);
  }

  Status RunFused(size_t index, const void* x) {
    const PackedLayer& layer = stack_.layers[index];
    FusedArgs args{};
    args.scan = ArgsOfScan(index);
    args.x = x;
    args.weights = weights_.tensor(layer.product.weights);
    args.k = layer.fused_k;
    return ws_.stream->RunFusedLayer(args);
  }

  // Fills every field except U; the highway fields only if the highway reads the layer's input.
  ScanArgs ArgsOfScan(size_t index) const {
    const PackedLayer& layer = stack_.layers[index];
    const bool finishes = index + 1 == stack_.layers.size() && ScanFinishesOutputs();
    ScanArgs args{};
    args.sequences = sequences();
    args.num_sequences = bucket_.sequences;
    args.directions = layer.output.segments;
    args.padded = layer.output.padded();
    args.matrices = layer.matrices;
    switch (layer.highway) {
      case Highway::kNone:
        break;
      case Highway::kInput:
        args.highway = x_;
        args.highway_stride = layer.input.stride();
        args.highway_direction_stride = args.padded;
        args.highway_scale = layer.alpha;
        break;
      case Highway::kMatrix:
        args.highway_scale = 1.0f;
        break;
    }
    args.constants = weights_.floats(layer.constants);
    args.activation = layer.activation;
    const size_t width = layer.output.stride();
    args.state_stride = static_cast<int64_t>(stack_.layers.size() * width);
    if (bucket_.has(Bucket::kInitialState)) {
      args.initial_state = Input<float>(layout_.initial_state) + index * width;
    }
    if (bucket_.has(Bucket::kFinalState)) {
      args.final_state = ws_.final_state.device.as<float>() + index * width;
    }
    if (finishes) {
      args.token_vectors = TokenVectors();
      args.pooled = Pooled();
    } else {
      args.h = h_;
    }
    return args;
  }

  // Of the last layer's output, which is x_ by now.
  Status Pool() {
    PoolArgs args{};
    args.sequences = sequences();
    args.num_sequences = bucket_.sequences;
    args.segments = stack_.output().segments;
    args.padded = stack_.output().padded();
    args.h = x_;
    args.token_vectors = TokenVectors();
    args.pooled = Pooled();
    if (args.token_vectors == nullptr && args.pooled == nullptr) return OkStatus();
    return ws_.stream->Pool(stack_.dtype, args);
  }

  Status Classify() {
    HeadArgs args{};
    args.sequences = sequences();
    args.num_sequences = bucket_.sequences;
    args.stride = stack_.output().stride();
    args.labels = stack_.spec.num_labels;
    args.pooled = Pooled();
    args.weight = weights_.floats(stack_.classifier_weight);
    args.bias = weights_.floats(stack_.classifier_bias);
    args.label_results = ws_.labels.device.as<float>();
    return ws_.stream->Classify(args);
  }

  Status CopyRows(Bucket::Flag flag, const ResultRows& rows) {
    if (!bucket_.has(flag)) return OkStatus();
    return ws_.stream->CopyToHost(rows.host.data(), rows.device.data(),
                                  bucket_.sequences * rows.row_values * sizeof(float));
  }

  const PackedStack& stack_;
  const DeviceStack& weights_;
  const TokenTable* const table_;
  const Bucket bucket_;
  CudaWorkspace& ws_;
  const InputLayout layout_;
  const BeforeScan before_scan_;
  void* x_;
  void* h_;
};

#undef SRU_RETURN_IF_ERROR

}  // namespace

Status EnqueueForward(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                      const Bucket& bucket, CudaWorkspace& workspace) {
  return Forward(stack, weights, table, bucket, workspace).Enqueue();
}

}  // namespace sru::kernels::cuda
