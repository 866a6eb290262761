// The command line and the environment, taken into the flags of options.h with errors of our own:
// Abseil's parser prints its and ends the process, which is no line of a log.
#ifndef SRU_SERVER_COMMAND_LINE_H_
#define SRU_SERVER_COMMAND_LINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace sru::server {

// Sets what `arguments` (without the program's name) say: --name=value, --name value, and --name or
// --noname for a flag that is true or false; the last one of a flag counts. Goes on after an error,
// so that all that is right is set (such as --log_format), and returns the first:
// kInvalidArgument, which names the flag, what was expected and what was found.
absl::Status ApplyCommandLine(const std::vector<std::string>& arguments,
                              absl::Span<const absl::string_view> flags);

// A warning for each variable of `environment` ("NAME=value") that looks as if it were meant for
// this server and is no flag of it, with the nearest one that is. The variables of sru_client, and
// those that Kubernetes makes for a service whose name begins with sru, are left alone.
std::vector<std::string> UnknownVariables(const char* const* environment,
                                          absl::Span<const absl::string_view> flags);

// The one of `names` that `name` was probably meant to be; empty when none is near.
absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace sru::server

#endif  // SRU_SERVER_COMMAND_LINE_H_
