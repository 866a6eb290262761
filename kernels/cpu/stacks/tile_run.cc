#include "kernels/cpu/stacks/tile_run.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/pool.h"

namespace sru::kernels::cpu {
namespace {

class TileRun : ForwardPass<TileStack, TileWorkspace> {
 public:
  using ForwardPass::ForwardPass;

  void Run() {
    OrderRows();
    AssignOutputs();
    LoadInput();
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      RunLayer(i);
      std::swap(ws_.x, ws_.h);
    }
    if (!ScanFinishesOutputs()) NormalizeOutputs();
    FinishPooling();
    ClassifyPooled();
  }

 private:
  bool LooksUpProducts(size_t index) const {
    return index == 0 && batch_.token_ids != nullptr &&
           stack_.layers[0].directions[0].table.size() > 0;
  }

  // Longest first, so that the rows of each step belong to a prefix of the sequences.
  void OrderRows() {
    int32_t* const order = ws_.order.data();
    for (int b = 0; b < sequences_; ++b) order[b] = b;
    std::sort(order, order + sequences_, [this](int a, int b) {
      return Length(a) != Length(b) ? Length(a) > Length(b) : a < b;
    });
    const int steps = Length(ws_.order[0]);
    int row = 0;
    int active = sequences_;
    for (int step = 0; step < steps; ++step) {
      while (Length(ws_.order[active - 1]) <= step) --active;
      ws_.first_row[step] = row;
      for (int place = 0; place < active; ++place) ws_.place_of_row[row++] = place;
    }
  }

  // Calls body(row, token, sequence) for every token, sequence by sequence.
  template <typename Body>
  void ForEachRow(Body body) const {
    for (int place = 0; place < sequences_; ++place) {
      const int b = ws_.order[place];
      for (int step = 0; step < Length(b); ++step) {
        body(ws_.first_row[step] + place, batch_.offsets[b] + step, b);
      }
    }
  }

  void AssignOutputs() {
    const size_t stride = stack_.layers.back().output.stride();
    const size_t width = stack_.layers.back().output.width();
    AssignPoolRows();
    for (int b = 0; b < sequences_; ++b) any_vectors_ |= outputs_[b].token_vectors != nullptr;
    for (int place = 0; place < sequences_; ++place) {
      const int b = ws_.order[place];
      ws_.pooling[place] = PoolingOf(b);
      ws_.pooled_of[place] = nullptr;
      if (ws_.pool_row[b] < 0) continue;
      ws_.pooled_of[place] = ws_.pooled.data() + ws_.pool_row[b] * stride;
      std::fill_n(ws_.pooled_of[place], stride, PoolStart(ws_.pooling[place]));
    }
    if (!any_vectors_) return;
    ForEachRow([&](int row, int token, int b) {
      float* vectors = outputs_[b].token_vectors;
      ws_.h_of_row[row] =
          vectors == nullptr ? nullptr : vectors + (token - batch_.offsets[b]) * width;
    });
  }

  void LoadInput() {
    if (LooksUpProducts(0)) {
      ForEachRow([&](int row, int token, int) { ws_.token_of_row[row] = batch_.token_ids[token]; });
      if (stack_.layers[0].directions[0].scan.highway != Highway::kInput) return;
    }
    const RowLayout& layout = stack_.input;
    const size_t stride = TileStride(layout);
    std::fill(ws_.row.data(), ws_.row.data() + stride, 0.0f);
    ForEachRow([&](int row, int token, int) {
      if (batch_.token_ids != nullptr) {
        std::copy_n(stack_.embedding.data() + batch_.token_ids[token] * stride, stride,
                    ws_.x.data() + row * stride);
        return;
      }
      const size_t width = spec_.input_size;
      const float* from = batch_.features + token * width;
      BFloat16* to = ws_.x.data() + row * stride;
      if (layout.is_dense() && width == stride) {
        ToBFloat16Row(from, stride, to);
      } else {
        layout.Pack(from, ws_.row.data());
        ToBFloat16Row(ws_.row.data(), stride, to);
      }
    });
    if (stack_.input_to_hidden != nullptr) {
      ws_.inputs[0].Multiply(stack_.kernel, *stack_.input_to_hidden, ws_.x.data(), stride, tokens_,
                             ws_.h.data());
      std::swap(ws_.x, ws_.h);
    }
  }

  // Calls body(first row, rows, thread) for all rows.
  template <typename Body>
  void ForEachPieceOfRows(Body body) {
    const int pieces = (tokens_ + kTileInputRows - 1) / kTileInputRows;
    const auto run = [&](int piece, int thread) {
      const int row = piece * kTileInputRows;
      body(row, std::min(kTileInputRows, tokens_ - row), thread);
      MayEndTurn(thread);
    };
    ForEach(Operations(), pieces, run);
  }

