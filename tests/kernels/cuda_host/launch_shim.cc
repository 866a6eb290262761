#include "tests/kernels/cuda_host/launch_shim.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__
// Leaves the current stack, whose pointer it stores in *from, and continues on the stack `to`,
// which was left in the same way. The registers that a function must preserve are on the stacks.
extern "C" void SruSwitchStacks(void** from, void* to);
asm(R"(
    .text
    .p2align 4
    .hidden SruSwitchStacks
    .globl SruSwitchStacks
    .type SruSwitchStacks, @function
SruSwitchStacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size SruSwitchStacks, . - SruSwitchStacks
)");
#endif

namespace sru::testing {
namespace {

constexpr int kWarpSize = 32;
constexpr size_t kStackBytes = 64 * 1024;

[[noreturn]] void Fail(const char* message) {
  std::fprintf(stderr, "launch_shim: block %u, thread %u: %s\n", blockIdx.x, threadIdx.x, message);
  std::abort();
}

ShimMode ModeOfEnvironment() {
  const char* const name = std::getenv("SRU_CUDA_HOST_MODE");
  ShimMode mode;
  if (name == nullptr || *name == '\0') return mode;
  mode.copies_early = std::strstr(name, "early") != nullptr;
  mode.threads_reversed = std::strstr(name, "reversed") != nullptr;
  const bool other_tanh = std::strstr(name, "tanh_") != nullptr;
  if (!mode.copies_early && !mode.threads_reversed && !other_tanh) {
    std::fprintf(stderr,
                 "SRU_CUDA_HOST_MODE: expected early, reversed, early_reversed, tanh_low or "
                 "tanh_high, found %s\n",
                 name);
    std::exit(1);
  }
  return mode;
}

ShimMode& CurrentMode() {
  static ShimMode mode = ModeOfEnvironment();
  return mode;
}

// Counts the threads that wait; they continue when all have arrived.
struct Barrier {
  int members = 0;
  int arrived = 0;
  int generation = 0;
};

// A place from which to continue. swapcontext() would make a system call each time, for the signal
// mask, which takes longer than what threads compute between two exchanges.
#ifdef __x86_64__
struct Place {
  void* stack_pointer = nullptr;
};

void Switch(Place* from, Place* to) { SruSwitchStacks(&from->stack_pointer, to->stack_pointer); }

// Makes `place` the beginning of `main`, which must not return.
void Prepare(Place* place, char* stack, size_t bytes, void (*main)()) {
  uintptr_t end = reinterpret_cast<uintptr_t>(stack + bytes);
  end -= end % 16;
  // What SruSwitchStacks() takes off the stack: six registers, of which a zero in rbp ends the list
  // of frames, and the address to go to. The last word is where a caller's return address would be.
  auto* const top = reinterpret_cast<uintptr_t*>(end) - 8;
  std::memset(top, 0, 8 * sizeof(*top));
  top[6] = reinterpret_cast<uintptr_t>(main);
  place->stack_pointer = top;
}
#else
struct Place {
  ucontext_t context;
};

void Switch(Place* from, Place* to) { swapcontext(&from->context, &to->context); }

void Prepare(Place* place, char* stack, size_t bytes, void (*main)()) {
  getcontext(&place->context);
  place->context.uc_stack.ss_sp = stack;
  place->context.uc_stack.ss_size = bytes;
  place->context.uc_link = nullptr;
  makecontext(&place->context, main, 0);
}
#endif

// The asynchronous copies of one thread.
class Copies {
 public:
  void Begin(void* to, const void* from, int bytes) {
    if (reinterpret_cast<uintptr_t>(to) % bytes != 0 ||
        reinterpret_cast<uintptr_t>(from) % bytes != 0) {
      Fail("a copy that is not aligned");
    }
    if (CurrentMode().copies_early) std::memcpy(to, from, static_cast<size_t>(bytes));
    copies_.push_back({to, from, bytes});
  }
  void Commit() { groups_.push_back(copies_.size()); }
  void Wait(size_t pending) {
    for (; groups_.size() - arrived_groups_ > pending; ++arrived_groups_) {
      for (; arrived_ < groups_[arrived_groups_]; ++arrived_) {
        if (CurrentMode().copies_early) continue;  // it has been made
        const Copy& copy = copies_[arrived_];
        std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      }
    }
  }
  // The thread ends.
  void End() {
    if (arrived_ < copies_.size()) Fail("a copy that nobody waited for, or that is in no group");
    copies_.clear();
    groups_.clear();
    arrived_ = arrived_groups_ = 0;
  }

