#include "kernels/bench/bare_product.h"

#include <omp.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/cpu/isa/cpu_isa.h"

namespace sru::kernels {
namespace {

using dnnl::memory;

memory::desc RowMajor(int rows, int columns, memory::data_type type) {
  return memory::desc({rows, columns}, type, memory::format_tag::ab);
}

dnnl::matmul::primitive_desc Describe(const dnnl::engine& engine, const memory::desc& x,
                                      const memory::desc& w, const memory::desc& y) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine, x, w, y);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, w, y), engine);
#endif
}

// `rows` x `columns` random values in the layout `description`.
memory Random(const dnnl::engine& engine, dnnl::stream& stream, const memory::desc& description,
              int rows, int columns) {
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  std::vector<float> values(static_cast<size_t>(rows) * columns);
  std::generate(values.begin(), values.end(), [&] { return uniform(random); });
  memory plain(RowMajor(rows, columns, memory::data_type::f32), engine, values.data());
  memory result(description, engine);
  dnnl::reorder(plain, result).execute(stream, plain, result);
  stream.wait();
  return result;
}

// oneDNN does not multiply float32 rows by weights of other types, nor bfloat16 on processors that
// lack its instructions, where the backend multiplies float32, too.
memory::data_type TypeOf(DataType dtype) {
  const bool bfloat16 = dtype == DataType::kBFloat16 && cpu::HasAvx512Bf16();
  return bfloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

}  // namespace

BareProducts::BareProducts(DataType dtype, const std::vector<ProductSize>& sizes)
    : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
  omp_set_num_threads(1);
  const memory::data_type type = TypeOf(dtype);
  std::map<std::tuple<int, int, int>, Product> of_shape;  // by rows, k, n; without weights
  for (const auto& [rows, k, n] : sizes) {
    const memory::desc x = RowMajor(rows, k, type);
    const memory::desc y = RowMajor(rows, n, memory::data_type::f32);
    const auto description =
        Describe(engine_, x, memory::desc({k, n}, type, memory::format_tag::any), y);
    const auto [shape, is_new] = of_shape.try_emplace({rows, k, n});
    if (is_new) {
      shape->second = {dnnl::matmul(description),
                       {{DNNL_ARG_SRC, Random(engine_, stream_, x, rows, k)},
                        {DNNL_ARG_DST, memory(y, engine_)}}};
    }
    products_.push_back(shape->second);
    products_.back().arguments[DNNL_ARG_WEIGHTS] =
        Random(engine_, stream_, description.weights_desc(), k, n);
  }
}

void BareProducts::Run() {
  omp_set_num_threads(1);
  for (const Product& product : products_) {
    product.primitive.execute(stream_, product.arguments);
    stream_.wait();
  }
}

}  // namespace sru::kernels
