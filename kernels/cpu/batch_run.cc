#include "kernels/cpu/batch_run.h"

#include <algorithm>
#include <utility>

#include "kernels/cpu/bfloat16_rows.h"
#include "kernels/cpu/classify.h"
#include "kernels/cpu/product_input.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/scan.h"

namespace sru::kernels {
namespace {

// Pools rows that are in memory, for outputs that the scan cannot pool: those that are normalised
// after it.
void PoolRows(const RowLayout& layout, const float* rows, int length, Pooling pooling,
              float* pooled) {
  const int stride = layout.stride();
  if (pooling == Pooling::kLast) {
    const int padded = layout.padded();
    std::copy_n(rows + static_cast<size_t>(length - 1) * stride, padded, pooled);
    if (layout.segments == 2) std::copy_n(rows + padded, padded, pooled + padded);
    return;
  }
  std::fill_n(pooled, stride, PoolStart(pooling));
  for (int t = 0; t < length; ++t) {
    const float* row = rows + static_cast<size_t>(t) * stride;
    for (int j = 0; j < stride; ++j) {
      pooled[j] = pooling == Pooling::kMax ? std::max(pooled[j], row[j]) : pooled[j] + row[j];
    }
  }
}

// One Run(): the batch, where its results go, and the worker's memory.
class BatchRun {
 public:
  BatchRun(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
           CpuWorkspace& workspace)
      : stack_(stack),
        spec_(stack.spec),
        batch_(batch),
        outputs_(outputs),
        ws_(workspace),
        tokens_(batch.num_tokens()) {}

  void Run() {
    AssignPoolRows();
    LoadInput();
    for (size_t i = 0; i < stack_.layers.size(); ++i) {
      RunLayer(i);
      std::swap(ws_.x, ws_.h);
    }
    FinishLastLayer();
    if (stack_.classifier != nullptr) {
      Classify(spec_, *stack_.classifier, *ws_.classifier, batch_.num_sequences, outputs_,
               ws_.pool_row.data(), num_pooled_, ws_.pooled.data(), ws_.logits.data());
    }
  }

 private:
  Pooling PoolingOf(int b) const { return kernels::PoolingOf(spec_, outputs_[b]); }
  int Length(int b) const { return batch_.offsets[b + 1] - batch_.offsets[b]; }
  // Layer norm after the last scan leaves pooling and token vectors to FinishLastLayer().
  bool ScanFinishesOutputs() const { return stack_.layers.back().layer_norm != LayerNorm::kAfter; }
  float* PooledRow(int b) {
    return ws_.pooled.data() +
           static_cast<size_t>(ws_.pool_row[b]) * stack_.layers.back().output.stride();
  }

  void AssignPoolRows() {
    num_pooled_ = 0;
    for (int b = 0; b < batch_.num_sequences; ++b) {
      ws_.pool_row[b] = PoolingOf(b) == Pooling::kNone ? -1 : num_pooled_++;
    }
  }

  void LoadInput() {
    const RowLayout& layout = stack_.input;
    for (int t = 0; t < tokens_; ++t) {
      const float* from =
          batch_.token_ids != nullptr
              ? spec_.embedding.data + static_cast<size_t>(batch_.token_ids[t]) * spec_.input_size
              : batch_.features + static_cast<size_t>(t) * spec_.input_size;
      layout.Pack(from, ws_.x.data() + static_cast<size_t>(t) * layout.stride());
    }
    // The buffers are shared by layers of different layouts, so the padding has to be cleared
    // again.
    if (!layout.is_dense()) {
      for (int t = 0; t < tokens_; ++t) {
        for (int s = 0; s < layout.segments; ++s) {
          float* segment = ws_.x.data() + static_cast<size_t>(t) * layout.stride() +
                           static_cast<size_t>(s) * layout.padded();
          std::fill(segment + layout.size, segment + layout.padded(), 0.0f);
        }
      }
    }
    Round(ws_.x, layout.stride());
    if (stack_.input_to_hidden != nullptr) {
      RunInChunks(*stack_.input_to_hidden, *ws_.input_to_hidden, ws_.x.data(), tokens_,
                  ws_.h.data());
      Round(ws_.h, stack_.input_to_hidden->n());
      std::swap(ws_.x, ws_.h);
    }
  }

  void Round(AlignedBuffer& rows, int stride) const {
    if (stack_.rounds) RoundRowToBFloat16(rows.data(), static_cast<size_t>(tokens_) * stride);
  }

  void RunLayer(size_t index) {
    const Layer& layer = stack_.layers[index];
    CpuWorkspace::LayerRunners& runners = ws_.layers[index];
    const bool looked_up = LooksUpProducts(index);
    const float* product_input = looked_up ? nullptr : runners.input->Run(ws_.x.data(), tokens_);
    for (size_t d = 0; d < layer.directions.size(); ++d) {
      RunDirection(index, d, product_input, runners.directions[d]);
    }
    if (layer.layer_norm == LayerNorm::kAfter) {
      NormalizeRows(layer.output, layer.norm.weight.data(), layer.norm.bias.data(), ws_.h.data(),
                    tokens_, ws_.h.data());
      if (index + 1 < stack_.layers.size()) Round(ws_.h, layer.output.stride());
    }
  }

