#include "kernels/reference/matrix.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sru::kernels::reference {

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

}  // namespace sru::kernels::reference
