#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace sru::kernels {
namespace {

// Row-major [tokens][width].
struct Matrix {
  int width = 0;
  std::vector<double> values;

  Matrix(int rows, int width) : width(width), values(static_cast<size_t>(rows) * width) {}
  double* row(int t) { return &values[static_cast<size_t>(t) * width]; }
  const double* row(int t) const { return &values[static_cast<size_t>(t) * width]; }
  int rows() const { return static_cast<int>(values.size() / width); }
};

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The bfloat16 value (8 bits of precision, the exponents of float32) that is nearest to a float32,
// ties to even. Like everything here it shares no code with the backends that it judges.
float RoundToBFloat16(float value) {
  if (!std::isfinite(value) || value == 0.0f) return value;
  constexpr int kPrecision = 8;
  constexpr int kSmallestUnit = -133;  // of the subnormal values, 2^-126 * 2^-7
  const int exponent = std::ilogb(value);
  const int unit = std::max(exponent - kPrecision + 1, kSmallestUnit);
  // Exact in float64. Past the largest value the conversion gives infinity.
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(double{value}, -unit)), unit));
}

// What storage in a data type does to a value; float32 storage is taken as exact.
class Storage {
 public:
  // As float32.
  Storage() = default;
  static Storage BFloat16() {
    Storage storage;
    storage.rounds_ = true;
    return storage;
  }

  double operator()(double value) const {
    return rounds_ ? RoundToBFloat16(static_cast<float>(value)) : value;
  }
  // Backends store a gate's weight multiplied by -log2(e), in float32, and round the product.
  double Gate(float weight) const {
    if (!rounds_) return weight;
    constexpr float kMinusLog2E = -1.4426950408889634f;
    return static_cast<double>(RoundToBFloat16(kMinusLog2E * weight)) / kMinusLog2E;
  }
  void Round(Matrix* x) const {
    for (double& value : x->values) value = (*this)(value);
  }

 private:
  bool rounds_ = false;
};

// y = x w, with w [x.width][columns].
Matrix Product(const Matrix& x, const FloatView& w, int columns, const Storage& storage) {
  Matrix y(x.rows(), columns);
  for (int t = 0; t < x.rows(); ++t) {
    for (int i = 0; i < x.width; ++i) {
      const double value = x.row(t)[i];
      const float* weights = w.data + static_cast<size_t>(i) * columns;
      for (int j = 0; j < columns; ++j) y.row(t)[j] += value * storage(weights[j]);
    }
  }
  return y;
}

// U of a layer.
Matrix GateProduct(const LayerSpec& layer, const Matrix& x, const Storage& storage) {
  const int k = layer.num_matrices;
  const int columns = layer.output_size() * k;
  std::vector<double> w(layer.weight.size);
  for (size_t i = 0; i < w.size(); ++i) {
    const bool of_gate = i % k == 1 || i % k == 2;
    w[i] = of_gate ? storage.Gate(layer.weight.data[i]) : storage(layer.weight.data[i]);
  }
  Matrix u(x.rows(), columns);
  for (int t = 0; t < x.rows(); ++t) {
    for (int i = 0; i < x.width; ++i) {
      const double value = x.row(t)[i];
      const double* weights = &w[static_cast<size_t>(i) * columns];
      for (int j = 0; j < columns; ++j) u.row(t)[j] += value * weights[j];
    }
  }
  return u;
}

// y = x w^T, with w [rows][x.width].
Matrix TransposedProduct(const Matrix& x, const FloatView& w, int rows, const Storage& storage) {
  Matrix y(x.rows(), rows);
  for (int t = 0; t < x.rows(); ++t) {
    for (int j = 0; j < rows; ++j) {
      double sum = 0;
      for (int i = 0; i < x.width; ++i) {
        sum += x.row(t)[i] * storage(w.data[static_cast<size_t>(j) * x.width + i]);
      }
      y.row(t)[j] = sum;
    }
  }
  return y;
}

