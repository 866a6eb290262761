#include "server/open_inference/model_metadata.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/build_info.h"
#include "kernels/data_type.h"
#include "server/open_inference/model_tensors.h"

namespace sru::server::open_inference {
namespace {

constexpr char kPlatform[] = "sru";

using TensorMetadata = inference::ModelMetadataResponse::TensorMetadata;

void WriteTensor(const TensorInfo& info, TensorMetadata* tensor) {
  tensor->set_name(info.name);
  tensor->set_datatype(Describe(info.datatype).name);
  tensor->mutable_shape()->Add(info.shape.begin(), info.shape.end());
}

void SetParameter(const char* name, std::string value, inference::ModelConfig* config) {
  (*config->mutable_parameters())[name].set_string_value(std::move(value));
}

void WriteDuration(int64_t count, absl::Duration duration,
                   inference::StatisticDuration* statistic) {
  statistic->set_count(count);
  statistic->set_ns(std::max<int64_t>(absl::ToInt64Nanoseconds(duration), 0));
}

}  // namespace

void WriteServerMetadata(inference::ServerMetadataResponse* metadata) {
  metadata->set_name("sru_server");
  metadata->set_version(BuildVersion());
  for (const char* const extension : {"binary_tensor_data", "model_configuration",
                                      "model_repository", "schedule_policy", "statistics"}) {
    metadata->add_extensions(extension);
  }
}

void WriteModelMetadata(const lifecycle::ServedModel& served, const std::vector<int64_t>& versions,
                        inference::ModelMetadataResponse* metadata) {
  metadata->set_name(served.name);
  for (const int64_t version : versions) metadata->add_versions(absl::StrCat(version));
  metadata->set_platform(kPlatform);
  for (const TensorInfo& info : InputInfos(*served.model)) {
    WriteTensor(info, metadata->add_inputs());
  }
  for (const TensorInfo& info : OutputInfos(*served.model)) {
    WriteTensor(info, metadata->add_outputs());
  }
}

void WriteModelConfig(const lifecycle::ServedModel& served, const std::vector<int64_t>& versions,
                      const calls::RequestLimits& limits, absl::Duration max_queue_delay,
                      inference::ModelConfig* config) {
  const models::Model& model = *served.model;
  config->set_name(served.name);
  config->set_platform(kPlatform);
  config->set_backend(model.backend_name());
  config->mutable_version_policy()->mutable_specific()->mutable_versions()->Add(versions.begin(),
                                                                                versions.end());
  config->set_max_batch_size(limits.max_sequences);
  for (const TensorInfo& info : InputInfos(model)) {
    inference::ModelInput* const input = config->add_input();
    input->set_name(info.name);
    input->set_data_type(Describe(info.datatype).in_config);
    input->mutable_dims()->Add(info.shape.begin() + 1, info.shape.end());
    input->set_optional(info.is_optional);
  }
  for (const TensorInfo& info : OutputInfos(model)) {
    inference::ModelOutput* const output = config->add_output();
    output->set_name(info.name);
    output->set_data_type(Describe(info.datatype).in_config);
    output->mutable_dims()->Add(info.shape.begin() + 1, info.shape.end());
  }
  inference::ModelDynamicBatching* const batching = config->mutable_dynamic_batching();
  batching->set_max_queue_delay_microseconds(absl::ToInt64Microseconds(max_queue_delay));
  batching->set_priority_levels(3);
  batching->set_default_priority_level(2);
  inference::ModelInstanceGroup* const group = config->add_instance_group();
  group->set_name(served.name);
  group->set_kind(model.backend_name() == "cuda" ? inference::ModelInstanceGroup::KIND_GPU
                                                 : inference::ModelInstanceGroup::KIND_CPU);
  group->set_count(served.engine->instances());
  SetParameter("task", models::TaskName(model.task()), config);
  SetParameter("dtype", kernels::DataTypeName(model.dtype()), config);
  SetParameter("max_sequence_tokens", absl::StrCat(limits.max_sequence_tokens), config);
  if (!model.config().description.empty()) {
    SetParameter("description", model.config().description, config);
  }
  if (!model.labels().empty()) {
    SetParameter("labels", absl::StrJoin(model.labels(), "\n"), config);
  }
  config->mutable_model_transaction_policy()->set_decoupled(false);
  config->mutable_response_cache()->set_enable(false);
}

void WriteModelStatistics(const lifecycle::ServedModel& served,
                          inference::ModelStatistics* statistics) {
  const telemetry::ModelMetrics::CallSums sums = served.metrics->sums();
  const telemetry::CallTimes& times = sums.times;
  statistics->set_name(served.name);
  statistics->set_version(absl::StrCat(served.version));
  if (sums.last_end != absl::InfinitePast()) {
    statistics->set_last_inference(absl::ToUnixMillis(sums.last_end));
  }
  statistics->set_inference_count(sums.sequences);
  inference::InferStatistics* const calls = statistics->mutable_inference_stats();
  WriteDuration(sums.succeeded, times.total, calls->mutable_success());
  WriteDuration(sums.failed, sums.failed_total, calls->mutable_fail());
  WriteDuration(sums.succeeded, times.queue, calls->mutable_queue());
  WriteDuration(sums.succeeded, times.tokenize, calls->mutable_compute_input());
  WriteDuration(sums.succeeded, times.compute, calls->mutable_compute_infer());
  WriteDuration(sums.succeeded, times.total - times.tokenize - times.queue - times.compute,
                calls->mutable_compute_output());
  WriteDuration(0, absl::ZeroDuration(), calls->mutable_cache_hit());
  WriteDuration(0, absl::ZeroDuration(), calls->mutable_cache_miss());
  int64_t executions = 0;
  for (const auto& [size, sum] : sums.batches) {
    executions += sum.batches;
    inference::InferBatchStatistics* const batches = statistics->add_batch_stats();
    batches->set_batch_size(size);
    WriteDuration(sum.batches, sum.compute, batches->mutable_compute_infer());
  }
  statistics->set_execution_count(executions);
}

}  // namespace sru::server::open_inference
