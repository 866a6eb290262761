#include "kernels/reference/reference_program.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <numeric>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/reference/equations.h"
#include "kernels/status.h"

namespace sru::kernels::reference {
namespace {

// Rows [begin, end) of an axis: those of one sequence.
struct RowRange {
  int begin = 0;
  int end = 0;

  int size() const { return end - begin; }
};

// The sinusoid of a position in one column, in float64 and rounded to float32.
double Sinusoid(ops::Positions positions, int64_t position, int column, int width) {
  const bool halves = positions == ops::Positions::kHalves;
  const int half = width / 2;
  const int pair = halves ? column % half : column / 2;
  const double exponent = halves ? pair / (half - 1.0) : pair * 2.0 / width;
  const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
  const bool is_sine = halves ? column < half : column % 2 == 0;
  return static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle));
}

// y = W x + b of rounded weights, by the equations of program.h.
Matrix Int8Product(const Matrix& x, const Int8View& w, const FloatView& bias, int rows) {
  const float m = w.multiplier;
  Matrix y(x.rows(), rows);
  for (int t = 0; t < x.rows(); ++t) {
    float largest = 0;
    for (int j = 0; j < x.width; ++j) {
      largest = std::max(largest, std::abs(static_cast<float>(x.row(t)[j])));
    }
    if (largest < 1e-30f) largest = 0;
    const bool is_given = w.activation > 0;
    const float a = is_given ? w.activation : 127.0f / largest;
    for (int i = 0; i < rows; ++i) {
      const float b = bias.empty() ? 0.0f : bias.data[i];
      int64_t sum = 0;
      int64_t weights = 0;
      for (int j = 0; j < x.width; ++j) {
        const int q = w.data[static_cast<size_t>(i) * x.width + j];
        const float scaled = static_cast<float>(x.row(t)[j]) * a;
        const auto r = static_cast<int>(std::nearbyint(std::clamp(scaled, -127.0f, 127.0f)));
        sum += (r + (is_given ? 127 : 0)) * q;
        weights += q;
      }
      const float shift = is_given ? -((127.0f / a) * (127.0f / m)) / 127.0f : 0.0f;
      const float shifted_bias = static_cast<float>(weights) * shift + b;
      const float product = static_cast<float>(sum) * (1.0f / (a * m));
      y.row(t)[i] = !is_given && largest == 0 ? b : product + shifted_bias;
    }
  }
  return y;
}

double Dot(const double* a, const double* b, int size) {
  return std::inner_product(a, a + size, b, 0.0);
}

// As which values and states are kept, so that a sequence may be cut into runs anywhere.
void RoundToFloat(std::vector<double>* values) {
  for (double& value : *values) value = static_cast<float>(value);
}

void CopyRow(const double* from, int width, float* to) {
  std::transform(from, from + width, to, [](double v) { return static_cast<float>(v); });
}

// One run of a valid batch.
class Evaluation {
 public:
  Evaluation(const Program& program, const ProgramShape& shape, const Storage& storage,
             const ProgramLimits& limits, const ProgramBatch& batch, const OutputBatch* outputs)
      : program_(program),
        shape_(shape),
        storage_(storage),
        limits_(limits),
        batch_(batch),
        outputs_(outputs),
        users_(BatchUsers(program, batch, outputs)) {}

  Status Run() {
    std::vector<int> rows_added;
    SRU_RETURN_IF_ERROR(
        BeginStates(program_, shape_, limits_, batch_, outputs_, &rows_added, &states_));
    for (size_t i = 0; i < program_.operations.size(); ++i) {
      current_ = static_cast<ValueId>(i);
      values_.emplace_back(0, 0);
      if ((shape_.users[i] & users_) == 0) continue;
      values_.back() =
          std::visit([&](const auto& op) { return Evaluate(op); }, program_.operations[i]);
      RoundToFloat(&values_.back().values);
    }
    for (size_t i = 0; outputs_ != nullptr && i < program_.outputs.size(); ++i) {
      if (outputs_[i].values == nullptr || program_.outputs[i].type != OutputType::kRows) continue;
      const Matrix& y = values_[program_.outputs[i].value];
      CopyRow(y.values.data(), static_cast<int>(y.values.size()), outputs_[i].values);
    }
    for (StateArena::Run& run : states_) run.Commit();
    return OkStatus();
  }

