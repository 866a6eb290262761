#include "server/lifecycle/model_manager.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <new>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/base/cores.h"
#include "server/base/heap.h"
#include "server/base/log.h"

namespace sru::server::lifecycle {
namespace {

// The most requests that may wait for the manager's thread.
constexpr size_t kMaxRequests = 64;

// Equal for two looks at a model that saw the same files; empty if there are none.
std::string Fingerprint(const models::ModelListing& listing) {
  std::string fingerprint = listing.problem;
  for (const models::ModelLocation& location : listing.versions) {
    absl::StrAppend(&fingerprint, "\n", location.version, "\n",
                    models::FileSignature(location.path()));
  }
  return fingerprint;
}

// To a caller, wrong files are not a wrong argument.
absl::StatusCode CodeForCaller(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return code;
  }
}

}  // namespace

// What is handed to the manager's thread.
struct ModelManager::Mailbox {
  Mutex mutex;
  CondVar changed;
  bool stop ABSL_GUARDED_BY(mutex) = false;
  std::deque<std::function<void(const absl::Status&)>> requests ABSL_GUARDED_BY(mutex);
  // Versions that nothing refers to any more. The last call releases its version on a thread of
  // that version's own engine. That thread cannot free it, because the engine joins its threads.
  std::vector<std::unique_ptr<ServedModel>> released ABSL_GUARDED_BY(mutex);
};

ModelManager::ModelManager(const ModelManagerOptions& options, ModelLoader* loader,
                           ModelRegistry* registry, const Clock* clock, ModelObserver* observer)
    : options_(options),
      loader_(*loader),
      registry_(*registry),
      clock_(*clock),
      observer_(observer),
      mailbox_(std::make_shared<Mailbox>()) {}

ModelManager::~ModelManager() {
  BeginStop();
  if (thread_.joinable()) thread_.join();
  {
    MutexLock lock(&mutex_);
    for (auto& [name, entry] : models_) {
      for (auto& [number, version] : entry.versions) Retire(&version.served);
    }
    models_.clear();
    Publish();
  }
  FreeReleased();
}

absl::Status ModelManager::Start() {
  switch (options_.control) {
    case ModelControl::kStatic: {
      SRU_ASSIGN_OR_RETURN(const auto locations, options_.Locations());
      for (const models::ModelLocation& location : locations) {
        SRU_RETURN_UNLESS_OK(LoadVersion(location, models::FileSignature(location.path())));
      }
      return absl::OkStatus();
    }
    case ModelControl::kExplicit: {
      SRU_RETURN_UNLESS_OK(models::ScanRepository(options_.repository).status());
      Mode at_start;
      at_start.quiet = true;
      for (const std::string& model : options_.load_models) {
        const auto listing = models::ScanModel(options_.repository, model);
        absl::Status status = listing.status();
        if (status.ok()) status = Apply(model, *listing, at_start);
        if (!status.ok()) {
          return absl::Status(status.code(), absl::StrCat("--load_models: ", status.message()));
        }
      }
      return absl::OkStatus();
    }
    case ModelControl::kPoll:
      return PollAtOnce();  // a server should be ready as soon as it can
  }
  return absl::InternalError("unknown model control");
}

void ModelManager::StartThread() {
  thread_ = std::thread([this] { Run(); });
}

void ModelManager::Run() {
  NameThisThread("sru_models");
  const bool polls = options_.control == ModelControl::kPoll;
  absl::Time next_poll = polls ? clock_.Now() + options_.poll_interval : absl::InfiniteFuture();
  for (;;) {
    std::function<void(const absl::Status&)> request;
    {
      MutexLock lock(&mailbox_->mutex);
      for (;;) {
        if (mailbox_->stop) return;
        if (!mailbox_->requests.empty() || !mailbox_->released.empty()) break;
        const absl::Time now = clock_.Now();
        if (now >= next_poll) break;
        mailbox_->changed.WaitFor(&mailbox_->mutex, next_poll - now);
      }
      if (!mailbox_->requests.empty()) {
        request = std::move(mailbox_->requests.front());
        mailbox_->requests.pop_front();
      }
    }
    FreeReleased();
    if (request != nullptr) {
      request(absl::OkStatus());
    } else if (clock_.Now() >= next_poll) {
      Poll();
      next_poll = clock_.Now() + options_.poll_interval;
    } else {
      continue;
    }
    AwaitFreed();
  }
}

