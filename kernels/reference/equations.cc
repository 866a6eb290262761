#include "kernels/reference/equations.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sru::kernels::reference {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// y = x w, with w [x.width][columns].
Matrix Product(const Matrix& x, const std::vector<double>& w, int columns) {
  Matrix y(x.rows(), columns);
  for (int t = 0; t < x.rows(); ++t) {
    for (int i = 0; i < x.width; ++i) {
      const double value = x.row(t)[i];
      const double* weights = &w[static_cast<size_t>(i) * columns];
      for (int j = 0; j < columns; ++j) y.row(t)[j] += value * weights[j];
    }
  }
  return y;
}

Matrix Project(const Matrix& x, const FloatView& w, int columns, const Storage& storage) {
  return Product(x, storage.Weights(w, x.width, columns, /*transposed=*/false), columns);
}

// U of a layer.
Matrix GateProduct(const LayerSpec& layer, const Matrix& x, const Storage& storage) {
  const int columns = layer.output_size() * layer.num_matrices;
  return Product(
      x, storage.Weights(layer.weight, x.width, columns, /*transposed=*/false, layer.num_matrices),
      columns);
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

// One layer over one sequence. `c` holds the initial state [output_size] and receives the final
// one.
Matrix RunLayer(const LayerSpec& layer, const Matrix& x, const Storage& storage,
                StateStorage state_storage, std::vector<double>* c) {
  const int hidden = layer.hidden_size;
  const int outputs = layer.output_size();
  const int k = layer.num_matrices;

  Matrix input = x;
  if (layer.layer_norm == LayerNorm::kBefore) {
    Normalize(layer.norm_weight, layer.norm_bias, kLayerNormEpsilon, &input);
    storage.RoundActivations(&input.values);
  }
  if (layer.projection_size > 0) {
    input = Project(input, layer.weight_proj, layer.projection_size, storage);
    storage.RoundActivations(&input.values);
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
        if (state_storage == StateStorage::kFloat32) state = static_cast<float>(state);
      }
      (*c)[o] = state;
    }
  }
  if (layer.layer_norm == LayerNorm::kAfter) {
    storage.RoundActivations(&h.values);
    Normalize(layer.norm_weight, layer.norm_bias, kLayerNormEpsilon, &h);
  }
  return h;
}

}  // namespace

Matrix TransposedProduct(const Matrix& x, const FloatView& w, int rows, const Storage& storage) {
  const std::vector<double> weights = storage.Weights(w, rows, x.width, /*transposed=*/true);
  Matrix y(x.rows(), rows);
  for (int t = 0; t < x.rows(); ++t) {
    for (int j = 0; j < rows; ++j) {
      double sum = 0;
      for (int i = 0; i < x.width; ++i) {
        sum += x.row(t)[i] * weights[static_cast<size_t>(j) * x.width + i];
      }
      y.row(t)[j] = sum;
    }
  }
  return y;
}

void Normalize(const FloatView& weight, const FloatView& bias, double epsilon, Matrix* x) {
  for (int t = 0; t < x->rows(); ++t) {
    double* row = x->row(t);
    double mean = 0;
    for (int i = 0; i < x->width; ++i) mean += row[i];
    mean /= x->width;
    double variance = 0;
    for (int i = 0; i < x->width; ++i) variance += (row[i] - mean) * (row[i] - mean);
    variance /= x->width;
    const double scale = 1.0 / std::sqrt(variance + epsilon);
    for (int i = 0; i < x->width; ++i) {
      row[i] = (row[i] - mean) * scale * weight.data[i] + bias.data[i];
    }
  }
}

std::vector<double> Softmax(const std::vector<double>& logits) {
  const double maximum = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p(logits.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += p[i] = std::exp(logits[i] - maximum);
  for (double& value : p) value /= sum;
  return p;
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

Matrix RunLayers(const StackSpec& spec, const Matrix& x, const Storage& storage,
                 StateStorage state_storage, std::vector<std::vector<double>>* states) {
  Matrix h = x;
  storage.RoundActivations(&h.values);
  if (!spec.input_to_hidden.empty()) {
    h = TransposedProduct(h, spec.input_to_hidden, spec.layers[0].input_size, storage);
    storage.RoundActivations(&h.values);
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    h = RunLayer(spec.layers[i], h, storage, state_storage, &(*states)[i]);
    if (i + 1 < spec.layers.size()) storage.RoundActivations(&h.values);
  }
  return h;
}

}  // namespace sru::kernels::reference
