// Which algorithm computes which product at which number of rows.
//
// A row's result must have the same bits for any number of rows and at any place among them. The
// library promises that for no pair of algorithms, and its own choice changes with the number of
// rows. So each product has a reference, whatever the limits of a workspace: of the library's
// candidates for many rows and for few, those with the same bits for every number of rows stand
// together, and the group is taken whose best places in both lists are the best. No time is
// measured for that, so that every device of a kind chooses the same bits.
//
// For each bucket, candidates that give the reference's bits are tried on the device, as
// row_probe.h says, and are dropped if one bit differs: our own kernel first where there are few
// rows (skinny.cuh), then the library's. Up to 512 rows the fastest of the others is taken, by the
// device's clock and with weights that come from memory, unless the first takes little more than a
// launch does; above, the first one in the library's order. Algorithms that split a sum among
// blocks are not even candidates. A bucket for which nothing passes uses the next larger one's
// rows. The reference of a product for which the library has none is our own kernel.
//
// Results in bfloat16 have 8 bits, so most of those of random rows are the same for any order of
// summation. They are tried with rows and weights that cancel as well: each value has a partner, at
// a random place, whose product is its product's negative. The exact sum is 0, so that the result
// is nothing but the rounding errors of the sum, and these depend on the order.
#ifndef SRU_KERNELS_CUDA_STACK_PRODUCT_PLAN_H_
#define SRU_KERNELS_CUDA_STACK_PRODUCT_PLAN_H_

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/mutex.h"

namespace sru::kernels::cuda {

// How to compute a product for the rows of a bucket: `rows` is at least the bucket's.
struct ProductChoice {
  int rows = 0;
  ProductAlgorithm algorithm;
};

// The reference algorithm is, if it can be, one of those for this many rows.
inline constexpr int kReferenceRows = 512;

// The products of a stack, or of another set of shapes, on one device. Thread-safe.
class ProductPlans {
 public:
  struct Plan {
    ProductShape shape;
    // Of one of the products of this shape, in memory of the device: those that it is tried with.
    const void* weights = nullptr;
    std::vector<ProductAlgorithm> same_bits;  // the reference first; chosen by Create()

    const ProductAlgorithm& reference() const { return same_bits.front(); }
  };

  // Chooses the reference algorithms. kUnsupported when a product has none.
  static Status Create(const PackedStack& stack, const DeviceStack& weights,
                       const std::shared_ptr<Gpu>& gpu, std::unique_ptr<ProductPlans>* plans);
  static Status Create(std::vector<Plan> products, const std::shared_ptr<Gpu>& gpu,
                       std::unique_ptr<ProductPlans>* plans);

  // For kReferenceRows rows, with which it has been tried.
  const ProductAlgorithm& reference(const PackedProduct& product) const {
    return plans_[product.shape].reference();
  }

  // Choices of every product for the buckets `row_counts` (ascending, as from TokenBuckets()):
  // choices[shape][i] serves row_counts[i]; there is none for the last one, which is there to stand
  // in for others. What was tried before is remembered. Uses an idle `stream`, and takes device
  // memory for the trial, at most what a workspace for as many rows takes beside its stream, a
  // table of the rows, and, if there is room, as much as the device's cache has. kUnsupported when
  // a bucket has no algorithm.
  Status Choose(const std::vector<int>& row_counts, Stream& stream,
                std::vector<std::vector<ProductChoice>>* choices);

 private:
  ProductPlans(std::shared_ptr<Gpu> gpu, std::vector<Plan> plans)
      : gpu_(std::move(gpu)), plans_(std::move(plans)) {}

  Mutex mutex_;
  const std::shared_ptr<Gpu> gpu_;
  std::vector<Plan> plans_;  // [shape]; constant once created
  // [shape][rows]; nothing = none passed
  std::vector<std::map<int, std::optional<ProductAlgorithm>>> tried_ SRU_GUARDED_BY(mutex_);
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_PRODUCT_PLAN_H_
