#include "kernels/cuda/stack/product_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/common/row_probe.h"
#include "kernels/cuda/kernels/skinny_shape.h"
#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {
namespace {

// Row counts at which the reference algorithm must repeat itself.
constexpr int kReferenceTrials[] = {16, 48, 128, kReferenceRows};
constexpr size_t kReferenceCandidates = 8;
constexpr size_t kBucketCandidates = 3;
// For few rows the library knows the least, and at up to kMaxTimedRows its first guess may take
// several times the least time.
constexpr int kFewRows = 16;
constexpr int kMaxTimedRows = 512;
constexpr size_t kTimedCandidates = 8;
// Seconds, by the device's clock, of a product of which a launch is so large a part that no other
// candidate is tried.
constexpr double kFastEnough = 6e-6;
// A product with float32 results is tried with weights of the trial's own if they are not more.
constexpr size_t kMaxTrialWeights = size_t{1} << 18;
// Rows whose expected results are computed together: the smallest bucket.
constexpr int kExpectedRows = 16;

constexpr ProductAlgorithm kOwnProduct = {true, {}};

// Different columns of a trial's own weights; they repeat over all n.
constexpr int kOwnColumns = 61;

// Runs one product on the rows of a RowProbe, and compares. They are random, with the weights of
// the product; if results are rounded to bfloat16, rows that cancel follow, with weights of their
// own.
class Trial {
 public:
  Trial(const ProductShape& shape, const void* weights, int max_rows, std::shared_ptr<Gpu> gpu,
        Stream& stream)
      : shape_(shape),
        probe_(shape.k, shape.n),
        weights_(weights),
        max_rows_(max_rows),
        gpu_(std::move(gpu)),
        stream_(stream) {}

