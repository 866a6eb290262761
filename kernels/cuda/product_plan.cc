#include "kernels/cuda/product_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "kernels/cuda/storage_type.h"

namespace sru::kernels::cuda {
namespace {

// Row counts at which the reference algorithm must repeat itself.
constexpr int kReferenceTrials[] = {16, 48, 128, kReferenceRows};
constexpr size_t kReferenceCandidates = 8;
constexpr size_t kBucketCandidates = 3;
// A product with float32 results is tried with weights of the trial's own if they are not more.
constexpr size_t kMaxTrialWeights = size_t{1} << 18;
// Rows that hold the expected results: the period, rounded up to the smallest bucket.
constexpr int kExpectedRows = 16;

// Runs one product on rows that repeat, and compares.
class Trial {
 public:
  Trial(const ProductShape& shape, const void* weights, int max_rows, std::shared_ptr<Gpu> gpu,
        Stream& stream)
      : shape_(shape),
        weights_(weights),
        max_rows_(max_rows),
        gpu_(std::move(gpu)),
        stream_(stream) {}

  Status Prepare() {
    const size_t value_bytes = ValueBytes(shape_.dtype);
    const size_t result_bytes = ValueBytes(shape_.result_dtype());
    const size_t rows = max_rows_;
    std::vector<int32_t> ids(rows);
    for (size_t i = 0; i < rows; ++i) ids[i] = static_cast<int32_t>(i % kTrialPeriod);
    const std::vector<uint8_t> table = Values(kTrialPeriod, /*seed=*/1);
    std::vector<uint8_t> weights;
    if (shape_.float32_result && static_cast<size_t>(shape_.n) * shape_.k <= kMaxTrialWeights) {
      weights = Values(shape_.n, /*seed=*/2);
    }
    const BatchHeader header{max_rows_, {}};
    struct Array {
      DeviceBuffer* buffer;
      size_t bytes;
      const void* content;
    };
    const Array arrays[] = {
        {&x_, rows * shape_.k * value_bytes, nullptr},
        {&y_, rows * shape_.n * result_bytes, nullptr},
        {&expected_, size_t{kExpectedRows} * shape_.n * result_bytes, nullptr},
        {&table_, table.size(), table.data()},
        {&own_weights_, weights.size(), weights.data()},
        {&ids_, rows * sizeof(int32_t), ids.data()},
        {&header_, sizeof(header), &header},
        {&differs_, sizeof(uint32_t), nullptr},
    };
    Status status;
    for (const Array& array : arrays) {
      status = DeviceBuffer::Create(gpu_, array.bytes, array.buffer);
      if (status.ok() && array.content != nullptr && array.bytes > 0) {
        status = stream_.CopyToDevice(array.buffer->data(), array.content, array.bytes);
      }
      if (!status.ok()) break;
    }
    if (!weights.empty()) weights_ = own_weights_.data();
    if (status.ok()) {
      EmbedArgs embed{};
      embed.header = header_.as<BatchHeader>();
      embed.max_tokens = max_rows_;
      embed.token_ids = ids_.as<int32_t>();
      embed.table = table_.data();
      embed.segments = 1;
      embed.size = shape_.k;
      embed.padded = shape_.k;
      embed.x = x_.data();
      status = stream_.Embed(shape_.dtype, embed);
    }
    const Status waited = stream_.Wait();  // the copies read what is on this stack
    return status.ok() ? waited : status;
  }

  // Makes `algorithm` the one that others are compared with.
  Status Expect(const ProductAlgorithm& algorithm) {
    return stream_.Multiply(shape_, algorithm, kExpectedRows, x_.data(), weights_,
                            expected_.data());
  }

  // Whether `rows` rows match bit for bit; false if the algorithm rejects the shape.
  Status Passes(const ProductAlgorithm& algorithm, int rows, bool* passes) {
    *passes = false;
    uint32_t differs = 0;
    Status status = stream_.CopyToDevice(differs_.data(), &differs, sizeof(differs));
    if (!status.ok()) return status;
    const Status multiplied =
        stream_.Multiply(shape_, algorithm, rows, x_.data(), weights_, y_.data());
    if (!multiplied.ok()) {
      status = stream_.Wait();
      return multiplied.code() == StatusCode::kDeviceLost ? multiplied : status;
    }
    const int value_bytes = static_cast<int>(ValueBytes(shape_.result_dtype()));
    CompareArgs compare{};
    compare.values = y_.as<uint32_t>();
    compare.expected = expected_.as<uint32_t>();
    compare.rows = rows;
    compare.period = kTrialPeriod;
    compare.words_per_row = shape_.n * value_bytes / 4;
    compare.differs = differs_.as<uint32_t>();
    status = stream_.Compare(compare);
    if (status.ok()) status = stream_.CopyToHost(&differs, differs_.data(), sizeof(differs));
    const Status waited = stream_.Wait();
    if (!status.ok() || !waited.ok()) return status.ok() ? waited : status;
    *passes = differs == 0;
    return OkStatus();
  }

