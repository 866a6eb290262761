#include "kernels/cpu/stacks/packed_stack.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/weight_layout.h"

namespace sru::kernels::cpu {
namespace {

// What packing needs besides the weights.
struct Packing {
  WeightSource* weights = nullptr;
  Rounding rounding = Rounding::kNone;
  ProductType products = ProductType::kFloat32;
  AlignedBuffer columns;  // scratch: one part's weights
};

AlignedBuffer Rounded(AlignedBuffer weights, Rounding rounding) {
  RoundRow(rounding, weights.data(), weights.size());
  return weights;
}

// Adds the parts of one direction.
void PackDirection(const LayerSpec& spec, const RowLayout& product_rows, int direction,
                   Packing* packing, Layer* layer) {
  const int padded = layer->output.padded();
  const int matrices = spec.num_matrices;
  layer->constants.push_back(PackGateConstants(spec, direction));
  for (int first = 0; first < padded; first += kPartSize) {
    const int size = std::min(kPartSize, padded - first);
    AlignedBuffer& columns = packing->columns;
    PackGateWeights(spec, product_rows, direction, first, size, &columns);
    RoundRow(packing->rounding, columns.data(), columns.size());
    Part part;
    part.direction = direction;
    part.first = first;
    part.product =
        std::make_unique<Product>(packing->products, columns.data(), product_rows.stride(),
                                  matrices * size, RowBuckets(ChunkRows(matrices * size)));
    part.scan = ScanParametersOf(spec, layer->constants.back(), first, size);
    layer->parts.push_back(std::move(part));
  }
}

Layer PackLayer(const LayerSpec& spec, const RowLayout& input, Packing* packing) {
  const ReadLayerVectors vectors(packing->weights, spec);
  Layer layer;
  layer.rounding = packing->rounding;
  layer.input = input;
  layer.output = {spec.directions, spec.hidden_size};
  layer.layer_norm = spec.layer_norm;
  if (spec.layer_norm == LayerNorm::kBefore) layer.norm = PackNorm(spec, layer.input);
  if (spec.layer_norm == LayerNorm::kAfter) layer.norm = PackNorm(spec, layer.output);
  RowLayout product_rows = input;
  if (spec.projection_size > 0) {
    product_rows = {1, spec.projection_size};
    const ReadWeights readable(packing->weights, spec.weight_proj);
    const AlignedBuffer packed =
        Rounded(PackProjection(spec, input, product_rows), packing->rounding);
    layer.projection = std::make_unique<Product>(packing->products, packed.data(), input.stride(),
                                                 product_rows.stride(),
                                                 RowBuckets(ChunkRows(product_rows.stride())));
  }
  const ReadWeights readable(packing->weights, spec.weight);
  for (int d = 0; d < spec.directions; ++d) {
    PackDirection(spec, product_rows, d, packing, &layer);
  }
  layer.chunk_rows = layer.parts[0].product->max_rows();
  for (const Part& part : layer.parts) {
    layer.chunk_rows = std::min(layer.chunk_rows, part.product->max_rows());
  }
  return layer;
}

// U of the first layer for every token of the vocabulary, one array [vocabulary][n] per part:
// it depends on the token alone, so serving looks it up instead of multiplying. The same product
// makes it, hence the same bits. Empty where nothing is looked up (TokenTableRoom).
std::vector<AlignedBuffer> TokenProducts(WeightSource* weights, const StackSpec& spec,
                                         bool rounds_embedding, const Layer& first,
                                         TokenTableRoom* room) {
  std::vector<AlignedBuffer> tables;
  size_t values_per_token = 0;
  for (const Part& part : first.parts) values_per_token += part.product->n();
  if (!room->Take(spec, values_per_token)) return tables;
  const size_t vocabulary = spec.vocabulary_size;
  const size_t chunk = first.chunk_rows;
  const size_t width = spec.input_size;
  const size_t stride = first.input.stride();
  AlignedBuffer x((chunk + kMaxChunkRows) * stride);
  ProductInput product_input(first);
  AlignedBuffer normalized((chunk + kMaxChunkRows) * ProductInput::NormalizedWidth(first));
  AlignedBuffer projected((chunk + kMaxChunkRows) * ProductInput::ProjectedWidth(first));
  std::vector<ProductRunner> runners;
  for (const Part& part : first.parts) {
    runners.emplace_back(*part.product);
    tables.emplace_back((vocabulary + kMaxChunkRows) * part.product->n());
  }
  const auto add = [&](size_t from, size_t count, const float* values) {
    const int rows = static_cast<int>(count);
    for (size_t row = 0; row < count; ++row) {
      first.input.Pack(values + row * width, x.data() + row * stride);
    }
    if (rounds_embedding) RoundRow(Rounding::kBFloat16, x.data(), count * stride);
    const float* input = product_input.Run(x.data(), rows, normalized.data(), projected.data());
    for (size_t i = 0; i < runners.size(); ++i) {
      const Product& product = *first.parts[i].product;
      runners[i].Run(product, input, rows, tables[i].data() + from * product.n());
    }
  };
  ReadRows(weights, spec.embedding, width, add, chunk);
  return tables;
}

}  // namespace

Classifier::Classifier(WeightSource* weights, const StackSpec& spec, const RowLayout& rows)
    : bias(PackVector(weights, spec.classifier_bias)) {
  if (spec.num_labels == 0) return;
  const ReadWeights readable(weights, spec.classifier_weight);
  const RowLayout labels = {1, spec.num_labels};
  product = std::make_unique<Product>(ProductType::kFloat32,
                                      PackTransposed(spec.classifier_weight, rows, labels).data(),
                                      rows.stride(), labels.stride(), RowBuckets(kClassifierRows));
}

PackedStack::PackedStack(const StackSpec& stack, const Arithmetic& arithmetic,
                         WeightSource* weights)
    : spec(WithoutWeights(stack)), rounding(arithmetic.rounding) {
  Packing packing{weights, rounding, arithmetic.products, {}};
  RowLayout rows = FirstLayerInput(stack);
  input = rows;
  if (!stack.input_to_hidden.empty()) {
    input = {1, stack.input_size};
    const ReadWeights readable(weights, stack.input_to_hidden);
    const int chunk_rows = ChunkRows(rows.stride());
    input_to_hidden = std::make_unique<Product>(
        packing.products,
        Rounded(PackTransposed(stack.input_to_hidden, input, rows), rounding).data(),
        input.stride(), rows.stride(), RowBuckets(chunk_rows));
  }
  for (const LayerSpec& layer : stack.layers) {
    layers.push_back(PackLayer(layer, rows, &packing));
    rows = layers.back().output;
  }
  classifier = Classifier(weights, stack, rows);
  token_products =
      TokenProducts(weights, stack, arithmetic.rounds_embedding, layers[0], &table_room);
  if (!ReadsEmbedding(stack, !token_products.empty())) return;
  if (arithmetic.rounds_embedding) {
    rounded_embedding = PackEmbedding<BFloat16>(weights, stack, input, input.stride());
  } else {
    embedding = PackEmbedding<float>(weights, stack, input, input.stride());
  }
}

size_t PackedStack::bytes() const {
  size_t bytes = embedding.bytes() + rounded_embedding.bytes() + classifier.bytes();
  if (input_to_hidden != nullptr) bytes += input_to_hidden->bytes();
  for (const AlignedBuffer& table : token_products) bytes += table.bytes();
  for (const Layer& layer : layers) {
    bytes += layer.norm.weight.bytes() + layer.norm.bias.bytes();
    if (layer.projection != nullptr) bytes += layer.projection->bytes();
    for (const AlignedBuffer& buffer : layer.constants) bytes += buffer.bytes();
    for (const Part& part : layer.parts) bytes += part.product->bytes();
  }
  return bytes;
}

}  // namespace sru::kernels::cpu
