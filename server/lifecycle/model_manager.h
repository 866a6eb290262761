// ModelManager: decides which versions of which models are loaded, and brings the registry there.
//
// A new version is loaded and warmed beside the old one. Then the registry's snapshot is replaced:
// calls that arrive from now on find the new version, calls that found the old one keep it. When
// the last of them is answered the old version is freed, so that nothing that was accepted is lost.
// A version that fails to load leaves what is served as it is; the reason is in Statuses().
//
// A loaded version whose files change (FileSignature()) is loaded anew, also when it was changed in
// place. A version that failed is tried again when its files change, or when Load() asks for it. A
// version whose directory disappears is unloaded. With VersionPolicy "latest N", polling serves the
// N highest versions that load: while a higher one fails, the next lower takes its place.
//
// Polling acts upon a model when two looks in a row see the same files, and drops what it loaded
// when they changed meanwhile: a version that is being copied is left alone until it is complete. A
// repository that cannot be listed changes nothing. Neither does one in which, all at once, no
// model has a version any more, as when its volume is not mounted, until it has been so for
// options.empty_repository_grace.
//
// A version that needs more memory than is left (ModelLoader::Estimate()) is refused before it is
// read, since a process that takes too much is killed, and what it serves with it. Polling tries it
// again as soon as there is room.
//
// Threads: Start(), Load(), Unload(), Poll() and FreeReleased() are for one thread, which they may
// keep for as long as a model takes to load: the test's, or that of StartThread(), which takes
// requests from RequestLoad() and RequestUnload() one after the other. Everything else is
// thread-safe and returns at once.
#ifndef SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_
#define SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/memory_estimate.h"
#include "models/repository.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/lifecycle/model_control.h"
#include "server/lifecycle/model_registry.h"
#include "server/telemetry/model_status.h"

namespace sru::server {

struct ModelManagerOptions {
  std::string repository;
  ModelControl control = ModelControl::kStatic;
  models::VersionPolicy version_policy;
  absl::Duration poll_interval = absl::Seconds(5);
  // How long polling keeps what is served while the repository is empty.
  absl::Duration empty_repository_grace = absl::ZeroDuration();
  std::vector<std::string> load_models;  // at the start, when explicit
  // How long the thread waits for what was unloaded to be freed before it loads more, so that no
  // more than two versions of a model need memory at a time.
  absl::Duration unload_wait = absl::Seconds(30);
  // What the process may take besides what it has; nothing when that is not known. Asked before
  // each load; unset: never refused.
  std::function<std::optional<int64_t>()> free_memory;
};

// Makes a version that is ready to serve: loaded, its engine warm. Called from one thread.
class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // By the sizes of the files, without reading them. All zero: not known.
  virtual models::MemoryEstimate Estimate(const models::ModelLocation& /*location*/) { return {}; }
  virtual absl::StatusOr<std::unique_ptr<ServedModel>> Load(
      const models::ModelLocation& location) = 0;
};

// Is told what happens, from the thread that loads.
class ModelObserver {
 public:
  virtual ~ModelObserver() = default;
  // After each attempt to load.
  virtual void OnLoad(const models::ModelLocation& location, absl::Duration duration,
                      const absl::Status& status) = 0;
  // After each change of a model: whether a version of it is served.
  virtual void OnServing(const std::string& model, bool serving) = 0;
};

class ModelManager {
 public:
  // Answers a request; from the manager's thread, or from BeginStop().
  using LoadCallback = std::function<void(const absl::StatusOr<std::vector<ModelStatus>>&)>;
  using UnloadCallback = std::function<void(const absl::Status&)>;
  // True when the caller does not wait any more; what has not begun is then not done.
  using CancelledCallback = std::function<bool()>;

  // All pointers outlive the manager; `observer` may be null.
  ModelManager(const ModelManagerOptions& options, ModelLoader* loader, ModelRegistry* registry,
               const Clock* clock, ModelObserver* observer);
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;
  // Waits for a load that runs, empties the registry and frees every version that no call holds.
  ~ModelManager();

  // Loads what is there at the start. Static: everything, explicit: options.load_models; the first
  // that fails is the error. Polling: what loads; the error is about the repository alone.
  absl::Status Start();

  // Polls (if options.control says so) and serves requests from now on, on a thread of its own.
  void StartThread();

  // Looks at the repository once and acts upon what it sees.
  void Poll();

  // Loads a model, or looks again at one that is loaded: new and changed versions are loaded, those
  // that failed are tried again, those whose directories are gone are unloaded. Its statuses when
  // all that the policy names is served. kInvalidArgument for a bad name, kNotFound when the
  // repository has no such model, kFailedPrecondition when its files are wrong, kAborted when they
  // change while they are read, and what else the loader says, such as kResourceExhausted; what was
  // served before still is.
  absl::StatusOr<std::vector<ModelStatus>> Load(const std::string& model);

