#include "server/base/heap.h"

#include <malloc.h>

#include <cstddef>

// There only in a program that is linked with jemalloc.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value,
                       size_t new_size) noexcept __attribute__((weak));

// jemalloc reads this at its start. It keeps freed memory for a second rather than ten: parts of such memory that are too small for what comes next
// are joined only when they are given back. A flood of TLS handshakes, which take and free parts of 4 to 24 KiB, would make the server grow by up to
// twice of what they hold.
extern "C" const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:1000";

namespace sru::server {

void ReleaseFreeMemory() {
  if (mallctl != nullptr) {
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096 = all arenas
  } else {
    malloc_trim(0);
  }
}

}  // namespace sru::server