 private:
  int num_sequences(AxisId axis) const {
    const AxisId of = program_.axes[axis].sequences_of;
    return batch_.axes[of == kNone ? axis : of].num_sequences;
  }

  RowRange Rows(AxisId axis, int sequence) const {
    if (program_.axes[axis].sequences_of != kNone) return {sequence, sequence + 1};
    const int32_t* const offsets = batch_.axes[axis].offsets;
    return {offsets[sequence], offsets[sequence + 1]};
  }

  int num_rows(AxisId axis) const {
    const int sequences = num_sequences(axis);
    return sequences == 0 ? 0 : Rows(axis, sequences - 1).end;
  }

  // Of the operation that is being evaluated.
  AxisId axis() const { return shape_.values[current_].axis; }
  Matrix Zeros() const { return Matrix(num_rows(axis()), shape_.values[current_].width); }
  bool HasSlot(AxisId axis, int sequence) const {
    return (users_ & ProgramShape::StateBit(axis)) != 0 &&
           batch_.axes[axis].slots[sequence] != StateArena::kNoSlot;
  }

  // A fixed field of a sequence of its axis as it was before this run.
  std::vector<double> Before(FieldId field, int sequence) const {
    const AxisId axis = shape_.field_axes[field];
    std::vector<double> row(program_.fields[field].width);
    if (!HasSlot(axis, sequence)) return row;
    const float* const in = states_[axis].in(field, sequence);
    if (in != nullptr) std::copy_n(in, row.size(), row.begin());
    return row;
  }

  void Replace(FieldId field, int sequence, const std::vector<double>& row) const {
    if (!HasSlot(axis(), sequence)) return;
    CopyRow(row.data(), static_cast<int>(row.size()), states_[axis()].out(field, sequence));
  }

  // Row `s` of a growing field of a sequence with a slot.
  float* FieldRow(FieldId field, int sequence, int s) const {
    const StateArena::Run& run = states_[axis()];
    return run.pages(field, sequence)[s / kStatePageRows] + run.offset(field) +
           static_cast<size_t>(s % kStatePageRows) * program_.fields[field].width;
  }

  // The rows that a growing field of a sequence with a slot has after this run's Append.
  Matrix FieldRows(FieldId field, int sequence) const {
    int rows = states_[axis()].rows(field, sequence);
    if (shape_.field_axes[field] == axis()) rows += Rows(axis(), sequence).size();
    Matrix m(rows, program_.fields[field].width);
    for (int s = 0; s < rows; ++s) std::copy_n(FieldRow(field, sequence, s), m.width, m.row(s));
    return m;
  }

  // The rows of one sequence of a value.
  Matrix SequenceRows(ValueId value, int sequence) const {
    const RowRange rows = Rows(shape_.values[value].axis, sequence);
    const Matrix& x = values_[value];
    Matrix m(rows.size(), x.width);
    std::copy(x.row(rows.begin), x.row(rows.end), m.row(0));
    return m;
  }

  int Mapped(InputId map, int sequence) const {
    return map == kNone ? sequence : batch_.inputs[map].ids[sequence];
  }

  Matrix Evaluate(const ops::Features& op) const {
    Matrix y = Zeros();
    std::copy_n(batch_.inputs[op.input].values, y.values.size(), y.values.begin());
    return y;
  }

