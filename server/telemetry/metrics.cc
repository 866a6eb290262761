#include "server/telemetry/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/backend.h"
#include "prometheus/text_serializer.h"
#include "server/base/version.h"
#include "server/compat/grpc_version.h"

namespace sru::server {
namespace {

using ::prometheus::ClientMetric;
using ::prometheus::Histogram;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;

const Histogram::BucketBoundaries& DurationBuckets() {
  static const auto* const kBuckets =
      new Histogram::BucketBoundaries{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3,
                                      50e-3, 100e-3, 200e-3, 500e-3, 1,    2,    5,    10};
  return *kBuckets;
}

const Histogram::BucketBoundaries& SizeBuckets() {
  static const auto* const kBuckets = new Histogram::BucketBoundaries{
      1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  return *kBuckets;
}

const Histogram::BucketBoundaries& RatioBuckets() {
  static const auto* const kBuckets = new Histogram::BucketBoundaries{
      0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1};
  return *kBuckets;
}

const Histogram::BucketBoundaries& LoadDurationBuckets() {
  static const auto* const kBuckets = new Histogram::BucketBoundaries{
      0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500};
  return *kBuckets;
}

prometheus::Family<Histogram>& AddHistogram(prometheus::Registry* registry, const char* name,
                                            const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry);
}

MetricFamily MakeFamily(const char* name, const char* help, MetricType type) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void AddValue(MetricFamily* family, std::vector<ClientMetric::Label> labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family->type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family->metric.push_back(std::move(metric));
}

MetricFamily MakeSingle(const char* name, const char* help, MetricType type, double value) {
  MetricFamily family = MakeFamily(name, help, type);
  AddValue(&family, {}, value);
  return family;
}

// The usual metrics of a process, under the names that dashboards know.
void AppendProcessFamilies(std::vector<MetricFamily>* families) {
  static const double kStartTime = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  families->push_back(MakeSingle("process_start_time_seconds",
                                 "Start time of the process since the epoch in seconds.",
                                 MetricType::Gauge, kStartTime));
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
    families->push_back(MakeSingle("process_cpu_seconds_total",
                                   "User and system CPU time in seconds.", MetricType::Counter,
                                   seconds(usage.ru_utime) + seconds(usage.ru_stime)));
  }
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  if (statm >> total_pages >> resident_pages) {
    families->push_back(MakeSingle("process_resident_memory_bytes", "Resident memory in bytes.",
                                   MetricType::Gauge,
                                   static_cast<double>(resident_pages) * sysconf(_SC_PAGESIZE)));
  }
}

std::vector<ClientMetric::Label> LabelsOf(const ServerLevels::ModelLevels& levels) {
  return {{"model", levels.model}, {"version", absl::StrCat(levels.version)}};
}

// States and counts of loading, of every model that the server knows.
void AppendLifecycleFamilies(const ServerLevels& levels, std::vector<MetricFamily>* families) {
  MetricFamily state = MakeFamily("sru_model_state",
                                  "Versions in memory or failed, by state (loading, ready, "
                                  "unloading, failed); version 0 is the "
                                  "model's directory.",
                                  MetricType::Gauge);
  // A version that was loaded anew may be here several times, unloading.
  std::map<std::tuple<std::string, int64_t, std::string>, int> counts;
  for (const ModelStatus& status : levels.statuses) {
    ++counts[{status.model, status.version, ModelStateName(status.state)}];
  }
  for (const auto& [key, count] : counts) {
    AddValue(&state,
             {{"model", std::get<0>(key)},
              {"version", absl::StrCat(std::get<1>(key))},
              {"state", std::get<2>(key)}},
             count);
  }
  MetricFamily loads = MakeFamily("sru_model_loads_total", "Versions that were loaded, by model.",
                                  MetricType::Counter);
  MetricFamily failures =
      MakeFamily("sru_model_load_failures_total", "Versions that could not be loaded, by model.",
                 MetricType::Counter);
  for (const ModelLoadCounts& model : levels.load_counts) {
    AddValue(&loads, {{"model", model.model}}, static_cast<double>(model.loads));
    AddValue(&failures, {{"model", model.model}}, static_cast<double>(model.failures));
  }
  for (MetricFamily* family : {&state, &loads, &failures}) {
    if (!family->metric.empty()) families->push_back(std::move(*family));
  }
}

void AppendDeviceFamilies(const std::vector<ServerLevels::DeviceLevels>& devices,
                          std::vector<MetricFamily>* families) {
  if (devices.empty()) return;
  MetricFamily memory = MakeFamily(
      "sru_gpu_memory_bytes",
      "Memory of a GPU: taken by weights and by workspaces, of all versions in memory, what the "
      "server may take (limit), what nobody has taken (free), all of it (total).",
      MetricType::Gauge);
  MetricFamily lost =
      MakeFamily("sru_device_lost_total",
                 "Times that a device failed and was taken out of service.", MetricType::Counter);
  for (const ServerLevels::DeviceLevels& device : devices) {
    const kernels::DeviceInfo& info = device.info;
    const std::string ordinal = absl::StrCat(info.ordinal);
    const auto add = [&](const char* kind, size_t bytes) {
      AddValue(&memory, {{"device", ordinal}, {"kind", kind}}, static_cast<double>(bytes));
    };
    add("weights", info.weight_bytes);
    add("workspaces", info.memory_in_use - info.weight_bytes);
    add("limit", info.memory_limit);
    add("free", info.memory_free);
    add("total", info.memory_bytes);
    AddValue(&lost, {{"device", ordinal}}, device.lost ? 1 : 0);
  }
  families->push_back(std::move(memory));
  families->push_back(std::move(lost));
}

void AppendLevelFamilies(const ServerLevels& levels, std::vector<MetricFamily>* families) {
  families->push_back(MakeSingle("sru_ready", "1 when the server takes calls, else 0.",
                                 MetricType::Gauge, levels.ready ? 1 : 0));
  families->push_back(MakeSingle("sru_models_loaded", "Model versions that are loaded.",
                                 MetricType::Gauge, static_cast<double>(levels.models.size())));
  families->push_back(
      MakeSingle("sru_model_repository_emptied",
                 "1 while the repository has no model although models of it are served, else 0.",
                 MetricType::Gauge, levels.repository_emptied ? 1 : 0));
  families->push_back(MakeSingle("sru_requests_in_flight", "Calls that have no answer yet.",
                                 MetricType::Gauge,
                                 static_cast<double>(levels.requests_in_flight)));
  families->push_back(MakeSingle("sru_connections", "Client connections that are open.",
                                 MetricType::Gauge, static_cast<double>(levels.connections)));
  families->push_back(MakeSingle(
      "sru_log_lines_suppressed_total", "Lines of --log_requests over --log_requests_per_second.",
      MetricType::Counter, static_cast<double>(levels.suppressed_log_lines)));
  families->push_back(
      MakeSingle("sru_log_lines_dropped_total",
                 "Lines of the log that were lost because standard error did not take them.",
                 MetricType::Counter, static_cast<double>(levels.dropped_log_lines)));
  families->push_back(MakeSingle("sru_receive_memory_limit_bytes",
                                 "Most that gRPC may hold of messages that are still arriving "
                                 "(--max_receive_memory_mb).",
                                 MetricType::Gauge,
                                 static_cast<double>(levels.receive_memory_limit_bytes)));
  families->push_back(MakeSingle("sru_received_message_bytes_total",
                                 "Bytes of Classify and Encode requests that arrived whole.",
                                 MetricType::Counter,
                                 static_cast<double>(levels.received_message_bytes)));

  families->push_back(MakeSingle(
      "sru_inflight_bytes",
      "What calls hold, from the arrival of their messages until their answers have left.",
      MetricType::Gauge, static_cast<double>(levels.inflight_bytes)));
  families->push_back(MakeSingle(
      "sru_inflight_limit_bytes", "Most that calls may hold together (--max_inflight_mb).",
      MetricType::Gauge, static_cast<double>(levels.inflight_limit_bytes)));
  families->push_back(MakeSingle("sru_unsent_answers",
                                 "Answers that wait for their clients to take them.",
                                 MetricType::Gauge, static_cast<double>(levels.unsent_answers)));
  families->push_back(MakeSingle(
      "sru_answers_not_taken_total",
      "Answers that were not taken within --send_timeout_s, whose connections were closed.",
      MetricType::Counter, static_cast<double>(levels.answers_not_taken)));

  MetricFamily info =
      MakeFamily("sru_build_info", "Always 1; the labels describe this build.", MetricType::Gauge);
  // Looked up once: it asks the GPU's driver and loads cuBLASLt.
  static const auto* const backends =
      new std::string(absl::StrJoin(kernels::AvailableBackends(), ","));
  AddValue(&info, {{"version", kVersion}, {"backends", *backends}, {"grpc", GrpcVersion()}}, 1);
  families->push_back(std::move(info));
  if (!levels.backend.empty()) {
    MetricFamily backend = MakeFamily(
        "sru_backend_info", "Always 1; the labels say what the models run on.", MetricType::Gauge);
    AddValue(&backend, {{"backend", levels.backend}, {"dtype", levels.dtype}, {"isa", levels.isa}},
             1);
    families->push_back(std::move(backend));
  }

  AppendLifecycleFamilies(levels, families);
  AppendDeviceFamilies(levels.devices, families);
  if (levels.models.empty()) return;
  MetricFamily instances =
      MakeFamily("sru_instances", "Workers in service, each of which runs one batch at a time.",
                 MetricType::Gauge);
  MetricFamily sequences =
      MakeFamily("sru_queue_sequences", "Sequences that wait for a batch.", MetricType::Gauge);
  MetricFamily tokens =
      MakeFamily("sru_queue_tokens", "Tokens that wait for a batch.", MetricType::Gauge);
  MetricFamily age =
      MakeFamily("sru_queue_oldest_age_seconds", "How long the oldest waiting sequence has waited.",
                 MetricType::Gauge);
  MetricFamily running =
      MakeFamily("sru_running_batches", "Batches that are being computed.", MetricType::Gauge);
  MetricFamily rejections =
      MakeFamily("sru_rejections_total", "Calls that were refused before they were queued.",
                 MetricType::Counter);
  MetricFamily expired =
      MakeFamily("sru_expired_total", "Calls whose deadline passed while they were queued.",
                 MetricType::Counter);
  MetricFamily cancelled =
      MakeFamily("sru_cancelled_total", "Calls that were cancelled while they were queued.",
                 MetricType::Counter);
  for (const ServerLevels::ModelLevels& model : levels.models) {
    const BatcherStats& stats = model.stats;
    const auto labels = LabelsOf(model);
    AddValue(&instances, labels, model.instances);
    AddValue(&sequences, labels, static_cast<double>(stats.queued_sequences));
    AddValue(&tokens, labels, static_cast<double>(stats.queued_tokens));
    AddValue(&age, labels, absl::ToDoubleSeconds(stats.oldest_age));
    AddValue(&running, labels, static_cast<double>(stats.running_batches));
    AddValue(&expired, labels, static_cast<double>(stats.expired));
    AddValue(&cancelled, labels, static_cast<double>(stats.cancelled));
    for (const auto& [reason, count] :
         {std::pair{RejectReason::kQueueFull, stats.rejected_queue_full},
          std::pair{RejectReason::kDeadline, stats.rejected_deadline},
          std::pair{RejectReason::kDraining, stats.rejected_draining},
          std::pair{RejectReason::kNoWorker, stats.rejected_no_worker},
          std::pair{RejectReason::kMemory, model.rejected_memory}}) {
      auto with_reason = labels;
      with_reason.push_back({"reason", RejectReasonName(reason)});
      AddValue(&rejections, std::move(with_reason), static_cast<double>(count));
    }
  }
  if (levels.rejected_memory > 0) {
    AddValue(&rejections,
             {{"model", ""}, {"version", ""}, {"reason", RejectReasonName(RejectReason::kMemory)}},
             static_cast<double>(levels.rejected_memory));
  }
  for (MetricFamily* family :
       {&instances, &sequences, &tokens, &age, &running, &rejections, &expired, &cancelled}) {
    families->push_back(std::move(*family));
  }
}

}  // namespace

