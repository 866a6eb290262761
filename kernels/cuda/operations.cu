#include <variant>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/operation_launch.cuh"

namespace sru::kernels::cuda {

namespace {

template <int kThreads, bool kPicks>
cudaError_t LoadPredictKernel() {
  return LoadKernel(PredictKernel<kThreads, kPicks>, sizeof(PredictShared<kThreads>));
}

}  // namespace

cudaError_t LoadOperationKernels() {
  for (const cudaError_t error : {LoadKernel(CopyRowsKernel<float>),
                                  LoadKernel(CopyRowsKernel<BFloat16>),
                                  LoadKernel(EmbedRowsKernel<float>),
                                  LoadKernel(EmbedRowsKernel<BFloat16>),
                                  LoadKernel(AddBiasKernel<float>),
                                  LoadKernel(AddRowsKernel<float>),
                                  LoadKernel(GatherStateKernel<float>),
                                  LoadKernel(ScatterStateKernel<float>),
                                  LoadKernel(ShiftRowsKernel<float>),
                                  LoadKernel(KeepLastKernel<float>),
                                  LoadKernel(LastRowsKernel<float>),
                                  LoadKernel(AppendKernel<float>),
                                  LoadKernel(AttendKernel<float, false>, kAttendSharedBytes),
                                  LoadKernel(AttendKernel<float, true>, kAttendSharedBytes),
                                  LoadKernel(PoolRowsKernel<float>),
                                  LoadKernel(RowDotKernel<float>),
                                  LoadPredictKernel<kPredictThreads, false>(),
                                  LoadPredictKernel<kPredictThreads, true>(),
                                  LoadPredictKernel<kLargePredictThreads, false>(),
                                  LoadPredictKernel<kLargePredictThreads, true>()}) {
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t LaunchOperation(const OperationArgs& args, LaunchStream stream) {
  return std::visit(
      [stream](const auto& given) {
        return WithKernel(given, [stream](auto* kernel, const LaunchShape& shape, const auto& a) {
          return LaunchKernel(kernel, shape.blocks, shape.threads, shape.shared_bytes, stream, a);
        });
      },
      args);
}

}  // namespace sru::kernels::cuda