  Matrix Evaluate(const ops::Embed& op) const {
    Matrix y = Zeros();
    for (int b = 0; b < num_sequences(axis()); ++b) {
      int64_t position = 0;
      if (op.position_field != kNone) position = states_[axis()].rows(op.position_field, b);
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t, ++position) {
        const int64_t id = batch_.inputs[op.ids].ids[t];
        if (op.position_ids != kNone) position = batch_.inputs[op.position_ids].ids[t];
        for (int j = 0; j < y.width; ++j) {
          const size_t at = id * op.width + j;
          if (id == kNone) {
            y.row(t)[j] = 0;
          } else if (op.int8_table.empty()) {
            y.row(t)[j] = op.scale * storage_.Embedding(op.table.data[at]);
          } else {
            const float unit = 1.0f / op.int8_table.multiplier;
            y.row(t)[j] = op.scale * (static_cast<float>(op.int8_table.data[at]) * unit);
          }
          if (op.positions != ops::Positions::kNone) {
            y.row(t)[j] += Sinusoid(op.positions, position, j, y.width);
          }
        }
      }
    }
    return y;
  }

  // A value as the products with these weights take it.
  Matrix Taken(ValueId value, const Int8View& int8_weight) const {
    Matrix x = values_[value];
    if (int8_weight.empty()) storage_.RoundActivations(&x.values);
    return x;
  }

  // W x + b, W being stored as `storage` has it.
  static Matrix Affine(Matrix x, const FloatView& weight, const Int8View& int8_weight,
                       const FloatView& bias, int width, const Storage& storage) {
    if (!int8_weight.empty()) return Int8Product(x, int8_weight, bias, width);
    Matrix y = TransposedProduct(x, weight, width, storage);
    for (int t = 0; t < y.rows(); ++t) {
      for (int j = 0; j < width && !bias.empty(); ++j) y.row(t)[j] += bias.data[j];
    }
    return y;
  }

  Matrix Evaluate(const ops::Linear& op) const {
    Matrix y =
        Affine(Taken(op.x, op.int8_weight), op.weight, op.int8_weight, op.bias, op.width, storage_);
    for (double& value : y.values) {
      if (op.relu && value < 0) value = 0;
    }
    return y;
  }

  Matrix Evaluate(const ops::Normalize& op) const {
    Matrix y = values_[op.x];
    Normalize(op.weight, op.bias, op.epsilon, &y);
    return y;
  }

  Matrix Evaluate(const ops::Stack& op) const {
    Matrix y = Zeros();
    const size_t layers = op.spec.layers.size();
    const auto width = static_cast<size_t>(op.spec.output_size());
    for (int b = 0; b < num_sequences(axis()); ++b) {
      const RowRange rows = Rows(axis(), b);
      Matrix x(rows.size(), op.spec.input_size);
      if (op.x != kNone) x = SequenceRows(op.x, b);
      for (int t = rows.begin; t < rows.end && op.x == kNone; ++t) {
        const auto id = static_cast<size_t>(batch_.inputs[op.ids].ids[t]);
        const float* const row = op.spec.embedding.data + id * x.width;
        std::transform(row, row + x.width, x.row(t - rows.begin),
                       [&](float v) { return storage_.Embedding(v); });
      }
      std::vector<std::vector<double>> states(layers, std::vector<double>(width));
      if (op.state != kNone) {
        const std::vector<double> c = Before(op.state, b);
        for (size_t i = 0; i < layers; ++i) std::copy_n(&c[i * width], width, states[i].begin());
      }
      const auto kept = op.state == kNone ? StateStorage::kExact : StateStorage::kFloat32;
      const Matrix h = RunLayers(op.spec, x, storage_, kept, &states);
      std::copy(h.values.begin(), h.values.end(), y.row(rows.begin));
      if (op.state == kNone) continue;
      std::vector<double> c;
      for (const std::vector<double>& state : states) c.insert(c.end(), state.begin(), state.end());
      Replace(op.state, b, c);
    }
    return y;
  }

  Matrix Evaluate(const ops::Ssru& op) const {
    Matrix y = Zeros();
    for (int b = 0; b < num_sequences(axis()); ++b) {
      std::vector<double> c = Before(op.state, b);
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t) {
        for (int j = 0; j < y.width; ++j) {
          const double f = 1 / (1 + std::exp(-values_[op.forget].row(t)[j]));
          c[j] = f * c[j] + (1 - f) * values_[op.x].row(t)[j];
          y.row(t)[j] = std::max(0.0, c[j]);
        }
        RoundToFloat(&c);
      }
      Replace(op.state, b, c);
    }
    return y;
  }

  Matrix Evaluate(const ops::Attend& op) const {
    Matrix y = Zeros();
    const Matrix& q = values_[op.q];
    const int key_width = q.width / op.heads;
    const int value_width = y.width / op.heads;
    std::vector<double> attention;  // of head 0
    for (int b = 0; b < num_sequences(axis()); ++b) {
      const bool of_fields = op.key_field != kNone;
      const int from = Mapped(op.map, b);
      const Matrix k = of_fields ? FieldRows(op.key_field, b) : SequenceRows(op.keys, from);
      const Matrix v = of_fields ? FieldRows(op.value_field, b) : SequenceRows(op.values, from);
      const RowRange rows = Rows(axis(), b);
      for (int t = rows.begin; t < rows.end; ++t) {
        int seen = k.rows();
        if (op.causal) seen = std::max(0, seen - (rows.end - 1 - t));
        const size_t first = attention.size();
        attention.resize(first + k.rows());
        for (int j = 0; j < op.heads && seen > 0; ++j) {
          std::vector<double> scores(seen);
          for (int s = 0; s < seen; ++s) {
            scores[s] =
                op.scale * Dot(q.row(t) + j * key_width, k.row(s) + j * key_width, key_width);
          }
          const std::vector<double> a = Softmax(scores);
          if (j == 0) {
            std::copy(a.begin(), a.end(), attention.begin() + static_cast<std::ptrdiff_t>(first));
          }
          for (int s = 0; s < seen; ++s) {
            for (int i = j * value_width; i < (j + 1) * value_width; ++i) {
              y.row(t)[i] += a[s] * v.row(s)[i];
            }
          }
        }
      }
    }
    for (size_t i = 0; i < program_.outputs.size() && outputs_ != nullptr; ++i) {
      const OutputSpec& output = program_.outputs[i];
      if (output.value != current_ || output.type != OutputType::kAttention) continue;
      if (outputs_[i].values == nullptr) continue;
      CopyRow(attention.data(), static_cast<int>(attention.size()), outputs_[i].values);
    }
    return y;
  }

  Matrix Evaluate(const ops::Concat& op) const {
    Matrix y = Zeros();
    for (int t = 0; t < y.rows(); ++t) {
      double* to = y.row(t);
      for (ValueId x : op.xs) to = std::copy_n(values_[x].row(t), values_[x].width, to);
    }
    return y;
  }

  Matrix Evaluate(const ops::Add& op) const {
    Matrix y = values_[op.a];
    for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += values_[op.b].values[i];
    return y;
  }

  Matrix Evaluate(const ops::Pool& op) const {
    Matrix y = Zeros();
    for (int b = 0; b < num_sequences(axis()); ++b) {
      const Matrix x = SequenceRows(op.x, b);
      if (x.rows() == 0) continue;
      std::vector<double> pooled(y.width);
      if (op.weights == kNone) {
        pooled = reference::Pool(x, op.pooling, x.width / op.directions);
      } else {
        const std::vector<double> a = Softmax(SequenceRows(op.weights, b).values);
        for (int t = 0; t < x.rows(); ++t) {
          for (int j = 0; j < x.width; ++j) pooled[j] += a[t] * x.row(t)[j];
        }
      }
      std::copy(pooled.begin(), pooled.end(), y.row(b));
    }
    return y;
  }

  Matrix Evaluate(const ops::RowDot& op) const {
    Matrix y = Zeros();
    const Matrix& x = values_[op.x];
    for (int b = 0; b < num_sequences(axis()); ++b) {
      const double* const v = values_[op.v].row(Mapped(op.map, b));
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t) {
        *y.row(t) = Dot(x.row(t), v, x.width);
      }
    }
    return y;
  }

  Matrix Evaluate(const ops::Shift& op) const {
    Matrix y = Zeros();
    for (int b = 0; b < num_sequences(axis()); ++b) {
      std::vector<double> last = Before(op.last, b);
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t) {
        std::copy(last.begin(), last.end(), y.row(t));
        std::copy_n(values_[op.x].row(t), y.width, last.begin());
      }
      Replace(op.last, b, last);
    }
    return y;
  }

  Matrix Evaluate(const ops::Last& op) const {
    Matrix y = Zeros();
    for (int b = 0; b < y.rows(); ++b) {
      const RowRange rows = Rows(shape_.values[op.x].axis, b);
      if (rows.size() > 0) {
        std::copy_n(values_[op.x].row(rows.end - 1), y.width, y.row(b));
      } else if (op.last != kNone) {
        const std::vector<double> last = Before(op.last, b);
        std::copy(last.begin(), last.end(), y.row(b));
      }
    }
    return y;
  }

  Matrix Evaluate(const ops::Select& op) const {
    Matrix y = Zeros();
    for (int t = 0; t < y.rows(); ++t) {
      std::copy_n(values_[op.x].row(batch_.inputs[op.rows].ids[t]), y.width, y.row(t));
    }
    return y;
  }

  Matrix Evaluate(const ops::Append& op) const {
    const Matrix& x = values_[op.x];
    for (int b = 0; b < num_sequences(axis()); ++b) {
      int s = states_[axis()].rows(op.field, b);
      states_[axis()].CopySharedRows(op.field, b);
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t, ++s) {
        CopyRow(x.row(t), x.width, FieldRow(op.field, b, s));
      }
    }
    return x;
  }

  Matrix Evaluate(const ops::Predict& op) const {
    for (size_t i = 0; i < program_.outputs.size(); ++i) {
      if (program_.outputs[i].value != current_ || outputs_ == nullptr) continue;
      if (outputs_[i].values == nullptr && outputs_[i].candidates == nullptr) continue;
      Predict(op, program_.outputs[i].type, outputs_[i]);
    }
    return Matrix(0, 0);
  }

  void Predict(const ops::Predict& op, OutputType type, const OutputBatch& output) const {
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    const bool of_table = op.choices != kNone;
    Matrix z = Affine(Taken(op.x, op.int8_weight), op.weight, op.int8_weight, op.bias,
                      op.vocabulary_size, of_table ? storage_.OfTables() : storage_);
    for (int b = 0; b < num_sequences(axis()) && op.choices != kNone; ++b) {
      const RowRange choices =
          Rows(program_.inputs[op.choices].axis, batch_.inputs[op.choices_map].ids[b]);
      const int32_t* const ids = batch_.inputs[op.choices].ids;
      for (int t = Rows(axis(), b).begin; t < Rows(axis(), b).end; ++t) {
        for (int v = 0; v < z.width; ++v) {
          const bool is_choice = std::binary_search(ids + choices.begin, ids + choices.end, v);
          if (!is_choice) z.row(t)[v] = kLeast;
        }
      }
    }
    for (int t = 0; t < z.rows(); ++t) {
      double* const row = z.row(t);
      const int32_t picked = type == OutputType::kPicked ? Pick(op, t, row) : kNone;
      // log p_t, in place of the logits.
      const double largest = *std::max_element(row, row + z.width);
      double sum = 0;
      for (int v = 0; v < z.width; ++v) sum += std::exp(row[v] - largest);
      for (int v = 0; v < z.width; ++v) row[v] -= largest + std::log(sum);

      if (type == OutputType::kPicked) {
        output.candidates[t] = Candidate();
        if (picked != kNone) output.candidates[t] = {picked, static_cast<float>(row[picked])};
        continue;
      }
      if (type == OutputType::kLogProb) {
        const int32_t target = batch_.inputs[op.targets].ids[t];
        output.values[t] = target < 0 ? 0.0f : static_cast<float>(row[target]);
        continue;
      }
      for (int32_t v : op.never) row[v] = kLeast;
      const int32_t count = batch_.inputs[op.counts].ids[t];
      std::vector<int32_t> ids(z.width);
      std::iota(ids.begin(), ids.end(), 0);
      std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
        return row[a] != row[b] ? row[a] > row[b] : a < b;
      });
      Candidate* const candidates = output.candidates + static_cast<size_t>(t) * op.max_candidates;
      for (int32_t k = 0; k < count; ++k) {
        candidates[k] = {row[ids[k]] == kLeast ? kNone : ids[k], static_cast<float>(row[ids[k]])};
      }
    }
  }

  // z' of row t from its logits.
  std::vector<double> Adjusted(const ops::Predict& op, int t, const double* logits) const {
    std::vector<double> z(logits, logits + op.vocabulary_size);
    if (op.adjustments == kNone) return z;
    const AxisId axis = program_.inputs[op.adjustments].axis;
    if (num_sequences(axis) == 0) return z;
    constexpr double kMost = std::numeric_limits<float>::max();
    for (int i = Rows(axis, t).begin; i < Rows(axis, t).end; ++i) {
      const Adjustment& a = batch_.inputs[op.adjustments].adjustments[i];
      double& value = z[a.id];
      value = (value > 0 ? value / a.scale : value * a.scale) + a.add;
      if (std::isfinite(a.add)) value = std::clamp(value, -kMost, kMost);
    }
    return z;
  }

  // The symbol that is picked for row t, by the equations of ops::Predict.
  int32_t Pick(const ops::Predict& op, int t, const double* logits) const {
    const std::vector<double> z = Adjusted(op, t, logits);
    const Sampling& sampling = batch_.inputs[op.sampling].sampling[t];
    const double m = *std::max_element(z.begin(), z.end());
    if (m == -std::numeric_limits<double>::infinity()) return kNone;
    // The best first.
    std::vector<int32_t> kept(z.size());
    std::iota(kept.begin(), kept.end(), 0);
    std::stable_sort(kept.begin(), kept.end(), [&](int32_t a, int32_t b) { return z[a] > z[b]; });
    if (sampling.temperature == 0) return kept[0];

    constexpr double kOne = 4294967296;  // 2^32
    std::vector<uint64_t> n;
    for (double value : z) {
      n.push_back(static_cast<uint64_t>(kOne * std::exp((value - m) / sampling.temperature)));
    }
    if (sampling.top_k > 0) kept.resize(std::min<size_t>(kept.size(), sampling.top_k));
    if (sampling.min_p > 0) {
      const auto least = static_cast<uint64_t>(kOne * sampling.min_p);
      while (n[kept.back()] < least) kept.pop_back();
    }
    const auto sum = [&] {
      uint64_t sum = 0;
      for (int32_t v : kept) sum += n[v];
      return sum;
    };
    if (sampling.top_p > 0) {
      const double wanted = sampling.top_p * static_cast<double>(sum());
      uint64_t best = n[kept[0]];
      size_t count = 1;
      while (static_cast<double>(best) < wanted) best += n[kept[count++]];
      kept.resize(count);
    }
    std::sort(kept.begin(), kept.end());
    const auto limit =
        static_cast<uint64_t>(static_cast<unsigned __int128>(sampling.random) * sum() >> 64);
    size_t v = 0;
    for (uint64_t before = n[kept[0]]; before <= limit; before += n[kept[v]]) ++v;
    return kept[v];
  }

  const Program& program_;
  const ProgramShape& shape_;
  const Storage& storage_;
  const ProgramLimits& limits_;
  const ProgramBatch& batch_;
  const OutputBatch* const outputs_;
  const uint64_t users_;
  std::vector<StateArena::Run> states_;  // [axis]; begun where there are slots
  std::vector<Matrix> values_;           // [operation so far]; empty of one that does not run
  ValueId current_ = kNone;
};