const char* MethodName(Method method) {
  switch (method) {
    case Method::kClassify:
      return "Classify";
    case Method::kEncode:
      return "Encode";
    case Method::kListModels:
      return "ListModels";
    case Method::kGetModel:
      return "GetModel";
    case Method::kLoadModel:
      return "LoadModel";
    case Method::kUnloadModel:
      return "UnloadModel";
  }
  return "";
}

RequestCounters::RequestCounters(prometheus::Family<prometheus::Counter>* family, std::string model,
                                 std::string version)
    : family_(family), model_(std::move(model)), version_(std::move(version)) {}

void RequestCounters::Count(Method method, absl::StatusCode code) {
  const int code_index = std::clamp(static_cast<int>(code), 0, kNumCodes - 1);
  std::atomic<prometheus::Counter*>& slot =
      counters_[static_cast<int>(method) * kNumCodes + code_index];
  prometheus::Counter* counter = slot.load(std::memory_order_acquire);
  if (counter == nullptr) {
    // Add() gives the same counter to everybody who asks for the same labels.
    counter = &family_->Add(
        {{"method", MethodName(method)},
         {"model", model_},
         {"version", version_},
         {"code", absl::StatusCodeToString(static_cast<absl::StatusCode>(code_index))}});
    slot.store(counter, std::memory_order_release);
  }
  counter->Increment();
}

