// Poolings on the wire and in the kernels. v1::POOLING_DEFAULT has no counterpart.
#ifndef SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
#define SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_

#include <algorithm>
#include <array>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/stack_spec.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {

// By name: kMax is POOLING_MAX.
inline v1::Pooling ToProto(kernels::Pooling pooling) {
  v1::Pooling found = v1::POOLING_DEFAULT;
  v1::Pooling_Parse(absl::StrCat("POOLING_", absl::AsciiStrToUpper(kernels::PoolingName(pooling))),
                    &found);
  return found;
}

static_assert(static_cast<size_t>(v1::Pooling_MAX) == kernels::kAllPoolings.size(),
              "each pooling of the wire is one of the kernels'");

// Nothing for POOLING_DEFAULT and for a number that the wire does not know.
inline std::optional<kernels::Pooling> FromProto(v1::Pooling pooling) {
  static const auto wire = [] {
    std::array<v1::Pooling, kernels::kAllPoolings.size()> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = ToProto(kernels::kAllPoolings[i]);
    return all;
  }();
  const auto found = std::find(wire.begin(), wire.end(), pooling);
  if (found == wire.end()) return std::nullopt;
  return kernels::kAllPoolings[found - wire.begin()];
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
