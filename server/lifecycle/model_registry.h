// The models that are served: maps name and version to the loaded model with its engine and
// metrics.
//
// Look-ups read an immutable snapshot, which is replaced as a whole when a model is loaded or
// unloaded; running calls keep the models that they started with. Thread-safe.
#ifndef SRU_SERVER_LIFECYCLE_MODEL_REGISTRY_H_
#define SRU_SERVER_LIFECYCLE_MODEL_REGISTRY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "models/model.h"
#include "server/batching/engine.h"
#include "server/calls/method_info.h"
#include "server/telemetry/metrics.h"

namespace sru::server::lifecycle {

// A model that answers calls. Calls keep it alive, but must not destroy it: its engine joins the
// workers that answer them. ModelManager's pointers take care of that.
struct ServedModel {
  std::string name;
  int64_t version = 0;
  std::shared_ptr<const models::Model> model;
  std::shared_ptr<telemetry::ModelMetrics> metrics;
  std::unique_ptr<batching::Engine> engine;  // destroyed first: its workers report to `metrics`
};

class ModelRegistry {
 public:
  ModelRegistry() = default;
  ModelRegistry(const ModelRegistry&) = delete;
  ModelRegistry& operator=(const ModelRegistry&) = delete;

  // Serves exactly these from now on; names and versions must be unique.
  void Replace(std::vector<std::shared_ptr<ServedModel>> models);

  // Version 0 means the latest. The name may be empty if only one model is loaded, or only one
  // whose latest version answers: it has one of the `tasks` and, if that is asked, one direction
  // or a vocabulary.
  // kInvalidArgument for a negative version, and for an empty name if there are several models to
  // choose from, or several and none that answers; kNotFound says what is loaded.
  absl::StatusOr<std::shared_ptr<ServedModel>> Find(const std::string& name, int64_t version,
                                                    calls::TaskSet tasks = {},
                                                    bool one_direction = false,
                                                    bool vocabulary = false) const;

  // Another number after each Replace(), of any registry. What was made of List() later than this
  // was asked holds as long as it stays.
  int64_t generation() const {
    MutexLock lock(&mutex_);
    return generation_;
  }
  // All models, sorted by name, then version.
  std::vector<std::shared_ptr<ServedModel>> List() const;

 private:
  using Versions = std::map<int64_t, std::shared_ptr<ServedModel>>;
  using Models = std::map<std::string, Versions>;

  // The only one of several models, or the only one that answers; else the error, which names those
  // to choose from.
  static absl::StatusOr<Models::const_iterator> OnlyModel(const Models& models,
                                                          calls::TaskSet tasks, bool one_direction,
                                                          bool vocabulary);

  std::shared_ptr<const Models> snapshot() const {
    MutexLock lock(&mutex_);
    return models_;
  }

  mutable Mutex mutex_;
  std::shared_ptr<const Models> models_ ABSL_GUARDED_BY(mutex_) = std::make_shared<Models>();
  int64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server::lifecycle

#endif  // SRU_SERVER_LIFECYCLE_MODEL_REGISTRY_H_
