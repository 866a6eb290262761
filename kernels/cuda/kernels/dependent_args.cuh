// The arguments of every kernel, which it gets by waiting for the kernels before it in its stream.
//
// With programmatic dependent launch (launch.h) a kernel may be started before those have ended, so
// that its launch costs nothing after them. Nothing that an earlier kernel writes may be read
// before Await(), and nothing written that one reads. No kernel can forget it: LaunchKernel() takes
// kernels of DependentArgs only, and all pointers of a kernel are in there. A product begins to
// copy its weights before (BeforeAwait()), and that alone: tests/kernels/cuda_ptxas_test.py sees to
// it.
//
// Why that is enough:
// * Await() returns when all kernels that this one depends on have ended and what they wrote can be
//   seen. Each of their threads has waited as well before it ended, so the kernels before those had
//   ended too, and so on: the order is that of a stream without the attribute. It takes every
//   thread for that: blocks that left without waiting would let the next kernel pass an earlier
//   one.
// * The kernels of cuBLASLt and all copies are launched without the attribute: they begin when all
//   before them has ended. A kernel of ours after one of the library waits for its end, also if the
//   library's says early that others may start.
// * A kernel of ours says so right after its own wait. The next one's blocks start where there is
//   room once all blocks have come that far, and wait for its end in turn. So at most two kernels
//   are on the way.
// * Loads that the compiler may take for reads of constant memory (LoadReadOnly()) could be moved
//   to before the wait. They are for what no kernel of a batch writes: weights and tables.
//
// Tests have their own AwaitEarlierKernels() (tests/kernels/cuda_host/launch_shim.h), which on the
// host, where kernels run one after the other, only notes the call: a thread that ends without it
// fails the test.
#ifndef SRU_KERNELS_CUDA_KERNELS_DEPENDENT_ARGS_CUH_
#define SRU_KERNELS_CUDA_KERNELS_DEPENDENT_ARGS_CUH_

namespace sru::kernels::cuda {

#ifdef __CUDACC__

// Returns at once in a kernel that was launched without the attribute.
__device__ __forceinline__ void AwaitEarlierKernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "griddepcontrol.wait;\n\t"
      "griddepcontrol.launch_dependents;" ::
          : "memory");
#endif
}

#endif  // __CUDACC__

template <typename Args>
class DependentArgs {
 public:
  DependentArgs(const Args& args) : args_(args) {}  // NOLINT: a launch passes its arguments

  // The arguments before Await(). Only sizes may be used then, and memory that no kernel writes,
  // such as weights: anything else may still be on its way.
  __device__ __forceinline__ const Args& BeforeAwait() const { return args_; }

  // Every thread of a kernel calls this first, or right after what BeforeAwait() allows.
  __device__ __forceinline__ const Args& Await() const {
    AwaitEarlierKernels();
    return args_;
  }

 private:
  Args args_;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_DEPENDENT_ARGS_CUH_
