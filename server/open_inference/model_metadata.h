// What the Open Inference Protocol says of a model and the server besides its answers. Pure
// functions, thread-safe.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_METADATA_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_METADATA_H_

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "inference/open_inference.pb.h"
#include "server/calls/kinds/service_context.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::open_inference {

void WriteServerMetadata(inference::ServerMetadataResponse* metadata);

// `versions`: all that are loaded.
void WriteModelMetadata(const lifecycle::ServedModel& served, const std::vector<int64_t>& versions,
                        inference::ModelMetadataResponse* metadata);

void WriteModelConfig(const lifecycle::ServedModel& served, const std::vector<int64_t>& versions,
                      const calls::RequestLimits& limits, absl::Duration max_queue_delay,
                      inference::ModelConfig* config);

void WriteModelStatistics(const lifecycle::ServedModel& served,
                          inference::ModelStatistics* statistics);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_METADATA_H_
