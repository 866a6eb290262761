#include "kernels/cpu/packed_stack.h"

#include <algorithm>

#include "kernels/cpu/product_input.h"

namespace sru::kernels {
namespace {

// U of one chunk of tokens stays within this many bytes, so that the scan finds it in the
// second-level cache.
constexpr size_t kChunkBytes = 256 * 1024;
constexpr int kMinChunkRows = 32;
// Largest table of the first layer's products by token (TokenProducts).
constexpr size_t kMaxTokenProductBytes = size_t{64} << 20;

int ChunkRows(int columns) {
  const int rows = static_cast<int>(kChunkBytes / (sizeof(float) * columns)) / 16 * 16;
  return std::clamp(rows, kMinChunkRows, kMaxChunkRows);
}

NormWeights PackNorm(const LayerSpec& layer, const RowLayout& layout) {
  NormWeights norm{AlignedBuffer(layout.stride()), AlignedBuffer(layout.stride())};
  layout.Pack(layer.norm_weight.data, norm.weight.data());
  layout.Pack(layer.norm_bias.data, norm.bias.data());
  return norm;
}

Highway HighwayOf(const LayerSpec& layer) {
  if (!layer.has_skip_term) return Highway::kNone;
  return layer.num_matrices == 4 ? Highway::kMatrix : Highway::kInput;
}

// The columns of `spec.weight` that belong to one direction, as planes, with rows in the input's
// layout.
AlignedBuffer PackGateWeights(const LayerSpec& spec, const RowLayout& rows, int direction) {
  const int k = spec.num_matrices;
  const int padded = RoundUpToLanes(spec.hidden_size);
  AlignedBuffer packed(static_cast<size_t>(rows.stride()) * k * padded);
  for (int i = 0; i < rows.width(); ++i) {
    const float* from = spec.weight.data + (static_cast<size_t>(i) * spec.directions + direction) *
                                               spec.hidden_size * k;
    float* to = packed.data() + static_cast<size_t>(rows.Position(i)) * k * padded;
    for (int j = 0; j < spec.hidden_size; ++j) {
      for (int gate = 0; gate < k; ++gate) {
        const float scale = gate == 1 || gate == 2 ? kScanGateScale : 1.0f;
        to[gate * padded + j] = scale * from[j * k + gate];
      }
    }
  }
  return packed;
}

Direction PackDirection(const LayerSpec& spec, const RowLayout& product_rows, int direction,
                        int chunk_rows, ProductShapes& shapes) {
  const int hidden = spec.hidden_size;
  const int padded = RoundUpToLanes(hidden);
  Direction packed;
  packed.product = std::make_unique<Product>(
      shapes, PackGateWeights(spec, product_rows, direction).data(), product_rows.stride(),
      spec.num_matrices * padded, RowBuckets(chunk_rows));

  packed.constants = AlignedBuffer(static_cast<size_t>(4) * padded);
  float* v_f = packed.constants.data();
  float* v_r = v_f + padded;
  float* b_f = v_r + padded;
  float* b_r = b_f + padded;
  for (int j = 0; j < hidden; ++j) {
    const int forget = direction * hidden + j;
    const int reset = spec.output_size() + forget;
    if (!spec.weight_c.empty()) {
      v_f[j] = kScanGateScale * spec.weight_c.data[forget];
      v_r[j] = kScanGateScale * spec.weight_c.data[reset];
    }
    b_f[j] = kScanGateScale * spec.bias.data[forget];
    b_r[j] = kScanGateScale * spec.bias.data[reset];
  }
  packed.scan = {padded, HighwayOf(spec), spec.activation, spec.alpha, v_f, v_r, b_f, b_r};
  return packed;
}

Layer PackLayer(const LayerSpec& spec, const RowLayout& input, ProductShapes& shapes) {
  Layer layer;
  layer.input = input;
  layer.output = {spec.directions, spec.hidden_size};
  layer.layer_norm = spec.layer_norm;
  if (spec.layer_norm == LayerNorm::kBefore) layer.norm = PackNorm(spec, layer.input);
  if (spec.layer_norm == LayerNorm::kAfter) layer.norm = PackNorm(spec, layer.output);
  const int chunk_rows = ChunkRows(spec.num_matrices * layer.output.padded());

  RowLayout product_rows = input;
  if (spec.projection_size > 0) {
    product_rows = {1, spec.projection_size};
    AlignedBuffer packed(static_cast<size_t>(input.stride()) * product_rows.stride());
    for (int i = 0; i < spec.input_size; ++i) {
      product_rows.Pack(
          spec.weight_proj.data + static_cast<size_t>(i) * spec.projection_size,
          packed.data() + static_cast<size_t>(input.Position(i)) * product_rows.stride());
    }
    layer.projection = std::make_unique<Product>(shapes, packed.data(), input.stride(),
                                                 product_rows.stride(), RowBuckets(chunk_rows));
  }
  for (int d = 0; d < spec.directions; ++d) {
    layer.directions.push_back(PackDirection(spec, product_rows, d, chunk_rows, shapes));
  }
  layer.chunk_rows = layer.directions[0].product->max_rows();
  return layer;
}

// w [rows][columns.width()] of a map y = w x as the product's [columns.stride()][rows in `to`].
AlignedBuffer PackTransposed(const FloatView& w, const RowLayout& from, const RowLayout& to) {
  AlignedBuffer packed(static_cast<size_t>(from.stride()) * to.stride());
  for (int row = 0; row < to.width(); ++row) {
    for (int column = 0; column < from.width(); ++column) {
      packed.data()[static_cast<size_t>(from.Position(column)) * to.stride() + to.Position(row)] =
          w.data[static_cast<size_t>(row) * from.width() + column];
    }
  }
  return packed;
}

// U of the first layer for every token of the vocabulary, one array [vocabulary][n] per direction:
// it depends on the token alone, so serving looks it up instead of multiplying. The same product
// makes it, hence the same bits. Empty when the model takes features, the table would be too large,
// or a map stands before the first layer.
std::vector<AlignedBuffer> TokenProducts(const StackSpec& spec, const Layer& first) {
  std::vector<AlignedBuffer> tables;
  size_t values_per_token = 0;
  for (const Direction& direction : first.directions) values_per_token += direction.product->n();
  const size_t vocabulary = spec.vocabulary_size;
  if (vocabulary == 0 || !spec.input_to_hidden.empty() ||
      vocabulary * values_per_token * sizeof(float) > kMaxTokenProductBytes) {
    return tables;
  }
  const int chunk = first.chunk_rows;
  const size_t stride = first.input.stride();
  AlignedBuffer x(chunk * stride);
  ProductInput product_input(first, chunk);
  std::vector<ProductRunner> runners;
  for (const Direction& direction : first.directions) {
    runners.emplace_back(*direction.product);
    tables.emplace_back((vocabulary + chunk) * direction.product->n());
  }
  for (size_t begin = 0; begin < vocabulary; begin += chunk) {
    const int rows = static_cast<int>(std::min<size_t>(chunk, vocabulary - begin));
    for (int row = 0; row < rows; ++row) {
      first.input.Pack(spec.embedding.data + (begin + row) * spec.input_size,
                       x.data() + row * stride);
    }
    const float* input = product_input.Run(x.data(), rows);
    for (size_t d = 0; d < runners.size(); ++d) {
      runners[d].Run(input, rows, tables[d].data() + begin * first.directions[d].product->n());
    }
  }
  return tables;
}

}  // namespace

PackedStack::PackedStack(const StackSpec& stack) : spec(stack) {
  ProductShapes shapes;
  const LayerSpec& first = spec.layers[0];
  RowLayout rows{1, first.input_size};
  // The highway term adds the input to the output, so both need the same layout.
  if (HighwayOf(first) == Highway::kInput) rows = {first.directions, first.hidden_size};
  input = rows;
  if (!spec.input_to_hidden.empty()) {
    input = {1, spec.input_size};
    const int chunk_rows = ChunkRows(rows.stride());
    input_to_hidden =
        std::make_unique<Product>(shapes, PackTransposed(spec.input_to_hidden, input, rows).data(),
                                  input.stride(), rows.stride(), RowBuckets(chunk_rows));
  }
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back(PackLayer(layer, rows, shapes));
    rows = layers.back().output;
  }
  if (spec.num_labels > 0) {
    labels = {1, spec.num_labels};
    classifier = std::make_unique<Product>(
        shapes, PackTransposed(spec.classifier_weight, rows, labels).data(), rows.stride(),
        labels.stride(), RowBuckets(kClassifierRows));
  }
  token_products = TokenProducts(spec, layers[0]);
}

}  // namespace sru::kernels