 private:
  struct Copy {
    void* to;
    const void* from;
    int bytes;
  };
  // All copies that the thread has begun; nothing is removed before it ends.
  std::vector<Copy> copies_;
  std::vector<size_t> groups_;  // the end of each
  size_t arrived_ = 0;
  size_t arrived_groups_ = 0;
};

// A block's shared memory.
class Shared {
 public:
  // Not more than was requested, so that AddressSanitizer sees accesses outside of it.
  void Begin(size_t bytes) {
    void* memory = nullptr;
    if (bytes > 0 && posix_memalign(&memory, 128, bytes) != 0) std::abort();
    if (memory != nullptr) std::memset(memory, 0xff, bytes);
    memory_.reset(static_cast<unsigned char*>(memory));
    bytes_ = bytes;
  }
  unsigned char* get() const {
    if (memory_ == nullptr) Fail("no shared memory was asked for");
    return memory_.get();
  }
  // Where a place is in the shared memory.
  size_t OffsetOf(const void* place) const {
    const auto* const byte = static_cast<const unsigned char*>(place);
    if (byte < get() || byte >= get() + bytes_) Fail("a place that is not in shared memory");
    return static_cast<size_t>(byte - get());
  }

 private:
  struct Free {
    void operator()(unsigned char* memory) const { std::free(memory); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
  size_t bytes_ = 0;
};

struct Fiber {
  // What the threads of a block have on top of their stacks must not be at equal distances: caches
  // would keep few of them at a time.
  explicit Fiber(size_t index)
      : stack_bytes(kStackBytes + index % 61 * 192), stack(new char[stack_bytes]) {}

  Place place;
  const size_t stack_bytes;
  const std::unique_ptr<char[]> stack;
  bool entered = false;  // by any block: then it only goes on, with the next kernel
  bool ended = false;    // with the current block's kernel
  void* fake_stack = nullptr;
  Copies copies;
};

class Block;

// The blocks of a cluster, or one block.
struct Cluster {
  std::vector<Block*> blocks;
  Barrier barrier;
};

// The threads of one block.
class Block {
 public:
  static Block*& Current() {
    static thread_local Block* block = nullptr;
    return block;
  }

  void Begin(unsigned number, int threads, const std::function<void()>& kernel, size_t shared_bytes,
             Cluster* cluster) {
    number_ = number;
    cluster_ = cluster;
    begun_ = false;
    kernel_ = &kernel;
    shared_.Begin(shared_bytes);
    while (static_cast<int>(fibers_.size()) < threads) {
      fibers_.push_back(std::make_unique<Fiber>(fibers_.size()));
    }
    block_barrier_ = role_barrier_ = {threads, 0, 0};
    warps_.assign((threads + kWarpSize - 1) / kWarpSize, Warp());
    for (size_t w = 0; w < warps_.size(); ++w) {
      warps_[w].barrier.members = std::min(kWarpSize, threads - static_cast<int>(w) * kWarpSize);
    }
    for (int i = 0; i < threads; ++i) fibers_[i]->ended = false;
    threads_ = left_ = threads;
  }

  // Runs the threads until none goes on before those of another block of the cluster do. Whether
  // any went on.
  bool Run() {
    Current() = this;
    blockIdx.x = number_;
    begun_ = true;
    const bool reversed = CurrentMode().threads_reversed;
    const size_t num_warps = warps_.size();
    bool any = false;
    while (left_ > 0) {
      progress_ = false;
      for (size_t turn = 0; turn < num_warps; ++turn) {
        const size_t w = reversed ? num_warps - 1 - turn : turn;
        // A warp goes on until it waits for others: so few stacks at a time are in use that they
        // stay in the nearest cache.
        const Barrier& barrier = warps_[w].barrier;
        int generation;
        do {
          generation = barrier.generation;
          ResumeWarp(static_cast<int>(w) * kWarpSize,
                     std::min(threads_, static_cast<int>(w + 1) * kWarpSize), reversed);
        } while (barrier.generation != generation);
      }
      if (!progress_) break;
      any = true;
    }
    return any;
  }
  bool ended() const { return left_ == 0; }

