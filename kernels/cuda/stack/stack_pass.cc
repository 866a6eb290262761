#include "kernels/cuda/stack/stack_pass.h"

#include <algorithm>
#include <utility>

#include "kernels/backend.h"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/cuda/stack/token_table.h"

namespace sru::kernels::cuda {
namespace {

class Pass {
 public:
  Pass(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
       const StackPass& pass)
      : stack_(stack),
        weights_(weights),
        table_(pass.token_ids != nullptr ? table : nullptr),
        pass_(pass),
        scratch_(*pass.scratch),
        x_(pass.rows != nullptr ? pass.rows : scratch_.x.data()),
        h_(scratch_.h.data()),
        next_h_(scratch_.x.data()) {}

  Status Enqueue() {
    if (table_ == nullptr) SRU_RETURN_IF_ERROR(MakeInput());
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      SRU_RETURN_IF_ERROR(RunLayer(i));
      x_ = h_;
      std::swap(h_, next_h_);
    }
    if (!ScanFinishesOutputs()) SRU_RETURN_IF_ERROR(Pool());
    return pass_.label_results != nullptr ? Classify() : OkStatus();
  }

  Status EnqueueFirstProduct() {
    const void* input = nullptr;
    SRU_RETURN_IF_ERROR(MakeInput());
    SRU_RETURN_IF_ERROR(Prepare(stack_.layers[0], &input));
    return Multiply(stack_.layers[0].product, input, scratch_.u.data());
  }

 private:
  bool ScanFinishesOutputs() const { return kernels::ScanFinishesOutputs(stack_.spec); }

  Status Multiply(const PackedProduct& product, const void* x, void* y) const {
    const ProductChoice choice = pass_.choice(product);
    if (pass_.first_product != nullptr && x == pass_.rows) {
      NormalizedProductArgs args = *pass_.first_product;
      const ProductShape& shape = stack_.shape(product);
      static_cast<SkinnyArgs&>(args) = {
          choice.rows, shape.k, shape.n, nullptr, weights_.tensor(product.weights), y};
      return pass_.stream->Multiply(shape, args);
    }
    return pass_.stream->Multiply(stack_.shape(product), choice.algorithm, choice.rows, x,
                                  weights_.tensor(product.weights), y);
  }

  // The first layer's input, into x_.
  Status MakeInput() {
    const bool maps_input = stack_.input_to_hidden.exists();
    const void* unmapped = pass_.rows;
    if (unmapped == nullptr) {
      void* const embedded = maps_input ? h_ : scratch_.x.data();
      SRU_RETURN_IF_ERROR(Embed(embedded));
      unmapped = embedded;
    }
    if (!maps_input) return OkStatus();
    x_ = scratch_.x.data();
    return Multiply(stack_.input_to_hidden, unmapped, scratch_.x.data());
  }

  Status Embed(void* x) const {
    EmbedArgs args{};
    args.dtype = stack_.dtype;
    args.header = pass_.header;
    args.max_tokens = pass_.max_tokens;
    args.token_ids = pass_.token_ids;
    args.features = pass_.features;
    args.feature_stride = pass_.feature_stride;
    if (pass_.token_ids != nullptr) args.table = weights_.tensor(stack_.embedding);
    args.segments = stack_.input.segments;
    args.size = stack_.input.size;
    args.padded = stack_.input.padded();
    args.x = x;
    return pass_.stream->RunOperation(args);
  }

  // What the layer's product multiplies: x_, or what layer norm and projection make of it.
  Status Prepare(const PackedLayer& layer, const void** input) const {
    *input = x_;
    if (layer.layer_norm == LayerNorm::kBefore) {
      void* const normalized = scratch_.normalized.data();
      SRU_RETURN_IF_ERROR(Normalize(layer, layer.input, x_, normalized));
      *input = normalized;
    }
    if (!layer.projection.exists()) return OkStatus();
    const void* const unprojected = *input;
    *input = scratch_.projected.data();
    return Multiply(layer.projection, unprojected, scratch_.projected.data());
  }

  // y may be x.
  Status Normalize(const PackedLayer& layer, const RowLayout& rows, const void* x, void* y) const {
    NormalizeRowsArgs args{};
    args.header = pass_.header;
    args.max_rows = pass_.max_tokens;
    args.segments = rows.segments;
    args.size = rows.size;
    args.padded = rows.padded();
    args.dtype = stack_.dtype;
    args.x = const_cast<void*>(x);  // written with a sum only
    args.weight = weights_.floats(layer.norm_weight);
    args.bias = weights_.floats(layer.norm_bias);
    args.epsilon = kLayerNormEpsilon;
    if (stack_.dtype == DataType::kFloat32) {
      args.y = static_cast<float*>(y);
    } else {
      args.rounded = static_cast<BFloat16*>(y);
    }
    return pass_.stream->RunOperation(args);
  }

  // x_ -> h_.
  Status RunLayer(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    SRU_RETURN_IF_ERROR(FromTable(index) ? Scan(index) : MultiplyAndScan(index));
    if (layer.layer_norm == LayerNorm::kAfter) {
      SRU_RETURN_IF_ERROR(Normalize(layer, layer.output, h_, h_));
    }
    return OkStatus();
  }