class Executable : public ProgramExecutable {
 public:
  Executable(const Program& program, ProgramShape shape, const CompileOptions& options,
             const Storage& storage)
      : program_(program), shape_(std::move(shape)), storage_(storage) {
    weights_.Take(options.weights, &program_);
    ForEachInt8Weight(&program_, [this](Int8View* view) {
      view->data = int8_weights_.emplace_back(view->data, view->data + view->size).data();
    });
  }

  Status CreateWorkspace(const ProgramLimits& limits,
                         std::unique_ptr<ProgramWorkspace>* workspace) const override {
    return CatchBadAlloc("making a workspace", [&] {
      Status status = ValidateLimits(program_, limits);
      if (status.ok()) {
        *workspace = std::make_unique<EmptyWorkspace<ProgramWorkspace, ProgramLimits>>(limits);
      }
      return status;
    });
  }

  Status CreateArena(const ArenaOptions& options,
                     std::unique_ptr<StateArena>* arena) const override {
    return CatchBadAlloc("making an arena of states", [&] {
      *arena = std::make_unique<StateArena>(program_.fields, shape_.field_axes, options,
                                            HostArenaMemory());
      return OkStatus();
    });
  }

  Status Run(const ProgramBatch& batch, const OutputBatch* outputs,
             ProgramWorkspace& workspace) const override {
    return CatchBadAlloc("running a batch", [&] {
      SRU_RETURN_IF_ERROR(ValidateBatch(program_, shape_, workspace.limits(), batch, outputs));
      return Evaluation(program_, shape_, storage_, workspace.limits(), batch, outputs).Run();
    });
  }

  size_t weight_bytes() const override {
    size_t bytes = weights_.bytes();
    for (const std::vector<int8_t>& weights : int8_weights_) bytes += weights.size();
    return bytes;
  }

 private:
  Program program_;  // of weights_
  const ProgramShape shape_;
  WeightCopies weights_;
  std::deque<std::vector<int8_t>> int8_weights_;
  const Storage storage_;
};

}  // namespace

Status CompileProgram(const Program& program, const CompileOptions& options, const Storage& storage,
                      std::unique_ptr<ProgramExecutable>* executable) {
  return CatchBadAlloc("copying weights", [&] {
    ProgramShape shape;
    SRU_RETURN_IF_ERROR(Validate(program, &shape));
    *executable = std::make_unique<Executable>(program, std::move(shape), options, storage);
    return OkStatus();
  });
}

}  // namespace sru::kernels::reference
