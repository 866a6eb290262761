#include "kernels/cpu/stacks/product.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "kernels/cpu/base/bfloat16_rows.h"

namespace sru::kernels::cpu {
namespace {

using dnnl::memory;

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

dnnl::matmul::primitive_desc Describe(const dnnl::engine& engine, ProductType type, int rows, int k,
                                      int n, const memory::desc& weights) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine, RowMajor(rows, k, type), weights, RowMajor(rows, n),
                                      attributes);
#else
  return dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(RowMajor(rows, k, type), weights, RowMajor(rows, n)), attributes, engine);
#endif
}

// Multiplies equal rows by random weights: row counts are usable together if all rows of all of
// their results have the same bits.
class RowProbe {
 public:
  RowProbe(const dnnl::engine& engine, const ProductShape& shape, int max_rows)
      : engine_(engine),
        type_(shape.type),
        k_(shape.k),
        n_(shape.n),
        weights_(shape.packed_weights, engine),
        x_(static_cast<size_t>(max_rows) * k_),
        y_(static_cast<size_t>(max_rows) * n_),
        rounded_(x_.size()) {
    std::minstd_rand random(1);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    std::generate_n(x_.data(), k_, [&] { return uniform(random); });
    for (int row = 1; row < max_rows; ++row) {
      std::copy_n(x_.data(), k_, x_.data() + static_cast<size_t>(row) * k_);
    }
    ToBFloat16Row(x_.data(), x_.size(), rounded_.data());
    AlignedBuffer values(static_cast<size_t>(k_) * n_);
    std::generate_n(values.data(), values.size(), [&] { return uniform(random); });
    memory plain(RowMajor(k_, n_), engine_, values.data());
    dnnl::stream stream(engine_);
    dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
    stream.wait();
  }

  // The first row count whose own rows agree sets what the others are compared with.
  bool Agrees(const ProductShape::Bucket& bucket) {
    dnnl::stream stream(engine_);
    bucket.primitive.execute(
        stream, {{DNNL_ARG_SRC, memory(RowMajor(bucket.rows, k_, type_), engine_, Source())},
                 {DNNL_ARG_WEIGHTS, weights_},
                 {DNNL_ARG_DST, memory(RowMajor(bucket.rows, n_), engine_, y_.data())},
                 {DNNL_ARG_SCRATCHPAD, memory(bucket.description.scratchpad_desc(), engine_)}});
    stream.wait();
    const size_t bytes = n_ * sizeof(float);
    const float* expected = expected_.empty() ? y_.data() : expected_.data();
    for (int row = 0; row < bucket.rows; ++row) {
      if (std::memcmp(expected, y_.data() + static_cast<size_t>(row) * n_, bytes) != 0) {
        return false;
      }
    }
    if (expected_.empty()) expected_.assign(y_.data(), y_.data() + n_);
    return true;
  }

 private:
  void* Source() {
    if (type_ == ProductType::kBFloat16) return rounded_.data();
    return x_.data();
  }

  dnnl::engine engine_;
  ProductType type_;
  int k_;
  int n_;
  memory weights_;
  AlignedBuffer x_;
  AlignedBuffer y_;
  AlignedArray<BFloat16> rounded_;
  std::vector<float> expected_;
};

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

ProductShapes::ProductShapes(ProductType type) : type_(type), engine_(dnnl::engine::kind::cpu, 0) {}

std::shared_ptr<const ProductShape> ProductShapes::Get(int k, int n,
                                                       const std::vector<int>& row_counts) {
  std::shared_ptr<const ProductShape>& entry = shapes_[std::make_tuple(k, n, row_counts)];
  if (entry != nullptr) return entry;
  auto shape = std::make_shared<ProductShape>();
  shape->type = type_;
  shape->k = k;
  shape->n = n;
  shape->max_rows = row_counts.back();
  if (type_ == ProductType::kInt8) {
    entry = std::move(shape);
    return entry;
  }
  // The largest row count chooses the packed layout, the others have to accept it.
  const memory::desc any({k, n}, DataTypeOf(type_), memory::format_tag::any);
  shape->packed_weights = Describe(engine_, type_, row_counts.back(), k, n, any).weights_desc();

  RowProbe probe(engine_, *shape, row_counts.back());
  for (auto rows = row_counts.rbegin(); rows != row_counts.rend(); ++rows) {
    auto description = Describe(engine_, type_, *rows, k, n, shape->packed_weights);
    ProductShape::Bucket bucket{*rows, description, dnnl::matmul(description)};
    const bool usable = probe.Agrees(bucket);
    if (usable || (shape->buckets.empty() && std::next(rows) == row_counts.rend())) {
      shape->buckets.push_back(std::move(bucket));
    }
  }
  std::reverse(shape->buckets.begin(), shape->buckets.end());
  shape->max_rows = shape->buckets.back().rows;
  entry = std::move(shape);
  return entry;
}

