// Names of the wire's enums as a user types and reads them, and errors that say what to do next.
#ifndef SRU_CLIENT_NAMES_H_
#define SRU_CLIENT_NAMES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/messages_fwd.h"

namespace google::protobuf {
class EnumValueDescriptor;
}

namespace sru::client {

// The names that users type and read for the values of enums: "max" for POOLING_MAX, "" for one
// that is unspecified. The states of models, "READY" and so on, are read as they are.
std::string NameOf(const google::protobuf::EnumValueDescriptor& value);

// The values of an enum that have such a name, for Flags::AddChoice(): of Priority, Unknown,
// Pooling, LengthPenalty::Form or OutputFormat.
template <typename Enum>
std::vector<std::pair<std::string, Enum>> NamedValues();

// "RESOURCE_EXHAUSTED: the queue is full" and, on the next line, what the user can do about it.
std::string ExplainError(const absl::Status& status, absl::string_view address,
                         absl::Duration deadline);

// Like ExplainError(), for a call that was to load or unload a model.
std::string ExplainAdminError(const absl::Status& status, absl::string_view address,
                              absl::Duration deadline);

}  // namespace sru::client

#endif  // SRU_CLIENT_NAMES_H_