double Activate(Activation activation, double c) {
  switch (activation) {
    case Activation::kIdentity:
      return c;
    case Activation::kTanh:
      return std::tanh(c);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

void Normalize(const FloatView& weight, const FloatView& bias, Matrix* x) {
  for (int t = 0; t < x->rows(); ++t) {
    double* row = x->row(t);
    double mean = 0;
    for (int i = 0; i < x->width; ++i) mean += row[i];
    mean /= x->width;
    double variance = 0;
    for (int i = 0; i < x->width; ++i) variance += (row[i] - mean) * (row[i] - mean);
    variance /= x->width;
    const double scale = 1.0 / std::sqrt(variance + kLayerNormEpsilon);
    for (int i = 0; i < x->width; ++i) {
      row[i] = (row[i] - mean) * scale * weight.data[i] + bias.data[i];
    }
  }
}

// One layer over one sequence. `c` holds the initial state [output_size] and receives the final
// one.
Matrix RunLayer(const LayerSpec& layer, const Matrix& x, const Storage& storage,
                std::vector<double>* c) {
  const int hidden = layer.hidden_size;
  const int outputs = layer.output_size();
  const int k = layer.num_matrices;

  Matrix input = x;
  if (layer.layer_norm == LayerNorm::kBefore) {
    Normalize(layer.norm_weight, layer.norm_bias, &input);
    storage.Round(&input);
  }
  if (layer.projection_size > 0) {
    input = Product(input, layer.weight_proj, layer.projection_size, storage);
    storage.Round(&input);
  }
  const Matrix u = GateProduct(layer, input, storage);

  Matrix h(x.rows(), outputs);
  for (int direction = 0; direction < layer.directions; ++direction) {
    for (int j = 0; j < hidden; ++j) {
      const int o = direction * hidden + j;
      const double v_f = layer.weight_c.empty() ? 0.0 : layer.weight_c.data[o];
      const double v_r = layer.weight_c.empty() ? 0.0 : layer.weight_c.data[outputs + o];
      const double b_f = layer.bias.data[o];
      const double b_r = layer.bias.data[outputs + o];
      double state = (*c)[o];
      for (int step = 0; step < x.rows(); ++step) {
        const int t = direction == 0 ? step : x.rows() - 1 - step;
        const double* ut = u.row(t) + static_cast<size_t>(o) * k;
        const double f = Sigmoid(ut[1] + v_f * state + b_f);
        const double r = Sigmoid(ut[2] + v_r * state + b_r);
        state = f * state + (1 - f) * ut[0];
        const double g = Activate(layer.activation, state);
        double skip = 0;
        if (layer.has_skip_term) skip = k == 4 ? ut[3] : layer.alpha * x.row(t)[o];
        h.row(t)[o] = r * g + (1 - r) * skip;
      }
      (*c)[o] = state;
    }
  }
  if (layer.layer_norm == LayerNorm::kAfter) {
    storage.Round(&h);
    Normalize(layer.norm_weight, layer.norm_bias, &h);
  }
  return h;
}

std::vector<double> Pool(const Matrix& h, Pooling pooling, int hidden) {
  std::vector<double> pooled(h.width);
  for (int j = 0; j < h.width; ++j) {
    double sum = 0;
    double maximum = -std::numeric_limits<double>::infinity();
    for (int t = 0; t < h.rows(); ++t) {
      sum += h.row(t)[j];
      maximum = std::max(maximum, h.row(t)[j]);
    }
    switch (pooling) {
      case Pooling::kNone:
        break;
      case Pooling::kFirst:
        pooled[j] = h.row(0)[j];
        break;
      case Pooling::kLast:
        pooled[j] = h.row(j < hidden ? h.rows() - 1 : 0)[j];
        break;
      case Pooling::kMax:
        pooled[j] = maximum;
        break;
      case Pooling::kMean:
        pooled[j] = sum / h.rows();
        break;
    }
  }
  return pooled;
}

void Copy(const std::vector<double>& from, float* to) {
  std::transform(from.begin(), from.end(), to, [](double v) { return static_cast<float>(v); });
}

std::vector<double> Softmax(const std::vector<double>& logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i] - maximum);
  for (double& value : p) value /= sum;
  return p;
}

class ReferenceWorkspace : public Workspace {
 public:
  explicit ReferenceWorkspace(const WorkspaceLimits& limits) : limits_(limits) {}
  const WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override { return 0; }

 private:
  WorkspaceLimits limits_;
};

