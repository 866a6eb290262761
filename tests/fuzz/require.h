// How a fuzz target says that what it tests broke a promise.
#ifndef SRU_TESTS_FUZZ_REQUIRE_H_
#define SRU_TESTS_FUZZ_REQUIRE_H_

#include <cstdio>
#include <cstdlib>

namespace sru::fuzz {

// Ends the process with a message, unless `condition` holds. In every build, unlike assert().
inline void Require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_REQUIRE_H_