void RequestCounters::RemoveSeries() {
  for (std::atomic<prometheus::Counter*>& slot : counters_) {
    if (prometheus::Counter* counter = slot.load()) family_->Remove(counter);
  }
}

ModelMetrics::ModelMetrics(Metrics* metrics, const std::string& model, int64_t version,
                           int max_batch_tokens)
    : max_batch_tokens_(max_batch_tokens),
      requests_(&metrics->requests_, model, absl::StrCat(version)),
      tokenize_duration_(&metrics->tokenize_duration_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, DurationBuckets())),
      queue_duration_(&metrics->queue_duration_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, DurationBuckets())),
      compute_duration_(&metrics->compute_duration_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, DurationBuckets())),
      batch_sequences_(&metrics->batch_sequences_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, SizeBuckets())),
      batch_tokens_(&metrics->batch_tokens_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, SizeBuckets())),
      batch_fill_ratio_(&metrics->batch_fill_ratio_.Add(
          {{"model", model}, {"version", absl::StrCat(version)}}, RatioBuckets())) {
  for (Method method : {Method::kClassify, Method::kEncode}) {
    request_duration_[static_cast<int>(method)] = &metrics->request_duration_.Add(
        {{"method", MethodName(method)}, {"model", model}, {"version", absl::StrCat(version)}},
        DurationBuckets());
  }
}

