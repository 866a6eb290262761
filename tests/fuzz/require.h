// How a fuzz target says that what it tests broke a promise.
#ifndef SRU_TESTS_FUZZ_REQUIRE_H_
#define SRU_TESTS_FUZZ_REQUIRE_H_

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "absl/status/status.h"
#include "base/utf8.h"

namespace sru::fuzz {

// Ends the process with a message, unless `condition` holds. In every build, unlike assert().
inline void Require(bool condition, const char* promise) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", promise);
  std::abort();
}

// An error's message can be sent.
inline void RequireMessage(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  Require(!message.empty() && message.size() < 4096 && FindInvalidUtf8(message) == message.size(),
          "an error has a message, which is valid UTF-8 of a bounded length");
}

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_REQUIRE_H_