void ModelManager::AwaitFreed() {
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(has_newly_retired_, false)) return;
  }
  const absl::Time deadline = clock_.Now() + options_.unload_wait;
  const auto any_is_retired = [this] {
    MutexLock lock(&mutex_);
    return absl::c_any_of(in_memory_, [](const auto& entry) { return entry.second.retired; });
  };
  while (any_is_retired()) {
    {
      MutexLock lock(&mailbox_->mutex);
      while (!mailbox_->stop && mailbox_->released.empty()) {
        const absl::Duration left = deadline - clock_.Now();
        if (left <= absl::ZeroDuration()) {
          LogWarning(absl::StrCat("unloaded models still have calls after ",
                                  absl::FormatDuration(options_.unload_wait),
                                  "; their memory is freed when those are answered"));
          return;
        }
        mailbox_->changed.WaitFor(&mailbox_->mutex, left);
      }
      if (mailbox_->stop) return;
    }
    FreeReleased();
  }
}

absl::Status ModelManager::PollAtOnce() {
  SRU_ASSIGN_OR_RETURN(const auto listing, models::ScanRepository(options_.repository));
  // Pretends that everything has been seen before.
  seen_.clear();
  for (const auto& [model, found] : listing.models) seen_[model] = Fingerprint(found);
  Poll(/*asked=*/true);
  return absl::OkStatus();
}

void ModelManager::Poll(bool asked) {
  const auto listing = models::ScanRepository(options_.repository);
  if (!listing.ok()) {
    if (listing.status() != scan_status_) {
      LogWarning(absl::StrCat(listing.status().message(), "; what is loaded stays"));
    }
    scan_status_ = listing.status();
    repository_emptied_ = !registry_.List().empty();
    return;
  }
  if (!scan_status_.ok()) {
    LogInfo(absl::StrCat(options_.repository, ": can be listed again"));
    scan_status_ = absl::OkStatus();
    repository_emptied_ = false;  // if it is empty now, the time begins now
  }
  if (listing->problems != problems_) {
    for (const std::string& problem : listing->problems) LogWarning(problem);
    problems_ = listing->problems;
  }
  if (WaitsForEmptyRepository(*listing)) return;

  std::map<std::string, models::ModelListing> found = listing->models;
  for (const auto& [model, fingerprint] : seen_) found.try_emplace(model);
  for (const auto& [model, fingerprint] : applied_) found.try_emplace(model);
  for (const auto& [model, versions] : found) {
    const std::string now = Fingerprint(versions);
    const bool settled = now == seen_[model];
    if (now.empty()) {
      seen_.erase(model);
    } else {
      seen_[model] = now;
    }
    const auto applied = applied_.find(model);
    const bool is_changed = now != (applied == applied_.end() ? "" : applied->second);
    const bool is_new = asked || is_changed || MayFitNow(model);
    if (!settled || !is_new) continue;
    Mode mode;
    mode.asked = asked;
    mode.fall_back = true;
    if (absl::IsAborted(Apply(model, versions, mode))) {
      seen_.erase(model);           // still being written: wait until it settles again
      applied_[model] = "changes";  // like no fingerprint, so that any state of the files is new
    } else if (now.empty()) {
      applied_.erase(model);
    } else {
      applied_[model] = now;
    }
  }
}

bool ModelManager::WaitsForEmptyRepository(const models::RepositoryListing& listing) {
  const bool empty = std::all_of(
      listing.models.begin(), listing.models.end(),
      [](const auto& model) { return model.second.versions.empty() && model.second.is_listed; });
  const size_t served = registry_.List().size();
  if (!empty || served == 0) {
    if (repository_emptied_.exchange(false) && !empty) {
      LogInfo(absl::StrCat(options_.repository, ": has models again"));
    }
    empty_since_ = absl::InfiniteFuture();
    return false;
  }
  const absl::Time now = clock_.Now();
  if (!repository_emptied_.exchange(true)) {
    empty_since_ = now;
    LogWarning(absl::StrCat(options_.repository, ": has no model any more; the ", served,
                            " versions that are loaded stay for ",
                            absl::FormatDuration(options_.empty_repository_grace),
                            ", in case its volume is not mounted"));
  }
  return now < empty_since_ + options_.empty_repository_grace;
}

