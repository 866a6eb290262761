#include "server/lifecycle/load_failure.h"

#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace sru::server::lifecycle {

absl::Status ExplainFailure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return absl::ResourceExhaustedError("memory does not suffice");
  }
  const auto* const system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a thread cannot be started (", error.what(),
        "): the limit of threads (ulimit -u, pids.max of the control group) or of memory (ulimit "
        "-v) is reached; raise it or lower --instances"));
  }
  return absl::ResourceExhaustedError(error.what());
}

}  // namespace sru::server::lifecycle