class ReferenceExecutable : public Executable {
 public:
  ReferenceExecutable(const StackSpec& spec, const Storage& storage)
      : spec_(spec), storage_(storage) {}

  Status CreateWorkspace(const WorkspaceLimits& limits,
                         std::unique_ptr<Workspace>* workspace) const override {
    *workspace = std::make_unique<ReferenceWorkspace>(limits);
    return OkStatus();
  }

  Status Run(const RaggedBatch& batch, const SequenceOutput* outputs,
             Workspace& workspace) const override {
    Status status = ValidateBatch(spec_, workspace.limits(), batch, outputs);
    if (!status.ok()) return status;
    for (int b = 0; b < batch.num_sequences; ++b) RunSequence(batch, b, outputs[b]);
    return OkStatus();
  }

  size_t weight_bytes() const override { return 0; }

 private:
  void RunSequence(const RaggedBatch& batch, int b, const SequenceOutput& out) const {
    const int first = batch.offsets[b];
    const int length = batch.offsets[b + 1] - first;
    const int width = spec_.output_size();
    const size_t layers = spec_.layers.size();

    Matrix h(length, spec_.input_size);
    for (int t = 0; t < length; ++t) {
      const float* row =
          batch.token_ids != nullptr
              ? spec_.embedding.data + static_cast<size_t>(batch.token_ids[first + t]) * h.width
              : batch.features + static_cast<size_t>(first + t) * h.width;
      std::copy(row, row + h.width, h.row(t));
    }
    storage_.Round(&h);
    if (!spec_.input_to_hidden.empty()) {
      h = TransposedProduct(h, spec_.input_to_hidden, spec_.layers[0].input_size, storage_);
      storage_.Round(&h);
    }
    for (size_t i = 0; i < layers; ++i) {
      std::vector<double> c(width);
      if (batch.initial_states != nullptr && batch.initial_states[b] != nullptr) {
        const float* c0 = batch.initial_states[b] + i * width;
        std::copy(c0, c0 + width, c.begin());
      }
      h = RunLayer(spec_.layers[i], h, storage_, &c);
      if (i + 1 < layers) storage_.Round(&h);
      if (out.final_state != nullptr) Copy(c, out.final_state + i * width);
    }
    if (out.token_vectors != nullptr) Copy(h.values, out.token_vectors);
    const int hidden = spec_.layers.back().hidden_size;
    if (out.pooled != nullptr) Copy(Pool(h, out.pooling, hidden), out.pooled);
    if (out.logits == nullptr && out.probabilities == nullptr) return;

    Matrix pooled(1, width);
    pooled.values = Pool(h, spec_.pooling, hidden);
    std::vector<double> logits =
        TransposedProduct(pooled, spec_.classifier_weight, spec_.num_labels, Storage()).values;
    for (size_t i = 0; i < logits.size() && !spec_.classifier_bias.empty(); ++i) {
      logits[i] += spec_.classifier_bias.data[i];
    }
    if (out.logits != nullptr) Copy(logits, out.logits);
    if (out.probabilities != nullptr) Copy(Softmax(logits), out.probabilities);
  }

  StackSpec spec_;
  Storage storage_;
};

class ReferenceBackend : public Backend {
 public:
  const char* name() const override { return "reference"; }
  std::string description() const override { return "scalar, float64 accumulation"; }

  Status Compile(const StackSpec& spec, const CompileOptions& options,
                 std::unique_ptr<Executable>* executable) override {
    Status status = Validate(spec);
    if (!status.ok()) return status;
    switch (options.dtype) {
      case DataType::kFloat32:
        *executable = std::make_unique<ReferenceExecutable>(spec, Storage());
        return OkStatus();
      case DataType::kBFloat16:
        *executable = std::make_unique<ReferenceExecutable>(spec, Storage::BFloat16());
        return OkStatus();
    }
    return UnsupportedDataType(name(), options.dtype);
  }

  Status Compile(const Program& /*program*/, const CompileOptions& /*options*/,
                 std::unique_ptr<ProgramExecutable>* /*executable*/) override {
    return Unsupported("backend: programs are not built yet");
  }
};

}  // namespace

std::unique_ptr<Backend> CreateReferenceBackend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace sru::kernels
