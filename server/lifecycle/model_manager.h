// ModelManager: decides which versions of which models are loaded, and updates the registry
// accordingly.
//
// A new version is loaded and warmed beside the old one. Then the registry's snapshot is replaced:
// calls that arrive from now on find the new version, calls that found the old one keep it. When
// the last of those is answered, the old version is freed, so that no accepted call is lost. If a
// version fails to load, what is served stays as it is; Statuses() has the reason.
//
// A loaded version whose files have other contents is reloaded, even if they were changed in place.
// Polling reads those whose FileSignature() differs; Load() and RequestPoll() read all of them. A
// version that failed is tried again when its files change or when Load() is called. A version
// whose directory disappears is unloaded. With VersionPolicy "latest N", polling serves the N
// highest versions that load: while a higher one fails, the next lower one takes its place.
//
// Polling acts on a model once two looks in a row see the same files, and drops what it loaded if
// they changed meanwhile: a version that is being copied is left alone until it is complete. A
// repository, or a model's folder, that cannot be listed changes nothing. Nor does one in which all
// models have lost their versions at once, for instance because its volume is not mounted, until
// options.empty_repository_grace has passed.
//
// A version that needs more memory than is available (ModelLoader::Estimate()) is refused before it
// is read, since a process that takes too much is killed, along with the models that it serves.
// Polling tries it again as soon as there is room.
//
// Threads: Start(), Load(), Unload(), Poll() and FreeReleased() must be called from one thread, and
// may block for as long as a model takes to load. That is the thread of a test, or the one of
// StartThread(), which serves RequestLoad() and RequestUnload() one after the other. All other
// functions are thread-safe and return at once.
#ifndef SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_
#define SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_

#include <atomic>
#include <cstdint>
#include <exception>
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
#include "base/mutex.h"
#include "models/memory_estimate.h"
#include "models/repository.h"
#include "server/base/clock.h"
#include "server/lifecycle/model_options.h"
#include "server/lifecycle/model_registry.h"
#include "server/telemetry/model_status.h"

namespace sru::server::lifecycle {

struct ModelManagerOptions : ModelOptions {
  // How long the thread waits for unloaded versions to be freed before it loads more, so that no
  // more than two versions of a model need memory at a time.
  absl::Duration unload_wait = absl::Seconds(30);
  // How much more memory the process may take; empty if that is not known, and then no version is
  // refused. Asked before each load.
  std::function<std::optional<int64_t>()> free_memory = [] { return std::optional<int64_t>(); };
};

// Makes versions that are ready to serve: loaded, with a warm engine. Called from one thread:
// Estimate(), then Cure() or Load() for the same version.
class ModelLoader {
 public:
  virtual ~ModelLoader() = default;
  // Estimated from the sizes of the files, without reading them. All zero: not known.
  virtual models::MemoryEstimate Estimate(const models::ModelLocation& /*location*/) { return {}; }
  // Which flags would make the version fit into `bytes`, with their values, for the error; empty:
  // not known.
  virtual std::string Cure(int64_t /*bytes*/) { return ""; }
  virtual absl::StatusOr<std::unique_ptr<ServedModel>> Load(
      const models::ModelLocation& location) = 0;
};

// kResourceExhausted if the version needs more than `left` bytes, with what helps, for which the
// loader is asked; the last Estimate() of the loader was for this version.
absl::Status CheckRoom(const models::ModelLocation& location,
                       const models::MemoryEstimate& estimate, int64_t left, ModelLoader* loader);

// kResourceExhausted for an exception that was thrown while a model was loaded: says what was
// missing and, if that is known, what to change.
absl::Status ExplainFailure(const std::exception& error);

// Is told about events, on the thread that loads.
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
  // These answer a request, from the manager's thread or from BeginStop().
  using LoadCallback =
      std::function<void(const absl::StatusOr<std::vector<telemetry::ModelStatus>>&)>;
  using UnloadCallback = std::function<void(const absl::Status&)>;
  // True if the caller no longer waits; a request that has not begun is then dropped.
  using CancelledCallback = std::function<bool()>;

  // All pointers must outlive the manager; `observer` may be null.
  ModelManager(const ModelManagerOptions& options, ModelLoader* loader, ModelRegistry* registry,
               const Clock* clock, ModelObserver* observer);
  ModelManager(const ModelManager&) = delete;
  ModelManager& operator=(const ModelManager&) = delete;
  // Waits for a running load, empties the registry and frees every version that no call holds.
  ~ModelManager();

  // Loads the models of the start. Static: all of them, explicit: options.load_models; the first
  // failure is returned. Polling: all that can be loaded; only an unreadable repository is an
  // error.
  absl::Status Start();

  // From now on polls (if options.control says so) and serves requests, on a thread of its own.
  void StartThread();

  // Looks at the repository once and acts on what it finds. `asked`: as Mode has it.
  void Poll(bool asked = false);

