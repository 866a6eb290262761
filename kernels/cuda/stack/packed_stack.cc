#include "kernels/cuda/stack/packed_stack.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "kernels/common/gate_scale.h"
#include "kernels/cuda/kernels/fused_shape.h"
#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {
namespace {

// Makes the tensors of a stack.
class Packer {
 public:
  explicit Packer(PackedStack* stack) : stack_(*stack) {}

  // A tensor of `size` values, `at(i)` each, in the storage type or in float32.
  TensorIndex Add(DataType dtype, size_t size, const std::function<float(size_t)>& at) {
    std::vector<uint8_t> bytes(size * ValueBytes(dtype));
    for (size_t i = 0; i < size; ++i) {
      const float value = at(i);
      StoreAs(dtype, &value, 1, &bytes[i * ValueBytes(dtype)]);
    }
    stack_.tensors.push_back(std::move(bytes));
    return static_cast<TensorIndex>(stack_.tensors.size()) - 1;
  }

  // Rows of a dense [rows][layout.width()] in the padded form.
  TensorIndex AddRows(DataType dtype, const RowLayout& layout, size_t rows, const float* values) {
    return Add(dtype, rows * layout.stride(), [&](size_t i) {
      const int j = layout.ValueAt(static_cast<int>(i % layout.stride()));
      return j < 0 ? 0.0f : values[i / layout.stride() * layout.width() + j];
    });
  }

  // A product with rows of `k` coming in and `n` values going out; at(i, j) is the weight from
  // value i of a row without padding to value j.
  PackedProduct AddProduct(const RowLayout& k, int n, const std::function<float(int, int)>& at) {
    ProductShape shape;
    shape.k = k.stride();
    shape.n = n;
    shape.dtype = stack_.dtype;
    PackedProduct product;
    const auto found = std::find(stack_.shapes.begin(), stack_.shapes.end(), shape);
    product.shape = static_cast<int>(found - stack_.shapes.begin());
    if (found == stack_.shapes.end()) stack_.shapes.push_back(shape);
    product.weights = AddWeights(k, n, at);
    return product;
  }

  TensorIndex AddWeights(const RowLayout& k, int n, const std::function<float(int, int)>& at) {
    const int stride = k.stride();
    return Add(stack_.dtype, static_cast<size_t>(n) * stride, [&](size_t at_index) {
      const int i = k.ValueAt(static_cast<int>(at_index % stride));
      return i < 0 ? 0.0f : at(i, static_cast<int>(at_index / stride));
    });
  }

 private:
  PackedStack& stack_;
};

PackedLayer PackLayer(WeightSource* weights, const LayerSpec& spec, const RowLayout& input,
                      const PackOptions& options, bool fuse, Packer& packer) {
  const ReadLayerVectors vectors(weights, spec);
  PackedLayer layer;
  layer.input = input;
  layer.output = {spec.directions, spec.hidden_size};
  layer.matrices = spec.num_matrices;
  layer.highway = HighwayOf(spec);
  layer.alpha = spec.alpha;
  layer.activation = spec.activation;
  layer.layer_norm = spec.layer_norm;
  if (spec.layer_norm != LayerNorm::kNone) {
    const RowLayout& normed = spec.layer_norm == LayerNorm::kBefore ? layer.input : layer.output;
    layer.norm_weight = packer.AddRows(DataType::kFloat32, normed, 1, spec.norm_weight.data);
    layer.norm_bias = packer.AddRows(DataType::kFloat32, normed, 1, spec.norm_bias.data);
  }

  RowLayout product_rows = input;
  if (spec.projection_size > 0) {
    product_rows = {1, spec.projection_size};
    const ReadWeights readable(weights, spec.weight_proj);
    layer.projection = packer.AddProduct(input, product_rows.stride(), [&](int i, int j) {
      return j < spec.projection_size
                 ? spec.weight_proj.data[static_cast<size_t>(i) * spec.projection_size + j]
                 : 0.0f;
    });
  }

  const ReadWeights readable(weights, spec.weight);
  const float gate_scale = WithStorageType(
      options.dtype, [](auto type) { return StorageType<decltype(type)>::kGateScale; });
  const int hidden = spec.hidden_size;
  const int padded = layer.output.padded();
  const int matrices = spec.num_matrices;
  const int columns = spec.directions * matrices * padded;
  const auto weight = [&](int i, int column) {
    const int direction = column / (matrices * padded);
    const int matrix = column / padded % matrices;
    const int j = column % padded;
    if (j >= hidden) return 0.0f;
    const float scale = IsGateMatrix(matrix) ? gate_scale : 1.0f;
    const size_t row = static_cast<size_t>(i) * spec.directions + direction;
    return scale * spec.weight.data[(row * hidden + j) * matrices + matrix];
  };
  if (fuse && product_rows.stride() <= kFusedMaxInput) {
    layer.fused_k = product_rows.stride();
    layer.product.weights = packer.AddWeights(product_rows, columns, weight);
  } else {
    layer.product = packer.AddProduct(product_rows, columns, weight);
  }
  layer.constants = packer.Add(
      DataType::kFloat32, static_cast<size_t>(spec.directions) * 4 * padded, [&](size_t index) {
        const int at = static_cast<int>(index);
        const int direction = at / (4 * padded);
        const int kind = at / padded % 4;  // v_f, v_r, b_f, b_r
        const int j = at % padded;
        if (j >= hidden) return 0.0f;
        const FloatView& from = kind < 2 ? spec.weight_c : spec.bias;
        if (from.empty()) return 0.0f;
        return gate_scale * from.data[kind % 2 * spec.output_size() + direction * hidden + j];
      });
  return layer;
}

}  // namespace

