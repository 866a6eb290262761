// In which order kernels that run on the host do what a GPU leaves open (launch_shim.h).
#ifndef SRU_TESTS_KERNELS_CUDA_HOST_SHIM_MODE_H_
#define SRU_TESTS_KERNELS_CUDA_HOST_SHIM_MODE_H_

namespace sru::testing {

// What a GPU leaves open. A correct kernel gives the same bits in every mode.
struct ShimMode {
  bool copies_early = false;
  bool threads_reversed = false;
};
inline constexpr ShimMode kShimModes[] = {
    {false, false}, {true, false}, {false, true}, {true, true}};

// Of the process. It begins with that of SRU_CUDA_HOST_MODE: "early", "reversed", "early_reversed"
// or empty; "tanh_low" and "tanh_high" are kTanhFactor's (launch_shim.h). Not to be changed while a
// kernel runs.
ShimMode GetShimMode();
void SetShimMode(ShimMode mode);

}  // namespace sru::testing

#endif  // SRU_TESTS_KERNELS_CUDA_HOST_SHIM_MODE_H_