  void SyncCluster() { Wait(&cluster_->barrier); }

  // A place in another block's shared memory.
  void* SharedOf(const void* place, int number) {
    if (number < 0 || number >= static_cast<int>(cluster_->blocks.size())) {
      Fail("a block that is not in the cluster");
    }
    const Block& other = *cluster_->blocks[number];
    if (!other.begun_) Fail("shared memory of a block that may not have begun");
    if (other.ended()) Fail("shared memory of a block that may have ended");
    return other.shared_.get() + shared_.OffsetOf(place);
  }

  void SyncThreads() {
    // Threads that have ended do not count, as on the GPU.
    Wait(&block_barrier_);
  }

  // It names its number of threads, which may be fewer than the block has. Those that have ended
  // are missed.
  void SyncRoles(int threads) {
    if (role_barrier_.arrived == 0) role_barrier_.members = threads;
    if (threads != role_barrier_.members) Fail("a barrier for another number of threads");
    Wait(&role_barrier_);
  }

  unsigned char* shared() const { return shared_.get(); }
  // For the thread that runs.
  Copies& copies() { return fibers_[threadIdx.x]->copies; }

  // The words of each lane of the warp.
  struct LaneWords {
    uint32_t words[10];
  };

  // Shows the lane's words to the other lanes of its warp, all of which must call it. Returns the
  // words of every lane, which are valid until the next call.
  const LaneWords* Exchange(const LaneWords& mine) {
    Warp& warp = WholeWarp();
    LaneWords* const lanes = warp.lanes[warp.barrier.generation % 2];
    lanes[threadIdx.x % kWarpSize] = mine;
    Wait(&warp.barrier);
    return lanes;
  }

  // A value that the lanes of a warp make together.
  using Tile = std::array<std::array<float, 8>, 16>;

  // Like Exchange(), but also calls `make` once with the words of every lane. The result is valid
  // until the next call.
  const Tile& Collect(const LaneWords& mine, void (*make)(const LaneWords*, Tile*)) {
    Warp& warp = warps_[threadIdx.x / kWarpSize];
    const LaneWords* const lanes = Exchange(mine);
    if (warp.collected != warp.barrier.generation) {
      warp.collected = warp.barrier.generation;
      make(lanes, &warp.tile);
    }
    return warp.tile;
  }

  // The value of lane `lane`.
  template <typename T>
  T Shuffle(unsigned mask, T value, unsigned lane) {
    if (mask != 0xffffffffu) Fail("a shuffle of part of a warp");
    static_assert(sizeof(T) <= sizeof(uint64_t), "a lane shows one word");
    Warp& warp = WholeWarp();
    uint64_t* const lanes = warp.values[warp.barrier.generation % 2];
    std::memcpy(&lanes[threadIdx.x % kWarpSize], &value, sizeof(value));
    Wait(&warp.barrier);
    std::memcpy(&value, &lanes[lane], sizeof(value));
    return value;
  }

 private:
  struct Warp {
    Barrier barrier;
    // Two sets, because a lane may write for its next exchange before others have read this one.
    LaneWords lanes[2][kWarpSize] = {};
    uint64_t values[2][kWarpSize] = {};
    int collected = -1;  // the generation whose words `tile` was made of
    Tile tile;
  };

  // The warp of the thread that runs.
  Warp& WholeWarp() {
    Warp& warp = warps_[threadIdx.x / kWarpSize];
    if (warp.barrier.members != kWarpSize) Fail("a warp's instruction after threads have ended");
    return warp;
  }

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

  // A fiber runs a thread of each block, one after the other.
  static void Main() {
    Block& block = *Current();
    block.FinishSwitch(nullptr, /*in_fiber=*/true);
    for (;;) {
      (*block.kernel_)();
      block.End(*block.fibers_[threadIdx.x]);
    }
  }

  // Returns when the next block begins. AddressSanitizer forgets the thread's variables.
  void End(Fiber& fiber) {
    fiber.ended = true;
    fiber.copies.End();
    Leave(&block_barrier_);
    Leave(&cluster_->barrier);
    Leave(&warps_[threadIdx.x / kWarpSize].barrier);
    StartSwitch(nullptr, scheduler_stack_, scheduler_stack_bytes_);
    Switch(&fiber.place, &scheduler_);
    FinishSwitch(nullptr, /*in_fiber=*/true);
  }