  // Products and scans of one direction, chunk by chunk in the direction's order of time. A chunk
  // is a run of adjacent rows and may begin and end inside of a sequence: the state of that one is
  // carried over.
  void RunDirection(size_t index, size_t d, const float* product_input, ProductRunner& runner) {
    const Layer& layer = stack_.layers[index];
    const Product& product = *layer.directions[d].product;
    const bool backward = d == 1;
    int b = backward ? batch_.num_sequences - 1 : 0;
    for (int done = 0; done < tokens_;) {
      const int rows = std::min(layer.chunk_rows, tokens_ - done);
      const int begin = backward ? tokens_ - done - rows : done;
      const int end = begin + rows;
      if (LooksUpProducts(index)) {
        LookUpProducts(d, begin, rows);
      } else {
        runner.Run(product_input + static_cast<size_t>(begin) * product.k(), rows, ws_.u.data());
      }
      while (b >= 0 && b < batch_.num_sequences) {
        const int from = std::max(begin, batch_.offsets[b]);
        const int to = std::min(end, batch_.offsets[b + 1]);
        if (from >= to) break;
        ScanSegment(index, d, b, from, to, begin);
        const bool finished = backward ? from == batch_.offsets[b] : to == batch_.offsets[b + 1];
        if (!finished) break;
        b += backward ? -1 : 1;
      }
      done += rows;
    }
  }

  bool LooksUpProducts(size_t index) const {
    return index == 0 && batch_.token_ids != nullptr && !stack_.token_products.empty();
  }

  void LookUpProducts(size_t d, int begin, int rows) {
    const size_t n = stack_.layers[0].directions[d].product->n();
    const float* table = stack_.token_products[d].data();
    for (int row = 0; row < rows; ++row) {
      std::copy_n(table + batch_.token_ids[begin + row] * n, n, ws_.u.data() + row * n);
    }
  }

  // Tokens [from, to) of sequence b; U's first row is token `chunk_begin`.
  void ScanSegment(size_t index, size_t d, int b, int from, int to, int chunk_begin) {
    const Layer& layer = stack_.layers[index];
    const ScanParameters& parameters = layer.directions[d].scan;
    const bool backward = d == 1;
    const bool last_layer = index + 1 == stack_.layers.size();
    const int hidden = layer.output.size;
    const int padded = layer.output.padded();
    const int first = batch_.offsets[b];
    const int first_step = backward ? to - 1 : from;
    const ptrdiff_t sign = backward ? -1 : 1;
    const bool starts = backward ? to == batch_.offsets[b + 1] : from == first;
    const bool ends = backward ? from == first : to == batch_.offsets[b + 1];
    const SequenceOutput& out = outputs_[b];

    ScanSteps steps;
    steps.steps = to - from;
    const size_t u_stride = layer.directions[d].product->n();
    steps.u = ws_.u.data() + (first_step - chunk_begin) * u_stride;
    steps.u_stride = sign * static_cast<ptrdiff_t>(u_stride);
    steps.x = ws_.x.data() + static_cast<size_t>(first_step) * layer.input.stride() + d * padded;
    steps.x_stride = sign * layer.input.stride();
    steps.c = ws_.c.data();
    if (starts) LoadInitialState(index, d, b);

    if (last_layer && ScanFinishesOutputs()) {
      if (out.token_vectors != nullptr && layer.output.is_dense()) {
        const size_t width = layer.output.width();
        steps.h = out.token_vectors + (first_step - first) * width + d * hidden;
        steps.h_stride = sign * static_cast<ptrdiff_t>(width);
      } else if (out.token_vectors != nullptr) {
        SetHiddenRows(layer, d, first_step, sign, &steps);
      }
      steps.pooling = PoolingOf(b);
      if (steps.pooling != Pooling::kNone) {
        steps.pool = PooledRow(b) + d * padded;
        if (starts) std::fill_n(steps.pool, padded, PoolStart(steps.pooling));
      }
    } else {
      SetHiddenRows(layer, d, first_step, sign, &steps);
      steps.rounds_h = stack_.rounds;
    }

    Scan(parameters, steps);

    if (ends && out.final_state != nullptr) {
      std::copy_n(ws_.c.data(), hidden,
                  out.final_state + index * layer.output.width() + d * hidden);
    }
  }

  void SetHiddenRows(const Layer& layer, size_t d, int first_step, ptrdiff_t sign,
                     ScanSteps* steps) {
    const size_t stride = layer.output.stride();
    steps->h = ws_.h.data() + first_step * stride + d * layer.output.padded();
    steps->h_stride = sign * static_cast<ptrdiff_t>(stride);
  }

  void LoadInitialState(size_t index, size_t d, int b) {
    const RowLayout& layout = stack_.layers[index].output;
    std::fill_n(ws_.c.data(), layout.padded(), 0.0f);
    if (batch_.initial_state == nullptr) return;
    const size_t layer = static_cast<size_t>(b) * stack_.layers.size() + index;
    std::copy_n(batch_.initial_state + layer * layout.width() + d * layout.size, layout.size,
                ws_.c.data());
  }

  // What the last scan has left to do for token vectors and pooled vectors.
  void FinishLastLayer() {
    const RowLayout& layout = stack_.layers.back().output;
    const size_t stride = layout.stride();
    for (int b = 0; b < batch_.num_sequences; ++b) {
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
      if (pooling == Pooling::kMean) {
        const float scale = 1.0f / static_cast<float>(Length(b));
        for (size_t j = 0; j < stride; ++j) pooled[j] *= scale;
      }
      if (out.pooled != nullptr) layout.Unpack(pooled, out.pooled);
    }
  }

  const PackedStack& stack_;
  const StackSpec& spec_;
  const RaggedBatch& batch_;
  const SequenceOutput* outputs_;
  CpuWorkspace& ws_;
  const int tokens_;
  int num_pooled_ = 0;
};

}  // namespace

void RunBatch(const PackedStack& stack, const RaggedBatch& batch, const SequenceOutput* outputs,
              CpuWorkspace& workspace) {
  BatchRun(stack, batch, outputs, workspace).Run();
}

}  // namespace sru::kernels