 private:
  // Rows of random values. Sums of few values of bfloat16 are often exact in float32, in any order;
  // where they are not rounded again, values of very different size tell one order from another.
  std::vector<uint8_t> Values(int rows, unsigned seed) const {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<uint8_t> values(static_cast<size_t>(rows) * shape_.k * ValueBytes(shape_.dtype));
    WithStorageType(shape_.dtype, [&](auto type) {
      using T = decltype(type);
      for (size_t at = 0; at < values.size(); at += sizeof(T)) {
        float number = normal(random);
        if (shape_.float32_result) number = std::ldexp(number, static_cast<int>(random() % 16) - 8);
        const T value = FromFloat<T>(number);
        std::memcpy(&values[at], &value, sizeof(T));
      }
    });
    return values;
  }

  const ProductShape shape_;
  const void* weights_;
  const int max_rows_;
  const std::shared_ptr<Gpu> gpu_;
  Stream& stream_;
  DeviceBuffer x_, y_, expected_, table_, own_weights_, ids_, header_, differs_;
};

}  // namespace

Status ProductPlans::Create(const PackedStack& stack, const DeviceStack& weights,
                            const std::shared_ptr<Gpu>& gpu, std::unique_ptr<ProductPlans>* plans) {
  std::vector<Planned> products;
  for (const ProductShape& shape : stack.shapes) products.push_back({shape, nullptr});
  const auto note_weights = [&](const PackedProduct& product) {
    if (product.exists()) products[product.shape].weights = weights.tensor(product.weights);
  };
  note_weights(stack.input_to_hidden);
  for (const PackedLayer& layer : stack.layers) {
    note_weights(layer.projection);
    note_weights(layer.product);
  }
  return Create(products, gpu, plans);
}

Status ProductPlans::Create(const std::vector<Planned>& products, const std::shared_ptr<Gpu>& gpu,
                            std::unique_ptr<ProductPlans>* plans) {
  std::unique_ptr<ProductPlans> created(new ProductPlans(gpu));
  for (const Planned& product : products) {
    Plan plan;
    plan.shape = product.shape;
    plan.weights = product.weights;
    created->plans_.push_back(std::move(plan));
  }

  GpuStream stream;
  Status status = GpuStream::Create(gpu, &stream);
  if (!status.ok()) return status;
  for (Plan& plan : created->plans_) {
    Trial trial(plan.shape, plan.weights, kReferenceRows, gpu, *stream);
    status = trial.Prepare();
    if (!status.ok()) return status;
    std::vector<ProductAlgorithm> candidates;
    status = gpu->device().ProductCandidates(plan.shape, kReferenceRows, kReferenceCandidates,
                                             &candidates);
    if (!status.ok()) return status;
    bool found = false;
    for (const ProductAlgorithm& candidate : candidates) {
      status = trial.Expect(candidate);
      if (status.code() == StatusCode::kDeviceLost) return status;
      found = status.ok();
      for (int rows : kReferenceTrials) {
        if (!found) break;
        status = trial.Passes(candidate, rows, &found);
        if (!status.ok()) return status;
      }
      if (found) {
        plan.reference = candidate;
        break;
      }
    }
    if (!found) {
      return Unsupported("product of " + std::to_string(plan.shape.k) + " by " +
                         std::to_string(plan.shape.n) +
                         ": the library has no algorithm whose results do not depend on the batch");
    }
  }
  *plans = std::move(created);
  return OkStatus();
}

Status ProductPlans::Choose(const std::vector<int>& row_counts, Stream& stream,
                            std::vector<std::vector<ProductChoice>>* choices) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::vector<ProductChoice>> chosen;
  for (Plan& plan : plans_) {
    const bool known = std::all_of(row_counts.begin(), row_counts.end(),
                                   [&](int rows) { return plan.tried.count(rows) > 0; });
    if (!known) {
      Trial trial(plan.shape, plan.weights, row_counts.back(), gpu_, stream);
      Status status = trial.Prepare();
      if (status.ok()) status = trial.Expect(plan.reference);
      if (!status.ok()) return status;
      for (int rows : row_counts) {
        if (plan.tried.count(rows) > 0) continue;
        std::vector<ProductAlgorithm> candidates;
        status = gpu_->device().ProductCandidates(plan.shape, rows, kBucketCandidates, &candidates);
        if (!status.ok()) return status;
        candidates.push_back(plan.reference);
        std::optional<ProductAlgorithm> passed;
        for (const ProductAlgorithm& candidate : candidates) {
          bool passes = false;
          status = trial.Passes(candidate, rows, &passes);
          if (!status.ok()) return status;
          if (passes) {
            passed = candidate;
            break;
          }
        }
        plan.tried[rows] = passed;
      }
    }
    // From the largest on, so that a bucket without an algorithm takes its larger neighbour's.
    std::vector<ProductChoice> of_shape(row_counts.size() - 1);
    std::optional<ProductChoice> larger;
    for (size_t i = row_counts.size(); i-- > 0;) {
      if (const auto& algorithm = plan.tried[row_counts[i]]; algorithm.has_value()) {
        larger = ProductChoice{row_counts[i], *algorithm};
      }
      if (i == of_shape.size()) continue;
      if (!larger.has_value()) {
        return Unsupported("product of " + std::to_string(plan.shape.k) + " by " +
                           std::to_string(plan.shape.n) + " with " + std::to_string(row_counts[i]) +
                           " rows: no algorithm gives results that do not depend on the batch");
      }
      of_shape[i] = *larger;
    }
    chosen.push_back(std::move(of_shape));
  }
  *choices = std::move(chosen);
  return OkStatus();
}

}  // namespace sru::kernels::cuda
