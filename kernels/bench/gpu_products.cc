#include "kernels/bench/gpu_products.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/cuda/stack/product_plan.h"

namespace sru::kernels::cuda {
namespace {

constexpr size_t kCandidates = 8;
constexpr int kMostRows = kReferenceRows;

// x, weights and results of one shape.
struct Operands {
  DeviceBuffer x, weights, y, evicting;
};

// Random values of the shape's type.
Status Fill(const std::shared_ptr<Gpu>& gpu, Stream& stream, DataType dtype, size_t size,
            DeviceBuffer* buffer) {
  return WithStorageType(dtype, [&](auto type) -> Status {
    using T = decltype(type);
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<T> values(size);
    for (T& value : values) {
      value = FromFloat<T>(static_cast<float>(random()) * 0x1p-31f - 1.0f);
    }
    SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu, size * sizeof(T), buffer));
    return RunWork(stream, [&] {
      return stream.CopyToDevice(buffer->data(), values.data(), size * sizeof(T));
    });
  });
}

// The results, or none where the algorithm refuses the shape.
std::vector<uint8_t> Results(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                             const Operands& operands, Stream& stream) {
  std::vector<uint8_t> results(static_cast<size_t>(rows) * shape.n *
                               ValueBytes(shape.result_dtype()));
  const Status status = RunWork(stream, [&]() -> Status {
    SRU_RETURN_IF_ERROR(stream.Multiply(shape, algorithm, rows, operands.x.data(),
                                        operands.weights.data(), operands.y.data()));
    return stream.CopyToHost(results.data(), operands.y.data(), results.size());
  });
  if (!status.ok()) results.clear();
  return results;
}

Status PrintShape(const std::shared_ptr<Gpu>& gpu, Stream& stream, const ProductShape& shape) {
  Operands operands;
  const size_t k = shape.k;
  const size_t n = shape.n;
  SRU_RETURN_IF_ERROR(Fill(gpu, stream, shape.dtype, kMostRows * k, &operands.x));
  SRU_RETURN_IF_ERROR(Fill(gpu, stream, shape.dtype, n * k, &operands.weights));
  SRU_RETURN_IF_ERROR(
      DeviceBuffer::Create(gpu, kMostRows * n * ValueBytes(shape.result_dtype()), &operands.y));
  SRU_RETURN_IF_ERROR(DeviceBuffer::Create(gpu, gpu->device().cache_bytes(), &operands.evicting));
  std::unique_ptr<ProductPlans> plans;
  SRU_RETURN_IF_ERROR(ProductPlans::Create({{shape, operands.weights.data(), {}}}, gpu, &plans));
  PackedProduct product;
  product.shape = 0;
  const ProductAlgorithm reference = plans->reference(product);
  const auto time = [&](const ProductAlgorithm& algorithm, int rows) {
    double seconds = NAN;
    const Status status = stream.TimeProduct(
        shape, algorithm, rows, operands.x.data(), operands.weights.data(), operands.y.data(),
        {operands.evicting.data(), operands.evicting.bytes()}, &seconds);
    return status.ok() ? seconds * 1e6 : NAN;
  };
  for (const int rows : {16, 32, 48, 64, 128, 160, kMostRows}) {
    const std::vector<uint8_t> expected = Results(shape, reference, rows, operands, stream);
    std::vector<ProductAlgorithm> library;
    SRU_RETURN_IF_ERROR(gpu->device().ProductCandidates(shape, rows, kCandidates, &library));
    library.push_back(reference);
    double fastest = HUGE_VAL;
    double any = HUGE_VAL;
    for (const ProductAlgorithm& algorithm : library) {
      const double us = time(algorithm, rows);
      if (!std::isnan(us)) any = std::min(any, us);
      if (Results(shape, algorithm, rows, operands, stream) == expected && us < fastest) {
        fastest = us;
      }
    }
    const ProductAlgorithm own = {true, {}};
    const bool same = Results(shape, own, rows, operands, stream) == expected;
    std::printf(
        "{\"k\": %d, \"n\": %d, \"dtype\": \"%s\", \"result\": \"%s\", \"rows\": %d, "
        "\"own_us\": %.2f, \"same_bits\": %s, \"library_us\": %.2f, \"any_bits_us\": %.2f}\n",
        shape.k, shape.n, DataTypeName(shape.dtype), DataTypeName(shape.result_dtype()), rows,
        time(own, rows), same ? "true" : "false", fastest, any);
    std::fflush(stdout);
  }
  return OkStatus();
}

}  // namespace

Status PrintProducts(const std::shared_ptr<Gpu>& gpu) {
  GpuStream stream;
  SRU_RETURN_IF_ERROR(GpuStream::Create(gpu, &stream));
  // The translator's, its vocabulary, the language model's, a reader's layer and a classifier's.
  const std::pair<int, int> shapes[] = {{512, 1536}, {512, 512},   {512, 8192},
                                        {2048, 512}, {512, 32000}, {512, 6144},
                                        {2048, 256}, {256, 1024},  {128, 384}};
  for (const auto& [k, n] : shapes) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      // The vocabulary's logits are float32, as is what follows layers of a program.
      const bool float32_result = n == 32000 || n == 256;
      SRU_RETURN_IF_ERROR(PrintShape(gpu, *stream, {k, n, dtype, float32_result}));
    }
  }
  return OkStatus();
}

}  // namespace sru::kernels::cuda
