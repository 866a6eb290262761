#include "client/find_model.h"

#include <algorithm>

#include "base/status.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

absl::StatusOr<v1::ModelInfo> FindModel(Client& client, const std::string& name, int64_t version,
                                        const std::vector<std::string>& tasks) {
  if (!name.empty()) return client.GetModel(name, version);
  SRU_ASSIGN_OR_RETURN(v1::ListModelsResponse list, client.ListModels());
  const std::string* found = nullptr;
  for (const v1::ModelInfo& model : list.models()) {
    if (std::find(tasks.begin(), tasks.end(), model.task()) == tasks.end()) continue;
    // Of several the server says what to do.
    if (found != nullptr && *found != model.name()) return client.GetModel("", version);
    found = &model.name();
  }
  return client.GetModel(found == nullptr ? "" : *found, version);
}

}  // namespace sru::client
