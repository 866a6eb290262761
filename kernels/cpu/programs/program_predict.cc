#include "kernels/cpu/programs/program_predict.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/row_layout.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/programs/program_predict.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/programs/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// z += bias; returns the largest. n is a whole number of vectors.
float AddBiasTarget(float* z, const float* bias, size_t n) {
  const FullVector d;
  auto largest = hn::Set(d, -HUGE_VALF);
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    const auto sum = hn::Add(hn::LoadU(d, z + j), hn::LoadU(d, bias + j));
    hn::StoreU(sum, d, z + j);
    largest = Larger(largest, sum);
  }
  return MaxOf(d, largest);
}

// sum_j e^(z_j - largest). n is a whole number of vectors.
float SumOfExpTarget(const float* z, size_t n, float largest) {
  const FullVector d;
  const auto shift = hn::Set(d, largest);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    sum = hn::Add(sum, Exp(d, hn::Sub(hn::LoadU(d, z + j), shift)));
  }
  return SumOf(d, sum);
}

// The first j from `begin` on with z_j > limit, or n.
size_t FindAboveTarget(const float* z, size_t begin, size_t n, float limit) {
  const FullVector d;
  const auto limits = hn::Set(d, limit);
  size_t j = begin;
  for (; j + hn::Lanes(d) <= n; j += hn::Lanes(d)) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Gt(hn::LoadU(d, z + j), limits));
    if (at >= 0) return j + static_cast<size_t>(at);
  }
  for (; j < n; ++j) {
    if (z[j] > limit) return j;
  }
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {
namespace {

HWY_EXPORT(AddBiasTarget);
HWY_EXPORT(SumOfExpTarget);
HWY_EXPORT(FindAboveTarget);

constexpr float kLeast = -std::numeric_limits<float>::infinity();

// The order of candidates, whose log_prob holds a logit meanwhile: the best first, of equals the
// smallest id. As the order of a heap it puts the worst on top.
bool IsBetter(const Candidate& a, const Candidate& b) {
  return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.id < b.id;
}

// Symbols that are multiplied together by a table.
constexpr int kTableColumns = 512;

// The place of a symbol among those that there are; kNone if it is not there.
int PlaceOf(int32_t id, const PredictThread::Choices& choices) {
  if (choices.ids == nullptr) return id;
  const int32_t* const end = choices.ids + choices.count;
  const int32_t* const found = std::lower_bound(choices.ids, end, id);
  return found != end && *found == id ? static_cast<int>(found - choices.ids) : kNone;
}

// Logits that a thread stores at a time: 4 MiB, or those of so many rows if that is more, since
// with fewer a product waits for its weights.
constexpr size_t kMostLogits = size_t{1} << 20;
constexpr size_t kLeastSampledRows = 32;

bool IsSampled(const PredictThread::Call& call, size_t t) {
  return call.sampling[t].temperature > 0;
}

// Adds what belongs to the best `count` of logits z, symbols first to first + n - 1, to a heap of
// `held`. Symbols come in ascending order, so an equal one does not replace what is held.
void TakeCandidates(const float* z, int first, int n, int count, Candidate* heap, int* held) {
  int j = 0;
  for (; j < n && *held < count; ++j) {
    heap[(*held)++] = {first + j, z[j]};
    std::push_heap(heap, heap + *held, IsBetter);
  }
  while (true) {
    j = static_cast<int>(HWY_DYNAMIC_DISPATCH(FindAboveTarget)(z, j, n, heap[0].log_prob));
    if (j >= n) return;
    std::pop_heap(heap, heap + count, IsBetter);
    heap[count - 1] = {first + j, z[j]};
    std::push_heap(heap, heap + count, IsBetter);
    ++j;
  }
}

}  // namespace

Prediction::Prediction(const ops::Predict& op, int width, const Arithmetic& arithmetic,
                       std::shared_ptr<const RowTable> rows, WeightSource* source)
    : width(width), rounding(arithmetic.rounding), table(std::move(rows)) {
  if (table == nullptr) {
    product.emplace(arithmetic, source, op.weight, width, op.vocabulary_size);
  }
  bias = AlignedBuffer(product ? product->padded_n() : RowLayout::RoundUp(op.vocabulary_size));
  const ReadWeights readable(source, op.bias);
  if (!op.int8_weight.empty()) {
    scales.emplace(op.int8_weight, width, op.vocabulary_size, op.bias, bias.size(),
                   /*for_table=*/true);
    std::copy_n(scales->bias.data(), bias.size(), bias.data());
    scales->bias = AlignedBuffer();
    kernel = &BestInt8Kernel();
  } else {
    std::copy_n(op.bias.data, op.bias.size, bias.data());
  }
  std::fill(bias.data() + op.vocabulary_size, bias.data() + bias.size(), kLeast);
}

void PredictThread::Add(const Prediction& prediction, int sampled_rows) {
  rows_.resize(std::max<size_t>(rows_.size(), prediction.group_rows()));
  if (prediction.table != nullptr) {
    z_.AtLeast(Prediction::kTableRows * kTableColumns);
    bias_.AtLeast(kTableColumns);
    if (prediction.scales) rounded_.Add(prediction.width);
    const size_t width = prediction.width;
    scratch_.AtLeast(4 * width);
    if (!prediction.scales) x_.AtLeast(Prediction::kTableRows * width);
  }
  if (sampled_rows == 0) return;
  const size_t size = prediction.bias.size();
  const size_t rows =
      std::min({std::max(kMostLogits / size, kLeastSampledRows), static_cast<size_t>(sampled_rows),
                static_cast<size_t>(prediction.group_rows())});
  logits_.AtLeast(rows * size);
  picker_.Add(size);
}

void PredictThread::LayOut(RunPlan* plan) {
  for (RunArray<float>* array : {&z_, &bias_, &scratch_, &x_, &logits_}) plan->Add(array);
  rounded_.LayOut(plan);
  picker_.LayOut(plan);
}

int PredictThread::RowsThatFit(const Prediction& prediction, const Call& call, const int32_t* which,
                               int rows) const {
  if (call.picked == nullptr) return rows;
  const size_t room = logits_.size() / prediction.bias.size();
  size_t sampled = 0;
  for (int i = 0; i < rows; ++i) {
    if (IsSampled(call, which[i]) && ++sampled > room) return i;
  }
  return rows;
}

void PredictThread::Start(const Prediction& prediction, const Call& call, const Choices& choices,
                          const int32_t* which, int rows) {
  std::fill_n(rows_.begin(), rows, Row{kLeast, 0.0, kNone, kLeast, 0, kLeast, kNone, 0, nullptr});
  never_.clear();
  if (call.never != nullptr) {
    for (int32_t id : *call.never) {
      if (const int place = PlaceOf(id, choices); place != kNone) never_.push_back(place);
    }
  }
  for (int i = 0; i < rows && call.log_prob != nullptr; ++i) {
    if (call.targets[which[i]] >= 0) rows_[i].target = PlaceOf(call.targets[which[i]], choices);
  }
  if (call.picked == nullptr) return;
  float* logits = logits_.data();
  for (int i = 0; i < rows; ++i) {
    const size_t t = which[i];
    if (call.adjustments != nullptr) rows_[i].adjustment = call.adjusted_offsets[t];
    if (!IsSampled(call, t)) continue;
    rows_[i].logits = logits;
    logits += prediction.bias.size();
  }
}

void PredictThread::TakeRows(const Prediction& prediction, const Call& call, const int32_t* which,
                             int rows) {
  if (prediction.scales) {
    rounded_.Round(*prediction.kernel, call.x, which, rows, prediction.width, *prediction.scales,
                   /*for_table=*/true);
    return;
  }
  const size_t width = prediction.width;
  for (int r = 0; r < rows; ++r) {
    std::copy_n(call.x + which[r] * width, width, x_.data() + r * width);
  }
  RoundRow(prediction.rounding, x_.data(), rows * width);
}

bool PredictThread::Multiply(const Prediction& prediction, const Choices& choices,
                             ProductPiece* piece) {
  piece->columns = std::min(kTableColumns, choices.count - piece->first);
  if (piece->columns <= 0) return false;
  piece->stride = RowLayout::RoundUp(piece->columns);
  const int32_t* const ids = choices.ids == nullptr ? nullptr : choices.ids + piece->first;
  for (int j = 0; j < piece->columns; ++j) {
    bias_.data()[j] = prediction.bias.data()[ids == nullptr ? piece->first + j : ids[j]];
  }
  for (size_t j = piece->columns; j < piece->stride; ++j) {
    bias_.data()[j] = kLeast;
    for (int r = 0; r < piece->rows; ++r) piece->z[r * piece->stride + j] = 0;
  }
  if (!prediction.scales) {
    prediction.table->Multiply(x_.data(), piece->rows, ids, piece->columns, scratch_.data(),
                               piece->z, piece->stride);
    return true;
  }
  ByteTableCall table;
  table.k = static_cast<int>(PaddedBytes(prediction.width));
  table.table = prediction.table->int8();
  if (prediction.scales->activation == 0) table.offsets = prediction.scales->offsets.data();
  table.ids = ids;
  table.first = piece->first;
  table.count = piece->columns;
  table.x = rounded_.x();
  table.x_rows = rounded_.rows();
  table.rows = piece->rows;
  table.z = piece->z;
  table.z_stride = piece->stride;
  prediction.kernel->multiply_byte_table(table);
  return true;
}

void PredictThread::TakePiece(const float* bias, const Call& call, const int32_t* which,
                              const ProductPiece& piece) {
  for (int i = 0; i < piece.rows; ++i) {
    Row& row = rows_[piece.row + i];
    const size_t t = which[piece.row + i];
    float* z = piece.z + i * piece.stride;
    const float largest = HWY_DYNAMIC_DISPATCH(AddBiasTarget)(z, bias, piece.stride);
    const double sum = HWY_DYNAMIC_DISPATCH(SumOfExpTarget)(z, piece.stride, largest);
    if (piece.first == 0) {
      row.largest = largest;
      row.sum = sum;
    } else if (largest > row.largest) {
      row.sum = row.sum * std::exp(static_cast<double>(row.largest) - largest) + sum;
      row.largest = largest;
    } else {
      row.sum += sum * std::exp(static_cast<double>(largest) - row.largest);
    }
    if (row.target >= piece.first && row.target < piece.first + piece.columns) {
      row.target_logit = z[row.target - piece.first];
    }
    for (int place : never_) {
      if (place >= piece.first && place < piece.first + piece.columns)
        z[place - piece.first] = kLeast;
    }
    // Once there are as many as are asked for, most pieces have none that is better than the worst
    // of them.
    if (call.candidates != nullptr && call.counts[t] > 0 &&
        (row.candidates < call.counts[t] ||
         largest > call.candidates[t * call.max_candidates].log_prob)) {
      TakeCandidates(z, piece.first, piece.columns, call.counts[t],
                     call.candidates + t * call.max_candidates, &row.candidates);
    }
    if (call.picked != nullptr) TakeBest(call, t, piece, largest, z, &row);
  }
}

void PredictThread::TakeBest(const Call& call, size_t t, const ProductPiece& piece, float largest,
                             float* z, Row* row) {
  if (call.adjustments != nullptr) {
    const int end = call.adjusted_offsets[t + 1];
    const int first = row->adjustment;
    for (int& i = row->adjustment; i < end; ++i) {
      const int column = call.adjustments[i].id - piece.first;
      if (column >= piece.columns) break;
      call.unadjusted[i] = z[column];
      z[column] = Adjusted(call.adjustments[i], z[column]);
    }
    if (row->adjustment > first) largest = LargestLogit(z, piece.stride);
  }
  if (largest > row->best) {
    const size_t column = FindLogit(z, piece.stride, largest);
    if (column < static_cast<size_t>(piece.columns)) {
      row->best = largest;
      row->best_id = piece.first + static_cast<int32_t>(column);
    }
  }
  if (row->logits != nullptr) std::copy_n(z, piece.stride, row->logits + piece.first);
}

void PredictThread::FinishPick(const Prediction& prediction, const Call& call, size_t t,
                               const Row& row) {
  Candidate& picked = call.picked[t];
  picked = Candidate();
  if (row.best_id == kNone) return;
  picked.id = row.best_id;
  float logit = row.best;
  if (row.logits != nullptr) {
    picked.id = picker_.Pick(row.logits, prediction.bias.size(), row.best, call.sampling[t]);
    if (picked.id == kNone) return;
    logit = row.logits[picked.id];
  }
  if (call.adjustments != nullptr) {
    const Adjustment* const end = call.adjustments + call.adjusted_offsets[t + 1];
    const Adjustment* const found = std::lower_bound(
        call.adjustments + call.adjusted_offsets[t], end, picked.id,
        [](const Adjustment& adjustment, int32_t id) { return adjustment.id < id; });
    if (found != end && found->id == picked.id) logit = call.unadjusted[found - call.adjustments];
  }
  picked.log_prob = static_cast<float>(logit - LogSum(row));
}

double PredictThread::LogSum(const Row& row) { return row.largest + std::log(row.sum); }

void PredictThread::Finish(const Call& call, const Choices& choices, const int32_t* which,
                           int rows) {
  for (int i = 0; i < rows; ++i) {
    const Row& row = rows_[i];
    const size_t t = which[i];
    const double log_sum = LogSum(row);
    if (call.log_prob != nullptr && call.targets[t] >= 0) {
      call.log_prob[t] = static_cast<float>(row.target_logit - log_sum);
    }
    if (call.candidates == nullptr) continue;
    Candidate* candidates = call.candidates + t * call.max_candidates;
    std::sort_heap(candidates, candidates + row.candidates, IsBetter);
    for (int c = 0; c < row.candidates; ++c) {
      candidates[c].log_prob = static_cast<float>(candidates[c].log_prob - log_sum);
      if (choices.ids != nullptr) candidates[c].id = choices.ids[candidates[c].id];
      if (candidates[c].log_prob == kLeast) candidates[c].id = kNone;
    }
    std::fill(candidates + row.candidates, candidates + call.counts[t], Candidate{kNone, kLeast});
  }
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
