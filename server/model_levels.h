// Reads the state of models and devices for metrics and the status page. Thread-safe.
#ifndef SRU_SERVER_MODEL_LEVELS_H_
#define SRU_SERVER_MODEL_LEVELS_H_

#include <set>

#include "server/http/status_page.h"
#include "server/lifecycle/model_registry.h"
#include "server/model_loader.h"
#include "server/telemetry/metrics.h"

namespace sru::server {

// Adds the models that are served.
void AddModelLevels(const lifecycle::ModelRegistry& registry, telemetry::ServerLevels* levels);

// Adds the backend, if there is one yet, and its devices; `lost` are out of service.
void AddBackendLevels(const ServedModelLoader& loader, const Options& options,
                      const std::set<int>& lost, telemetry::ServerLevels* levels);

// A version as the status page shows it, whether it is served or not.
http::ModelView ViewOf(const lifecycle::ModelRegistry& registry,
                       const telemetry::ModelStatus& status);

}  // namespace sru::server

#endif  // SRU_SERVER_MODEL_LEVELS_H_