PackedStack::PackedStack(const StackSpec& stack, const PackOptions& options, WeightSource* weights)
    : spec(WithoutWeights(stack)), dtype(options.dtype) {
  Packer packer(this);
  const LayerSpec& first = stack.layers[0];
  RowLayout rows{1, first.input_size};
  // The highway term adds the input to the output, so both need the same layout.
  if (HighwayOf(first) == Highway::kInput) rows = {first.directions, first.hidden_size};
  input = rows;
  if (!stack.input_to_hidden.empty()) {
    input = {1, stack.input_size};
    const ReadWeights readable(weights, stack.input_to_hidden);
    input_to_hidden = packer.AddProduct(input, rows.stride(), [&](int i, int p) {
      const int j = rows.ValueAt(p);
      return j < 0 ? 0.0f
                   : stack.input_to_hidden.data[static_cast<size_t>(j) * stack.input_size + i];
    });
  }
  if (stack.vocabulary_size > 0) {
    const ReadWeights readable(weights, stack.embedding);
    embedding = packer.AddRows(dtype, input, stack.vocabulary_size, stack.embedding.data);
  }
  for (const LayerSpec& layer : stack.layers) {
    // Where U is looked up by token id (token_table.h) there is no product to save, and with it or
    // without, for want of memory, the bits must be the same.
    const bool looked_up = layers.empty() && stack.vocabulary_size > 0;
    const bool fuse = options.fuse_layers && dtype == DataType::kBFloat16 && !looked_up;
    layers.push_back(PackLayer(weights, layer, rows, options, fuse, packer));
    rows = layers.back().output;
  }
  if (stack.num_labels > 0) {
    const ReadWeights weight(weights, stack.classifier_weight);
    const ReadWeights bias(weights, stack.classifier_bias);
    classifier_weight =
        packer.AddRows(DataType::kFloat32, rows, stack.num_labels, stack.classifier_weight.data);
    classifier_bias = packer.Add(DataType::kFloat32, stack.num_labels, [&](size_t i) {
      return stack.classifier_bias.empty() ? 0.0f : stack.classifier_bias.data[i];
    });
  }
}

Status DeviceStack::Create(const HostTensors& tensors, const std::shared_ptr<Gpu>& gpu,
                           Stream& stream, std::unique_ptr<DeviceStack>* device_stack) {
  std::unique_ptr<DeviceStack> created(new DeviceStack(gpu));
  std::vector<ArrayView>& views = created->tensors_;
  views.resize(tensors.size());
  ArrayPlan plan;
  for (size_t i = 0; i < tensors.size(); ++i) plan.Add(&views[i], tensors[i].size());
  SRU_RETURN_IF_ERROR(gpu->CheckBudget("the weights", plan.bytes()));
  SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu, plan, &created->memory_));
  plan.Place(created->memory_.data());
  created->bytes_ = created->memory_.bytes();
  gpu->CountWeights(created->bytes_);
  SRU_RETURN_IF_ERROR(RunWork(stream, [&] {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].empty()) continue;
      SRU_RETURN_IF_ERROR(
          stream.CopyToDevice(views[i].data(), tensors[i].data(), tensors[i].size()));
    }
    return OkStatus();
  }));
  *device_stack = std::move(created);
  return OkStatus();
}

}  // namespace sru::kernels::cuda