  Status Prepare() {
    const size_t result_bytes = ResultBytes();
    const BatchHeader header{std::max(max_rows_, shape_.n), {}};
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, max_rows_ * result_bytes, &y_));
    // Where there is no room for it, weights are timed as a cache has them.
    (void)DeviceBuffer::Create(gpu_, gpu_->device().cache_bytes(), &evicting_);
    // Of the rows again and again, and of the one of NaN.
    const int period = probe_.period();
    std::vector<int32_t> ids(period + max_rows_ + RowProbe::kMostGarbage, period);
    for (int i = 0; i < period + max_rows_; ++i) ids[i] = i % period;
    SRU_RETURN_IF_ERROR(Upload(ids, &ids_));
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, sizeof(uint32_t), &differs_));
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, sizeof(header), &header_));
    SRU_RETURN_IF_ERROR(RunWork(stream_, [&] {
      // A tool that does not see all of the library's writes would report the comparison's reads.
      SRU_RETURN_IF_ERROR(stream_.Initialize(y_.data(), y_.bytes()));
      return stream_.CopyToDevice(header_.data(), &header, sizeof(header));
    }));
    Input& random = inputs_.emplace_back();
    SRU_RETURN_IF_ERROR(Upload(Stored(probe_.Table(shape_.float32_result)), &random.table));
    random.weights = weights_;
    if (shape_.float32_result && static_cast<size_t>(shape_.n) * shape_.k <= kMaxTrialWeights) {
      SRU_RETURN_IF_ERROR(
          FillWeights(RowProbe::Values(size_t{kOwnColumns} * shape_.k, /*seed=*/2, true), &random));
    }
    if (shape_.result_dtype() == DataType::kBFloat16) {
      Input& cancelling = inputs_.emplace_back();
      std::vector<float> table = CancellingRows(period, 1.0f);
      table.resize(table.size() + shape_.k, NAN);
      SRU_RETURN_IF_ERROR(Upload(Stored(table), &cancelling.table));
      SRU_RETURN_IF_ERROR(FillWeights(CancellingRows(kOwnColumns, -1.0f), &cancelling));
    }
    const size_t row_bytes = shape_.k * ValueBytes(shape_.dtype);
    for (Input& input : inputs_) {
      SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, max_rows_ * row_bytes, &input.x));
      SRU_RETURN_IF_ERROR(
          DeviceBuffer::Create(gpu_, (period + kExpectedRows) * result_bytes, &input.expected));
    }
    return RunWork(stream_, [&] {
      for (const Input& input : inputs_) {
        SRU_RETURN_IF_ERROR(stream_.Initialize(input.expected.data(), input.expected.bytes()));
      }
      return OkStatus();
    });
  }

  // Makes `algorithm` the one that others are compared with.
  Status Expect(const ProductAlgorithm& algorithm) {
    return RunWork(stream_, [&] {
      for (const Input& input : inputs_) {
        for (int first = 0; first < probe_.period(); first += kExpectedRows) {
          SRU_RETURN_IF_ERROR(FillRows(input, first, kExpectedRows, kExpectedRows));
          SRU_RETURN_IF_ERROR(stream_.Multiply(shape_, algorithm, kExpectedRows, input.x.data(),
                                               input.weights, Expected(input, first)));
        }
      }
      return OkStatus();
    });
  }

  // Whether `rows` rows match bit for bit; false if the algorithm rejects the shape.
  Status Passes(const ProductAlgorithm& algorithm, int rows, bool* passes) {
    *passes = true;
    for (const Input& input : inputs_) {
      Status status = Passes(algorithm, rows, input, passes);
      if (!status.ok() || !*passes) return status;
    }
    return OkStatus();
  }

  // Whether the rows match at every one of kReferenceTrials.
  Status PassesAll(const ProductAlgorithm& algorithm, bool* passes) {
    *passes = true;
    for (int rows : kReferenceTrials) {
      if (*passes) SRU_RETURN_IF_ERROR(Passes(algorithm, rows, passes));
    }
    return OkStatus();
  }

  // Infinite if the device cannot say.
  Status Time(const ProductAlgorithm& algorithm, int rows, double* seconds) {
    const Input& input = inputs_.front();
    const Status timed = RunWork(stream_, [&] {
      return stream_.TimeProduct(shape_, algorithm, rows, input.x.data(), input.weights, y_.data(),
                                 {evicting_.data(), evicting_.bytes()}, seconds);
    });
    if (!timed.ok()) *seconds = HUGE_VAL;
    return timed.code() == StatusCode::kDeviceLost ? timed : OkStatus();
  }

 private:
  struct Input {
    DeviceBuffer table;        // [period + 1][k]
    DeviceBuffer x;            // [max_rows][k]
    DeviceBuffer own_weights;  // or none
    DeviceBuffer expected;     // [period][n], and room for the last that are computed together
    const void* weights = nullptr;
  };

  size_t ResultBytes() const { return shape_.n * ValueBytes(shape_.result_dtype()); }
  uint8_t* Expected(const Input& input, int row) const {
    return input.expected.as<uint8_t>() + row * ResultBytes();
  }

  Status Passes(const ProductAlgorithm& algorithm, int rows, const Input& input, bool* passes) {
    uint32_t differs = 0;
    bool multiplied = true;
    CompareArgs compare{};
    compare.values = y_.as<uint32_t>();
    compare.period = probe_.period();
    compare.words_per_row = static_cast<int>(ResultBytes() / 4);
    compare.differs = differs_.as<uint32_t>();
    const Status status = RunWork(stream_, [&] {
      SRU_RETURN_IF_ERROR(stream_.CopyToDevice(differs_.data(), &differs, sizeof(differs)));
      Status put;
      const auto put_batch = [&](int first, int real, int compared) {
        put = FillRows(input, first, real, rows);
        if (!put.ok()) return false;
        Status product =
            stream_.Multiply(shape_, algorithm, rows, input.x.data(), input.weights, y_.data());
        multiplied = product.ok();
        if (product.code() == StatusCode::kDeviceLost) put = product;
        if (!multiplied) return false;
        compare.expected = reinterpret_cast<const uint32_t*>(Expected(input, first));
        compare.rows = compared;
        put = stream_.RunOperation(compare);
        return put.ok();
      };
      if (!probe_.ForEachBatch(rows, put_batch)) return put;
      return stream_.CopyToHost(&differs, differs_.data(), sizeof(differs));
    });
    *passes = status.ok() && multiplied && differs == 0;
    return status;
  }

  template <typename T>
  Status Upload(const std::vector<T>& values, DeviceBuffer* buffer) {
    const size_t bytes = values.size() * sizeof(T);
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, bytes, buffer));
    return RunWork(stream_,
                   [&] { return stream_.CopyToDevice(buffer->data(), values.data(), bytes); });
  }

  // As the product takes them.
  std::vector<uint8_t> Stored(const std::vector<float>& values) const {
    std::vector<uint8_t> stored(values.size() * ValueBytes(shape_.dtype));
    StoreAs(shape_.dtype, values.data(), values.size(), stored.data());
    return stored;
  }

  // Puts `rows` rows of `table` into `x`: those that `ids` names.
  Status Gather(const DeviceBuffer& table, const int32_t* ids, int rows, uint8_t* x) {
    EmbedArgs embed{};
    embed.dtype = shape_.dtype;
    embed.header = header_.as<BatchHeader>();
    embed.max_tokens = rows;
    embed.token_ids = ids;
    embed.table = table.data();
    embed.segments = 1;
    embed.size = shape_.k;
    embed.padded = shape_.k;
    embed.x = x;
    return rows == 0 ? OkStatus() : stream_.RunOperation(embed);
  }

  // x is `real` rows of the table from `first` on, and `rows` - `real` of NaN.
  Status FillRows(const Input& input, int first, int real, int rows) {
    const size_t row_bytes = shape_.k * ValueBytes(shape_.dtype);
    const int32_t* const ids = ids_.as<int32_t>();
    SRU_RETURN_IF_ERROR(Gather(input.table, ids + first, real, input.x.as<uint8_t>()));
    return Gather(input.table, ids + probe_.period() + max_rows_, rows - real,
                  input.x.as<uint8_t>() + real * row_bytes);
  }

  // Gives `input` weights of its own, kOwnColumns columns over and over.
  Status FillWeights(const std::vector<float>& columns, Input* input) {
    std::vector<int32_t> ids(shape_.n);
    for (int i = 0; i < shape_.n; ++i) ids[i] = i % kOwnColumns;
    DeviceBuffer device_columns;
    DeviceBuffer device_ids;
    SRU_RETURN_IF_ERROR(Upload(Stored(columns), &device_columns));
    SRU_RETURN_IF_ERROR(Upload(ids, &device_ids));
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu_, ids.size() * shape_.k * ValueBytes(shape_.dtype),
                                             &input->own_weights));
    input->weights = input->own_weights.data();
    return RunWork(stream_, [&] {
      return Gather(device_columns, device_ids.as<int32_t>(), shape_.n,
                    input->own_weights.as<uint8_t>());
    });
  }

  // Rows of k values, in random pairs: the second of a pair is the first times `sign`. The pairs
  // are at the same places in all rows, so the product of a row of sign 1 and one of sign -1 is 0.
  std::vector<float> CancellingRows(int count, float sign) const {
    std::mt19937 random(2);
    std::vector<int> places(shape_.k);
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    std::normal_distribution<float> normal;
    std::vector<float> rows(static_cast<size_t>(count) * shape_.k);
    const int pairs = shape_.k / 2;
    for (size_t row = 0; row < rows.size(); row += shape_.k) {
      for (int i = 0; i < pairs; ++i) {
        const float value = normal(random);
        rows[row + places[i]] = value;
        rows[row + places[i + pairs]] = sign * value;
      }
    }
    return rows;
  }

  const ProductShape shape_;
  const RowProbe probe_;
  const void* weights_;
  const int max_rows_;
  const std::shared_ptr<Gpu> gpu_;
  Stream& stream_;
  DeviceBuffer y_, evicting_, header_, differs_, ids_;
  std::vector<Input> inputs_;
};

