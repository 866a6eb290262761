#include "kernels/cpu/stacks/product.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <string>
#include <tuple>

#include "kernels/common/row_probe.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/mutex.h"

namespace sru::kernels::cpu {
namespace {

using dnnl::memory;

const dnnl::engine& Engine() {
  static const auto& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::data_type DataTypeOf(ProductType type) {
  switch (type) {
    case ProductType::kFloat32:
      return memory::data_type::f32;
    case ProductType::kBFloat16:
      return memory::data_type::bf16;
    case ProductType::kInt8:  // not oneDNN's
      break;
  }
  return memory::data_type::undef;
}

memory::desc RowMajor(int rows, int columns, ProductType type = ProductType::kFloat32) {
  return memory::desc({rows, columns}, DataTypeOf(type), memory::format_tag::ab);
}

// What the library can compute the product with, the best first. Throws if there is nothing, unless
// it may be.
std::vector<dnnl::matmul::primitive_desc> Offers(ProductType type, int rows, int k, int n,
                                                 const memory::desc& weights, bool may_be_none) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc offer(Engine(), RowMajor(rows, k, type), weights, RowMajor(rows, n),
                                     attributes, may_be_none);
#else
  // next_impl() reads it.
  const dnnl::matmul::desc product(RowMajor(rows, k, type), weights, RowMajor(rows, n));
  dnnl::matmul::primitive_desc offer(product, attributes, Engine(), may_be_none);
#endif
  std::vector<dnnl::matmul::primitive_desc> offers;
  if (!offer) return offers;
  do {
    offers.emplace_back(offer.get());  // a copy
  } while (offer.next_impl());
  return offers;
}

// Multiplies rows that differ by random weights: row counts are usable together if a row has the
// same bits in all of them.
class ShapeTrial {
 public:
  explicit ShapeTrial(const ProductShape& shape)
      : shape_(shape),
        stream_(Engine()),
        weights_(shape.packed_weights, Engine()),
        rows_(shape.k, shape.n, shape.max_rows),
        rounded_(static_cast<size_t>(shape.max_rows) * shape.k) {
    std::vector<float> values =
        RowProbe::Values(static_cast<size_t>(shape.k) * shape.n, /*seed=*/2, /*spread=*/true);
    memory plain(RowMajor(shape.k, shape.n), Engine(), values.data());
    dnnl::reorder(plain, weights_).execute(stream_, plain, weights_);
    stream_.wait();
  }

  bool Agrees(const ProductShape::Bucket& bucket) {
    const bool rounds = shape_.type == ProductType::kBFloat16;
    void* const x = rounds ? static_cast<void*>(rounded_.data()) : rows_.x();
    const std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, memory(RowMajor(bucket.rows, shape_.k, shape_.type), Engine(), x)},
        {DNNL_ARG_WEIGHTS, weights_},
        {DNNL_ARG_DST, memory(RowMajor(bucket.rows, shape_.n), Engine(), rows_.y())},
        {DNNL_ARG_SCRATCHPAD, memory(bucket.description.scratchpad_desc(), Engine())}};
    return rows_.Agrees(bucket.rows, [&] {
      const size_t values = static_cast<size_t>(bucket.rows) * shape_.k;
      if (rounds) ToBFloat16Row(rows_.x(), values, rounded_.data());
      bucket.primitive.execute(stream_, arguments);
    });
  }

 private:
  const ProductShape& shape_;
  dnnl::stream stream_;
  memory weights_;
  RowTrial rows_;
  AlignedArray<BFloat16> rounded_;
};

// The primitives of the implementation that `largest`, a product of the last of the row counts, is
// made with, and its packed layout.
ProductShape MakePrimitives(ProductType type, int k, int n, const std::vector<int>& row_counts,
                            const dnnl::matmul::primitive_desc& largest) {
  ProductShape shape{type, k, n, row_counts.back(), largest.weights_desc(), {}};
  const std::string implementation = largest.impl_info_str();
  ShapeTrial trial(shape);
  for (auto rows = row_counts.rbegin(); rows != row_counts.rend(); ++rows) {
    const auto offers = Offers(type, *rows, k, n, shape.packed_weights, true);
    const auto same = std::find_if(offers.begin(), offers.end(), [&](const auto& offer) {
      return offer.impl_info_str() == implementation;
    });
    if (same == offers.end()) continue;
    ProductShape::Bucket bucket{*rows, *same, dnnl::matmul(*same)};
    const bool usable = trial.Agrees(bucket);
    if (usable || (shape.buckets.empty() && std::next(rows) == row_counts.rend())) {
      shape.buckets.push_back(std::move(bucket));
    }
  }
  std::reverse(shape.buckets.begin(), shape.buckets.end());
  return shape;
}

// Whether a product of any number of rows takes little more than that of as many as there are.
bool ServesAll(const ProductShape& shape) {
  constexpr int kMostRowsForOne = 8;
  return !shape.buckets.empty() && shape.buckets.front().rows <= kMostRowsForOne &&
         shape.buckets.back().rows == shape.max_rows;
}