absl::StatusOr<std::vector<telemetry::ModelStatus>> ModelManager::Load(const std::string& model) {
  const auto listing = models::ScanModel(options_.repository, model);
  Mode mode;
  mode.asked = true;
  absl::Status status = listing.status();
  if (status.ok()) {
    status = Apply(model, *listing, mode);
    status = absl::Status(CodeForCaller(status.code()), status.message());
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        telemetry::WithoutRepository(status.message(), options_.repository));
  }
  return Statuses(&model);
}

absl::Status ModelManager::Unload(const std::string& model) {
  if (!models::IsValidModelName(model)) {
    return models::ScanModel(options_.repository, model).status();  // says what is wrong with it
  }
  {
    MutexLock lock(&mutex_);
    const auto entry = models_.find(model);
    if (entry != models_.end()) {
      entry->second.problem.clear();
    } else {
      return absl::NotFoundError(absl::StrCat(
          "model: '", model, "' is not loaded; loaded: ",
          models_.empty() ? "none"
                          : absl::StrJoin(models_, ", ", [](std::string* out, const auto& entry) {
                              absl::StrAppend(out, entry.first);
                            })));
    }
  }
  Remove(model, {}, {});
  FreeReleased();
  return absl::OkStatus();
}

void ModelManager::RequestPoll() {
  Post([this](const absl::Status& admitted) {
    if (!admitted.ok()) return;  // the manager is stopping or has too much to do
    // Poll() reports a repository that cannot be listed.
    if (!PollAtOnce().ok()) Poll();
  });
}

void ModelManager::RequestLoad(const std::string& model, CancelledCallback cancelled,
                               LoadCallback done) {
  Post(
      [this, model, cancelled = std::move(cancelled), done = std::move(done)](absl::Status status) {
        if (status.ok() && cancelled()) {
          status = absl::CancelledError("the caller is gone; the model was not loaded");
        }
        done(status.ok() ? Load(model) : status);
      });
}

void ModelManager::RequestUnload(const std::string& model, CancelledCallback cancelled,
                                 UnloadCallback done) {
  Post(
      [this, model, cancelled = std::move(cancelled), done = std::move(done)](absl::Status status) {
        if (status.ok() && cancelled()) {
          status = absl::CancelledError("the caller is gone; the model was not unloaded");
        }
        done(status.ok() ? Unload(model) : status);
      });
}

void ModelManager::Post(std::function<void(const absl::Status& admitted)> request) {
  absl::Status refused;
  {
    MutexLock lock(&mailbox_->mutex);
    if (mailbox_->stop) {
      refused = absl::UnavailableError("the server is shutting down");
    } else if (mailbox_->requests.size() >= kMaxRequests) {
      refused = absl::ResourceExhaustedError(
          absl::StrCat(kMaxRequests, " requests to load or unload wait already"));
    } else {
      mailbox_->requests.push_back(std::move(request));
      mailbox_->changed.SignalAll();
      return;
    }
  }
  request(refused);
}

void ModelManager::BeginStop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  std::deque<std::function<void(const absl::Status&)>> requests;
  {
    MutexLock lock(&mailbox_->mutex);
    mailbox_->stop = true;
    requests.swap(mailbox_->requests);
    mailbox_->changed.SignalAll();
  }
  for (const auto& request : requests) {
    request(absl::UnavailableError("the server is shutting down"));
  }
}

