// How a product is tried before it is used: a row must get the same bits in any number of rows and
// at any place among them, whatever the rows behind it hold.
//
// Each number of rows multiplies the same different rows, in as many batches as they take, until at
// least kValues results have been compared. A part of them is multiplied once more with rows of NaN
// behind them, as a buffer's unused rows may be.
#ifndef SRU_KERNELS_COMMON_ROW_PROBE_H_
#define SRU_KERNELS_COMMON_ROW_PROBE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace sru::kernels {

class RowProbe {
 public:
  // An order of summation that differs in one row or column only must not be equal by luck.
  static constexpr int kValues = 10'000;
  static constexpr int kMostGarbage = 8;

  RowProbe(int k, int n) : k_(k), period_(std::max(13, (kValues + n - 1) / n) | 1) {}

  // Different rows. Odd, so that it shares no divisor with a tile and each row gets many places.
  int period() const { return period_; }

  // `count` random values; many are the same ones again and again. With `spread` they are of very
  // different size: sums of few values of bfloat16 are often exact in float32, in any order, and
  // these are not.
  static std::vector<float> Values(size_t count, unsigned seed, bool spread) {
    constexpr size_t kDifferent = 8'191;  // a prime, so that no two rows of a matrix are alike
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = i < kDifferent ? normal(random) : values[i - kDifferent];
      if (spread && i < kDifferent) values[i] = std::ldexp(values[i], int(random() % 16) - 8);
    }
    return values;
  }

  // [period() + 1][k]: the rows, and one of NaN.
  std::vector<float> Table(bool spread) const {
    std::vector<float> table = Values(static_cast<size_t>(period_) * k_, /*seed=*/1, spread);
    table.resize(table.size() + k_, std::numeric_limits<float>::quiet_NaN());
    return table;
  }

  // Calls batch(first, real, compared) until one returns false. Row i of a batch is row (first + i)
  // % period() of the table for i < real, and NaN above. The results of rows below `compared` are
  // those of the table's rows `first` to `first` + `compared` - 1, again from row 0 where a batch
  // begins with it.
  template <typename Batch>
  bool ForEachBatch(int rows, const Batch& batch) const {
    for (const int garbage : {0, std::min(kMostGarbage, rows / 2)}) {
      const int real = rows - garbage;
      const int last = garbage == 0 ? period_ : period_ / 8;
      for (int first = 0; first < last; first += real) {
        if (!batch(first, real, first == 0 ? real : std::min(real, period_ - first))) return false;
      }
    }
    return true;
  }

 private:
  int k_;
  int period_;
};

// The probe of a product in this process' memory.
class RowTrial {
 public:
  RowTrial(int k, int n, int max_rows)
      : probe_(k, n),
        k_(k),
        n_(n),
        table_(probe_.Table(/*spread=*/true)),
        expected_(static_cast<size_t>(probe_.period()) * n),
        x_(static_cast<size_t>(max_rows) * k),
        y_(static_cast<size_t>(max_rows) * n) {}

  float* x() { return x_.data(); }  // [max_rows][k]
  float* y() { return y_.data(); }  // [max_rows][n]

  // Whether multiply(), which computes `rows` rows of y from x, gives the bits of the numbers of
  // rows that agreed before.
  template <typename Multiply>
  bool Agrees(int rows, const Multiply& multiply) {
    const int known = known_;
    const bool agrees = probe_.ForEachBatch(rows, [&](int first, int real, int compared) {
      for (int i = 0; i < rows; ++i) {
        const int row = i < real ? (first + i) % probe_.period() : probe_.period();
        std::copy_n(&table_[static_cast<size_t>(row) * k_], k_, &x_[static_cast<size_t>(i) * k_]);
      }
      multiply();
      for (int i = 0; i < compared; ++i) {
        const int row = (first + i) % probe_.period();
        float* const expected = &expected_[static_cast<size_t>(row) * n_];
        const float* const found = &y_[static_cast<size_t>(i) * n_];
        if (row == known_) {
          std::copy_n(found, n_, expected);
          ++known_;
        }
        if (std::memcmp(found, expected, n_ * sizeof(float)) != 0) return false;
      }
      return true;
    });
    if (!agrees) known_ = known;
    return agrees;
  }

 private:
  RowProbe probe_;
  int k_;
  int n_;
  std::vector<float> table_;
  std::vector<float> expected_;  // [period][n]
  int known_ = 0;                // rows of expected_, its first
  std::vector<float> x_;
  std::vector<float> y_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_ROW_PROBE_H_
