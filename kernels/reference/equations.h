// Matrices of float64, and the equations that stacks and programs have in common: of rows, and of
// SRU layers (stack_spec.h).
#ifndef SRU_KERNELS_REFERENCE_EQUATIONS_H_
#define SRU_KERNELS_REFERENCE_EQUATIONS_H_

#include <cstddef>
#include <vector>

#include "kernels/reference/storage.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::reference {

// Row-major [tokens][width].
struct Matrix {
  int width = 0;
  std::vector<double> values;

  Matrix(int rows, int width) : width(width), values(static_cast<size_t>(rows) * width) {}
  double* row(int t) { return values.data() + static_cast<size_t>(t) * width; }
  const double* row(int t) const { return values.data() + static_cast<size_t>(t) * width; }
  int rows() const { return static_cast<int>(values.size() / width); }
};

// y = x w^T, with w [rows][x.width].
Matrix TransposedProduct(const Matrix& x, const FloatView& w, int rows, const Storage& storage);

// Layer norm of each row.
void Normalize(const FloatView& weight, const FloatView& bias, double epsilon, Matrix* x);

std::vector<double> Softmax(const std::vector<double>& logits);

// The rows of one sequence as one; the columns from `hidden` on belong to the backward direction.
std::vector<double> Pool(const Matrix& h, Pooling pooling, int hidden);

// How a state is kept from one row to the next: as it is, or as a slot keeps it, so that a sequence
// may be cut into runs anywhere.
enum class StateStorage { kExact, kFloat32 };

// All layers of a stack over one sequence of its input, [rows][input_size]. `states` has an initial
// state of each layer and receives the final ones.
Matrix RunLayers(const StackSpec& spec, const Matrix& x, const Storage& storage,
                 StateStorage state_storage, std::vector<std::vector<double>>* states);

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_EQUATIONS_H_