  void Leave(Barrier* barrier) {
    --barrier->members;
    if (barrier->members > 0 && barrier->arrived == barrier->members) {
      barrier->arrived = 0;
      ++barrier->generation;
    }
  }

  // Lets each thread of the warp, from `begin` up to `end`, run until it waits or ends.
  void ResumeWarp(int begin, int end, bool reversed) {
    for (int turn = 0; turn < end - begin; ++turn) {
      const int i = reversed ? end - 1 - turn : begin + turn;
      if (fibers_[i]->ended) continue;
      threadIdx.x = static_cast<unsigned>(i);
      Resume(*fibers_[i]);
      if (fibers_[i]->ended) {
        --left_;
        progress_ = true;
      }
    }
  }

  void Resume(Fiber& fiber) {
    if (!fiber.entered) {
      Prepare(&fiber.place, fiber.stack.get(), fiber.stack_bytes, &Block::Main);
    }
    fiber.entered = true;
    void* fake_stack = nullptr;
    StartSwitch(&fake_stack, fiber.stack.get(), fiber.stack_bytes);
    Switch(&scheduler_, &fiber.place);
    FinishSwitch(fake_stack, /*in_fiber=*/false);
  }

  void Yield(Fiber& fiber) {
    StartSwitch(&fiber.fake_stack, scheduler_stack_, scheduler_stack_bytes_);
    Switch(&fiber.place, &scheduler_);
    FinishSwitch(fiber.fake_stack, /*in_fiber=*/true);
  }

