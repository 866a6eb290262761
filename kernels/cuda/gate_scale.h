// Factors that are folded into everything that goes into a gate (weights of U1 and U2, v and b)
// when weights are packed, so that the scan's sigmoid needs no multiplication of its own:
//   float32   1 / (1 + 2^z)          z = -log2(e) x
//   bfloat16  (1 + tanh(z)) / 2      z = x / 2
#ifndef SRU_KERNELS_CUDA_GATE_SCALE_H_
#define SRU_KERNELS_CUDA_GATE_SCALE_H_

namespace sru::kernels::cuda {

inline constexpr float kGateScaleFloat32 = -1.4426950408889634f;
inline constexpr float kGateScaleBFloat16 = 0.5f;

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_GATE_SCALE_H_
