// What an exception while a model was loaded means to the operator.
#ifndef SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_
#define SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_

#include <exception>

#include "absl/status/status.h"

namespace sru::server {

// kResourceExhausted, with what was missing and, where that can be told, what to change.
absl::Status ExplainFailure(const std::exception& error);

}  // namespace sru::server

#endif  // SRU_SERVER_LIFECYCLE_LOAD_FAILURE_H_
