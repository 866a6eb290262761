#include "models/model_sizes.h"

#include <algorithm>

#include "kernels/cpu/base/weight_layout.h"
#include "models/stack_builder.h"

namespace sru::models {

using kernels::cpu::RowLayout;

namespace {

// Columns that a product's packed weights are rounded up to.
constexpr int64_t kProductColumns = 64;
// Float32 matrices of a part's size that packing it takes (product.cc).
constexpr int64_t kPartCopies = 3;

}  // namespace

int64_t ProductColumns(int64_t n) {
  return (n + kProductColumns - 1) / kProductColumns * kProductColumns;
}

int64_t AddProduct(int64_t k, int64_t n, ModelSizes* sizes) {
  const int64_t columns = ProductColumns(n);
  sizes->packed += k * columns;
  sizes->columns += columns;
  return k * columns;
}

int64_t AddLinear(int64_t inputs, int64_t outputs, ModelSizes* sizes) {
  sizes->in_file += inputs * outputs;
  sizes->constants += outputs;
  return AddProduct(RowLayout{1, static_cast<int>(inputs)}.stride(), outputs, sizes);
}

bool AddLayers(const EncoderConfig& encoder, RowLayout rows, int64_t vocabulary_size,
               ModelSizes* sizes) {
  sizes->widest_row = std::max<int64_t>(sizes->widest_row, rows.stride());
  const RowLayout output = {encoder.directions(), encoder.hidden_size};
  bool looks_up_input = false;
  if (encoder.has_input_to_hidden()) {
    sizes->in_file += int64_t{encoder.input_size} * encoder.output_size();
    const int64_t packed = AddProduct(rows.stride(), output.stride(), sizes);
    sizes->passing = packed + int64_t{encoder.input_size} * encoder.output_size();
    rows = output;
  }
  for (int i = 0; i < encoder.num_layers; ++i) {
    const kernels::LayerSpec layer = LayerSizes(encoder, i);
    const int64_t input = layer.input_size;
    const int64_t gates = layer.num_matrices;
    RowLayout product = rows;
    if (layer.layer_norm == kernels::LayerNorm::kBefore) sizes->product_rows += rows.stride();
    if (layer.projection_size > 0) {
      product = {1, layer.projection_size};
      const int64_t packed = AddProduct(rows.stride(), product.stride(), sizes);
      sizes->in_file += input * layer.projection_size;
      sizes->passing = std::max(sizes->passing, input * layer.projection_size + packed);
      sizes->product_rows += product.stride();
    }
    for (int direction = 0; direction < layer.directions; ++direction) {
      AddProduct(product.stride(), gates * output.padded(), sizes);
    }
    const int64_t weight = int64_t{layer.product_size()} * layer.output_size() * gates;
    sizes->in_file += weight;
    const int64_t part =
        product.stride() * gates * std::min<int64_t>(kernels::cpu::kPartSize, output.padded());
    sizes->passing_gates = std::max(sizes->passing_gates, weight + kPartCopies * part);
    sizes->constants += int64_t{4} * output.stride();
    if (i == 0 && vocabulary_size > 0 && !encoder.has_input_to_hidden()) {
      const int64_t table = (vocabulary_size + kernels::cpu::kMaxChunkRows) * layer.directions *
                            gates * output.padded();
      if (table * kValueBytes <= static_cast<int64_t>(kernels::cpu::kMaxTokenProductBytes)) {
        sizes->token_table = table;
      }
      looks_up_input = sizes->token_table > 0 && (gates == 4 || !layer.has_skip_term);
    }
    rows = output;
  }
  sizes->widest_row = std::max<int64_t>(sizes->widest_row, output.stride());
  sizes->parts = (output.stride() + kernels::cpu::kPartSize - 1) / kernels::cpu::kPartSize;
  return looks_up_input;
}

ModelSizes StackSizes(const ModelConfig& config, int64_t outputs, int64_t block) {
  const EncoderConfig& encoder = config.encoder;
  ModelSizes sizes;
  const RowLayout input = {1, encoder.input_size};
  const RowLayout output = {encoder.directions(), encoder.hidden_size};
  const int64_t vocabulary_size = config.has_embedding ? config.embedding.vocabulary_size : 0;
  const bool looks_up_input = AddLayers(encoder, input, vocabulary_size, &sizes);
  if (!looks_up_input) sizes.embedding = vocabulary_size * input.stride();
  sizes.in_file += vocabulary_size * encoder.input_size;
  if (!config.tied) sizes.in_file += outputs * encoder.output_size();
  AddProduct(output.stride(), outputs, &sizes);
  sizes.passing =
      std::max(sizes.passing, std::min(block, outputs) * encoder.output_size() +
                                  output.stride() * ProductColumns(std::min(block, outputs)));
  return sizes;
}

ModelSizes StackSizes(const ModelConfig& config) {
  const auto labels = static_cast<int64_t>(config.labels.size());
  return StackSizes(config, labels, labels);
}

}  // namespace sru::models
