#include "kernels/cpu/stacks/batch_run.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/pool.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {
namespace {

// Pools rows that are in memory: the scan cannot pool outputs that are normalized after it.
void PoolRows(const RowLayout& layout, const float* rows, int length, Pooling pooling,
              float* pooled) {
  std::fill_n(pooled, layout.stride(), PoolStart(pooling));
  for (int t = 0; t < length; ++t) {
    PoolRow(layout, pooling, t == 0, t + 1 == length,
            rows + static_cast<size_t>(t) * layout.stride(), pooled);
  }
}

// One Run(): the batch, where its results go, and the worker's memory.
class BatchRun : ForwardPass<PackedStack, CpuWorkspace> {
 public:
  using ForwardPass::ForwardPass;

  void Run() {
    AssignPoolRows();
    FindSingleRows();
    LoadInput();
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      RunLayer(i);
      std::swap(ws_.x, ws_.h);
    }
    FinishLastLayer();
    ClassifyPooled();
  }

 private:
  float* PooledRow(int b) {
    return ws_.pooled.data() +
           static_cast<size_t>(ws_.pool_row[b]) * stack_.layers.back().output.stride();
  }

  // Sequences of one row each are scanned together: for them alone it takes longer to begin a scan
  // than to end it.
  void FindSingleRows() {
    single_rows_ = tokens_ == sequences_ && num_pooled_ == 0;
    for (int b = 0; b < sequences_ && single_rows_; ++b) {
      single_rows_ = Length(b) == 1;
      ws_.after[b] = outputs_[b].final_state;
      ws_.token_rows[b] = outputs_[b].token_vectors;
    }
  }

  void LoadInput() {
    if (batch_.token_ids != nullptr) {
      LoadEmbedding();
    } else {
      LoadFeatures();
    }
    if (stack_.input_to_hidden != nullptr) {
      RunInChunks(*stack_.input_to_hidden, *ws_.input_to_hidden, ws_.x.data(), tokens_,
                  ws_.h.data());
      Round(ws_.h, stack_.input_to_hidden->n());
      std::swap(ws_.x, ws_.h);
    }
  }

  // Nothing where the first layer's products are looked up and nothing else reads its input.
  void LoadEmbedding() {
    const size_t stride = stack_.input.stride();
    for (int t = 0; t < tokens_; ++t) {
      const size_t from = batch_.token_ids[t] * stride;
      float* to = ws_.x.data() + t * stride;
      if (stack_.embedding.size() > 0) {
        std::copy_n(stack_.embedding.data() + from, stride, to);
      } else if (stack_.rounded_embedding.size() > 0) {
        ToFloatRow(stack_.rounded_embedding.data() + from, stride, to);
      }
    }
  }

  void LoadFeatures() {
    const RowLayout& layout = stack_.input;
    for (int t = 0; t < tokens_; ++t) {
      float* const row = ws_.x.data() + static_cast<size_t>(t) * layout.stride();
      // The buffers are shared by layers of different layouts, so the padding has to be cleared
      // again.
      if (!layout.is_dense()) std::fill_n(row, layout.stride(), 0.0f);
      layout.Pack(batch_.features + static_cast<size_t>(t) * spec_.input_size, row);
    }
    Round(ws_.x, layout.stride());
  }

  void Round(const RunArray<float>& rows, int stride) const {
    RoundRow(stack_.rounding, rows.data(), static_cast<size_t>(tokens_) * stride);
  }

  void RunLayer(size_t index) {
    const Layer& layer = stack_.layers[index];
    const bool looked_up = LooksUpProducts(index);
    const float* product_input =
        looked_up ? nullptr
                  : ws_.inputs[index]->Run(ws_.x.data(), tokens_, ws_.normalized.data(),
                                           ws_.projected.data());
    const int parts = static_cast<int>(layer.parts.size());
    double operations = 0;
    for (const Part& part : layer.parts) {
      operations += 2.0 * tokens_ * part.product->k() * part.product->n();
    }
    const auto run = [&](int part, int thread) { RunPart(index, part, product_input, thread); };
    ForEach(operations, parts, run);
    if (layer.layer_norm == LayerNorm::kAfter) {
      NormalizeRows(layer.output, layer.norm.weight.data(), layer.norm.bias.data(), ws_.h.data(),
                    tokens_, ws_.h.data());
      if (index + 1 < stack_.layers.size()) Round(ws_.h, layer.output.stride());
    }
  }