bool Has(const std::vector<ProductAlgorithm>& algorithms, const ProductAlgorithm& algorithm) {
  return std::find(algorithms.begin(), algorithms.end(), algorithm) != algorithms.end();
}

// Algorithms that give the same bits for any number of rows, and their places among the library's
// candidates.
struct SameBits {
  std::vector<ProductAlgorithm> algorithms;  // the best for kReferenceRows first
  size_t place_many = kReferenceCandidates;  // for kReferenceRows
  size_t place_few = kReferenceCandidates;   // for kFewRows

  // A training set or a prompt has many rows and a step few. The library knows less about few.
  size_t cost() const { return 2 * place_many + place_few; }
};

// Adds a candidate to those with the same bits, or alone if there are none; not if its bits depend
// on the rows. `index` is that of its bits, or the number of all.
Status Sort(const ProductAlgorithm& candidate, Trial& trial, std::vector<SameBits>* all,
            size_t* index) {
  bool same = false;
  for (*index = 0; *index < all->size(); ++*index) {
    if (Has((*all)[*index].algorithms, candidate)) return OkStatus();
  }
  for (*index = 0; *index < all->size(); ++*index) {
    SameBits& known = (*all)[*index];
    SRU_RETURN_IF_ERROR(trial.Expect(known.algorithms.front()));
    SRU_RETURN_IF_ERROR(trial.PassesAll(candidate, &same));
    if (!same) continue;
    known.algorithms.push_back(candidate);
    return OkStatus();
  }
  const Status expected = trial.Expect(candidate);
  if (!expected.ok()) return expected.code() == StatusCode::kDeviceLost ? expected : OkStatus();
  SRU_RETURN_IF_ERROR(trial.PassesAll(candidate, &same));
  if (same) all->emplace_back().algorithms = {candidate};
  return OkStatus();
}