absl::Status ModelManager::Apply(const std::string& model, const models::ModelListing& listing,
                                 const Mode& mode) {
  // With "latest N" every version is a candidate, since a lower one may have to take the place of
  // one that fails.
  const models::VersionPolicy& policy = options_.version_policy;
  const bool latest = policy.kind == models::VersionPolicy::Kind::kLatest;
  const std::vector<models::ModelLocation> candidates =
      latest ? listing.versions : models::SelectVersions(policy, listing.versions);
  const size_t wanted =
      latest ? std::min<size_t>(candidates.size(), policy.latest) : candidates.size();
  std::string problem = listing.problem;
  if (candidates.empty() && !listing.versions.empty()) {
    problem = absl::StrCat("the model has none of the versions ", absl::StrJoin(policy.named, ", "),
                           " (--version_policy)");
  }
  if (candidates.empty() && !mode.fall_back) {
    return absl::FailedPreconditionError(
        absl::StrCat("model ", model, ": ",
                     problem.empty() ? "the model has no version directory; expected "
                                       "<repository>/<model>/<version>/config.json"
                                     : problem));
  }
  {
    MutexLock lock(&mutex_);
    Entry& entry = models_[model];
    if (!problem.empty() && entry.problem != problem && !mode.quiet) {
      LogWarning(absl::StrCat("model ", model, ": ", problem));
    }
    entry.problem = problem;
  }
  if (!listing.is_listed) return absl::OkStatus();  // what is loaded stays

  absl::Status failure;
  std::vector<int64_t> serving;
  std::vector<int64_t> looked_at;
  for (auto it = candidates.rbegin(); it != candidates.rend() && serving.size() < wanted; ++it) {
    const std::string signature = models::FileSignature(it->path());
    const bool takes_anothers_place = looked_at.size() >= wanted;
    looked_at.push_back(it->version);
    bool served;
    bool is_same;  // what is served was loaded from such files
    std::string contents;
    {
      MutexLock lock(&mutex_);
      const Version& version = models_[model].versions[it->version];
      served = version.served != nullptr;
      is_same = served && version.signature == signature;
      contents = version.contents;
    }
    // Equal contents may look different, after a copy or a backup by links, and different ones
    // equal.
    if (served && (mode.asked || !is_same)) {
      is_same = !contents.empty() && models::FileContentsDigest(it->path()) == contents;
    }
    bool load;
    {
      MutexLock lock(&mutex_);
      Version& version = models_[model].versions[it->version];
      load = !is_same && ShouldLoad(version, signature, takes_anothers_place, mode);
      // Also if they were changed, failed and changed back.
      if (is_same) version.signature = signature;
      if (is_same) version.failure = absl::OkStatus();
    }
    absl::Status status;
    if (load) {
      status = LoadVersion(*it, signature);
      if (status.ok()) served = true;
    }
    if (served) serving.push_back(it->version);
    if (status.ok()) continue;
    status = absl::Status(status.code(), absl::StrCat("model ", model, " version ", it->version,
                                                      ": ", status.message()));
    if (absl::IsAborted(status) || absl::IsCancelled(status)) {
      Forget(model);
      return status;
    }
    if (failure.ok()) failure = status;
    if (!mode.quiet) {
      LogWarning(absl::StrCat(status.message(), "; ", StillServed(model)));
    }
  }
  Remove(model, serving, looked_at);
  FreeReleased();
  if (!failure.ok()) {
    return absl::Status(failure.code(), absl::StrCat(failure.message(), "; ", StillServed(model)));
  }
  return absl::OkStatus();
}

bool ModelManager::ShouldLoad(const Version& version, const std::string& signature,
                              bool takes_anothers_place, const Mode& mode) const {
  const bool failed_with_these_files =
      !version.failure.ok() && version.failed_signature == signature;
  const bool has_room_now = version.needs_bytes > 0 && HasRoom(version.needs_bytes);
  if (failed_with_these_files && !has_room_now && !mode.asked) return false;
  return version.served != nullptr || !takes_anothers_place || mode.fall_back;
}

