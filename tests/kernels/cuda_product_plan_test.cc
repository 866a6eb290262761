// The choice of a product's algorithms: whichever gives other bits than the reference must be seen,
// also where bfloat16 hides almost all of the difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "kernels/common/row_probe.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/kernels/bfloat16.h"
#include "kernels/cuda/kernels/skinny_shape.h"
#include "kernels/cuda/stack/product_plan.h"
#include "tests/kernels/cuda_host/host_device.h"
#include "tests/kernels/status_matchers.h"

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
  return a == b.ToProductAlgorithm();
}

// The plans of one product in bfloat16 with random weights.
class PlanRig {
 public:
  static constexpr int kColumns = 96;

  PlanRig(int k, const std::vector<HostAlgorithm>& reference,
          const std::vector<HostAlgorithm>& buckets, int own_microseconds = -1) {
    HostDeviceOptions options;
    options.own_product_microseconds = own_microseconds;
    options.reference_algorithms = reference;
    options.bucket_algorithms = buckets;
    gpu_ = std::make_shared<Gpu>(MakeHostDevice(options, &control_), BackendOptions());
    ProductShape shape;
    shape.k = k;
    shape.n = kColumns;
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
    if (status.ok()) status = ProductPlans::Create({{shape, weights_.data(), {}}}, gpu_, &plans_);
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
    EXPECT_THAT(plans_->Choose(row_counts, *stream_, &choices), IsOk());
    return choices.empty() ? std::vector<ProductChoice>() : choices[0];
  }

  HostDeviceControl& control() { return control_; }

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

// The wrong value is one of 10,000 that are compared for each number of rows.
TEST_P(ProductPlanTest, OneWrongValueIsSeen) {
  const RowProbe probe(GetParam(), PlanRig::kColumns);
  const std::vector<float> table = probe.Table(/*spread=*/false);
  std::vector<float> firsts;
  for (int row = 0; row < probe.period(); ++row) firsts.push_back(table[row * GetParam()]);
  std::sort(firsts.begin(), firsts.end());
  const HostAlgorithm steady{SumOrder::kInOrder};
  HostAlgorithm wrong{SumOrder::kInOrder, SumOrder::kInOrder, Other::kNever, 1};
  wrong.above = (firsts.end()[-1] + firsts.end()[-2]) / 2;
  PlanRig rig(GetParam(), {steady}, {wrong});
  for (const ProductChoice& choice : rig.Choose({16, 48, 256, 1024})) {
    EXPECT_TRUE(choice.algorithm == steady) << choice.rows;
  }
}

// An algorithm of the same order that the library tells from others.
HostAlgorithm Timed(SumOrder order, int microseconds) {
  return {order, order, Other::kNever, microseconds};
}

TEST_P(ProductPlanTest, TheFastestOfTheSameBitsIsTakenForFewRows) {
  const HostAlgorithm first = Timed(SumOrder::kInOrder, 300);
  const HostAlgorithm fast = Timed(SumOrder::kInOrder, 100);
  PlanRig rig(GetParam(), {Timed(SumOrder::kInOrder, 200)},
              {Timed(SumOrder::kBackward, 1), first, fast, Timed(SumOrder::kInOrder, 101)});
  for (const ProductChoice& choice : rig.Choose({16, 48, 256, 1024, 2048})) {
    EXPECT_TRUE(choice.algorithm == (choice.rows <= 512 ? fast : first)) << choice.rows;
  }
  const int64_t timed = rig.control().products_timed;
  EXPECT_EQ(timed, 3 * 4);
  (void)rig.Choose({16, 48, 256, 1024, 2048});
  EXPECT_EQ(rig.control().products_timed, timed);
}

TEST_P(ProductPlanTest, OfAProductThatTakesLittleMoreThanALaunchNoOtherIsTried) {
  const HostAlgorithm first = Timed(SumOrder::kInOrder, 5);
  PlanRig rig(GetParam(), {first}, {first, Timed(SumOrder::kInOrder, 1)});
  for (const ProductChoice& choice : rig.Choose({16, 512})) EXPECT_TRUE(choice.algorithm == first);
  EXPECT_EQ(rig.control().products_timed, 2);
}

TEST_P(ProductPlanTest, TheReferenceIsTakenIfItIsTheFastest) {
  const HostAlgorithm reference = Timed(SumOrder::kInOrder, 7);
  PlanRig rig(GetParam(), {reference}, {Timed(SumOrder::kInOrder, 300)});
  for (const ProductChoice& choice : rig.Choose({16})) EXPECT_TRUE(choice.algorithm == reference);
}

// Whatever the times are: they differ from one run to the next.
TEST_P(ProductPlanTest, TheReferenceIsGoodForManyRowsAndForFew) {
  for (SumOrder order : kOtherOrders) {
    SCOPED_TRACE(static_cast<int>(order));
    for (int microseconds : {10, 1000}) {
      const HostAlgorithm first = Timed(SumOrder::kInOrder, 100);
      const HostAlgorithm second = Timed(order, microseconds);
      const HostAlgorithm few = Timed(order, 2 * microseconds);
      const HostAlgorithm refuses = {order, order, Other::kRefuses};
      // The bits of the first one at many rows are not among those for few.
      PlanRig both(GetParam(), {first, second}, {few});
      EXPECT_TRUE(both.reference() == second);
      EXPECT_TRUE(both.Choose({16})[0].algorithm == second);
      // An algorithm that is far behind at many rows costs too much there.
      PlanRig late(GetParam(), {first, refuses, refuses, refuses, refuses, second}, {few});
      EXPECT_TRUE(late.reference() == first);
    }
  }
}

// Our own product sums in order.
TEST_P(ProductPlanTest, OurProductIsTakenForFewRowsWhereItHasTheBitsAndIsFaster) {
  for (SumOrder order : {SumOrder::kInOrder, SumOrder::kBackward}) {
    for (int microseconds : {10, 1000}) {
      const HostAlgorithm library = Timed(order, 100);
      PlanRig rig(GetParam(), {library}, {library}, microseconds);
      EXPECT_TRUE(rig.reference() == library);
      for (const ProductChoice& choice : rig.Choose({16, 64, 256})) {
        const bool expected =
            order == SumOrder::kInOrder && microseconds < 100 && choice.rows <= kMaxSkinnyRows;
        EXPECT_EQ(choice.algorithm.own, expected) << choice.rows << " rows";
        EXPECT_TRUE(expected || choice.algorithm == library) << choice.rows << " rows";
      }
    }
  }
}

// Where no product of the library gives 16 rows the bits that it gives more, ours does, at any
// number.
TEST_P(ProductPlanTest, OurProductStandsInForALibraryWhoseBitsDependOnTheRows) {
  const HostAlgorithm by_place{SumOrder::kInOrder, SumOrder::kBackward, Other::kEveryNinthRow};
  const HostAlgorithm by_rows{SumOrder::kInOrder, SumOrder::kBackward, Other::kAbove64Rows};
  PlanRig rig(GetParam(), {by_place}, {by_place, by_rows}, 1000);
  EXPECT_TRUE(rig.reference().own);
  for (const ProductChoice& choice : rig.Choose({128, 256})) {
    EXPECT_TRUE(choice.algorithm.own) << choice.rows;
  }
}

INSTANTIATE_TEST_SUITE_P(Inputs, ProductPlanTest, ::testing::Values(128, 256, 512));

}  // namespace
}  // namespace sru::kernels::cuda