  // Loads a model, or looks again at a loaded one: new and changed versions are loaded, failed ones
  // are tried again, and those whose directories are gone are unloaded. Returns the model's
  // statuses if every version that the policy selects is served. kInvalidArgument for a bad name,
  // kNotFound when the repository has no such model, kFailedPrecondition when its files are wrong,
  // kAborted when they change while they are read, or another error of the loader, such as
  // kResourceExhausted. On an error, what was served before still is.
  absl::StatusOr<std::vector<telemetry::ModelStatus>> Load(const std::string& model);

  // Unloads a model: from now on its versions are not found. kInvalidArgument for a bad name,
  // kNotFound when it is not loaded.
  absl::Status Unload(const std::string& model);

  // Frees the versions that no call holds any more.
  void FreeReleased();

  // Makes the thread look at the repository at once and act on everything that it finds, without
  // waiting for a second look: the caller vouches that the files are complete.
  void RequestPoll();
  void RequestLoad(const std::string& model, CancelledCallback cancelled, LoadCallback done);
  void RequestUnload(const std::string& model, CancelledCallback cancelled, UnloadCallback done);

  // From now on nothing is loaded or unloaded; waiting and later requests get kUnavailable. Does
  // not wait for a running load, whose result will be dropped.
  void BeginStop();

  // Sorted by model, then version; of all models, or of one.
  std::vector<telemetry::ModelStatus> Statuses(const std::string* only_model = nullptr) const;
  std::vector<telemetry::ModelLoadCounts> LoadCounts() const;
  // Whether the last look found the repository empty, or could not list it, while models were
  // served from it.
  bool repository_emptied() const { return repository_emptied_.load(); }
  // All versions in memory: those in the registry and those that calls still hold.
  std::vector<std::shared_ptr<ServedModel>> InMemory() const;

 private:
  struct Mailbox;

  struct Version {
    std::shared_ptr<ServedModel> served;  // null when it is not loaded
    std::string signature;                // of the files that `served` was made from
    std::string contents;                 // FileContentsDigest() of these files
    bool loading = false;
    absl::Status failure;          // of the last attempt
    std::string failed_signature;  // of the files that failed
    int64_t needs_bytes = 0;       // if not 0, it failed because it needs this much memory
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
  // What Apply() may do about the versions that it finds.
  struct Mode {
    // Somebody asks for it: read files that look the same, and load failed versions again.
    bool asked = false;
    bool fall_back = false;  // load a lower version if a higher one fails
    bool quiet = false;      // log no failure: the caller reports it
  };

  // Like Poll(), but takes what it sees as settled, and asks for it.
  absl::Status PollAtOnce();
  // Loads, reloads and unloads versions until those in memory are the ones that the policy selects
  // from `listing`. Returns the first failure, if any.
  absl::Status Apply(const std::string& model, const models::ModelListing& listing,
                     const Mode& mode);
  // Whether to load or reload a version from files with `signature`, which are not those of what is
  // served. `takes_anothers_place`: it would replace a higher version that failed.
  bool ShouldLoad(const Version& version, const std::string& signature, bool takes_anothers_place,
                  const Mode& mode) const;
  absl::Status LoadVersion(const models::ModelLocation& location, const std::string& signature);
  // Whether this much memory is left now; true if that is not known.
  bool HasRoom(int64_t bytes) const;
  // Whether to leave everything as it is because the repository has become empty.
  bool WaitsForEmptyRepository(const models::RepositoryListing& listing);
  // Whether a version of the model that was refused for lack of memory would fit now.
  bool MayFitNow(const std::string& model) const;
  // Unloads the versions that are not in `serving` and forgets the failures of those that are not
  // in `looked_at`.
  void Remove(const std::string& model, const std::vector<int64_t>& serving,
              const std::vector<int64_t>& looked_at);
  // Erases the versions that are neither served nor failed, and the model if none is left.
  void Forget(const std::string& model);
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Retire(std::shared_ptr<ServedModel>* served) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NotifyServing(const std::string& model);
  std::vector<int64_t> ServedVersions(const std::string& model) const;
  std::string StillServed(const std::string& model) const;
  void Post(std::function<void(const absl::Status& admitted)> request);
  void Run();
  void AwaitFreed();

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
  bool has_newly_retired_ ABSL_GUARDED_BY(mutex_) = false;  // since AwaitFreed() was called last

  // Used by the one thread only: what Poll() saw last, and what it last acted on.
  std::map<std::string, std::string> seen_;
  std::map<std::string, std::string> applied_;
  std::vector<std::string> problems_;
  absl::Status scan_status_;
  absl::Time empty_since_ = absl::InfiniteFuture();

  std::atomic<bool> repository_emptied_{false};

  std::thread thread_;  // of the owner
};

}  // namespace sru::server::lifecycle

#endif  // SRU_SERVER_LIFECYCLE_MODEL_MANAGER_H_
