// The shape of Predict's launches (predict.cuh).
#ifndef SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_

namespace sru::kernels::cuda {

// Threads of a block, for a vocabulary of up to kSmallVocabulary symbols and for a larger one, which
// takes more loads at a time.
inline constexpr int kPredictThreads = 256;
inline constexpr int kLargePredictThreads = 512;
inline constexpr int kSmallVocabulary = 8192;

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_PREDICT_SHAPE_H_
