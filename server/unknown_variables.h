// Variables of the environment that were probably meant for this server but name none of its flags.
#ifndef SRU_SERVER_UNKNOWN_VARIABLES_H_
#define SRU_SERVER_UNKNOWN_VARIABLES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sru::server {

// A warning for each variable of `environment` ("NAME=value") that looks as if it were meant for
// this server and is no flag of it, with the nearest one that is. The variables of sru_client, and
// those that Kubernetes makes for a service whose name begins with sru, are left alone.
std::vector<std::string> UnknownVariables(const char* const* environment,
                                          absl::Span<const absl::string_view> flags);

}  // namespace sru::server

#endif  // SRU_SERVER_UNKNOWN_VARIABLES_H_
