#include "kernels/cpu/tile_stack.h"

#include <algorithm>

#include "kernels/cpu/bfloat16_rows.h"
#include "kernels/cpu/classify.h"
#include "kernels/cpu/layer_norm.h"

namespace sru::kernels::cpu {
namespace {

// Packs w(row, block, matrix, column) for rows below k.
template <typename Weight>
AlignedArray<BFloat16> PackTiles(int k, int blocks, int matrices, Weight w) {
  AlignedArray<BFloat16> packed(static_cast<size_t>(k) * blocks * matrices * kTileColumns);
  BFloat16* to = packed.data();
  for (int block = 0; block < blocks; ++block) {
    for (int row = 0; row < k; row += 2) {
      for (int matrix = 0; matrix < matrices; ++matrix) {
        for (int column = 0; column < kTileColumns; ++column) {
          *to++ = ToBFloat16(w(row, block, matrix, column));
          *to++ = ToBFloat16(w(row + 1, block, matrix, column));
        }
      }
    }
  }
  return packed;
}

TileDirection PackDirection(const LayerSpec& spec, const RowLayout& rows, int direction) {
  TileDirection packed;
  const AlignedBuffer w = PackGateWeights(spec, rows, direction);
  const int padded = RowLayout::RoundUp(spec.hidden_size);
  const size_t n = static_cast<size_t>(spec.num_matrices) * padded;
  const int k = static_cast<int>(TileStride(rows));
  const int blocks = padded / kTileColumns;
  packed.values =
      PackTiles(k, blocks, spec.num_matrices, [&](int row, int block, int matrix, int column) {
        if (row >= rows.stride()) return 0.0f;
        return w
            .data()[row * n + static_cast<size_t>(matrix) * padded + block * kTileColumns + column];
      });
  packed.weights = {k, blocks, spec.num_matrices, packed.values.data()};
  packed.constants = PackGateConstants(spec, direction);
  packed.scan = ScanParametersOf(spec, packed.constants);
  return packed;
}

TileLayer PackLayer(const LayerSpec& spec, const RowLayout& input) {
  TileLayer layer;
  layer.input = input;
  layer.output = {spec.directions, spec.hidden_size};
  layer.layer_norm = spec.layer_norm;
  if (spec.layer_norm == LayerNorm::kBefore) layer.norm = PackNorm(spec, layer.input);
  if (spec.layer_norm == LayerNorm::kAfter) layer.norm = PackNorm(spec, layer.output);
  RowLayout rows = input;
  if (spec.projection_size > 0) {
    rows = {1, spec.projection_size};
    layer.projection =
        std::make_unique<TileProduct>(PackProjection(spec, input, rows), input, rows);
  }
  for (int d = 0; d < spec.directions; ++d) {
    layer.directions.push_back(PackDirection(spec, rows, d));
  }
  return layer;
}

// U of the first layer for every token of the vocabulary (kMaxTokenProductBytes). The kernel that
// multiplies rows while serving makes it, hence the same bits.
void PackTables(TileStack* stack) {
  const StackSpec& spec = stack->spec;
  TileLayer& first = stack->layers[0];
  size_t values_per_token = 0;
  for (const TileDirection& direction : first.directions) {
    values_per_token += direction.weights.row_size();
  }
  const size_t vocabulary = spec.vocabulary_size;
  if (vocabulary == 0 || !spec.input_to_hidden.empty() ||
      vocabulary * values_per_token * sizeof(float) > kMaxTokenProductBytes) {
    return;
  }
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
  for (size_t begin = 0; begin < vocabulary; begin += kRows) {
    const int rows = static_cast<int>(std::min<size_t>(kRows, vocabulary - begin));
    for (int i = 0; i < rows; ++i) {
      first.input.Pack(spec.embedding.data + (begin + i) * spec.input_size, row.data());
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
  }
}

}  // namespace

TileProduct::TileProduct(const AlignedBuffer& w, const RowLayout& from, const RowLayout& to)
    : output(to) {
  constexpr int kMatrices = 3;  // three adjacent groups of 16 columns
  const int k = static_cast<int>(TileStride(from));
  const int group = kMatrices * kTileColumns;
  const int blocks = (to.stride() + group - 1) / group;
  values = PackTiles(k, blocks, kMatrices, [&](int row, int block, int matrix, int column) {
    const int at = block * group + matrix * kTileColumns + column;
    if (row >= from.stride() || at >= to.stride()) return 0.0f;
    return w.data()[static_cast<size_t>(row) * to.stride() + at];
  });
  weights = {k, blocks, kMatrices, values.data()};
}

TileStack::TileStack(const StackSpec& stack, const TileKernel& tile_kernel)
    : spec(stack), kernel(tile_kernel) {
  RowLayout rows = FirstLayerInput(spec);
  input = rows;
  if (!spec.input_to_hidden.empty()) {
    input = {1, spec.input_size};
    input_to_hidden = std::make_unique<TileProduct>(
        PackTransposed(spec.input_to_hidden, input, rows), input, rows);
  }
  for (const LayerSpec& layer : spec.layers) {
    layers.push_back(PackLayer(layer, rows));
    rows = layers.back().output;
  }
  ProductShapes shapes;
  classifier = PackClassifier(shapes, spec, rows);
  PackTables(this);
}

size_t TileStack::bytes() const {
  size_t bytes = classifier != nullptr ? classifier->bytes() : 0;
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
