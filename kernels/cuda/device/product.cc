#include "kernels/cuda/device/product.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {
namespace {

static_assert(sizeof(ProductAlgorithm::data) == sizeof(cublasLtMatmulAlgo_t),
              "one holds the other");

// A handle of the library, destroyed with the object.
template <typename Handle, cublasStatus_t (*CublasLt::*kDestroy)(Handle)>
class Owned {
 public:
  explicit Owned(const CublasLt& library) : library_(library) {}
  ~Owned() {
    if (handle_ != nullptr) (library_.*kDestroy)(handle_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Handle get() const { return handle_; }
  Handle* address() { return &handle_; }

 private:
  const CublasLt& library_;
  Handle handle_ = nullptr;
};

constexpr cudaDataType_t TypeOf(float /*value*/) { return CUDA_R_32F; }
constexpr cudaDataType_t TypeOf(BFloat16 /*value*/) { return CUDA_R_16BF; }
cudaDataType_t TypeOf(DataType dtype) {
  return WithStorageType(dtype, [](auto value) { return TypeOf(value); });
}

// A product's descriptors. The library is column-major, so y^T = w x^T is what it is asked for,
// with w [n][k] read as the transpose of a k by n matrix.
struct Description {
  explicit Description(const CublasLt& library)
      : operation(library), weights(library), x(library), y(library) {}

  using Layout = Owned<cublasLtMatrixLayout_t, &CublasLt::MatrixLayoutDestroy>;
  Owned<cublasLtMatmulDesc_t, &CublasLt::MatmulDescDestroy> operation;
  Layout weights;
  Layout x;
  Layout y;

  cublasStatus_t Fill(const CublasLt& library, const ProductShape& shape, int rows) {
    const cudaDataType_t type = TypeOf(shape.dtype);
    const cudaDataType_t result_type = TypeOf(shape.result_dtype());
    const cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    const cublasOperation_t transpose = CUBLAS_OP_T;
    const uint64_t k = shape.k;
    const uint64_t n = shape.n;
    cublasStatus_t status = library.MatmulDescCreate(operation.address(), compute, CUDA_R_32F);
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = library.MatmulDescSetAttribute(operation.get(), CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transpose, sizeof(transpose));
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = library.MatrixLayoutCreate(weights.address(), type, k, n, shape.k);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = library.MatrixLayoutCreate(x.address(), type, k, rows, shape.k);
    }
    if (status == CUBLAS_STATUS_SUCCESS) {
      status = library.MatrixLayoutCreate(y.address(), result_type, n, rows, shape.n);
    }
    return status;
  }
};

}  // namespace

Status ProductRunner::Check(cublasStatus_t status, const char* call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return OkStatus();
  return Internal(call, ": ", library_.GetStatusString(status));
}

Status ProductRunner::Create(const CublasLt& library, void* workspace, size_t workspace_bytes,
                             std::unique_ptr<ProductRunner>* runner) {
  std::unique_ptr<ProductRunner> created(new ProductRunner(library, workspace, workspace_bytes));
  Status status = created->Check(library.Create(&created->handle_), "cublasLtCreate");
  if (status.ok()) *runner = std::move(created);
  return status;
}

ProductRunner::~ProductRunner() {
  if (handle_ != nullptr) library_.Destroy(handle_);
}

Status ProductRunner::Candidates(const ProductShape& shape, int rows, size_t max_count,
                                 std::vector<ProductAlgorithm>* candidates) {
  candidates->clear();
  Description description(library_);
  SRU_RETURN_IF_ERROR(Check(description.Fill(library_, shape, rows), "describing a product"));
  Owned<cublasLtMatmulPreference_t, &CublasLt::MatmulPreferenceDestroy> preference(library_);
  const uint64_t workspace_bytes = workspace_bytes_;
  const uint32_t no_reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  SRU_RETURN_IF_ERROR(Check(library_.MatmulPreferenceCreate(preference.address()), "preference"));
  SRU_RETURN_IF_ERROR(Check(library_.MatmulPreferenceSetAttribute(
                                preference.get(), CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                &workspace_bytes, sizeof(workspace_bytes)),
                            "preference of the workspace"));
  SRU_RETURN_IF_ERROR(Check(library_.MatmulPreferenceSetAttribute(
                                preference.get(), CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                &no_reduction, sizeof(no_reduction)),
                            "preference of the reduction"));
  std::vector<cublasLtMatmulHeuristicResult_t> results(max_count);
  int count = 0;
  const cublasStatus_t found = library_.MatmulAlgoGetHeuristic(
      handle_, description.operation.get(), description.weights.get(), description.x.get(),
      description.y.get(), description.y.get(), preference.get(), static_cast<int>(max_count),
      results.data(), &count);
  if (found == CUBLAS_STATUS_NOT_SUPPORTED) return OkStatus();  // no candidate
  SRU_RETURN_IF_ERROR(Check(found, "cublasLtMatmulAlgoGetHeuristic"));
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[i];
    if (result.state != CUBLAS_STATUS_SUCCESS || result.workspaceSize > workspace_bytes_) {
      continue;
    }
    // The mask forbids it already; a split sum must not come in by another way.
    int32_t splits = 1;
    size_t written = 0;
    const cublasStatus_t read = library_.MatmulAlgoConfigGetAttribute(
        &result.algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits, sizeof(splits), &written);
    if (read == CUBLAS_STATUS_SUCCESS && splits > 1) continue;
    ProductAlgorithm algorithm;
    std::copy(std::begin(result.algo.data), std::end(result.algo.data), algorithm.data);
    candidates->push_back(algorithm);
  }
  return OkStatus();
}

Status ProductRunner::Run(const ProductShape& shape, const ProductAlgorithm& algorithm, int rows,
                          const void* x, const void* weights, void* y, cudaStream_t stream) {
  Description description(library_);
  SRU_RETURN_IF_ERROR(Check(description.Fill(library_, shape, rows), "describing a product"));
  cublasLtMatmulAlgo_t algo;
  std::copy(std::begin(algorithm.data), std::end(algorithm.data), algo.data);
  const float one = 1.0f;
  const float zero = 0.0f;
  return Check(library_.Matmul(handle_, description.operation.get(), &one, weights,
                               description.weights.get(), x, description.x.get(), &zero, y,
                               description.y.get(), y, description.y.get(), &algo, workspace_,
                               workspace_bytes_, stream),
               "cublasLtMatmul");
}

}  // namespace sru::kernels::cuda