  // Products and scans of one part, chunk by chunk in its direction's order of time. A chunk
  // is a run of adjacent rows and may begin and end inside of a sequence: the state of that one is
  // carried over.
  void RunPart(size_t index, int part_index, const float* product_input, int thread) {
    CpuWorkspace::Scratch& scratch = ws_.scratch[thread];
    const Layer& layer = stack_.layers[index];
    const Part& part = layer.parts[part_index];
    const Product& product = *part.product;
    ProductRunner& runner = scratch.runners.at(&product.shape());
    const bool backward = part.direction == 1;
    int b = backward ? sequences_ - 1 : 0;
    for (int done = 0; done < tokens_;) {
      const int rows = std::min(layer.chunk_rows, tokens_ - done);
      const int begin = backward ? tokens_ - done - rows : done;
      const int end = begin + rows;
      if (LooksUpProducts(index)) {
        LookUpProducts(part_index, begin, rows, scratch.u.data());
      } else {
        runner.Run(product, product_input + static_cast<size_t>(begin) * product.k(), rows,
                   scratch.u.data());
      }
      if (single_rows_ && layer.output.is_dense()) {
        ScanSingleRows(index, part, begin, rows, scratch);
        b = -1;
      }
      while (b >= 0 && b < sequences_) {
        const int from = std::max(begin, batch_.offsets[b]);
        const int to = std::min(end, batch_.offsets[b + 1]);
        if (from >= to) break;
        ScanSegment(index, part, b, from, to, begin, scratch);
        const bool finished = backward ? from == batch_.offsets[b] : to == batch_.offsets[b + 1];
        if (!finished) break;
        b += backward ? -1 : 1;
      }
      done += rows;
      MayEndTurn(thread);
    }
  }

  bool LooksUpProducts(size_t index) const {
    return index == 0 && batch_.token_ids != nullptr && !stack_.token_products.empty();
  }

  void LookUpProducts(int part, int begin, int rows, float* u) const {
    const size_t n = stack_.layers[0].parts[part].product->n();
    const float* table = stack_.token_products[part].data();
    for (int row = 0; row < rows; ++row) {
      std::copy_n(table + batch_.token_ids[begin + row] * n, n, u + row * n);
    }
  }

  // Tokens [from, to) of sequence b; U's first row is token `chunk_begin`.
  void ScanSegment(size_t index, const Part& part, int b, int from, int to, int chunk_begin,
                   CpuWorkspace::Scratch& scratch) {
    const Layer& layer = stack_.layers[index];
    const bool backward = part.direction == 1;
    const bool last_layer = index + 1 == stack_.layers.size();
    // Where the part's dimensions are in a padded row and in a row without padding.
    const size_t column = static_cast<size_t>(part.direction) * layer.output.padded() + part.first;
    const size_t output = static_cast<size_t>(part.direction) * layer.output.size + part.first;
    const int first = batch_.offsets[b];
    const int first_step = backward ? to - 1 : from;
    const ptrdiff_t sign = backward ? -1 : 1;
    const bool starts = backward ? to == batch_.offsets[b + 1] : from == first;
    const bool ends = backward ? from == first : to == batch_.offsets[b + 1];
    const SequenceOutput& out = outputs_[b];

    ScanSteps steps;
    steps.steps = to - from;
    const size_t u_stride = part.product->n();
    steps.u = scratch.u.data() + (first_step - chunk_begin) * u_stride;
    steps.u_stride = sign * static_cast<ptrdiff_t>(u_stride);
    steps.x = ws_.x.data() + static_cast<size_t>(first_step) * layer.input.stride() + column;
    steps.x_stride = sign * layer.input.stride();
    steps.c = scratch.c.data();
    if (starts) LoadInitialState(index, part, b, steps.c);

    if (last_layer && ScanFinishesOutputs()) {
      if (out.token_vectors != nullptr && layer.output.is_dense()) {
        const size_t width = layer.output.width();
        steps.h = out.token_vectors + (first_step - first) * width + output;
        steps.h_stride = sign * static_cast<ptrdiff_t>(width);
      } else if (out.token_vectors != nullptr) {
        SetHiddenRows(layer, column, first_step, sign, &steps);
      }
      steps.pooling = PoolingInTime(RuleOf(PoolingOf(b)).step, backward);
      steps.starts = starts;
      if (steps.pooling != PoolingStep::kNothing) {
        steps.pool = PooledRow(b) + column;
        if (starts) std::fill_n(steps.pool, part.scan.padded, PoolStart(PoolingOf(b)));
      }
    } else {
      SetHiddenRows(layer, column, first_step, sign, &steps);
      steps.h_rounding = stack_.rounding;
    }

    Scan(part.scan, steps);

    if (ends && out.final_state != nullptr) {
      std::copy_n(steps.c, Dimensions(layer, part),
                  out.final_state + index * layer.output.width() + output);
    }
  }