absl::Status ModelManager::LoadVersion(const models::ModelLocation& location,
                                       const std::string& signature) {
  {
    MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the server is shutting down");
    models_[location.name].versions[location.version].loading = true;
  }
  const models::MemoryEstimate estimate = loader_.Estimate(location);
  const absl::Time start = clock_.Now();
  const std::optional<int64_t> left = options_.free_memory();
  absl::Status status =
      left.has_value() ? CheckRoom(location, estimate, *left, &loader_) : absl::OkStatus();
  const int64_t needs_bytes = status.ok() ? 0 : estimate.total();
  absl::StatusOr<std::unique_ptr<ServedModel>> loaded;
  std::string contents;
  if (status.ok()) {
    LogInfo(absl::StrCat("loading model ", location.name, " version ", location.version, " (",
                         estimate.files, " bytes)"));
    loaded = loader_.Load(location);
    status = loaded.status();
    // After the load, which refuses at once a sparse file of terabytes that would take hours to
    // read.
    if (status.ok() && options_.control != ModelControl::kStatic) {
      contents = models::FileContentsDigest(location.path());
    }
  }
  const absl::Duration duration = clock_.Now() - start;
  if (models::FileSignature(location.path()) != signature) {
    status = absl::AbortedError("the files changed while they were loaded");
  }
  std::shared_ptr<ServedModel> served;
  if (status.ok()) {
    served =
        std::shared_ptr<ServedModel>(loaded->release(), [mailbox = mailbox_](ServedModel* model) {
          MutexLock lock(&mailbox->mutex);
          mailbox->released.emplace_back(model);
          mailbox->changed.SignalAll();
        });
  }
  {
    MutexLock lock(&mutex_);
    Entry& entry = models_[location.name];
    Version& version = entry.versions[location.version];
    version.loading = false;
    if (status.ok()) {
      in_memory_[served.get()] = {location.name, location.version, served, false};
      if (stopping_) {
        Retire(&served);
        status = absl::CancelledError("the server is shutting down");
      } else {
        ++entry.loads;
        Retire(&version.served);
        version.served = std::move(served);
        version.signature = signature;
        version.contents = std::move(contents);
        version.failure = absl::OkStatus();
        version.needs_bytes = 0;
        Publish();
      }
    } else if (!absl::IsAborted(status)) {
      ++entry.failures;
      version.failure = status;
      version.failed_signature = signature;
      version.needs_bytes = needs_bytes;
    }
  }
  if (observer_ != nullptr && !absl::IsAborted(status) && !absl::IsCancelled(status)) {
    observer_->OnLoad(location, duration, status);
  }
  NotifyServing(location.name);
  return status;
}

absl::Status CheckRoom(const models::ModelLocation& location,
                       const models::MemoryEstimate& estimate, int64_t left, ModelLoader* loader) {
  if (estimate.total() <= left) return absl::OkStatus();
  const auto megabytes = [](int64_t bytes) {
    return absl::StrFormat("%.1f MB", static_cast<double>(bytes) / 1e6);
  };
  const std::string cure = loader->Cure(left);
  return absl::ResourceExhaustedError(
      absl::StrCat(location.directory, ": expected at least ", megabytes(estimate.total()),
                   " of free memory (packed weights ", megabytes(estimate.packed), ", workspaces ",
                   megabytes(estimate.workspaces), ", other ",
                   megabytes(estimate.vocabulary + estimate.passing + estimate.margin), "), found ",
                   megabytes(left), cure.empty() ? "" : "; ", cure, "; not read"));
}

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

bool ModelManager::HasRoom(int64_t bytes) const {
  return bytes <= options_.free_memory().value_or(bytes);
}

bool ModelManager::MayFitNow(const std::string& model) const {
  std::vector<int64_t> needs;
  {
    MutexLock lock(&mutex_);
    const auto entry = models_.find(model);
    if (entry == models_.end()) return false;
    for (const auto& [number, version] : entry->second.versions) {
      if (version.needs_bytes > 0) needs.push_back(version.needs_bytes);
    }
  }
  return std::any_of(needs.begin(), needs.end(), [this](int64_t bytes) { return HasRoom(bytes); });
}

void ModelManager::Remove(const std::string& model, const std::vector<int64_t>& serving,
                          const std::vector<int64_t>& looked_at) {
  std::vector<int64_t> unloaded;
  {
    MutexLock lock(&mutex_);
    Entry& entry = models_[model];
    for (auto it = entry.versions.begin(); it != entry.versions.end();) {
      auto& [number, version] = *it;
      if (version.served != nullptr && !absl::c_linear_search(serving, number)) {
        unloaded.push_back(number);
        Retire(&version.served);
      }
      const bool failed = !version.failure.ok() && absl::c_linear_search(looked_at, number);
      it = version.served != nullptr || failed ? std::next(it) : entry.versions.erase(it);
    }
    if (!unloaded.empty()) Publish();
  }
  for (const int64_t version : unloaded) {
    LogInfo(absl::StrCat("unloaded model ", model, " version ", version,
                         "; calls that found it are still answered"));
  }
  NotifyServing(model);
  Forget(model);
}

void ModelManager::Forget(const std::string& model) {
  MutexLock lock(&mutex_);
  const auto entry = models_.find(model);
  auto& versions = entry->second.versions;
  for (auto it = versions.begin(); it != versions.end();) {
    const bool known = it->second.served != nullptr || !it->second.failure.ok();
    it = known ? std::next(it) : versions.erase(it);
  }
  if (versions.empty() && entry->second.problem.empty()) models_.erase(entry);
}