// The algorithms whose bits a product gets; empty if there are none. No time is measured: every
// device of a kind must choose the same bits, in this process and in others.
Status ChooseBits(const ProductShape& shape, Gpu& gpu, Trial& trial,
                  std::vector<ProductAlgorithm>* chosen) {
  std::vector<ProductAlgorithm> many;
  std::vector<ProductAlgorithm> few;
  SRU_RETURN_IF_ERROR(
      gpu.device().ProductCandidates(shape, kReferenceRows, kReferenceCandidates, &many));
  SRU_RETURN_IF_ERROR(gpu.device().ProductCandidates(shape, kFewRows, kReferenceCandidates, &few));
  std::vector<SameBits> all;
  const auto best = [&all] {
    return std::min_element(all.begin(), all.end(), [](const SameBits& a, const SameBits& b) {
      return a.cost() < b.cost();
    });
  };
  for (size_t place = 0; place < std::max(many.size(), few.size()); ++place) {
    for (const std::vector<ProductAlgorithm>* const list : {&many, &few}) {
      if (place >= list->size()) continue;
      const ProductAlgorithm& candidate = (*list)[place];
      size_t index = 0;
      SRU_RETURN_IF_ERROR(Sort(candidate, trial, &all, &index));
      if (index == all.size()) continue;
      size_t& best_place = list == &many ? all[index].place_many : all[index].place_few;
      if (place >= best_place) continue;
      best_place = place;
      std::vector<ProductAlgorithm>& same = all[index].algorithms;
      if (list == &many) {
        std::iter_swap(same.begin(), std::find(same.begin(), same.end(), candidate));
      }
    }
    // Later candidates cost more.
    if (!all.empty() && best()->cost() <= place + 1) break;
  }
  if (!all.empty()) {
    *chosen = best()->algorithms;
    return OkStatus();
  }
  // Ours sums every row alike, at whatever speed.
  if (!gpu.own_products()) return OkStatus();
  size_t index = 0;
  SRU_RETURN_IF_ERROR(Sort(kOwnProduct, trial, &all, &index));
  if (index < all.size()) *chosen = {kOwnProduct};
  return OkStatus();
}

}  // namespace

Status ProductPlans::Create(const PackedStack& stack, const DeviceStack& weights,
                            const std::shared_ptr<Gpu>& gpu, std::unique_ptr<ProductPlans>* plans) {
  std::vector<Plan> products;
  for (const ProductShape& shape : stack.shapes) products.push_back({shape, nullptr, {}});
  const auto note_weights = [&](const PackedProduct& product) {
    if (product.exists()) products[product.shape].weights = weights.tensor(product.weights);
  };
  note_weights(stack.input_to_hidden);
  for (const PackedLayer& layer : stack.layers) {
    note_weights(layer.projection);
    note_weights(layer.product);
  }
  return Create(std::move(products), gpu, plans);
}

