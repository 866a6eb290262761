#include "kernels/cpu/cpu_backend.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/layer_norm.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/scan.h"

namespace sru::kernels {
namespace {

// U of one chunk of tokens stays within this many bytes, so that the scan finds it in the
// second-level cache.
constexpr size_t kChunkBytes = 256 * 1024;
constexpr int kMinChunkRows = 32;
constexpr int kMaxChunkRows = 256;
// Largest table of the first layer's products by token (TokenProducts).
constexpr size_t kMaxTokenProductBytes = size_t{64} << 20;
// Pooled vectors that the classifier multiplies at a time.
constexpr int kClassifierRows = 64;

int ChunkRows(int columns) {
  const int rows = static_cast<int>(kChunkBytes / (sizeof(float) * columns)) / 16 * 16;
  return std::clamp(rows, kMinChunkRows, kMaxChunkRows);
}

// Weight and bias of a layer norm in a padded row; empty when there is none.
struct NormWeights {
  AlignedBuffer weight;
  AlignedBuffer bias;
};

NormWeights PackNorm(const LayerSpec& layer, const RowLayout& layout) {
  NormWeights norm{AlignedBuffer(layout.stride()), AlignedBuffer(layout.stride())};
  layout.Pack(layer.norm_weight.data, norm.weight.data());
  layout.Pack(layer.norm_bias.data, norm.bias.data());
  return norm;
}

// The gates' constants of one direction and what the scan needs to know of the layer.
struct Direction {
  std::unique_ptr<Product> product;  // planes U0 U1 U2 [U3], each [padded hidden]
  AlignedBuffer constants;           // v_f, v_r, b_f, b_r
  ScanParameters scan;
};

struct Layer {
  RowLayout input;
  RowLayout output;
  LayerNorm layer_norm = LayerNorm::kNone;
  NormWeights norm;
  std::unique_ptr<Product> projection;
  std::vector<Direction> directions;
  int chunk_rows = 0;
};

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

void RunInChunks(const Product& product, ProductRunner& runner, const float* x, int rows,
                 float* y) {
  for (int row = 0; row < rows; row += product.max_rows()) {
    runner.Run(x + static_cast<size_t>(row) * product.k(), std::min(product.max_rows(), rows - row),
               y + static_cast<size_t>(row) * product.n());
  }
}

// Layer norm and projection of a layer: what its products multiply.
class ProductInput {
 public:
  ProductInput(const Layer& layer, int max_rows) : layer_(layer) {
    const size_t rows = static_cast<size_t>(max_rows) + kMaxChunkRows;
    if (layer.layer_norm == LayerNorm::kBefore) {
      normalised_ = AlignedBuffer(rows * layer.input.stride());
    }
    if (layer.projection != nullptr) {
      projected_ = AlignedBuffer(rows * layer.projection->n());
      projection_ = std::make_unique<ProductRunner>(*layer.projection);
    }
  }

  // x [rows][layer.input.stride()]; the result is x itself or stands in this object.
  const float* Run(const float* x, int rows) {
    if (layer_.layer_norm == LayerNorm::kBefore) {
      NormalizeRows(layer_.input, layer_.norm.weight.data(), layer_.norm.bias.data(), x, rows,
                    normalised_.data());
      x = normalised_.data();
    }
    if (projection_ != nullptr) {
      RunInChunks(*layer_.projection, *projection_, x, rows, projected_.data());
      x = projected_.data();
    }
    return x;
  }

  size_t bytes() const { return normalised_.bytes() + projected_.bytes(); }