  // Whether the layer's U is looked up.
  bool FromTable(size_t index) const { return index == 0 && table_ != nullptr; }

  Status MultiplyAndScan(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    const void* input = nullptr;
    SRU_RETURN_IF_ERROR(Prepare(layer, &input));
    if (layer.fused_k > 0) return RunFused(index, input);
    SRU_RETURN_IF_ERROR(Multiply(layer.product, input, scratch_.u.data()));
    return Scan(index);
  }

  Status Scan(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    ScanArgs args = ArgsOfScan(index);
    args.u = scratch_.u.data();
    args.u_stride = stack_.shape(layer.product).n;
    if (FromTable(index)) {
      args.token_ids = pass_.token_ids;
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
    return pass_.stream->Scan(stack_.dtype, args);
  }

  Status RunFused(size_t index, const void* x) {
    const PackedLayer& layer = stack_.layers[index];
    FusedArgs args{};
    args.scan = ArgsOfScan(index);
    args.x = x;
    args.weights = weights_.tensor(layer.product.weights);
    args.k = layer.fused_k;
    return pass_.stream->RunFusedLayer(args);
  }

  // Fills every field except U; the highway fields only if the highway reads the layer's input.
  ScanArgs ArgsOfScan(size_t index) const {
    const PackedLayer& layer = stack_.layers[index];
    const bool finishes = index + 1 == stack_.layers.size() && ScanFinishesOutputs();
    ScanArgs args{};
    args.sequences = pass_.sequences;
    args.num_sequences = pass_.num_sequences;
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
    if (pass_.initial_state != nullptr) args.initial_state = pass_.initial_state + index * width;
    if (pass_.final_state != nullptr) args.final_state = pass_.final_state + index * width;
    if (!finishes) {
      args.h = h_;
    } else if (pass_.output != nullptr) {
      args.h = pass_.output;
    } else {
      args.token_vectors = pass_.token_vectors;
      args.pooled = pass_.pooled;
    }
    return args;
  }

  // Of the last layer's output, which is x_ by now.
  Status Pool() {
    PoolArgs args{};
    args.dtype = stack_.dtype;
    args.sequences = pass_.sequences;
    args.num_sequences = pass_.num_sequences;
    args.segments = stack_.output().segments;
    args.padded = stack_.output().padded();
    args.h = x_;
    args.token_vectors = pass_.token_vectors;
    args.pooled = pass_.pooled;
    if (args.token_vectors == nullptr && args.pooled == nullptr) return OkStatus();
    return pass_.stream->RunOperation(args);
  }

  Status Classify() {
    HeadArgs args{};
    args.sequences = pass_.sequences;
    args.num_sequences = pass_.num_sequences;
    args.stride = stack_.output().stride();
    args.labels = stack_.spec.num_labels;
    args.pooled = pass_.pooled;
    args.weight = weights_.floats(stack_.classifier_weight);
    args.bias = weights_.floats(stack_.classifier_bias);
    args.label_results = pass_.label_results;
    args.host_results = pass_.host_label_results;
    return pass_.stream->RunOperation(args);
  }

  const PackedStack& stack_;
  const DeviceStack& weights_;
  const TokenTable* const table_;
  const StackPass& pass_;
  const StackScratch& scratch_;
  const void* x_;  // the layer's input
  void* h_;        // its output, and that of the next layer
  void* next_h_;
};

}  // namespace

std::array<size_t, StackScratch::kArrays> StackScratch::Bytes(const PackedStack& stack,
                                                              size_t rows) {
  int x = stack.input.stride();
  int normalized = 0;
  int projected = 0;
  int u = 0;
  for (const PackedLayer& layer : stack.layers) {
    x = std::max({x, layer.input.stride(), layer.output.stride()});
    if (layer.layer_norm == LayerNorm::kBefore) {
      normalized = std::max(normalized, layer.input.stride());
    }
    if (layer.projection.exists()) projected = std::max(projected, stack.shape(layer.projection).n);
    if (layer.product.exists()) u = std::max(u, stack.shape(layer.product).n);
  }
  const size_t values = rows * ValueBytes(stack.dtype);
  return {x * values, x * values, normalized * values, projected * values, u * values};
}

void OrderSequences(SequenceEntry* entries, int count, int of_bucket) {
  std::sort(entries, entries + count, [](const SequenceEntry& a, const SequenceEntry& b) {
    return a.length != b.length ? a.length > b.length : a.index < b.index;
  });
  const SequenceEntry spare{0, 0, 0, Pooling::kNone, -1, -1, -1, -1};
  std::fill(entries + count, entries + of_bucket, spare);
}

Status EnqueueFirstProduct(const PackedStack& stack, const DeviceStack& weights,
                           const StackPass& pass) {
  return Pass(stack, weights, nullptr, pass).EnqueueFirstProduct();
}

Status EnqueueStack(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                    const StackPass& pass) {
  return Pass(stack, weights, table, pass).Enqueue();
}

}  // namespace sru::kernels::cuda