  // AddressSanitizer must know which stack is in use.
#ifdef __SANITIZE_ADDRESS__
  void StartSwitch(void** fake_stack, const void* stack, size_t bytes) {
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
  }
  // When a fiber continues, the stack that is left is always the scheduler's.
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
  Cluster* cluster_ = nullptr;
  unsigned number_ = 0;
  bool begun_ = false;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Place scheduler_;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  Barrier block_barrier_;
  Barrier role_barrier_;
  std::vector<Warp> warps_;
  Shared shared_;
  int threads_ = 0;
  int left_ = 0;  // threads that have not ended
  bool progress_ = false;
};

Block& CurrentBlock() {
  if (Block::Current() == nullptr) Fail("threads that wait for each other need Launch()");
  return *Block::Current();
}

// For threads that run under LaunchIndependent().
struct Independent {
  size_t shared_bytes = 0;
  Shared shared;
  Copies copies;
};
thread_local Independent independent;

Copies& CurrentCopies() {
  return Block::Current() != nullptr ? Block::Current()->copies() : independent.copies;
}

}  // namespace

const float kTanhFactor = [] {
  const char* const name = std::getenv("SRU_CUDA_HOST_MODE");
  const std::string mode = name == nullptr ? "" : name;
  return mode == "tanh_low" ? 1 - 0x1p-11f : mode == "tanh_high" ? 1 + 0x1p-11f : 1.0f;
}();

ShimMode GetShimMode() { return CurrentMode(); }
void SetShimMode(ShimMode mode) { CurrentMode() = mode; }

void Launch(int64_t blocks, int threads, const std::function<void()>& kernel, size_t shared_bytes,
            int cluster_blocks) {
  static thread_local std::vector<std::unique_ptr<Block>> kept;
  while (static_cast<int>(kept.size()) < cluster_blocks) kept.push_back(std::make_unique<Block>());
  if (blocks % cluster_blocks != 0) Fail("a grid that is not made of whole clusters");
  Cluster cluster;
  for (int k = 0; k < cluster_blocks; ++k) cluster.blocks.push_back(kept[k].get());
  for (int64_t first = 0; first < blocks; first += cluster_blocks) {
    cluster.barrier = {cluster_blocks * threads, 0, 0};
    for (int k = 0; k < cluster_blocks; ++k) {
      kept[k]->Begin(static_cast<unsigned>(first + k), threads, kernel, shared_bytes, &cluster);
    }
    const bool reversed = CurrentMode().threads_reversed;
    bool all_ended = false;
    while (!all_ended) {
      all_ended = true;
      bool progress = false;
      for (int turn = 0; turn < cluster_blocks; ++turn) {
        Block& block = *kept[reversed ? cluster_blocks - 1 - turn : turn];
        progress = block.Run() || progress;
        all_ended = all_ended && block.ended();
      }
      if (!progress) Fail("all threads wait, for different things");
    }
  }
  Block::Current() = nullptr;
}

IndependentThreads::IndependentThreads(size_t shared_bytes) {
  independent.shared_bytes = shared_bytes;
}
IndependentThreads::~IndependentThreads() { independent.shared.Begin(0); }
void IndependentThreads::BeginBlock() {
  if (independent.shared_bytes > 0) independent.shared.Begin(independent.shared_bytes);
}
void IndependentThreads::EndThread() { independent.copies.End(); }

}  // namespace sru::testing

void __syncthreads() { sru::testing::CurrentBlock().SyncThreads(); }

float __shfl_xor_sync(unsigned mask, float value, int lane_mask) {
  const unsigned lane = threadIdx.x % 32 ^ static_cast<unsigned>(lane_mask);
  return sru::testing::CurrentBlock().Shuffle(mask, value, lane);
}

unsigned long long __shfl_xor_sync(unsigned mask, unsigned long long value, int lane_mask) {
  const unsigned lane = threadIdx.x % 32 ^ static_cast<unsigned>(lane_mask);
  return sru::testing::CurrentBlock().Shuffle(mask, value, lane);
}

unsigned long long __shfl_up_sync(unsigned mask, unsigned long long value, unsigned distance) {
  const unsigned lane = threadIdx.x % 32;
  return sru::testing::CurrentBlock().Shuffle(mask, value,
                                              lane >= distance ? lane - distance : lane);
}

namespace sru::kernels::cuda {
namespace {

// Value i, 0 or 1, of a word of two.
float BFloat16At(uint32_t word, int i) {
  const uint32_t bits = i == 0 ? word << 16 : word & 0xffff0000u;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// All lanes' d + a b.
void MultiplyTiles(const sru::testing::Block::LaneWords* lanes, sru::testing::Block::Tile* result) {
  float a[16][16];
  float b[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    const uint32_t* words = lanes[lane].words;
    const unsigned group = lane / 4;
    const unsigned pair = lane % 4 * 2;
    for (unsigned i = 0; i < 2; ++i) {
      for (unsigned w = 0; w < 4; ++w) {
        a[group + w % 2 * 8][pair + w / 2 * 8 + i] = BFloat16At(words[w], static_cast<int>(i));
      }
      b[pair + i][group] = BFloat16At(words[4], static_cast<int>(i));
      b[pair + 8 + i][group] = BFloat16At(words[5], static_cast<int>(i));
      for (unsigned w = 0; w < 2; ++w) {
        std::memcpy(&(*result)[group + w * 8][pair + i], &words[6 + 2 * w + i], sizeof(float));
      }
    }
  }
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned k = 0; k < 16; ++k) {
      // A product of two bfloat16 has no rounding error, so this is a fused multiply-add.
      for (unsigned n = 0; n < 8; ++n) (*result)[row][n] += a[row][k] * b[k][n];
    }
  }
}

}  // namespace

void MultiplyTile(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                  uint32_t b1) {
  sru::testing::Block::LaneWords mine = {{a0, a1, a2, a3, b0, b1}};
  std::memcpy(&mine.words[6], d, sizeof(d));
  const auto& sums = sru::testing::CurrentBlock().Collect(mine, MultiplyTiles);
  const unsigned lane = threadIdx.x % 32;
  for (unsigned i = 0; i < 4; ++i) d[i] = sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

void BeginCopy(void* to, const void* from, int bytes) {
  sru::testing::CurrentCopies().Begin(to, from, bytes);
}

void CommitCopies() { sru::testing::CurrentCopies().Commit(); }

void WaitForCopies(int pending) {
  sru::testing::CurrentCopies().Wait(static_cast<size_t>(pending));
}

void SyncWarp() { (void)sru::testing::CurrentBlock().Exchange({}); }

void RoleBarrier(int threads) { sru::testing::CurrentBlock().SyncRoles(threads); }

void SyncCluster() { sru::testing::CurrentBlock().SyncCluster(); }

void* SharedOfBlock(const void* place, int block) {
  return sru::testing::CurrentBlock().SharedOf(place, block);
}

unsigned char* DynamicShared() {
  return sru::testing::Block::Current() != nullptr ? sru::testing::CurrentBlock().shared()
                                                   : sru::testing::independent.shared.get();
}

}  // namespace sru::kernels::cuda
