// The shape of Predict's launches (predict.cuh).
#ifndef SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_

#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

// Threads of a block, for a vocabulary of up to kSmallVocabulary symbols and for a larger one,
// which takes more loads at a time.
inline constexpr int kPredictThreads = 256;
inline constexpr int kLargePredictThreads = 512;
inline constexpr int kSmallVocabulary = 8192;

// Blocks of a cluster that answers a row of a larger vocabulary, where rows are few.
inline constexpr int kPredictCluster = 4;
// As many rows as have a multiprocessor for each block, and the smallest bucket, most of which may
// be padding.
inline constexpr int MaxClusteredRows(int num_multiprocessors) {
  constexpr int kSmallestBucket = 16;
  const int rows = num_multiprocessors / kPredictCluster;
  return rows > kSmallestBucket ? rows : kSmallestBucket;
}
// Parts of a row whose exponentials are summed separately, whatever blocks sum them, so that the
// bits are the same.
template <int kThreads>
inline constexpr int kRowParts = kThreads == kLargePredictThreads ? kPredictCluster : 1;
// Symbols of each part but the last one, which may have fewer.
template <int kThreads>
SRU_HOST_DEVICE constexpr int RowPartSize(int vocabulary_size) {
  constexpr int kAlignment = 32;
  constexpr int kStep = kRowParts<kThreads> * kAlignment;
  return kRowParts<kThreads> == 1 ? vocabulary_size
                                  : (vocabulary_size + kStep - 1) / kStep * kAlignment;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_
