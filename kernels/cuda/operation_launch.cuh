// Which kernel runs an operation, with how many blocks. The launchers (operations.cu) and the tests'
// device on the host (tests/kernels/cuda_host/) share it.
#ifndef SRU_KERNELS_CUDA_OPERATION_LAUNCH_CUH_
#define SRU_KERNELS_CUDA_OPERATION_LAUNCH_CUH_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/operation_args.h"
#include "kernels/cuda/predict.cuh"
#include "kernels/cuda/row_operations.cuh"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/sequence_operations.cuh"
#include "kernels/cuda/storage_type.h"

namespace sru::kernels::cuda {

struct LaunchShape {
  int64_t blocks = 0;
  int threads = kRowThreads;
  size_t shared_bytes = 0;
  bool threads_wait = false;  // for each other
};

// A thread per value, or a warp per row.
inline LaunchShape PerValue(int rows, int width) { return {Blocks(int64_t{rows} * width)}; }
inline LaunchShape PerWarp(int64_t rows) {
  return {Blocks(rows * kWarpSize), kRowThreads, 0, /*threads_wait=*/true};
}

// Returns launch(kernel, shape, args).
template <typename Launch>
auto WithKernel(const CopyRowsArgs& args, const Launch& launch) {
  const LaunchShape shape = PerValue(args.max_rows, args.padded_width);
  return WithStorageType(
      args.y_dtype, [&](auto type) { return launch(CopyRowsKernel<decltype(type)>, shape, args); });
}
template <typename Launch>
auto WithKernel(const EmbedRowsArgs& args, const Launch& launch) {
  const LaunchShape shape = PerValue(args.max_rows, args.stride);
  return WithStorageType(args.table_dtype, [&](auto type) {
    return launch(EmbedRowsKernel<decltype(type)>, shape, args);
  });
}
template <typename Launch>
auto WithKernel(const AddBiasArgs& args, const Launch& launch) {
  return launch(AddBiasKernel<float>, PerValue(args.max_rows, args.stride), args);
}
template <typename Launch>
auto WithKernel(const AddRowsArgs& args, const Launch& launch) {
  return launch(AddRowsKernel<float>, PerValue(args.max_rows, args.stride), args);
}
template <typename Launch>
auto WithKernel(const GatherStateArgs& args, const Launch& launch) {
  return launch(GatherStateKernel<float>, PerValue(args.max_sequences, args.segments * args.padded),
                args);
}
template <typename Launch>
auto WithKernel(const ScatterStateArgs& args, const Launch& launch) {
  return launch(ScatterStateKernel<float>,
                PerValue(args.max_sequences, args.segments * args.padded), args);
}
template <typename Launch>
auto WithKernel(const ShiftRowsArgs& args, const Launch& launch) {
  return launch(ShiftRowsKernel<float>, PerValue(args.max_rows, args.stride), args);
}
template <typename Launch>
auto WithKernel(const KeepLastArgs& args, const Launch& launch) {
  return launch(KeepLastKernel<float>, PerValue(args.max_sequences, args.width), args);
}
template <typename Launch>
auto WithKernel(const LastRowsArgs& args, const Launch& launch) {
  return launch(LastRowsKernel<float>, PerValue(args.max_sequences, args.stride), args);
}
template <typename Launch>
auto WithKernel(const AppendArgs& args, const Launch& launch) {
  return launch(AppendKernel<float>, PerValue(args.max_rows, args.width), args);
}
template <typename Launch>
auto WithKernel(const AttendArgs& args, const Launch& launch) {
  LaunchShape shape = PerWarp(int64_t{args.max_rows} * args.heads);
  shape.shared_bytes = kAttendSharedBytes;
  return args.attention != nullptr ? launch(AttendKernel<float, true>, shape, args)
                                   : launch(AttendKernel<float, false>, shape, args);
}
template <typename Launch>
auto WithKernel(const PoolRowsArgs& args, const Launch& launch) {
  return launch(PoolRowsKernel<float>, PerValue(args.max_sequences, args.stride), args);
}
template <typename Launch>
auto WithKernel(const RowDotArgs& args, const Launch& launch) {
  return launch(RowDotKernel<float>, PerWarp(args.max_rows), args);
}
template <int kThreads, typename Launch>
auto WithPredictKernel(const PredictArgs& args, const Launch& launch) {
  const LaunchShape shape = {args.max_rows, kThreads, sizeof(PredictShared<kThreads>),
                             /*threads_wait=*/true};
  return args.sampling != nullptr ? launch(PredictKernel<kThreads, true>, shape, args)
                                  : launch(PredictKernel<kThreads, false>, shape, args);
}
template <typename Launch>
auto WithKernel(const PredictArgs& args, const Launch& launch) {
  return args.vocabulary_size > kSmallVocabulary
             ? WithPredictKernel<kLargePredictThreads>(args, launch)
             : WithPredictKernel<kPredictThreads>(args, launch);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_OPERATION_LAUNCH_CUH_
