#include "server/wiring/check_config.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "models/repository.h"
#include "server/base/clock.h"
#include "server/base/file_watcher.h"
#include "server/base/memory_limit.h"
#include "server/batching/batching_options.h"
#include "server/lifecycle/model_manager.h"
#include "server/telemetry/metrics.h"
#include "server/transport/credentials.h"
#include "server/transport/security_metrics.h"
#include "server/wiring/model_loader.h"
#include "server/wiring/state_key_file.h"

namespace sru::server::wiring {
namespace {

using Locations = std::vector<models::ModelLocation>;
using Problems = std::vector<std::string>;

void Note(const absl::Status& status, Problems* problems) {
  if (!status.ok()) problems->emplace_back(status.message());
}

// What would be loaded.
Locations FindModels(lifecycle::ModelOptions options, Problems* problems) {
  Note(lifecycle::UseBundledModels(&options), problems);
  if (!problems->empty() && options.repository.empty()) return {};
  if (!options.directories.empty()) return options.directories;
  const auto listing = models::ScanRepository(options.repository);
  Note(listing.status(), problems);
  if (!listing.ok()) return {};
  problems->insert(problems->end(), listing->problems.begin(), listing->problems.end());
  Locations found;
  for (const auto& [name, model] : listing->models) {
    const Locations versions = models::SelectVersions(options.version_policy, model.versions);
    found.insert(found.end(), versions.begin(), versions.end());
    if (model.problem.empty() && !versions.empty()) continue;
    problems->push_back(absl::StrCat(
        "model ", name, ": ",
        model.problem.empty() ? "expected a version that --version_policy names, found none"
                              : model.problem));
  }
  for (const std::string& name : options.load_models) {
    const absl::Status status = models::ScanModel(options.repository, name).status();
    if (!status.ok()) problems->push_back(absl::StrCat("--load_models: ", status.message()));
  }
  // Only a static server needs a model.
  if (listing->models.empty() && options.control == lifecycle::ModelControl::kStatic) {
    Note(options.Locations().status(), problems);
  }
  return found;
}

std::string CheckModels(const Locations& locations, ServedModelLoader* loader, Problems* problems) {
  const MemoryLimits memory = ReadMemoryLimits();
  int64_t taken = 0;  // by the versions so far, if they all stayed
  for (const models::ModelLocation& location : locations) {
    const models::MemoryEstimate estimate = loader->Estimate(location);
    absl::Status status;
    if (memory.limit_bytes > 0) {
      status = lifecycle::CheckRoom(location, estimate, memory.available_bytes - taken, loader);
    }
    if (status.ok()) status = loader->Load(location).status();
    if (status.ok()) taken += estimate.total() - estimate.passing;
    if (status.ok()) continue;
    problems->push_back(absl::StrCat("model ", location.name, " version ", location.version, ": ",
                                     status.message()));
  }
  return absl::StrFormat(", %d versions of models, which take %.1f of %.1f MB of free memory",
                         locations.size(), static_cast<double>(taken) / 1e6,
                         static_cast<double>(memory.available_bytes) / 1e6);
}

}  // namespace

std::vector<std::string> CheckConfig(const Options& options, std::string* checked) {
  const RealClock clock;
  telemetry::Metrics metrics(&clock);
  transport::SecurityMetrics security_metrics(metrics.registry());
  const transport::SecurityOptions& security = options.security;
  Problems problems;
  for (const absl::Status& error : transport::CheckCredentialFiles(security, clock)) {
    Note(error, &problems);
  }
  FileWatcher unused(security.poll_interval);
  Note(WatchStateKeys(security.state_key_file, &unused, &security_metrics).status(), &problems);
  *checked = absl::StrCat("flags", security.has_tls() ? ", certificates" : "",
                          security.has_admin_tokens() ? ", tokens" : "",
                          security.state_key_file.empty() ? "" : ", state keys");
  if (!lifecycle::ValidateModelOptions(options.models).ok() ||
      !batching::ValidateBatchingOptions(options.batching).ok()) {
    return problems;
  }
  Problems of_models;
  const Locations locations = FindModels(options.models, &of_models);
  ServedModelLoader loader(&options, nullptr, &metrics, &clock, [](int, const absl::Status&) {});
  const absl::Status backend = loader.MakeBackend();
  Note(backend, &of_models);
  if (backend.ok()) *checked += CheckModels(locations, &loader, &of_models);
  problems.insert(problems.end(), of_models.begin(), of_models.end());
  return problems;
}

}  // namespace sru::server::wiring
