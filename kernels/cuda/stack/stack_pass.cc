#include "kernels/cuda/stack/stack_pass.h"

#include <utility>

#include "kernels/common/outputs.h"
#include "kernels/cuda/stack/before_scan.h"

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
        before_scan_(stack, weights, *pass.stream, pass.header, pass.max_tokens,
                     [this](const PackedProduct& product, const void* x, void* y) {
                       return Multiply(product, x, y);
                     }),
        x_(pass.rows != nullptr ? pass.rows : pass.x),
        h_(pass.h),
        next_h_(pass.x) {}

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

 private:
  bool ScanFinishesOutputs() const { return kernels::ScanFinishesOutputs(stack_.spec); }

  Status Multiply(const PackedProduct& product, const void* x, void* y) const {
    const ProductChoice& choice = pass_.choice(product);
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
    if (pass_.rows == nullptr) {
      return before_scan_.MakeInput(pass_.token_ids, pass_.features, pass_.feature_stride, h_,
                                    pass_.x);
    }
    if (!stack_.input_to_hidden.exists()) return OkStatus();
    x_ = pass_.x;
    return Multiply(stack_.input_to_hidden, pass_.rows, pass_.x);
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
    SRU_RETURN_IF_ERROR(before_scan_.Prepare(layer, x_, pass_.normalized, pass_.projected, &input));
    if (layer.fused_k > 0) return RunFused(index, input);
    SRU_RETURN_IF_ERROR(Multiply(layer.product, input, pass_.u));
    return Scan(index);
  }

  Status Scan(size_t index) {
    const PackedLayer& layer = stack_.layers[index];
    ScanArgs args = ArgsOfScan(index);
    args.u = pass_.u;
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
    args.sequences = pass_.sequences;
    args.num_sequences = pass_.num_sequences;
    args.segments = stack_.output().segments;
    args.padded = stack_.output().padded();
    args.h = x_;
    args.token_vectors = pass_.token_vectors;
    args.pooled = pass_.pooled;
    if (args.token_vectors == nullptr && args.pooled == nullptr) return OkStatus();
    return pass_.stream->Pool(stack_.dtype, args);
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
    return pass_.stream->Classify(args);
  }

  const PackedStack& stack_;
  const DeviceStack& weights_;
  const TokenTable* const table_;
  const StackPass& pass_;
  const BeforeScan before_scan_;
  const void* x_;  // the layer's input
  void* h_;        // its output, and that of the next layer
  void* next_h_;
};

}  // namespace

Status EnqueueStack(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                    const StackPass& pass) {
  return Pass(stack, weights, table, pass).Enqueue();
}

}  // namespace sru::kernels::cuda