void ModelMetrics::RemoveSeries(Metrics* metrics) {
  requests_.RemoveSeries();
  for (prometheus::Histogram* duration : request_duration_) {
    if (duration != nullptr) metrics->request_duration_.Remove(duration);
  }
  metrics->tokenize_duration_.Remove(tokenize_duration_);
  metrics->queue_duration_.Remove(queue_duration_);
  metrics->compute_duration_.Remove(compute_duration_);
  metrics->batch_sequences_.Remove(batch_sequences_);
  metrics->batch_tokens_.Remove(batch_tokens_);
  metrics->batch_fill_ratio_.Remove(batch_fill_ratio_);
}

void ModelMetrics::OnCall(Method method, absl::StatusCode code, const CallTimes& times) {
  requests_.Count(method, code);
  prometheus::Histogram* duration = request_duration_[static_cast<int>(method)];
  if (code != absl::StatusCode::kOk || duration == nullptr) return;
  duration->Observe(absl::ToDoubleSeconds(times.total));
  tokenize_duration_->Observe(absl::ToDoubleSeconds(times.tokenize));
  queue_duration_->Observe(absl::ToDoubleSeconds(times.queue));
}

void ModelMetrics::OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
                           const absl::Status& /*status*/) {
  compute_duration_->Observe(absl::ToDoubleSeconds(compute));
  batch_sequences_->Observe(num_sequences);
  batch_tokens_->Observe(num_tokens);
  batch_fill_ratio_->Observe(static_cast<double>(num_tokens) / max_batch_tokens_);
}