Product::Product(ProductShapes& shapes, const float* weights, int k, int n,
                 const std::vector<int>& row_counts)
    : shape_(shapes.Get(k, n, row_counts)), engine_(shapes.engine()) {
  if (shape_->type == ProductType::kInt8) {
    int8_weights_ = Int8Matrix(weights, k, n);
    return;
  }
  weights_ = memory(shape_->packed_weights, engine_);
  memory plain(RowMajor(k, n), engine_, const_cast<float*>(weights));
  dnnl::stream stream(engine_);
  dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
  stream.wait();
}

ProductRunner::ProductRunner(const Product& product)
    : ProductRunner(product.shape(), product.engine()) {
  if (product.shape().type == ProductType::kBFloat16) {
    rounded_ = AlignedArray<BFloat16>(static_cast<size_t>(product.max_rows()) * k_);
  }
  if (product.shape().type == ProductType::kInt8) int8_ = &product.int8_weights();
  // Executing does not write to the weights, so that workers share one memory object.
  for (Call& call : calls_) call.arguments[DNNL_ARG_WEIGHTS] = product.weights();
}

ProductRunner::ProductRunner(const ProductShape& shape, const dnnl::engine& engine)
    : stream_(engine), k_(shape.k) {
  for (const ProductShape::Bucket& bucket : shape.buckets) {
    Call call{bucket.primitive,
              bucket.rows,
              memory(RowMajor(bucket.rows, shape.k, shape.type), engine, DNNL_MEMORY_NONE),
              memory(RowMajor(bucket.rows, shape.n), engine, DNNL_MEMORY_NONE),
              {}};
    call.arguments = {{DNNL_ARG_SRC, call.x},
                      {DNNL_ARG_DST, call.y},
                      {DNNL_ARG_SCRATCHPAD, memory(bucket.description.scratchpad_desc(), engine)}};
    call_of_.resize(bucket.rows + 1, static_cast<uint8_t>(calls_.size()));
    calls_.push_back(std::move(call));
  }
}

void ProductRunner::Run(const float* x, int rows, float* y) {
  if (int8_ != nullptr) return int8_->Multiply(x, rows, y);
  if (rounded_.size() == 0) return Execute(const_cast<float*>(x), rows, y);
  ToBFloat16Row(x, rows * k_, rounded_.data());
  Execute(rounded_.data(), rows, y);
}

void ProductRunner::Run(const BFloat16* x, int rows, float* y) {
  Execute(const_cast<BFloat16*>(x), rows, y);
}

void ProductRunner::Run(const Product& product, const float* x, int rows, float* y) {
  if (product.shape().type == ProductType::kInt8)
    return product.int8_weights().Multiply(x, rows, y);
  calls_[call_of_[rows]].arguments[DNNL_ARG_WEIGHTS] = product.weights();
  Execute(const_cast<float*>(x), rows, y);
}

void ProductRunner::Run(const Product& product, const BFloat16* x, int rows, float* y) {
  calls_[call_of_[rows]].arguments[DNNL_ARG_WEIGHTS] = product.weights();
  Execute(const_cast<BFloat16*>(x), rows, y);
}

void ProductRunner::Execute(void* x, int rows, float* y) {
  Call& call = calls_[call_of_[rows]];
  call.x.set_data_handle(x);
  call.y.set_data_handle(y);
  call.primitive.execute(stream_, call.arguments);
}

}  // namespace sru::kernels::cpu