  // Of a layer. Judged by the last layer's shape, since all are alike.
  double Operations() const {
    const TileLayer& layer = stack_.layers.back();
    double operations = 0;
    for (const TileDirection& direction : layer.directions) {
      operations += 2.0 * tokens_ * direction.weights.k * direction.weights.row_size();
    }
    return operations;
  }

  // Normalized and projected rows, or x itself.
  const BFloat16* ProductInput(const TileLayer& layer) {
    const BFloat16* from = ws_.x.data();
    const size_t stride = TileStride(layer.input);
    if (layer.layer_norm == LayerNorm::kBefore) {
      ForEachPieceOfRows([&](int row, int rows, int thread) {
        ws_.inputs[thread].Normalize(layer.input, layer.norm, ws_.x.data() + row * stride, rows,
                                     ws_.normalized.data() + row * stride);
      });
      from = ws_.normalized.data();
    }
    if (layer.projection != nullptr) {
      ForEachPieceOfRows([&](int row, int rows, int thread) {
        ws_.inputs[thread].Multiply(stack_.kernel, *layer.projection, from + row * stride, stride,
                                    rows, ws_.projected.data() + row * layer.product_stride());
      });
      from = ws_.projected.data();
    }
    return from;
  }

  void RunLayer(size_t index) {
    const TileLayer& layer = stack_.layers[index];
    const BFloat16* product_input = LooksUpProducts(index) ? nullptr : ProductInput(layer);
    const bool last = index + 1 == stack_.layers.size();
    const size_t stride = TileStride(layer.output);
    // A row's last tile may reach past the layer's columns.
    for (int row = 0; row < tokens_ && stride > static_cast<size_t>(layer.output.stride()); ++row) {
      std::fill(ws_.h.data() + row * stride + layer.output.stride(),
                ws_.h.data() + (row + 1) * stride, BFloat16{0});
    }

    const int directions = static_cast<int>(layer.directions.size());
    const int pairs = (layer.directions[0].weights.blocks + 1) / 2;
    const double operations = Operations();
    const int pieces = operations >= kMinSplitOperations ? std::min(pairs, parallel_.threads()) : 1;
    const auto run = [&](int item, int thread) {
      const int piece = item % pieces;
      RunBlocks(index, item / pieces, 2 * (pairs * piece / pieces),
                2 * (pairs * (piece + 1) / pieces), product_input, last && ScanFinishesOutputs());
      MayEndTurn(thread);
    };
    ForEach(operations, directions * pieces, run);

    if (layer.layer_norm == LayerNorm::kAfter && !last) {
      ForEachPieceOfRows([&](int row, int rows, int thread) {
        BFloat16* at = ws_.h.data() + row * stride;
        ws_.inputs[thread].Normalize(layer.output, layer.norm, at, rows, at);
      });
    }
  }

  // Products and scan of some blocks of one direction.
  void RunBlocks(size_t index, int d, int first_block, int last_block,
                 const BFloat16* product_input, bool writes_outputs) {
    const TileLayer& layer = stack_.layers[index];
    const TileDirection& direction = layer.directions[d];
    TileScanCall call;
    call.arrangement = stack_.arrangement != nullptr
                           ? *stack_.arrangement
                           : ChooseTileArrangement(stack_.kernel.unit, sequences_);
    call.weights = direction.weights;
    call.scan = direction.scan;
    call.hidden = layer.output.size;
    call.backward = d == 1;
    call.first_block = first_block;
    call.last_block = std::min(last_block, direction.weights.blocks);
    call.rows = tokens_;
    call.sequences = sequences_;
    call.place_of_row = ws_.place_of_row.data();
    if (product_input != nullptr) {
      call.x = product_input;
      call.x_stride = layer.product_stride();
    } else {
      call.table = direction.table.data();
      call.token_of_row = ws_.token_of_row.data();
    }
    const size_t column = static_cast<size_t>(d) * layer.output.padded();
    call.highway = ws_.x.data() + column;
    call.highway_stride = TileStride(layer.input);
    call.state = ws_.state.data() + column * sequences_;
    if (writes_outputs) {
      call.h_of_row = any_vectors_ ? ws_.h_of_row.data() : nullptr;
      call.h_column = static_cast<size_t>(d) * layer.output.size;
      call.pooling = num_pooled_ > 0 ? ws_.pooling.data() : nullptr;
      call.pooled = ws_.pooled_of.data();
      call.pooled_column = column;
    } else {
      call.h = ws_.h.data() + column;
      call.h_stride = TileStride(layer.output);
    }

    // Sequence by sequence: a state is adjacent memory that nothing has read before.
    for (int place = 0; place < sequences_; ++place) {
      for (int block = call.first_block; block < call.last_block; ++block) {
        LoadState(index, d, block, place, StateOf(call, block, place));
      }
    }
    stack_.kernel.scan(call);
    for (int place = 0; place < sequences_; ++place) {
      float* to = outputs_[ws_.order[place]].final_state;
      if (to == nullptr) continue;
      to += index * layer.output.width() + d * layer.output.size;
      for (int block = call.first_block; block < call.last_block; ++block) {
        const int first = block * kTileColumns;
        std::copy_n(StateOf(call, block, place), std::min(kTileColumns, layer.output.size - first),
                    to + first);
      }
    }
  }