void ModelManager::Retire(std::shared_ptr<ServedModel>* served) {
  if (*served == nullptr) return;
  in_memory_[served->get()].retired = true;
  has_newly_retired_ = true;
  served->reset();
}

void ModelManager::Publish() {
  std::vector<std::shared_ptr<ServedModel>> served;
  for (const auto& [name, entry] : models_) {
    for (const auto& [number, version] : entry.versions) {
      if (version.served != nullptr) served.push_back(version.served);
    }
  }
  registry_.Replace(std::move(served));
}

void ModelManager::FreeReleased() {
  std::vector<std::unique_ptr<ServedModel>> released;
  {
    MutexLock lock(&mailbox_->mutex);
    released.swap(mailbox_->released);
  }
  if (released.empty()) return;
  std::vector<const ServedModel*> freed;
  for (std::unique_ptr<ServedModel>& served : released) {
    freed.push_back(served.get());
    served.reset();  // joins the engine's workers, which have nothing left to do
  }
  ReleaseFreeMemory();
  // Only now, since a version that is no longer listed as in memory must have given its memory
  // back.
  MutexLock lock(&mutex_);
  for (const ServedModel* const served : freed) in_memory_.erase(served);
}

void ModelManager::NotifyServing(const std::string& model) {
  if (observer_ != nullptr) observer_->OnServing(model, !ServedVersions(model).empty());
}

std::vector<int64_t> ModelManager::ServedVersions(const std::string& model) const {
  std::vector<int64_t> served;
  MutexLock lock(&mutex_);
  const auto entry = models_.find(model);
  if (entry == models_.end()) return served;
  for (const auto& [number, version] : entry->second.versions) {
    if (version.served != nullptr) served.push_back(number);
  }
  return served;
}

std::string ModelManager::StillServed(const std::string& model) const {
  const std::vector<int64_t> served = ServedVersions(model);
  if (served.empty()) return "no version of the model is served";
  return absl::StrCat(served.size() == 1 ? "version " : "versions ", absl::StrJoin(served, ", "),
                      served.size() == 1 ? " is served" : " are served");
}

std::vector<telemetry::ModelStatus> ModelManager::Statuses(const std::string* only_model) const {
  std::vector<telemetry::ModelStatus> statuses;
  {
    MutexLock lock(&mutex_);
    const auto is_left_out = [only_model](const std::string& model) {
      return only_model != nullptr && model != *only_model;
    };
    for (const auto& [name, entry] : models_) {
      if (is_left_out(name)) continue;
      if (!entry.problem.empty()) {
        statuses.push_back({name, 0, telemetry::ModelState::kFailed,
                            telemetry::WithoutRepository(entry.problem, options_.repository)});
      }
      for (const auto& [number, version] : entry.versions) {
        const std::string failure =
            telemetry::WithoutRepository(version.failure.message(), options_.repository);
        if (version.served != nullptr) {
          statuses.push_back({name, number, telemetry::ModelState::kReady, failure});
        }
        if (version.loading) {
          statuses.push_back({name, number, telemetry::ModelState::kLoading, ""});
        } else if (version.served == nullptr && !version.failure.ok()) {
          statuses.push_back({name, number, telemetry::ModelState::kFailed, failure});
        }
      }
    }
    for (const auto& [key, in_memory] : in_memory_) {
      if (in_memory.retired && !is_left_out(in_memory.model)) {
        statuses.push_back(
            {in_memory.model, in_memory.version, telemetry::ModelState::kUnloading, ""});
      }
    }
  }
  std::stable_sort(statuses.begin(), statuses.end(), [](const auto& a, const auto& b) {
    return std::tie(a.model, a.version, a.state) < std::tie(b.model, b.version, b.state);
  });
  return statuses;
}

std::vector<telemetry::ModelLoadCounts> ModelManager::LoadCounts() const {
  MutexLock lock(&mutex_);
  std::vector<telemetry::ModelLoadCounts> counts;
  for (const auto& [name, entry] : models_) {
    counts.push_back({name, entry.loads, entry.failures});
  }
  return counts;
}

std::vector<std::shared_ptr<ServedModel>> ModelManager::InMemory() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<ServedModel>> list;
  for (const auto& [key, in_memory] : in_memory_) {
    if (auto served = in_memory.served.lock()) list.push_back(std::move(served));
  }
  return list;
}

}  // namespace sru::server::lifecycle