std::shared_ptr<const ProductShape> ShapeOf(ProductType type, int k, int n,
                                            const std::vector<int>& row_counts) {
  using Key = std::tuple<ProductType, int, int, std::vector<int>>;
  static Mutex& mutex = *new Mutex;
  static auto& shapes = *new std::map<Key, std::weak_ptr<const ProductShape>>;
  const MutexLock lock(&mutex);
  std::weak_ptr<const ProductShape>& entry = shapes[Key(type, k, n, row_counts)];
  if (std::shared_ptr<const ProductShape> known = entry.lock()) return known;
  auto shape = std::make_shared<ProductShape>();
  shape->type = type;
  shape->k = k;
  shape->n = n;
  shape->max_rows = row_counts.back();
  if (type == ProductType::kInt8) {
    entry = shape;
    return shape;
  }
  // The largest row count says which implementations there are, the best first.
  const memory::desc any({k, n}, DataTypeOf(type), memory::format_tag::any);
  for (const auto& offer : Offers(type, row_counts.back(), k, n, any, false)) {
    if (ServesAll(*shape)) break;
    // Right, and slower by a factor of a hundred.
    if (std::strncmp(offer.impl_info_str(), "ref", 3) == 0 && !shape->buckets.empty()) break;
    ProductShape other = MakePrimitives(type, k, n, row_counts, offer);
    if (ServesAll(other) || shape->buckets.empty()) *shape = std::move(other);
  }
  shape->max_rows = shape->buckets.back().rows;
  entry = shape;
  return shape;
}

}  // namespace

std::vector<int> RowBuckets(int max_rows) {
  std::vector<int> buckets;
  // Four to a power of two, and every count up to eight: at most a fifth of the rows is wasted.
  for (int step = 1, rows = 1; rows < max_rows; rows += step) {
    buckets.push_back(rows);
    if (rows == 8 * step) step *= 2;
  }
  buckets.push_back(max_rows);
  return buckets;
}

Product::Product(ProductType type, const float* weights, int k, int n,
                 const std::vector<int>& row_counts)
    : shape_(ShapeOf(type, k, n, row_counts)) {
  if (shape_->type == ProductType::kInt8) {
    int8_weights_ = Int8Matrix(weights, k, n);
    return;
  }
  weights_ = memory(shape_->packed_weights, Engine());
  memory plain(RowMajor(k, n), Engine(), const_cast<float*>(weights));
  dnnl::stream stream(Engine());
  dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
  stream.wait();
}

ProductRunner::ProductRunner(const ProductShape& shape) : stream_(Engine()) {
  size_t scratchpad_bytes = 1;
  for (const ProductShape::Bucket& bucket : shape.buckets) {
    scratchpad_bytes = std::max(scratchpad_bytes, bucket.description.scratchpad_desc().get_size());
  }
  scratchpad_ = AlignedArray<uint8_t>(scratchpad_bytes);
  for (const ProductShape::Bucket& bucket : shape.buckets) {
    call_of_.resize(bucket.rows + 1, static_cast<uint8_t>(calls_.size()));
    calls_.push_back({bucket.primitive, bucket.rows, {}, {}, {}});
  }
}

void ProductRunner::Run(const Product& product, const float* x, int rows, float* y) {
  if (product.shape().type == ProductType::kInt8) {
    product.int8_weights().Multiply(x, rows, y);
  } else {
    Execute(product, const_cast<float*>(x), rows, y);
  }
}

void ProductRunner::Run(const Product& product, const BFloat16* x, int rows, float* y) {
  Execute(product, const_cast<BFloat16*>(x), rows, y);
}

void ProductRunner::Execute(const Product& product, void* x, int rows, float* y) {
  const size_t index = call_of_[rows];
  Call& call = calls_[index];
  // Made when the row count comes for the first time: those of all would take more memory than what
  // they multiply.
  if (call.arguments.empty()) {
    const ProductShape& shape = product.shape();
    call.x = memory(RowMajor(call.rows, shape.k, shape.type), Engine(), DNNL_MEMORY_NONE);
    call.y = memory(RowMajor(call.rows, shape.n), Engine(), DNNL_MEMORY_NONE);
    const memory scratchpad(shape.buckets[index].description.scratchpad_desc(), Engine(),
                            scratchpad_.data());
    call.arguments = {
        {DNNL_ARG_SRC, call.x}, {DNNL_ARG_DST, call.y}, {DNNL_ARG_SCRATCHPAD, scratchpad}};
  }
  // Executing does not write to the weights, so that workers share one memory object.
  call.arguments[DNNL_ARG_WEIGHTS] = product.weights();
  call.x.set_data_handle(x);
  call.y.set_data_handle(y);
  call.primitive.execute(stream_, call.arguments);
}

}  // namespace sru::kernels::cpu
