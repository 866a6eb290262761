#include "server/base/heap.h"

#include <malloc.h>

#include <cstddef>

// There only in a program that is linked with jemalloc.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value,
                       size_t new_size) noexcept __attribute__((weak));

namespace sru::server {

void ReleaseFreeMemory() {
  if (mallctl != nullptr) {
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096 = all arenas
  } else {
    malloc_trim(0);
  }
}

}  // namespace sru::server
