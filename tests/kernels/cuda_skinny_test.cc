// Our product for few rows gives every row the bits of one chain of sums over k, alone and among
// others, whatever a GPU leaves open. The kernels run on the host (cuda_host/).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/kernels/storage_type.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/cuda_host/shim_mode.h"

namespace sru::kernels::cuda {
namespace {

using sru::testing::HostDeviceControl;
using sru::testing::kShimModes;
using sru::testing::MakeHostDevice;
using sru::testing::SetShimMode;
using sru::testing::ShimMode;

template <typename T>
std::vector<T> Random(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(size);
  // Of magnitudes that lose digits in a sum.
  for (T& value : values) {
    const float spread = std::ldexp(normal(random), static_cast<int>(random() % 16) - 8);
    value = FromFloat<T>(spread);
  }
  return values;
}

template <typename T, typename Y>
class Product {
 public:
  Product(int rows, int k, int n)
      : shape_{k, n, StorageType<T>::kDataType, sizeof(T) == 2 && sizeof(Y) == 4},
        x_(Random<T>(static_cast<size_t>(rows) * k, rows + k)),
        weights_(Random<T>(static_cast<size_t>(n) * k, n + k)) {
    EXPECT_TRUE(device_->CreateStream(nullptr, &stream_).ok());
  }

  // Rows `first` to `first` + `rows` by the kernel.
  std::vector<Y> Multiply(int first, int rows) {
    std::vector<Y> y(static_cast<size_t>(rows) * shape_.n, FromFloat<Y>(-77.0f));
    const Status status = RunWork(*stream_, [&] {
      return stream_->Multiply(shape_, ProductAlgorithm{true, {}}, rows,
                               &x_[static_cast<size_t>(first) * shape_.k], weights_.data(),
                               y.data());
    });
    EXPECT_TRUE(status.ok()) << status.message();
    return y;
  }

  std::vector<Y> Expected() const {
    const size_t rows = x_.size() / shape_.k;
    std::vector<Y> y;
    for (size_t row = 0; row < rows; ++row) {
      for (int column = 0; column < shape_.n; ++column) {
        float sum = 0;
        for (int i = 0; i < shape_.k; ++i) {
          sum = std::fma(ToFloat(x_[row * shape_.k + i]),
                         ToFloat(weights_[static_cast<size_t>(column) * shape_.k + i]), sum);
        }
        y.push_back(FromFloat<Y>(sum));
      }
    }
    return y;
  }

 private:
  HostDeviceControl control_;
  const std::unique_ptr<Device> device_ = MakeHostDevice({}, &control_);
  std::unique_ptr<Stream> stream_;
  const ProductShape shape_;
  const std::vector<T> x_;        // [rows][k]
  const std::vector<T> weights_;  // [n][k]
};

template <typename Y>
bool SameBits(const std::vector<Y>& a, const std::vector<Y>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(Y)) == 0;
}

struct Size {
  int rows, k, n;
};
// Less than a stage, a stage, parts of one, and more than the ring has; half of a tile of 16;
// columns for one warp a block and for four, with a last block, warp or tile that is not whole;
// rows of one block and of several.
constexpr Size kSizes[] = {{1, 8, 8},     {16, 64, 16},  {5, 72, 24},    {16, 304, 40},
                           {17, 512, 64}, {33, 136, 88}, {9, 1096, 16},  {32, 2048, 24},
                           {64, 88, 200}, {16, 40, 424}, {48, 560, 520}, {160, 24, 40}};

template <typename T, typename Y>
void ExpectTheChain() {
  for (const Size& size : kSizes) {
    SCOPED_TRACE(std::to_string(size.rows) + " rows, k " + std::to_string(size.k) + ", n " +
                 std::to_string(size.n));
    Product<T, Y> product(size.rows, size.k, size.n);
    const std::vector<Y> expected = product.Expected();
    for (const ShimMode& mode : kShimModes) {
      SetShimMode(mode);
      EXPECT_TRUE(SameBits(product.Multiply(0, size.rows), expected));
    }
    SetShimMode({});
    const int last = size.rows - 1;
    const std::vector<Y> alone(expected.end() - size.n, expected.end());
    EXPECT_TRUE(SameBits(product.Multiply(last, 1), alone));
  }
}

TEST(CudaSkinnyTest, Float32IsOneChain) { ExpectTheChain<float, float>(); }
TEST(CudaSkinnyTest, Bfloat16IsOneChain) { ExpectTheChain<BFloat16, BFloat16>(); }
TEST(CudaSkinnyTest, Float32OfBfloat16IsOneChain) { ExpectTheChain<BFloat16, float>(); }

// What is no number in one row, or in one column's weights, stays there.
TEST(CudaSkinnyTest, NansStayInTheirRow) {
  HostDeviceControl control;
  const std::unique_ptr<Device> device = MakeHostDevice({}, &control);
  std::unique_ptr<Stream> stream;
  ASSERT_TRUE(device->CreateStream(nullptr, &stream).ok());
  constexpr int kRows = 20;
  constexpr int kWidth = 24;
  auto x = Random<BFloat16>(size_t{kRows} * kWidth, 1);
  const auto weights = Random<BFloat16>(size_t{kWidth} * kWidth, 2);
  std::fill_n(x.begin() + 3 * kWidth, kWidth, FromFloat<BFloat16>(NAN));
  std::vector<float> y(size_t{kRows} * kWidth);
  const ProductShape shape{kWidth, kWidth, DataType::kBFloat16, true};
  ASSERT_TRUE(RunWork(*stream, [&] {
                return stream->Multiply(shape, ProductAlgorithm{true, {}}, kRows, x.data(),
                                        weights.data(), y.data());
              }).ok());
  for (int i = 0; i < kRows * kWidth; ++i) EXPECT_EQ(std::isnan(y[i]), i / kWidth == 3) << i;
}

}  // namespace
}  // namespace sru::kernels::cuda
