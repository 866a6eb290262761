// Poolings on the wire and in the kernels. v1::POOLING_DEFAULT has no counterpart.
#ifndef SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
#define SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_

#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
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
  const std::string name =
      absl::AsciiStrToLower(absl::StripPrefix(v1::Pooling_Name(pooling), "POOLING_"));
  kernels::Pooling found = kernels::Pooling::kNone;
  if (!kernels::ParsePooling(name, &found)) return std::nullopt;
  return found;
}

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGES_WIRE_POOLING_H_