Metrics::Metrics()
    : requests_(prometheus::BuildCounter()
                    .Name("sru_requests_total")
                    .Help("Calls that were answered, by method, model, version and gRPC code.")
                    .Register(registry_)),
      request_duration_(AddHistogram(
          &registry_, "sru_request_duration_seconds",
          "Time inside the server of calls that were answered with OK, from arrival to answer.")),
      tokenize_duration_(AddHistogram(&registry_, "sru_tokenize_duration_seconds",
                                      "Checking a call and turning its text into ids.")),
      queue_duration_(
          AddHistogram(&registry_, "sru_queue_duration_seconds", "Waiting for a batch, per call.")),
      compute_duration_(
          AddHistogram(&registry_, "sru_compute_duration_seconds", "Forward pass of one batch.")),
      batch_sequences_(AddHistogram(&registry_, "sru_batch_sequences", "Sequences in one batch.")),
      batch_tokens_(AddHistogram(&registry_, "sru_batch_tokens", "Tokens in one batch.")),
      batch_fill_ratio_(AddHistogram(&registry_, "sru_batch_fill_ratio",
                                     "Tokens in one batch divided by --max_batch_tokens.")),
      load_duration_(AddHistogram(&registry_, "sru_model_load_duration_seconds",
                                  "From a model's files to a warm engine.")
                         .Add({}, LoadDurationBuckets())),
      without_model_(&requests_, "", "") {}

std::shared_ptr<ModelMetrics> Metrics::ForModel(const std::string& model, int64_t version,
                                                int max_batch_tokens) {
  const ModelKey key(model, version);
  MutexLock lock(&mutex_);
  SharedModelMetrics& shared = models_[key];
  if (shared.metrics == nullptr) {
    shared.metrics.reset(new ModelMetrics(this, model, version, max_batch_tokens));
  }
  ++shared.owners;
  return std::shared_ptr<ModelMetrics>(shared.metrics.get(),
                                       [this, key](ModelMetrics*) { Release(key); });
}

void Metrics::Release(const ModelKey& key) {
  MutexLock lock(&mutex_);
  const auto it = models_.find(key);
  if (--it->second.owners > 0) return;
  it->second.metrics->RemoveSeries(this);
  models_.erase(it);
}

void Metrics::OnModelLoaded(absl::Duration duration) {
  load_duration_.Observe(absl::ToDoubleSeconds(duration));
}

void Metrics::OnCallWithoutModel(Method method, absl::StatusCode code) {
  without_model_.Count(method, code);
}

std::vector<MetricFamily> Metrics::Collect(const ServerLevels& levels) const {
  std::vector<MetricFamily> families = registry_.Collect();
  AppendLevelFamilies(levels, &families);
  AppendProcessFamilies(&families);
  return families;
}

std::string Metrics::Text(const ServerLevels& levels) const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect(levels));
  return out.str();
}

}  // namespace sru::server
