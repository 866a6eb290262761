#include "server/lifecycle/model_registry.h"

#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "models/config.h"
#include "models/repository.h"

namespace sru::server::lifecycle {
namespace {

template <typename Map>
std::string JoinKeys(const Map& map) {
  return absl::StrJoin(
      map, ", ", [](std::string* out, const auto& entry) { absl::StrAppend(out, entry.first); });
}

}  // namespace

void ModelRegistry::Replace(std::vector<std::shared_ptr<ServedModel>> models) {
  static std::atomic<int64_t> last_generation{0};
  auto snapshot = std::make_shared<Models>();
  for (std::shared_ptr<ServedModel>& model : models) {
    Versions& versions = (*snapshot)[model->name];
    versions[model->version] = std::move(model);
  }
  std::shared_ptr<const Models> old = std::move(snapshot);
  {
    MutexLock lock(&mutex_);
    models_.swap(old);
    generation_ = ++last_generation;
  }
  // `old` is freed here, without the lock.
}

absl::StatusOr<ModelRegistry::Models::const_iterator> ModelRegistry::OnlyModel(const Models& models,
                                                                               calls::TaskSet tasks,
                                                                               bool one_direction,
                                                                               bool vocabulary) {
  if (models.size() == 1) return models.begin();
  std::vector<absl::string_view> fitting;
  auto last = models.end();
  for (auto it = models.begin(); it != models.end(); ++it) {
    const models::Model* const model = it->second.rbegin()->second->model.get();
    const bool answers = tasks.empty() || (tasks.has(model->task()) &&
                                           (!one_direction || model->is_unidirectional()) &&
                                           (!vocabulary || model->tokenizer() != nullptr));
    if (!answers) continue;
    fitting.push_back(it->first);
    last = it;
  }
  if (fitting.size() == 1) return last;
  if (fitting.empty() && vocabulary) {
    return InvalidArgument("model: no model with a vocabulary is loaded; loaded: ",
                           JoinKeys(models));
  }
  if (fitting.empty()) {
    std::vector<absl::string_view> names;
    for (const models::Task task : models::kAllTasks) {
      if (tasks.has(task)) names.emplace_back(models::TaskName(task));
    }
    return InvalidArgument("model: no ", one_direction ? "unidirectional " : "",
                           "model with the task ", absl::StrJoin(names, " or "),
                           " is loaded; loaded: ", JoinKeys(models));
  }
  return InvalidArgument("model: empty, expected a name as several models are loaded: ",
                         absl::StrJoin(fitting, ", "));
}

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRegistry::Find(const std::string& name,
                                                                 int64_t version,
                                                                 calls::TaskSet tasks,
                                                                 bool one_direction,
                                                                 bool vocabulary) const {
  const std::shared_ptr<const Models> models = snapshot();
  if (version < 0) {
    return InvalidArgument("version: ", version,
                           " is negative, expected 0 for the latest or a version number");
  }
  SRU_RETURN_UNLESS_OK(models::CheckNameLength("model", name));
  auto it = models->end();
  if (!name.empty()) {
    it = models->find(name);
    if (it == models->end()) {
      return absl::NotFoundError(absl::StrCat("model: '", name, "' is not loaded; loaded: ",
                                              models->empty() ? "none" : JoinKeys(*models)));
    }
  } else if (models->empty()) {
    return absl::NotFoundError("model: no model is loaded");
  } else {
    SRU_ASSIGN_OR_RETURN(it, OnlyModel(*models, tasks, one_direction, vocabulary));
  }
  const Versions& versions = it->second;
  if (version == 0) return versions.rbegin()->second;
  const auto found = versions.find(version);
  if (found == versions.end()) {
    return absl::NotFoundError(absl::StrCat("version: model '", it->first, "' has no version ",
                                            version, "; loaded: ", JoinKeys(versions)));
  }
  return found->second;
}

std::vector<std::shared_ptr<ServedModel>> ModelRegistry::List() const {
  std::vector<std::shared_ptr<ServedModel>> list;
  const auto models = snapshot();  // a loop over *snapshot() would not keep it
  for (const auto& [name, versions] : *models) {
    for (const auto& [version, model] : versions) list.push_back(model);
  }
  return list;
}

}  // namespace sru::server::lifecycle