  float* StateOf(const TileScanCall& call, int block, int place) const {
    return call.state + (static_cast<size_t>(block) * sequences_ + place) * kTileColumns;
  }

  void LoadState(size_t index, int d, int block, int place, float* state) const {
    std::fill_n(state, kTileColumns, 0.0f);
    const float* const initial =
        batch_.initial_states == nullptr ? nullptr : batch_.initial_states[ws_.order[place]];
    if (initial == nullptr) return;
    const RowLayout& layout = stack_.layers[index].output;
    const int first = block * kTileColumns;
    std::copy_n(initial + index * layout.width() + d * layout.size + first,
                std::min(kTileColumns, layout.size - first), state);
  }

  // The layer norm after the last scan, left in float32 for the outputs.
  void NormalizeOutputs() {
    const TileLayer& layer = stack_.layers.back();
    const RowLayout& layout = layer.output;
    ForEachRow([&](int row, int token, int b) {
      const float* h =
          ws_.inputs[0].NormalizeRow(layout, layer.norm, ws_.x.data() + row * TileStride(layout));
      if (any_vectors_ && ws_.h_of_row[row] != nullptr) layout.Unpack(h, ws_.h_of_row[row]);
      const int place = ws_.place_of_row[row];
      float* pooled = ws_.pooled_of[place];
      if (pooled == nullptr) return;
      PoolRow(layout, ws_.pooling[place], token == batch_.offsets[b],
              token + 1 == batch_.offsets[b + 1], h, pooled);
    });
  }

  void FinishPooling() {
    const RowLayout& layout = stack_.layers.back().output;
    for (int place = 0; place < sequences_; ++place) {
      float* pooled = ws_.pooled_of[place];
      if (pooled == nullptr) continue;
      const int b = ws_.order[place];
      FinishPool(ws_.pooling[place], Length(b), layout.stride(), pooled);
      if (outputs_[b].pooled != nullptr) layout.Unpack(pooled, outputs_[b].pooled);
    }
  }

  bool any_vectors_ = false;
};

}  // namespace

TileWorkspace::TileWorkspace(const TileStack& stack, const WorkspaceLimits& limits, int threads,
                             std::shared_ptr<RunMemory> memory)
    : StackWorkspace(stack.classifier, stack.layers.back().output, limits, std::move(memory)) {
  const size_t rows = static_cast<size_t>(limits.max_tokens) + kTileSpareRows;
  const size_t sequences = limits.max_sequences;
  size_t stride = TileStride(stack.input);
  size_t normalized_stride = 0;
  size_t projected_stride = 0;
  size_t states = 0;
  if (stack.input_to_hidden != nullptr) {
    stride = std::max(stride, TileStride(stack.input_to_hidden->output));
  }
  for (const TileLayer& layer : stack.layers) {
    stride = std::max(stride, TileStride(layer.output));
    states = std::max<size_t>(states, layer.output.stride());
    if (layer.layer_norm == LayerNorm::kBefore) {
      normalized_stride = std::max(normalized_stride, TileStride(layer.input));
    }
    if (layer.projection != nullptr) {
      projected_stride = std::max(projected_stride, layer.product_stride());
    }
  }
  for (int thread = 0; thread < threads; ++thread) inputs.emplace_back(stack);
  x.AtLeast(rows * stride);
  h.AtLeast(rows * stride);
  normalized.AtLeast(rows * normalized_stride);
  projected.AtLeast(rows * projected_stride);
  row.AtLeast(TileStride(stack.input));
  state.AtLeast(sequences * states);
  order.AtLeast(sequences);
  for (RunArray<BFloat16>* array : {&x, &h, &normalized, &projected}) plan.Add(array);
  for (RunArray<float>* array : {&row, &state, &pooled, &logits}) plan.Add(array);
  for (RunArray<int32_t>* array : {&first_row, &place_of_row, &token_of_row}) {
    array->AtLeast(limits.max_tokens);
    plan.Add(array);
  }
  h_of_row.AtLeast(limits.max_tokens);
  plan.Add(&h_of_row);
  plan.Add(&order);
  plan.Close();
  pooling.resize(sequences);
  pooled_of.resize(sequences);
}

void RunTileBatch(const TileStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
                  TileWorkspace& workspace, ParallelRunner& parallel) {
  const RunPlan::Scope memory(&workspace.plan);
  TileRun(stack, batch, outputs, workspace, parallel).Run();
}

}  // namespace sru::kernels::cpu
