#include "server/base/heap.h"

#include <malloc.h>

#include <cstddef>

// There only in a program that is linked with jemalloc.
extern "C" int mallctl(const char* name, void* old_value, size_t* old_size, void* new_value,
                       size_t new_size) noexcept __attribute__((weak));

// jemalloc reads this at its start. It keeps freed memory for a second rather than ten: parts of
// such memory that are too small for what comes next are joined only when they are given back. A
// flood of TLS handshakes, which take and free parts of 4 to 24 KiB, would make the server grow by
// up to twice of what they hold. Parts of 1 MiB and more, such as long answers, go back to the
// system at once: three callers whose answers have 6 to 11 MB made the server grow by 171 to 208
// MiB, of which 100 are in use at a time, and by 130 to 158 with this. Addresses go back too, since
// a limit on them (RLIMIT_DATA) is one on memory that is not there.
extern "C" const char* malloc_conf;
const char* malloc_conf = "dirty_decay_ms:1000,oversize_threshold:1048576,retain:false";

namespace sru::server {

void ReleaseFreeMemory() {
  if (mallctl != nullptr) {
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096 = all arenas
  } else {
    malloc_trim(0);
  }
}

}  // namespace sru::server
