// Poolings on the wire and in the kernels. v1::POOLING_DEFAULT has no counterpart.
#ifndef SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
#define SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_

#include <optional>

#include "kernels/stack_spec.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {

constexpr v1::Pooling ToProto(kernels::Pooling pooling) {
  switch (pooling) {
    case kernels::Pooling::kNone:
      return v1::POOLING_NONE;
    case kernels::Pooling::kFirst:
      return v1::POOLING_FIRST;
    case kernels::Pooling::kLast:
      return v1::POOLING_LAST;
    case kernels::Pooling::kMax:
      return v1::POOLING_MAX;
    case kernels::Pooling::kMean:
      return v1::POOLING_MEAN;
  }
  return v1::POOLING_DEFAULT;
}

static_assert(static_cast<size_t>(v1::Pooling_MAX) == kernels::kAllPoolings.size(),
              "each pooling of the wire is one of the kernels'");

// Nothing for POOLING_DEFAULT and for a number that the wire does not know.
inline std::optional<kernels::Pooling> FromProto(v1::Pooling pooling) {
  for (const kernels::Pooling candidate : kernels::kAllPoolings) {
    if (ToProto(candidate) == pooling) return candidate;
  }
  return std::nullopt;
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
