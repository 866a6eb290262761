// Factors that are folded into everything that goes into a gate (weights of U1 and U2, v and b)
// when weights are packed, so that the scan's sigmoid needs no multiplication of its own:
//
//   kExp2GateScale    sigmoid(x) = 1 / (1 + 2^z)        z = -log2(e) x
//   kTanhGateScale    sigmoid(x) = (1 + tanh(z)) / 2    z = x / 2
#ifndef SRU_KERNELS_COMMON_GATE_SCALE_H_
#define SRU_KERNELS_COMMON_GATE_SCALE_H_

namespace sru::kernels {

inline constexpr float kExp2GateScale = -1.4426950408889634f;
inline constexpr float kTanhGateScale = 0.5f;

// Whether matrix i of a layer, U0 to U3, goes into a gate.
constexpr bool IsGateMatrix(int i) { return i == 1 || i == 2; }

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_GATE_SCALE_H_
