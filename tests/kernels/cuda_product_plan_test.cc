// The choice of a product's algorithms: whichever gives other bits than the reference must be seen,
// also where bfloat16 hides almost all of the difference.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/kernels/bfloat16.h"
#include "kernels/cuda/stack/product_plan.h"
#include "tests/kernels/cuda_host/host_device.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::HostAlgorithm;
using ::sru::testing::HostDeviceControl;
using ::sru::testing::HostDeviceOptions;
using ::sru::testing::MakeHostDevice;
using ::sru::testing::SumOrder;

using Other = HostAlgorithm::Other;

constexpr SumOrder kOtherOrders[] = {SumOrder::kBackward, SumOrder::kGroupsOf8,
                                     SumOrder::kGroupsOf16, SumOrder::kHalves};

bool operator==(const ProductAlgorithm& a, const HostAlgorithm& b) {
  const ProductAlgorithm other = b.ToProductAlgorithm();
  return std::memcmp(a.data, other.data, sizeof(a.data)) == 0;
}

// The plans of one product in bfloat16 with random weights.
class PlanRig {
 public:
  PlanRig(int k, const std::vector<HostAlgorithm>& reference,
          const std::vector<HostAlgorithm>& buckets) {
    HostDeviceOptions options;
    options.reference_algorithms = reference;
    options.bucket_algorithms = buckets;
    gpu_ = std::make_shared<Gpu>(MakeHostDevice(options, &control_), 0);
    ProductShape shape;
    shape.k = k;
    shape.n = 96;
    shape.dtype = DataType::kBFloat16;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    std::vector<BFloat16> values(static_cast<size_t>(shape.n) * k);
    for (BFloat16& value : values) value = FromFloat<BFloat16>(normal(random));
    const size_t bytes = values.size() * sizeof(BFloat16);
    Status status = DeviceBuffer::Create(gpu_, bytes, &weights_);
    if (status.ok()) status = GpuStream::Create(gpu_, &stream_);
    if (status.ok()) status = stream_->CopyToDevice(weights_.data(), values.data(), bytes);
    if (status.ok()) status = stream_->Wait();
    if (status.ok()) status = ProductPlans::Create({{shape, weights_.data()}}, gpu_, &plans_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  const ProductAlgorithm& reference() const {
    PackedProduct product;
    product.shape = 0;
    return plans_->reference(product);
  }

  // For these numbers of rows.
  std::vector<ProductChoice> Choose(std::vector<int> row_counts) {
    row_counts.push_back(2 * row_counts.back());
    std::vector<std::vector<ProductChoice>> choices;
    const Status status = plans_->Choose(row_counts, *stream_, &choices);
    EXPECT_TRUE(status.ok()) << status.message();
    return choices.empty() ? std::vector<ProductChoice>() : choices[0];
  }

 private:
  HostDeviceControl control_;
  std::shared_ptr<Gpu> gpu_;
  DeviceBuffer weights_;
  GpuStream stream_;
  std::unique_ptr<ProductPlans> plans_;
};

class ProductPlanTest : public ::testing::TestWithParam<int> {};

TEST_P(ProductPlanTest, AnotherOrderOfSummationIsNotTaken) {
  const HostAlgorithm in_order{SumOrder::kInOrder};
  for (SumOrder order : kOtherOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    PlanRig rig(GetParam(), {in_order}, {{order}});
    for (const ProductChoice& choice : rig.Choose({16, 48, 64, 128, 256})) {
      EXPECT_TRUE(choice.algorithm == in_order) << choice.rows;
    }
  }
}

// Each order is the reference once.
TEST_P(ProductPlanTest, TheOrderOfTheReferenceIsTaken) {
  for (SumOrder order : kOtherOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    const HostAlgorithm reference{order};
    // The same order by an algorithm of another kind.
    const HostAlgorithm same{order, order, Other::kAbove64Rows};
    PlanRig rig(GetParam(), {reference}, {{SumOrder::kInOrder}, same});
    EXPECT_TRUE(rig.reference() == reference);
    for (const ProductChoice& choice : rig.Choose({16, 48, 128})) {
      EXPECT_TRUE(choice.algorithm == same) << choice.rows;
    }
  }
}

TEST_P(ProductPlanTest, AReferenceMustNotDependOnRowsOrPlace) {
  for (SumOrder order : kOtherOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    const HostAlgorithm steady{SumOrder::kInOrder};
    for (Other when : {Other::kAbove64Rows, Other::kEveryNinthRow}) {
      PlanRig rig(GetParam(), {{SumOrder::kInOrder, order, when}, steady}, {});
      EXPECT_TRUE(rig.reference() == steady) << static_cast<int>(when);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, ProductPlanTest, ::testing::Values(128, 256, 512));

}  // namespace
}  // namespace sru::kernels::cuda
