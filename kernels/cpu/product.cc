#include "kernels/cpu/product.h"

#include <algorithm>

namespace sru::kernels {
namespace {

using dnnl::memory;

memory::desc RowMajor(int rows, int columns) {
  return memory::desc({rows, columns}, memory::data_type::f32, memory::format_tag::ab);
}

dnnl::matmul::primitive_desc Describe(const dnnl::engine& engine, int rows, int k, int n,
                                      const memory::desc& weights) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine, RowMajor(rows, k), weights, RowMajor(rows, n),
                                      attributes);
#else
  return dnnl::matmul::primitive_desc(
      dnnl::matmul::desc(RowMajor(rows, k), weights, RowMajor(rows, n)), attributes, engine);
#endif
}

}  // namespace

std::vector<int> RowBuckets(int max_rows) {
  std::vector<int> buckets;
  // About a quarter of a power of two apart: at most a fifth of the rows is wasted.
  for (int step = 1, rows = 1; rows < max_rows; rows += step) {
    buckets.push_back(rows);
    if (rows >= 8 * step) step *= 2;
  }
  buckets.push_back(max_rows);
  return buckets;
}

ProductShapes::ProductShapes() : engine_(dnnl::engine::kind::cpu, 0) {}

std::shared_ptr<const ProductShape> ProductShapes::Get(int k, int n, int max_rows) {
  std::shared_ptr<const ProductShape>& entry = shapes_[std::make_tuple(k, n, max_rows)];
  if (entry != nullptr) return entry;
  auto shape = std::make_shared<ProductShape>();
  shape->k = k;
  shape->n = n;
  // The largest bucket chooses the packed layout, the others have to accept it.
  const memory::desc any({k, n}, memory::data_type::f32, memory::format_tag::any);
  shape->packed_weights = Describe(engine_, max_rows, k, n, any).weights_desc();
  for (int rows : RowBuckets(max_rows)) {
    auto description = Describe(engine_, rows, k, n, shape->packed_weights);
    shape->buckets.push_back({rows, description, dnnl::matmul(description)});
  }
  entry = std::move(shape);
  return entry;
}

Product::Product(ProductShapes& shapes, const float* weights, int k, int n, int max_rows)
    : shape_(shapes.Get(k, n, max_rows)),
      engine_(shapes.engine()),
      weights_(shape_->packed_weights, engine_) {
  memory plain(RowMajor(k, n), engine_, const_cast<float*>(weights));
  dnnl::stream stream(engine_);
  dnnl::reorder(plain, weights_).execute(stream, plain, weights_);
  stream.wait();
}

ProductRunner::ProductRunner(const Product& product) : stream_(product.engine()) {
  const ProductShape& shape = product.shape();
  for (const ProductShape::Bucket& bucket : shape.buckets) {
    Call call{bucket.primitive,
              bucket.rows,
              memory(RowMajor(bucket.rows, shape.k), product.engine(), DNNL_MEMORY_NONE),
              memory(RowMajor(bucket.rows, shape.n), product.engine(), DNNL_MEMORY_NONE),
              {}};
    // Executing does not write to the weights, so that workers share one memory object.
    call.arguments = {
        {DNNL_ARG_SRC, call.x},
        {DNNL_ARG_WEIGHTS, product.weights()},
        {DNNL_ARG_DST, call.y},
        {DNNL_ARG_SCRATCHPAD, memory(bucket.description.scratchpad_desc(), product.engine())}};
    call_of_.resize(bucket.rows + 1, static_cast<uint8_t>(calls_.size()));
    calls_.push_back(std::move(call));
  }
}

void ProductRunner::Run(const float* x, int rows, float* y) {
  Call& call = calls_[call_of_[rows]];
  call.x.set_data_handle(const_cast<float*>(x));
  call.y.set_data_handle(y);
  call.primitive.execute(stream_, call.arguments);
}

}  // namespace sru::kernels