  // Rows [begin, begin + rows), each a sequence; the layer's rows have no padding.
  void ScanSingleRows(size_t index, const Part& part, int begin, int rows,
                      const CpuWorkspace::Scratch& scratch) {
    const Layer& layer = stack_.layers[index];
    const size_t column = static_cast<size_t>(part.direction) * layer.output.size + part.first;
    SingleSteps steps;
    steps.rows = rows;
    steps.u = scratch.u.data();
    steps.u_stride = part.product->n();
    steps.x_stride = layer.input.stride();
    steps.x = ws_.x.data() + begin * steps.x_stride + column;
    if (batch_.initial_states != nullptr) steps.before = batch_.initial_states + begin;
    steps.after = ws_.after.data() + begin;
    steps.c_column = index * layer.output.width() + column;
    if (index + 1 == stack_.layers.size() && ScanFinishesOutputs()) {
      steps.h_rows = ws_.token_rows.data() + begin;
      steps.h_column = column;
    } else {
      steps.h_stride = layer.output.stride();
      steps.h = ws_.h.data() + begin * steps.h_stride + column;
      steps.h_rounding = stack_.rounding;
    }
    ScanSingleSteps(part.scan, steps);
  }

  // Dimensions of the part, without padding.
  static int Dimensions(const Layer& layer, const Part& part) {
    return std::min(part.scan.padded, layer.output.size - part.first);
  }

  void SetHiddenRows(const Layer& layer, size_t column, int first_step, ptrdiff_t sign,
                     ScanSteps* steps) {
    const size_t stride = layer.output.stride();
    steps->h = ws_.h.data() + first_step * stride + column;
    steps->h_stride = sign * static_cast<ptrdiff_t>(stride);
  }

  void LoadInitialState(size_t index, const Part& part, int b, float* c) const {
    const Layer& layer = stack_.layers[index];
    std::fill_n(c, part.scan.padded, 0.0f);
    if (batch_.initial_states == nullptr || batch_.initial_states[b] == nullptr) return;
    const float* from = batch_.initial_states[b] + index * layer.output.width();
    std::copy_n(from + part.direction * layer.output.size + part.first, Dimensions(layer, part), c);
  }

  // Completes token vectors and pooled vectors after the last scan.
  void FinishLastLayer() {
    const RowLayout& layout = stack_.layers.back().output;
    const size_t stride = layout.stride();
    for (int b = 0; b < sequences_; ++b) {
      const SequenceOutput& out = outputs_[b];
      const float* rows = ws_.x.data() + batch_.offsets[b] * stride;
      if (out.token_vectors != nullptr && !(ScanFinishesOutputs() && layout.is_dense())) {
        for (int t = 0; t < Length(b); ++t) {
          layout.Unpack(rows + t * stride,
                        out.token_vectors + static_cast<size_t>(t) * layout.width());
        }
      }
      const Pooling pooling = PoolingOf(b);
      if (pooling == Pooling::kNone) continue;
      float* pooled = PooledRow(b);
      if (!ScanFinishesOutputs()) PoolRows(layout, rows, Length(b), pooling, pooled);
      FinishPool(pooling, Length(b), stride, pooled);
      if (out.pooled != nullptr) layout.Unpack(pooled, out.pooled);
    }
  }

  bool single_rows_ = false;  // every sequence has one row and none is pooled
};

}  // namespace

void RunBatch(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
              CpuWorkspace& workspace, ParallelRunner& parallel) {
  const RunPlan::Scope memory(&workspace.plan);
  BatchRun(stack, batch, outputs, workspace, parallel).Run();
}

}  // namespace sru::kernels::cpu