  // From now on the model's versions are not found. kInvalidArgument for a bad name, kNotFound when
  // it is not loaded.
  absl::Status Unload(const std::string& model);

  // Frees the versions that no call holds any more.
  void FreeReleased();

  // Lets the thread look at the repository at once and act upon all that it sees, without waiting
  // for a second look: whoever asks says that the files are complete.
  void RequestPoll();
  void RequestLoad(const std::string& model, CancelledCallback cancelled, LoadCallback done);
  void RequestUnload(const std::string& model, CancelledCallback cancelled, UnloadCallback done);

  // Nothing is loaded or unloaded from now on; requests that wait, and later ones, get
  // kUnavailable. Does not wait for a load that runs; its result will be dropped.
  void BeginStop();

  // By model, then version.
  std::vector<ModelStatus> Statuses() const;
  std::vector<ModelLoadCounts> LoadCounts() const;
  // Whether the last look found the repository empty while models were served from it.
  bool repository_emptied() const { return repository_emptied_.load(); }
  // Every version in memory: those in the registry and those that calls still hold.
  std::vector<std::shared_ptr<ServedModel>> InMemory() const;

 private:
  struct Mailbox;

  struct Version {
    std::shared_ptr<ServedModel> served;  // null when it is not loaded
    std::string signature;                // of the files that `served` was made from
    bool loading = false;
    absl::Status failure;          // of the last attempt
    std::string failed_signature;  // of the files that failed
    int64_t needs_bytes = 0;       // not 0: it failed for want of so much memory
  };
  struct Entry {
    std::map<int64_t, Version> versions;
    std::string problem;
    int64_t loads = 0;
    int64_t failures = 0;
  };
  struct InMemoryVersion {
    std::string model;
    int64_t version = 0;
    std::weak_ptr<ServedModel> served;
    bool retired = false;
  };
  // How Apply() treats what it finds.
  struct Mode {
    bool retry_failed = false;  // also when their files are the same
    bool fall_back = false;     // load a lower version when a higher one fails
    bool quiet = false;         // the caller reports the failure
  };

  // Poll(), which takes what it sees for settled.
  absl::Status PollAtOnce();
  // Brings the versions in memory to what the policy selects of `listing`: loads, loads anew and
  // unloads. The first failure, if any.
  absl::Status Apply(const std::string& model, const models::ModelListing& listing,
                     const Mode& mode);
  // Whether a version is to be loaded, for the first time or anew, from files with `signature`.
  // `takes_anothers_place`: it is below those that the policy names.
  bool ShouldLoad(const Version& version, const std::string& signature, bool takes_anothers_place,
                  const Mode& mode) const;
  absl::Status LoadVersion(const models::ModelLocation& location, const std::string& signature);
  // kResourceExhausted, with what is needed and what is left.
  absl::Status CheckMemory(const models::ModelLocation& location,
                           const models::MemoryEstimate& estimate);
  // Whether so much memory is left now; also when nothing is known of it.
  bool HasRoom(int64_t bytes) const;
  // Whether to leave everything as it is, since the repository is empty and was not before.
  bool WaitsForEmptyRepository(const models::RepositoryListing& listing);
  // Whether a version that was refused for want of memory would fit now.
  bool MayFitNow(const std::string& model) const;
  // Unloads what is not in `serving` and forgets the failures of what was not looked at.
  void Remove(const std::string& model, const std::vector<int64_t>& serving,
              const std::vector<int64_t>& looked_at);
  // Erases the versions that are neither served nor failed, and the model if none is left.
  void Forget(const std::string& model);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::shared_ptr<ServedModel>* served) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyServing(const std::string& model);
  std::vector<ModelStatus> StatusesOf(const std::string* model) const;
  std::string StillServed(const std::string& model) const;
  void Post(std::function<void(const absl::Status& admitted)> request);
  void Run();
  void AwaitFreed();
  bool AnyRetired() const;

  // Constant.
  const ModelManagerOptions options_;
  ModelLoader& loader_;
  ModelRegistry& registry_;
  const Clock& clock_;
  ModelObserver* const observer_;

  // Shared with the deleters of served versions, which may outlive the manager.
  const std::shared_ptr<Mailbox> mailbox_;

  mutable Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Entry> models_ ABSL_GUARDED_BY(mutex_);
  std::map<const ServedModel*, InMemoryVersion> in_memory_ ABSL_GUARDED_BY(mutex_);

  // Of the one thread: what Poll() saw last, and what it last acted upon.
  std::map<std::string, std::string> seen_;
  std::map<std::string, std::string> applied_;
  std::vector<std::string> problems_;
  absl::Status scan_status_;
  absl::Time empty_since_ = absl::InfiniteFuture();

  std::atomic<bool> repository_emptied_{false};

  std::thread thread_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_
