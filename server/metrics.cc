#include "server/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/backend.h"
#include "prometheus/text_serializer.h"
#include "server/version.h"

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

void AppendLevelFamilies(const ServerLevels& levels, std::vector<MetricFamily>* families) {
  families->push_back(MakeSingle("sru_ready", "1 when the server takes calls, else 0.",
                                 MetricType::Gauge, levels.ready ? 1 : 0));
  families->push_back(MakeSingle("sru_models_loaded", "Model versions that are loaded.",
                                 MetricType::Gauge, static_cast<double>(levels.models.size())));
  families->push_back(MakeSingle("sru_requests_in_flight", "Calls that have no answer yet.",
                                 MetricType::Gauge,
                                 static_cast<double>(levels.requests_in_flight)));

  MetricFamily info =
      MakeFamily("sru_build_info", "Always 1; the labels describe this build.", MetricType::Gauge);
  AddValue(&info,
           {{"version", kVersion}, {"backends", absl::StrJoin(kernels::AvailableBackends(), ",")}},
           1);
  families->push_back(std::move(info));
  if (!levels.backend.empty()) {
    MetricFamily backend = MakeFamily(
        "sru_backend_info", "Always 1; the labels say what the models run on.", MetricType::Gauge);
    AddValue(&backend, {{"backend", levels.backend}, {"dtype", levels.dtype}, {"isa", levels.isa}},
             1);
    families->push_back(std::move(backend));
  }

  if (levels.models.empty()) return;
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
    AddValue(&sequences, labels, static_cast<double>(stats.queued_sequences));
    AddValue(&tokens, labels, static_cast<double>(stats.queued_tokens));
    AddValue(&age, labels, absl::ToDoubleSeconds(stats.oldest_age));
    AddValue(&running, labels, static_cast<double>(stats.running_batches));
    AddValue(&expired, labels, static_cast<double>(stats.expired));
    AddValue(&cancelled, labels, static_cast<double>(stats.cancelled));
    for (const auto& [reason, count] :
         {std::pair{RejectReason::kQueueFull, stats.rejected_queue_full},
          std::pair{RejectReason::kDeadline, stats.rejected_deadline},
          std::pair{RejectReason::kDraining, stats.rejected_draining}}) {
      auto with_reason = labels;
      with_reason.push_back({"reason", RejectReasonName(reason)});
      AddValue(&rejections, std::move(with_reason), static_cast<double>(count));
    }
  }
  for (MetricFamily* family :
       {&sequences, &tokens, &age, &running, &rejections, &expired, &cancelled}) {
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
      without_model_(&requests_, "", "") {}

std::unique_ptr<ModelMetrics> Metrics::ForModel(const std::string& model, int64_t version,
                                                int max_batch_tokens) {
  return std::unique_ptr<ModelMetrics>(new ModelMetrics(this, model, version, max_batch_tokens));
}

void Metrics::OnCallWithoutModel(Method method, absl::StatusCode code) {
  without_model_.Count(method, code);
}

std::string Metrics::Text(const ServerLevels& levels) const {
  std::vector<MetricFamily> families = registry_.Collect();
  AppendLevelFamilies(levels, &families);
  AppendProcessFamilies(&families);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, families);
  return out.str();
}

}  // namespace sru::server
