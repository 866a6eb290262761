#include "kernels/model_sizes.h"

#include <algorithm>

#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/token_table_room.h"

namespace sru::kernels {
namespace {

using cpu::RowLayout;

// Columns that a product's packed weights are rounded up to.
constexpr int64_t kProductColumns = 64;
// Float32 matrices of a part's size that packing it takes (product.cc).
constexpr int64_t kPartCopies = 3;

RowLayout OutputRow(const StackSpec& spec) {
  return {spec.layers.back().directions, spec.layers.back().hidden_size};
}

// Returns the rows after a layer that reads `rows`.
RowLayout AddLayer(const LayerSpec& layer, RowLayout rows, ModelSizes* sizes) {
  const RowLayout output = {layer.directions, layer.hidden_size};
  const int64_t gates = layer.num_matrices;
  RowLayout product = rows;
  int64_t before = layer.layer_norm == LayerNorm::kBefore ? rows.stride() : 0;
  if (layer.projection_size > 0) {
    product = {1, layer.projection_size};
    const int64_t packed = AddProduct(rows.stride(), product.stride(), sizes);
    const int64_t in_file = int64_t{layer.input_size} * layer.projection_size;
    sizes->in_file += in_file;
    sizes->passing = std::max(sizes->passing, in_file + packed);
    before += product.stride();
  }
  sizes->product_rows = std::max(sizes->product_rows, before);
  for (int direction = 0; direction < layer.directions; ++direction) {
    AddProduct(product.stride(), gates * output.padded(), sizes);
  }
  const int64_t weight = int64_t{layer.product_size()} * layer.output_size() * gates;
  sizes->in_file += weight;
  const int64_t part =
      product.stride() * gates * std::min<int64_t>(cpu::kPartSize, output.padded());
  sizes->passing_gates = std::max(sizes->passing_gates, weight + kPartCopies * part);
  sizes->constants += int64_t{4} * output.stride();
  return output;
}

}  // namespace

const ProgramBlocks kProgramBlocks = {int64_t{cpu::kChunkBytes} / kValueBytes, cpu::kBlockColumns,
                                      cpu::kGroupRows + cpu::ChunkRows(cpu::kBlockColumns),
                                      cpu::kTablePositions};

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

void AddStack(const StackSpec& spec, ModelSizes* sizes) {
  const RowLayout input = {1, spec.input_size};
  const RowLayout output = OutputRow(spec);
  RowLayout rows = input;
  if (!spec.input_to_hidden.empty()) {
    const auto in_file = static_cast<int64_t>(spec.input_to_hidden.size);
    sizes->in_file += in_file;
    sizes->passing = AddProduct(rows.stride(), output.stride(), sizes) + in_file;
    rows = output;
  }
  for (const LayerSpec& layer : spec.layers) rows = AddLayer(layer, rows, sizes);
  sizes->widest_row = std::max<int64_t>({sizes->widest_row, input.stride(), output.stride()});
  sizes->parts = (output.stride() + cpu::kPartSize - 1) / cpu::kPartSize;

  const int64_t words = spec.vocabulary_size;
  if (words == 0) return;
  sizes->in_file += words * spec.input_size;
  const LayerSpec& first = spec.layers.front();
  const int64_t gates = first.num_matrices;
  const int64_t table = (words + cpu::kMaxChunkRows) * first.directions * gates * output.padded();
  const bool has_table = spec.input_to_hidden.empty() &&
                         cpu::TokenTableRoom::Fits(static_cast<size_t>(table * kValueBytes));
  if (has_table) sizes->token_table = table;
  // Nothing reads the embedding but the table, unless the first layer adds its input to its output.
  if (has_table && (gates == 4 || !first.has_skip_term)) return;
  sizes->embedding = words * input.stride();
}

void AddOutputLayer(const StackSpec& spec, int64_t outputs, int64_t block, bool tied,
                    ModelSizes* sizes) {
  const int64_t stride = OutputRow(spec).stride();
  if (!tied) sizes->in_file += outputs * spec.output_size();
  AddProduct(stride, outputs, sizes);
  block = std::min(block, outputs);
  sizes->passing =
      std::max(sizes->passing, block * spec.output_size() + stride * ProductColumns(block));
}

}  // namespace sru::kernels