Status ProductPlans::Create(std::vector<Plan> products, const std::shared_ptr<Gpu>& gpu,
                            std::unique_ptr<ProductPlans>* plans) {
  GpuStream stream;
  SRU_RETURN_IF_ERROR(GpuStream::Create(gpu, &stream));
  for (Plan& plan : products) {
    Trial trial(plan.shape, plan.weights, kReferenceRows, gpu, *stream);
    SRU_RETURN_IF_ERROR(trial.Prepare());
    SRU_RETURN_IF_ERROR(ChooseBits(plan.shape, *gpu, trial, &plan.same_bits));
    if (plan.same_bits.empty()) {
      return Unsupported("product of ", plan.shape.k, " by ", plan.shape.n,
                         ": the library has no algorithm whose results do not depend on the batch");
    }
  }
  plans->reset(new ProductPlans(gpu, std::move(products)));
  return OkStatus();
}

Status ProductPlans::Choose(const std::vector<int>& row_counts, Stream& stream,
                            std::vector<std::vector<ProductChoice>>* choices) {
  const MutexLock lock(&mutex_);
  std::vector<std::vector<ProductChoice>> chosen;
  tried_.resize(plans_.size());
  for (size_t shape = 0; shape < plans_.size(); ++shape) {
    const Plan& plan = plans_[shape];
    std::map<int, std::optional<ProductAlgorithm>>& tried = tried_[shape];
    const bool known = std::all_of(row_counts.begin(), row_counts.end(),
                                   [&](int rows) { return tried.count(rows) > 0; });
    if (!known) {
      Trial trial(plan.shape, plan.weights, row_counts.back(), gpu_, stream);
      SRU_RETURN_IF_ERROR(trial.Prepare());
      SRU_RETURN_IF_ERROR(trial.Expect(plan.reference()));
      for (int rows : row_counts) {
        if (tried.count(rows) > 0) continue;
        const bool timed = rows <= kMaxTimedRows;
        std::vector<ProductAlgorithm> candidates;
        SRU_RETURN_IF_ERROR(gpu_->device().ProductCandidates(
            plan.shape, rows, timed ? kTimedCandidates : kBucketCandidates, &candidates));
        for (const ProductAlgorithm& same : plan.same_bits) {
          if ((timed || same == plan.reference()) && !Has(candidates, same)) {
            candidates.push_back(same);
          }
        }
        if (rows <= kMaxSkinnyRows && gpu_->own_products()) {
          candidates.insert(candidates.begin(), kOwnProduct);
        }
        std::optional<ProductAlgorithm> passed;
        double least = 0;
        for (const ProductAlgorithm& candidate : candidates) {
          bool passes = false;
          SRU_RETURN_IF_ERROR(trial.Passes(candidate, rows, &passes));
          if (!passes) continue;
          if (!passed.has_value()) {
            passed = candidate;
            if (!timed) break;
            SRU_RETURN_IF_ERROR(trial.Time(candidate, rows, &least));
            if (least < kFastEnough) break;
            continue;
          }
          double seconds = 0;
          SRU_RETURN_IF_ERROR(trial.Time(candidate, rows, &seconds));
          if (seconds < least) {
            least = seconds;
            passed = candidate;
          }
        }
        tried[rows] = passed;
      }
    }
    // From the largest on, so that a bucket without an algorithm takes its larger neighbour's.
    std::vector<ProductChoice> of_shape(row_counts.size() - 1);
    std::optional<ProductChoice> larger;
    for (size_t i = row_counts.size(); i-- > 0;) {
      if (const auto& algorithm = tried[row_counts[i]]; algorithm.has_value()) {
        larger = ProductChoice{row_counts[i], *algorithm};
      }
      if (i == of_shape.size()) continue;
      if (!larger.has_value()) {
        return Unsupported("product of ", plan.shape.k, " by ", plan.shape.n, " with ",
                           row_counts[i],
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
