// Explains to the operator an exception that was thrown while a model was loaded.
#ifndef SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_
#define SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_

#include <exception>

#include "absl/status/status.h"

namespace sru::server::lifecycle {

// kResourceExhausted, saying what was missing and, if that is known, what to change.
absl::Status ExplainFailure(const std::exception& error);

}  // namespace sru::server::lifecycle

#endif  // SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_
