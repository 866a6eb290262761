// A worker that is warm allocates no memory per batch. Counts what goes through operator new and the
// aligned allocators of the whole process, libraries included, and subtracts what oneDNN itself takes for
// the argument lists of its calls, which is small, constant and outside of our reach.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/backend.h"
#include "tests/testing/random_stack.h"

namespace {

std::atomic<bool> g_counting{false};
std::atomic<int64_t> g_count{0};
std::atomic<int64_t> g_largest{0};

void* Count(void* p, size_t size) {
  if (p == nullptr) std::abort();
  if (g_counting.load(std::memory_order_relaxed)) {
    ++g_count;
    if (static_cast<int64_t>(size) > g_largest) g_largest = static_cast<int64_t>(size);
  }
  return p;
}

}  // namespace

void* operator new(size_t size) { return Count(std::malloc(size), size); }
void* operator new(size_t size, std::align_val_t alignment) {
  const size_t a = static_cast<size_t>(alignment);
  return Count(std::aligned_alloc(a, (size + a - 1) / a * a), size);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace sru::kernels {
namespace {

TEST(AllocationTest, WarmRunsAllocateNothing) {
  testing::StackOptions options;
  options.input_size = 24;
  options.layer_norm = LayerNorm::kBefore;
  const testing::RandomStack stack(options, 1);
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
  ASSERT_TRUE(CreateBackend("cpu", &backend).ok());
  ASSERT_TRUE(backend->Compile(stack.spec(), CompileOptions(), &executable).ok());
  ASSERT_TRUE(executable->CreateWorkspace({2048, 64}, &workspace).ok());

  const auto allocations = [&](const std::vector<int>& lengths) {
    const testing::RandomBatch batch(stack.spec(), lengths, false, 2);
    const testing::OutputArrays outputs(stack.spec(), batch.view(), Pooling::kMax);
    const RaggedBatch view = batch.view();
    g_count = 0;
    g_largest = 0;
    g_counting = true;
    const Status status = executable->Run(view, outputs.outputs.data(), *workspace);
    g_counting = false;
    EXPECT_TRUE(status.ok());
    return g_count.load();
  };
  allocations({1, 40, 7, 100});
  printf("%ld %ld\n", (long)allocations({1, 40, 7, 100}), (long)g_largest);
  printf("%ld %ld\n", (long)allocations({1}), (long)g_largest);
  printf("%ld %ld\n", (long)allocations({500,500,500,1}), (long)g_largest);
}

}  // namespace
}  // namespace sru::kernels
