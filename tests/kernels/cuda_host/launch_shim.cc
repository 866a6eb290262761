// longjmp() between stacks is what a fiber's switch is; the hardened one takes it for a mistake.
#undef _FORTIFY_SOURCE

#include "tests/kernels/cuda_host/launch_shim.h"

#include <ucontext.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace sru::testing {
namespace {

constexpr int kWarpSize = 32;
constexpr size_t kStackBytes = 64 * 1024;

[[noreturn]] void Fail(const char* message) {
  std::fprintf(stderr, "launch_shim: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, message);
  std::abort();
}

// Counts those who wait; who waits goes on when all have come.
struct Barrier {
  int members = 0;
  int arrived = 0;
  int generation = 0;
};

// A place to go on from. swapcontext() calls the kernel each time, for the signal mask; so it only
// enters a fiber, and _longjmp() does the rest. AddressSanitizer follows the former alone.
struct Place {
  ucontext_t context;
  jmp_buf jump;
};

void Switch(Place* from, Place* to, bool enter) {
#ifdef __SANITIZE_ADDRESS__
  (void)enter;
  swapcontext(&from->context, &to->context);
#else
  if (_setjmp(from->jump) != 0) return;
  if (enter) {
    setcontext(&to->context);
  } else {
    _longjmp(to->jump, 1);
  }
#endif
}

struct Fiber {
  Place place;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  bool running = false;  // started and not ended
  bool ended = false;
  void* fake_stack = nullptr;
};

// The threads of one block.
class Block {
 public:
  static Block*& Current() {
    static thread_local Block* block = nullptr;
    return block;
  }

  void Run(int threads, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    while (static_cast<int>(fibers_.size()) < threads) {
      fibers_.push_back(std::make_unique<Fiber>());
    }
    block_barrier_ = {threads, 0, 0};
    warps_.assign((threads + kWarpSize - 1) / kWarpSize, Warp());
    for (size_t w = 0; w < warps_.size(); ++w) {
      warps_[w].barrier.members = std::min(kWarpSize, threads - static_cast<int>(w) * kWarpSize);
    }
    for (int i = 0; i < threads; ++i) fibers_[i]->running = fibers_[i]->ended = false;
    int left = threads;
    while (left > 0) {
      progress_ = false;
      for (int i = 0; i < threads; ++i) {
        if (fibers_[i]->ended) continue;
        threadIdx.x = static_cast<unsigned>(i);
        Resume(*fibers_[i]);
        if (fibers_[i]->ended) {
          --left;
          progress_ = true;
        }
      }
      if (!progress_) Fail("all threads wait, for different things");
    }
  }

  void SyncThreads() {
    // Threads that have ended do not count, as on the GPU.
    Wait(&block_barrier_);
  }

  float ShuffleXor(unsigned mask, float value, int lane_mask) {
    if (mask != 0xffffffffu) Fail("a shuffle of part of a warp");
    const unsigned lane = threadIdx.x % kWarpSize;
    Warp& warp = warps_[threadIdx.x / kWarpSize];
    if (warp.barrier.members != kWarpSize) Fail("a shuffle with threads that have ended");
    float* const values = warp.values[warp.barrier.generation % 2];
    values[lane] = value;
    Wait(&warp.barrier);
    return values[lane ^ static_cast<unsigned>(lane_mask)];
  }

 private:
  struct Warp {
    Barrier barrier;
    // Two sets: a lane may write for its next shuffle before others have read for this one.
    float values[2][kWarpSize] = {};
  };

  void Wait(Barrier* barrier) {
    const unsigned thread = threadIdx.x;
    if (++barrier->arrived >= barrier->members) {
      barrier->arrived = 0;
      ++barrier->generation;
      progress_ = true;
      return;
    }
    const int generation = barrier->generation;
    while (barrier->generation == generation) Yield(*fibers_[thread]);
  }

  static void Main() {
    Block& block = *Current();
    Fiber& fiber = *block.fibers_[threadIdx.x];
    block.FinishSwitch(nullptr, /*in_fiber=*/true);
    (*block.kernel_)();
    block.End(fiber);
  }

  void End(Fiber& fiber) {
    fiber.ended = true;
    Leave(&block_barrier_);
    Leave(&warps_[threadIdx.x / kWarpSize].barrier);
    StartSwitch(nullptr, scheduler_stack_, scheduler_stack_bytes_);
    Switch(&fiber.place, &scheduler_, /*enter=*/false);
  }

  void Leave(Barrier* barrier) {
    --barrier->members;
    if (barrier->members > 0 && barrier->arrived == barrier->members) {
      barrier->arrived = 0;
      ++barrier->generation;
    }
  }

  void Resume(Fiber& fiber) {
    void* fake_stack = nullptr;
    StartSwitch(&fake_stack, fiber.stack.get(), kStackBytes);
    const bool enter = !fiber.running;
    if (enter) {
      fiber.running = true;
      ucontext_t& context = fiber.place.context;
      getcontext(&context);
      context.uc_stack.ss_sp = fiber.stack.get();
      context.uc_stack.ss_size = kStackBytes;
      context.uc_link = nullptr;  // End() never returns
      makecontext(&context, &Block::Main, 0);
    }
    Switch(&scheduler_, &fiber.place, enter);
    FinishSwitch(fake_stack, /*in_fiber=*/false);
  }

  void Yield(Fiber& fiber) {
    StartSwitch(&fiber.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
    Switch(&fiber.place, &scheduler_, /*enter=*/false);
    FinishSwitch(fiber.fake_stack, /*in_fiber=*/true);
  }

  // AddressSanitizer must know which stack is in use.
#ifdef __SANITIZE_ADDRESS__
  void StartSwitch(void** fake_stack, const void* stack, size_t bytes) {
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
  }
  // What is left when a fiber goes on is always the scheduler.
  void FinishSwitch(void* fake_stack, bool in_fiber) {
    const void* stack = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(fake_stack, &stack, &bytes);
    if (in_fiber) {
      scheduler_stack_ = stack;
      scheduler_stack_bytes_ = bytes;
    }
  }
#else
  void StartSwitch(void** /*fake_stack*/, const void* /*stack*/, size_t /*bytes*/) {}
  void FinishSwitch(void* /*fake_stack*/, bool /*in_fiber*/) {}
#endif

  const std::function<void()>* kernel_ = nullptr;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Place scheduler_;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  Barrier block_barrier_;
  std::vector<Warp> warps_;
  bool progress_ = false;
};

Block& CurrentBlock() {
  if (Block::Current() == nullptr) Fail("threads that wait for each other need Launch()");
  return *Block::Current();
}

}  // namespace

void Launch(int64_t blocks, int threads, const std::function<void()>& kernel) {
  static thread_local Block block;
  Block::Current() = &block;
  for (int64_t b = 0; b < blocks; ++b) {
    blockIdx.x = static_cast<unsigned>(b);
    block.Run(threads, kernel);
  }
  Block::Current() = nullptr;
}

}  // namespace sru::testing

void __syncthreads() { sru::testing::CurrentBlock().SyncThreads(); }

float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
  return sru::testing::CurrentBlock().ShuffleXor(mask, value, lane_mask);
}