 private:
  const Layer& layer_;
  AlignedBuffer normalised_;
  AlignedBuffer projected_;
  std::unique_ptr<ProductRunner> projection_;
};

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

// The whole stack with its weights packed.
struct PackedStack {
  explicit PackedStack(const StackSpec& stack) : spec(stack) {
    ProductShapes shapes;
    const LayerSpec& first = spec.layers[0];
    RowLayout rows{1, first.input_size};
    // The highway term adds the input to the output, so both need the same layout.
    if (HighwayOf(first) == Highway::kInput) rows = {first.directions, first.hidden_size};
    input = rows;
    if (!spec.input_to_hidden.empty()) {
      input = {1, spec.input_size};
      const int chunk_rows = ChunkRows(rows.stride());
      input_to_hidden = std::make_unique<Product>(
          shapes, PackTransposed(spec.input_to_hidden, input, rows).data(), input.stride(),
          rows.stride(), RowBuckets(chunk_rows));
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

  StackSpec spec;
  RowLayout input;  // of the embedding or of the caller's features
  std::unique_ptr<Product> input_to_hidden;
  std::vector<Layer> layers;
  std::vector<AlignedBuffer> token_products;  // [direction], or empty
  RowLayout labels;
  std::unique_ptr<Product> classifier;
};

class CpuWorkspace : public Workspace {
 public:
  CpuWorkspace(const PackedStack& stack, const WorkspaceLimits& limits) : limits_(limits) {
    const size_t rows = static_cast<size_t>(limits.max_tokens) + kMaxChunkRows;
    size_t stride = stack.input.stride();
    size_t hidden = 0;
    size_t u_size = 0;
    if (stack.input_to_hidden != nullptr) {
      stride = std::max<size_t>(stride, stack.input_to_hidden->n());
      input_to_hidden = std::make_unique<ProductRunner>(*stack.input_to_hidden);
    }
    for (const Layer& layer : stack.layers) {
      stride = std::max<size_t>(stride, layer.output.stride());
      hidden = std::max<size_t>(hidden, layer.output.padded());
      LayerRunners runners;
      runners.input = std::make_unique<ProductInput>(layer, limits.max_tokens);
      for (const Direction& direction : layer.directions) {
        u_size = std::max<size_t>(u_size,
                                  static_cast<size_t>(layer.chunk_rows) * direction.product->n());
        runners.directions.emplace_back(*direction.product);
      }
      layers.push_back(std::move(runners));
    }
    x = AlignedBuffer(rows * stride);
    h = AlignedBuffer(rows * stride);
    u = AlignedBuffer(u_size);
    c = AlignedBuffer(hidden);
    pool_row.resize(limits.max_sequences);
    const size_t pooled_rows = static_cast<size_t>(limits.max_sequences) + kClassifierRows;
    pooled = AlignedBuffer(pooled_rows * stack.layers.back().output.stride());
    if (stack.classifier != nullptr) {
      classifier = std::make_unique<ProductRunner>(*stack.classifier);
      logits = AlignedBuffer(pooled_rows * stack.labels.stride());
    }
  }

  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override {
    size_t bytes = x.bytes() + h.bytes() + u.bytes() + c.bytes() + pooled.bytes() + logits.bytes() +
                   pool_row.size() * sizeof(int);
    for (const LayerRunners& layer : layers) bytes += layer.input->bytes();
    return bytes;
  }

  struct LayerRunners {
    std::unique_ptr<ProductInput> input;
    std::vector<ProductRunner> directions;
  };

  std::unique_ptr<ProductRunner> input_to_hidden;
  std::vector<LayerRunners> layers;
  std::unique_ptr<ProductRunner> classifier;

  // Rows have room for a product's last bucket after the batch's tokens.
  AlignedBuffer x;            // a layer's input, [tokens][stride]
  AlignedBuffer h;            // its output
  AlignedBuffer u;            // one chunk of one direction
  AlignedBuffer c;            // state of the sequence that is being scanned
  AlignedBuffer pooled;       // [sequences that need one][stride]
  AlignedBuffer logits;       // as pooled
  std::vector<int> pool_row;  // [sequence]: its row in `pooled`, or -1

 private:
  WorkspaceLimits limits_;
};

float PoolStart(Pooling pooling) {
  return pooling == Pooling::kMax ? -std::numeric_limits<float>::infinity() : 0.0f;
}

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

void Softmax(const float* logits, int size, float* probabilities) {
  const float maximum = *std::max_element(logits, logits + size);
  float sum = 0;
  for (int i = 0; i < size; ++i) sum += probabilities[i] = std::exp(logits[i] - maximum);
  for (int i = 0; i < size; ++i) probabilities[i] /= sum;
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
    Classify();
  }

 private:
  static bool NeedsClassifier(const SequenceOutput& out) {
    return out.logits != nullptr || out.probabilities != nullptr;
  }
  Pooling PoolingOf(int b) const {
    if (NeedsClassifier(outputs_[b])) return spec_.pooling;
    return outputs_[b].pooled != nullptr ? outputs_[b].pooling : Pooling::kNone;
  }
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
    if (stack_.input_to_hidden != nullptr) {
      RunInChunks(*stack_.input_to_hidden, *ws_.input_to_hidden, ws_.x.data(), tokens_,
                  ws_.h.data());
      std::swap(ws_.x, ws_.h);
    }
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

  void Classify() {
    if (stack_.classifier == nullptr) return;
    const bool any = std::any_of(outputs_, outputs_ + batch_.num_sequences, NeedsClassifier);
    if (!any) return;
    RunInChunks(*stack_.classifier, *ws_.classifier, ws_.pooled.data(), num_pooled_,
                ws_.logits.data());
    const int labels = spec_.num_labels;
    for (int b = 0; b < batch_.num_sequences; ++b) {
      const SequenceOutput& out = outputs_[b];
      if (!NeedsClassifier(out)) continue;
      float* logits =
          ws_.logits.data() + static_cast<size_t>(ws_.pool_row[b]) * stack_.labels.stride();
      for (int i = 0; i < labels && !spec_.classifier_bias.empty(); ++i) {
        logits[i] += spec_.classifier_bias.data[i];
      }
      if (out.logits != nullptr) std::copy_n(logits, labels, out.logits);
      if (out.probabilities != nullptr) Softmax(logits, labels, out.probabilities);
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

// Batches run in parallel on the callers' threads; a product must not start threads of its own.
void UseOneThread() { omp_set_num_threads(1); }

// Runs `body` and turns what oneDNN and the allocator throw into a status.
template <typename Body>
Status CatchErrors(const char* action, Body body) {
  try {
    body();
    return OkStatus();
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::kResourceExhausted, std::string(action) + ": out of memory");
  } catch (const std::exception& e) {
    return Internal(std::string(action) + ": " + e.what());
  }
}

class CpuExecutable : public Executable {
 public:
  explicit CpuExecutable(std::unique_ptr<PackedStack> stack) : stack_(std::move(stack)) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    if (limits.max_tokens < 1 || limits.max_sequences < 1) {
      return InvalidArgument("workspace: expected at least one token and one sequence");
    }
    return CatchErrors("making a workspace",
                       [&] { *workspace = std::make_unique<CpuWorkspace>(*stack_, limits); });
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    Status status = ValidateBatch(stack_->spec, workspace.limits(), batch, outputs);
    if (!status.ok() || batch.num_sequences == 0) return status;
    UseOneThread();
    return CatchErrors("running a batch", [&] {
      BatchRun(*stack_, batch, outputs, static_cast<CpuWorkspace&>(workspace)).Run();
    });
  }

  size_t weight_bytes() const override {
    size_t bytes = stack_->input_to_hidden != nullptr ? stack_->input_to_hidden->bytes() : 0;
    if (stack_->classifier != nullptr) bytes += stack_->classifier->bytes();
    for (const AlignedBuffer& table : stack_->token_products) bytes += table.bytes();
    for (const Layer& layer : stack_->layers) {
      bytes += layer.norm.weight.bytes() + layer.norm.bias.bytes();
      if (layer.projection != nullptr) bytes += layer.projection->bytes();
      for (const Direction& direction : layer.directions) {
        bytes += direction.product->bytes() + direction.constants.bytes();
      }
    }
    return bytes;
  }

 private:
  std::unique_ptr<PackedStack> stack_;
};

class CpuBackend : public Backend {
 public:
  const char* name() const override { return "cpu"; }
  std::string description() const override {
    return std::string("oneDNN products, ") + VectorTargetName() + " scan";
  }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    Status status = Validate(spec);
    if (!status.ok()) return status;
    if (options.dtype != DataType::kFloat32) {
      return Unsupported(std::string("dtype: backend cpu computes float32, found ") +
                         DataTypeName(options.dtype));
    }
    UseOneThread();
    return CatchErrors("packing weights", [&] {
      *executable = std::make_unique<CpuExecutable>(std::make_unique<PackedStack>(spec));
    });
  }
};

}  // namespace

std::unique_ptr<Backend> CreateCpuBackend() { return std::make_unique<CpuBackend>(); }

}  // namespace sru::kernels
