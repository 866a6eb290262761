// FindModel: what the server says of the model that a call would reach.
#ifndef SRU_CLIENT_FIND_MODEL_H_
#define SRU_CLIENT_FIND_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/calls.h"

namespace sru::client {

// The model `name`, or without a name the only one whose task (ModelInfo.task) is one of `tasks`:
// the one that the server takes for a call that names none. Version 0 is the latest. Errors are
// those of GetModel().
absl::StatusOr<v1::ModelInfo> FindModel(Client& client, const std::string& name, int64_t version,
                                        const std::vector<std::string>& tasks);

}  // namespace sru::client

#endif  // SRU_CLIENT_FIND_MODEL_H_
