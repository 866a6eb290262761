#include "tests/testing/failing_allocations.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

struct Failing {
  bool armed = false;
  bool for_good = false;
  int64_t first = 0;
  int64_t count = 0;  // allocations since it was armed
  int64_t failed = 0;
  int64_t bytes = 0;
};
thread_local Failing failing;

bool MustFail() {
  if (!failing.armed) return false;
  ++failing.count;
  if (failing.count != failing.first && !(failing.for_good && failing.count > failing.first)) {
    return false;
  }
  ++failing.failed;
  return true;
}

void* AllocateOrNull(std::size_t size, std::size_t alignment) noexcept {
  if (MustFail()) return nullptr;
  if (failing.armed) failing.bytes += static_cast<int64_t>(size);
  const std::size_t rounded =
      (std::max<std::size_t>(size, 1) + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded);
}

void* Allocate(std::size_t size, std::size_t alignment) {
  void* const memory = AllocateOrNull(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// All forms that the library has: a form that is left out is the sanitizer's own where there is one, and
// what that returns must not go to the forms of delete below.
void* operator new(std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return Allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, alignof(std::max_align_t));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, alignof(std::max_align_t));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace sru::testing {

void ArmAllocations(int64_t first, bool for_good) {
  failing = Failing();
  failing.armed = true;
  failing.for_good = for_good;
  failing.first = first;
}
void DisarmAllocations() { failing.armed = false; }
int64_t FailedAllocations() { return failing.failed; }
int64_t AllocatedBytes() { return failing.bytes; }

}  // namespace sru::testing
