#include "kernels/cpu/stacks/tile_stack.h"

#include <algorithm>

#include "kernels/common/gate_scale.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/layer_norm.h"

namespace sru::kernels::cpu {
namespace {

// Rounds row `position` of a direction's weights, [hidden][matrices], into its tiles.
void PackGateRow(const LayerSpec& spec, int position, const float* from, TileDirection& to) {
  const int matrices = spec.num_matrices;
  BFloat16* const pair =
      to.values.data() + static_cast<size_t>(position / 2) * matrices * kTilePair + position % 2;
  for (int j = 0; j < spec.hidden_size; ++j) {
    BFloat16* const column =
        pair + j / kTileColumns * to.weights.block_size() + j % kTileColumns * 2;
    for (int matrix = 0; matrix < matrices; ++matrix) {
      const float scale = IsGateMatrix(matrix) ? kExp2GateScale : 1.0f;
      column[matrix * kTilePair] = ToBFloat16(scale * *from++);
    }
  }
}

// Makes the directions of a layer. Its weights are read a few rows at a time.
std::vector<TileDirection> PackDirections(WeightSource* weights, const LayerSpec& spec,
                                          const RowLayout& rows) {
  const int matrices = spec.num_matrices;
  const int hidden = spec.hidden_size;
  const int k = static_cast<int>(TileStride(rows));
  const int blocks = RowLayout::RoundUp(hidden) / kTileColumns;
  std::vector<TileDirection> directions(spec.directions);
  for (int d = 0; d < spec.directions; ++d) {
    TileDirection& packed = directions[d];
    packed.values =
        AlignedArray<BFloat16>(static_cast<size_t>(k) * blocks * matrices * kTileColumns);
    packed.weights = {k, blocks, matrices, packed.values.data()};
    packed.constants = PackGateConstants(spec, d);
    packed.scan = ScanParametersOf(spec, packed.constants, 0, blocks * kTileColumns);
  }
  const size_t columns = static_cast<size_t>(hidden) * matrices;  // of a direction
  ReadRows(weights, spec.weight, spec.directions * columns,
           [&](size_t first, size_t count, const float* values) {
             for (size_t row = 0; row < count; ++row) {
               const int position = rows.Position(static_cast<int>(first + row));
               for (TileDirection& direction : directions) {
                 PackGateRow(spec, position, values, direction);
                 values += columns;
               }
             }
           });
  return directions;
}

TileLayer PackLayer(WeightSource* weights, const LayerSpec& spec, const RowLayout& input) {
  const ReadLayerVectors vectors(weights, spec);
  TileLayer layer;
  layer.input = input;
  layer.output = {spec.directions, spec.hidden_size};
  layer.layer_norm = spec.layer_norm;
  if (spec.layer_norm == LayerNorm::kBefore) layer.norm = PackNorm(spec, layer.input);
  if (spec.layer_norm == LayerNorm::kAfter) layer.norm = PackNorm(spec, layer.output);
  RowLayout rows = input;
  if (spec.projection_size > 0) {
    rows = {1, spec.projection_size};
    const ReadWeights readable(weights, spec.weight_proj);
    layer.projection =
        std::make_unique<TileProduct>(PackProjection(spec, input, rows), input, rows);
  }
  layer.directions = PackDirections(weights, spec, rows);
  return layer;
}

// U of the first layer for every token of the vocabulary (TokenTableRoom). The kernel that
// multiplies rows while serving makes it, hence the same bits.
void PackTables(WeightSource* weights, const StackSpec& spec, TileStack* stack) {
  TileLayer& first = stack->layers[0];
  size_t values_per_token = 0;
  for (const TileDirection& direction : first.directions) {
    values_per_token += direction.weights.row_size();
  }
  if (!stack->table_room.Take(spec, values_per_token)) return;
  const size_t vocabulary = spec.vocabulary_size;
  for (TileDirection& direction : first.directions) {
    direction.table = AlignedBuffer(vocabulary * direction.weights.row_size());
  }
  constexpr int kRows = 4 * kTileInputRows;
  const size_t stride = TileStride(first.input);
  AlignedBuffer row(first.input.stride());
  AlignedArray<BFloat16> x((kRows + kTileSpareRows) * stride);
  AlignedArray<BFloat16> projected;
  if (first.projection != nullptr) {
    projected = AlignedArray<BFloat16>((kRows + kTileSpareRows) * first.product_stride());
  }
  TileInput input(*stack);
  const size_t width = spec.input_size;
  const auto pack = [&](size_t begin, size_t count, const float* values) {
    const int rows = static_cast<int>(count);
    for (int i = 0; i < rows; ++i) {
      first.input.Pack(values + i * width, row.data());
      ToBFloat16Row(row.data(), row.size(), x.data() + i * stride);
    }
    if (first.layer_norm == LayerNorm::kBefore) {
      input.Normalize(first.input, first.norm, x.data(), rows, x.data());
    }
    const BFloat16* multiplied = x.data();
    if (first.projection != nullptr) {
      input.Multiply(stack->kernel, *first.projection, x.data(), stride, rows, projected.data());
      multiplied = projected.data();
    }
    for (TileDirection& direction : first.directions) {
      TileProductCall call;
      call.weights = direction.weights;
      call.x = multiplied;
      call.x_stride = first.product_stride();
      call.rows = rows;
      call.y_stride = direction.weights.row_size();
      call.y = direction.table.data() + begin * call.y_stride;
      stack->kernel.product(call);
    }
  };
  ReadRows(weights, spec.embedding, width, pack, kRows);
}

}  // namespace

TileProduct::TileProduct(const AlignedBuffer& w, const RowLayout& from, const RowLayout& to)
    : output(to) {
  constexpr int kMatrices = 3;  // three adjacent groups of 16 columns
  const int k = static_cast<int>(TileStride(from));
  const int group = kMatrices * kTileColumns;
  const int blocks = (to.stride() + group - 1) / group;
  values = AlignedArray<BFloat16>(static_cast<size_t>(k) * blocks * group);
  weights = {k, blocks, kMatrices, values.data()};
  for (int row = 0; row < from.stride(); ++row) {
    const float* const w_row = w.data() + static_cast<size_t>(row) * to.stride();
    BFloat16* const pair =
        values.data() + static_cast<size_t>(row / 2) * kMatrices * kTilePair + row % 2;
    for (int i = 0; i < to.stride(); ++i) {
      pair[i / group * weights.block_size() + i % group / kTileColumns * kTilePair +
           i % kTileColumns * 2] = ToBFloat16(w_row[i]);
    }
  }
}

TileStack::TileStack(const StackSpec& stack, const TileKernel& tile_kernel, WeightSource* weights)
    : spec(WithoutWeights(stack)), kernel(tile_kernel) {
  RowLayout rows = FirstLayerInput(stack);
  input = rows;
  if (!stack.input_to_hidden.empty()) {
    input = {1, stack.input_size};
    const ReadWeights readable(weights, stack.input_to_hidden);
    input_to_hidden = std::make_unique<TileProduct>(
        PackTransposed(stack.input_to_hidden, input, rows), input, rows);
  }
  for (const LayerSpec& layer : stack.layers) {
    layers.push_back(PackLayer(weights, layer, rows));
    rows = layers.back().output;
  }
  classifier = Classifier(weights, stack, rows);
  PackTables(weights, stack, this);
  if (ReadsEmbedding(stack, layers[0].directions[0].table.size() > 0)) {
    embedding = PackEmbedding<BFloat16>(weights, stack, input, TileStride(input));
  }
}

size_t TileStack::bytes() const {
  size_t bytes = embedding.bytes() + classifier.bytes();
  if (input_to_hidden != nullptr) bytes += input_to_hidden->values.bytes();
  for (const TileLayer& layer : layers) {
    bytes += layer.norm.weight.bytes() + layer.norm.bias.bytes();
    if (layer.projection != nullptr) bytes += layer.projection->values.bytes();
    for (const TileDirection& direction : layer.directions) {
      bytes += direction.values.bytes() + direction.constants.bytes() + direction.table.bytes();
    }
  }
  return bytes;
}

TileInput::TileInput(const TileStack& stack) {
  size_t size = 0;
  const auto product = [&](const TileProduct& p) {
    size = std::max<size_t>(size, kTileInputRows * static_cast<size_t>(p.output.stride()));
  };
  if (stack.input_to_hidden != nullptr) product(*stack.input_to_hidden);
  for (const TileLayer& layer : stack.layers) {
    if (layer.projection != nullptr) product(*layer.projection);
    if (layer.layer_norm != LayerNorm::kNone) {
      size = std::max<size_t>({size, static_cast<size_t>(layer.input.stride()),
                               static_cast<size_t>(layer.output.stride())});
    }
  }
  values_ = AlignedBuffer(size);
}

void TileInput::Multiply(const TileKernel& kernel, const TileProduct& product, const BFloat16* x,
                         size_t x_stride, int rows, BFloat16* y) {
  const size_t stride = product.output.stride();
  const size_t y_stride = TileStride(product.output);
  TileProductCall call;
  call.weights = product.weights;
  call.x_stride = x_stride;
  call.y = values_.data();
  call.y_stride = stride;
  for (int done = 0; done < rows; done += call.rows) {
    call.x = x + done * x_stride;
    call.rows = std::min(kTileInputRows, rows - done);
    kernel.product(call);
    for (int row = 0; row < call.rows; ++row) {
      BFloat16* to = y + (done + row) * y_stride;
      ToBFloat16Row(values_.data() + row * stride, stride, to);
      std::fill(to + stride, to + y_stride, BFloat16{0});
    }
  }
}

const float* TileInput::NormalizeRow(const RowLayout& layout, const NormWeights& norm,
                                     const BFloat16* x) {
  ToFloatRow(x, layout.stride(), values_.data());
  NormalizeRows(layout, norm.weight.data(), norm.bias.data(), values_.data(), 1, values_.data());
  return values_.data();
}

void TileInput::Normalize(const RowLayout& layout, const NormWeights& norm, const BFloat16* x,
                          int rows, BFloat16* y) {
  const size_t stride = TileStride(layout);
  for (int row = 0; row < rows; ++row) {
    const float* normalized = NormalizeRow(layout, norm, x + row * stride);
    ToBFloat16Row(normalized, layout.stride(), y + row * stride);
    std::fill(y + row * stride + layout.stride(), y + (row + 1) * stride, BFloat16{0});
  }
}

}  // namespace sru::kernels::cpu
