// How errors of absl::Status are made and passed on. kernels/ has its own (kernels/status.h), as it
// does without Abseil.
#ifndef SRU_BASE_STATUS_H_
#define SRU_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sru {

// kInvalidArgument with the message that StrCat() makes of the parts.
template <typename... Parts>
absl::Status InvalidArgument(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace sru

// Leaves the function with the absl::Status of the expression unless it is OK.
#define SRU_RETURN_UNLESS_OK(expression)                  \
  do {                                                    \
    if (absl::Status s = (expression); !s.ok()) return s; \
  } while (false)

// SRU_ASSIGN_OR_RETURN(Config config, Read(path)) declares, or sets, what is on the left to the
// value of an absl::StatusOr, or leaves the function with its error. It is more than one statement.
#define SRU_ASSIGN_OR_RETURN(target, expression) \
  SRU_ASSIGN_OR_RETURN_VIA(SRU_JOIN_WORDS(status_or_, __LINE__), target, expression)
#define SRU_ASSIGN_OR_RETURN_VIA(result, target, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return std::move(result).status();       \
  target = *std::move(result)
#define SRU_JOIN_WORDS(first, second) SRU_JOIN_EXPANDED_WORDS(first, second)
#define SRU_JOIN_EXPANDED_WORDS(first, second) first##second

#endif  // SRU_BASE_STATUS_H_
