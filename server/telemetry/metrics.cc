#include "server/telemetry/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/build_info.h"
#include "kernels/choose_backend.h"
#include "prometheus/text_serializer.h"

namespace sru::server::telemetry {
namespace {

using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;

using Labels = std::vector<ClientMetric::Label>;
using ModelLevels = ServerLevels::ModelLevels;

constexpr MetricType kCounter = MetricType::Counter;
constexpr MetricType kGauge = MetricType::Gauge;

void Add(MetricFamily* family, Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  if (family->type == kCounter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family->metric.push_back(std::move(metric));
}

Labels LabelsOf(const ModelLevels& levels) {
  return {{"model", levels.model}, {"version", absl::StrCat(levels.version)}};
}

// By the date then, as the clock may be set later. Some milliseconds after the kernel has started
// the process, before all else is initialized.
const std::chrono::system_clock::time_point kProcessStart __attribute__((init_priority(101))) =
    std::chrono::system_clock::now();

// A metric that is read at each scrape. One function gives its series: from the server's levels
// (one series, or none), from a model's levels (likewise for each model, or one for each value of a
// label), or all of them with their labels. A metric without series is not shown.
using Number = std::optional<double>;
struct Values {
  const char* label = "";
  std::vector<std::pair<std::string, double>> values = {};  // by the label's value
};
using OfServer = Number (*)(const ServerLevels&);
using OfModel = Number (*)(const ModelLevels&);
using ValuesOfModel = Values (*)(const ModelLevels&);
using AddAll = void (*)(const ServerLevels&, MetricFamily*);
struct LevelMetric {
  const char* name;
  MetricType type;
  const char* help;
  std::variant<OfServer, OfModel, ValuesOfModel, AddAll> series;
};

MetricFamily Read(const LevelMetric& metric, const ServerLevels& levels) {
  MetricFamily family;
  family.name = metric.name;
  family.help = metric.help;
  family.type = metric.type;
  const auto add = [&family](Labels labels, Number value) {
    if (value.has_value()) Add(&family, std::move(labels), *value);
  };
  if (const auto* const of_server = std::get_if<OfServer>(&metric.series)) {
    add({}, (*of_server)(levels));
  } else if (const auto* const add_all = std::get_if<AddAll>(&metric.series)) {
    (*add_all)(levels, &family);
  } else {
    for (const ModelLevels& model : levels.models) {
      if (const auto* const of_model = std::get_if<OfModel>(&metric.series)) {
        add(LabelsOf(model), (*of_model)(model));
        continue;
      }
      const Values of_label = std::get<ValuesOfModel>(metric.series)(model);
      for (const auto& [label, value] : of_label.values) {
        Labels labels = LabelsOf(model);
        labels.push_back({of_label.label, label});
        add(std::move(labels), value);
      }
    }
  }
  return family;
}

void AddBuildInfo(const ServerLevels& levels, MetricFamily* family) {
  // Of the build, not of the machine: a scrape must not start the GPU's driver in a server that
  // computes on the processor.
  static const auto* const kBackends =
      new std::string(absl::StrJoin(kernels::BuiltBackends(), ","));
  Add(family,
      {{"version", BuildVersion()},
       {"commit", BuildCommit()},
       {"backends", *kBackends},
       {"grpc", levels.grpc_version}},
      1);
}

void AddBackendInfo(const ServerLevels& levels, MetricFamily* family) {
  if (levels.backend.empty()) return;
  Add(family, {{"backend", levels.backend}, {"dtype", levels.dtype}, {"isa", levels.isa}}, 1);
}

// From 2xx on: the server gives no other answers.
void AddHttpRequests(const ServerLevels& levels, MetricFamily* family) {
  if (!levels.http.has_value()) return;
  for (size_t digit = 2; digit < levels.http->answers.size(); ++digit) {
    if (digit == 3) continue;
    Add(family, {{"code", absl::StrCat(digit, "xx")}},
        static_cast<double>(levels.http->answers[digit]));
  }
}

void AddDroppedSpans(const ServerLevels& levels, MetricFamily* family) {
  if (!levels.spans.has_value()) return;
  for (const auto& [reason, count] : {std::pair("queue_full", levels.spans->dropped_queue_full),
                                      std::pair("collector", levels.spans->dropped_collector),
                                      std::pair("shutdown", levels.spans->dropped_shutdown)}) {
    Add(family, {{"reason", reason}}, static_cast<double>(count));
  }
}

void AddModelStates(const ServerLevels& levels, MetricFamily* family) {
  // A version that was reloaded may be here several times as unloading.
  std::map<std::tuple<std::string, int64_t, std::string>, int> counts;
  for (const ModelStatus& status : levels.statuses) {
    ++counts[{status.model, status.version, ModelStateName(status.state)}];
  }
  for (const auto& [key, count] : counts) {
    const auto& [model, version, state] = key;
    Add(family, {{"model", model}, {"version", absl::StrCat(version)}, {"state", state}}, count);
  }
}

void AddDeviceMemory(const ServerLevels& levels, MetricFamily* family) {
  for (const ServerLevels::DeviceLevels& device : levels.devices) {
    const kernels::DeviceInfo& info = device.info;
    for (const auto& [kind, bytes] :
         {std::pair{"weights", info.weight_bytes},
          std::pair{"workspaces", info.memory_in_use - info.weight_bytes},
          std::pair{"limit", info.memory_limit}, std::pair{"free", info.memory_free},
          std::pair{"total", info.memory_bytes}}) {
      Add(family, {{"device", absl::StrCat(info.ordinal)}, {"kind", kind}},
          static_cast<double>(bytes));
    }
  }
}

void AddDeviceBatches(const ServerLevels& levels, MetricFamily* family) {
  for (const ServerLevels::DeviceLevels& device : levels.devices) {
    for (const auto& [graph, batches] :
         {std::pair{"hit", device.info.graph_hits}, std::pair{"miss", device.info.graph_misses}}) {
      Add(family, {{"device", absl::StrCat(device.info.ordinal)}, {"graph", graph}},
          static_cast<double>(batches));
    }
  }
}

Number GeneratedTokens(const ModelLevels& model) {
  if (model.generator.has_value()) return model.generator->new_tokens;
  if (model.translations.has_value()) return model.translations->new_tokens;
  return std::nullopt;
}

template <int64_t batching::PrefixCache::Stats::*kMember>
Number OfPrefixes(const ModelLevels& model) {
  return model.prefixes.has_value() ? Number((*model.prefixes).*kMember) : std::nullopt;
}

void AddStateBudgets(const ServerLevels& levels, MetricFamily* family) {
  for (size_t i = 0; i < levels.state_budget_bytes.size(); ++i) {
    const std::string device =
        i < levels.devices.size() ? absl::StrCat(levels.devices[i].info.ordinal) : "processor";
    Add(family, {{"device", device}}, static_cast<double>(levels.state_budget_bytes[i]));
  }
}

template <int64_t ServerLevels::CallerLevels::*kCount>
void AddCallers(const ServerLevels& levels, MetricFamily* family) {
  for (const ServerLevels::CallerLevels& caller : levels.callers) {
    Add(family, {{"caller", caller.name}}, static_cast<double>(caller.*kCount));
  }
}

void AddRejections(const ServerLevels& levels, MetricFamily* family) {
  const auto add = [family](Labels labels, batching::RejectReason reason, int64_t count) {
    labels.push_back({"reason", Describe(reason).name});
    Add(family, std::move(labels), static_cast<double>(count));
  };
  for (const ModelLevels& model : levels.models) {
    for (const batching::RejectReason reason : batching::kRejectReasons) {
      add(LabelsOf(model), reason,
          model.stats.rejected[reason] + model.rejected_before_batcher[reason] +
              (model.generator.has_value() ? model.generator->rejected[reason] : 0));
    }
  }
  for (const batching::RejectReason reason : batching::kRejectReasons) {
    if (levels.rejected[reason] > 0) {
      add({{"model", ""}, {"version", ""}}, reason, levels.rejected[reason]);
    }
  }
}

Number ProcessCpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  const auto seconds = [](const timeval& time) { return time.tv_sec + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Number ProcessResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return std::nullopt;
  return static_cast<double>(resident_pages) * sysconf(_SC_PAGESIZE);
}

// The table of metrics that are read at each scrape, one row each.
constexpr LevelMetric kLevelMetrics[] = {
    {"sru_ready", kGauge, "1 if the server accepts calls, else 0.",
     [](const ServerLevels& l) -> Number { return l.ready ? 1 : 0; }},
    {"sru_models_loaded", kGauge, "Model versions that are loaded.",
     [](const ServerLevels& l) -> Number { return l.models.size(); }},
    {"sru_model_repository_emptied", kGauge,
     "1 while the repository is empty or cannot be listed although its models are "
     "still served, else 0.",
     [](const ServerLevels& l) -> Number { return l.repository_emptied ? 1 : 0; }},
    {"sru_requests_in_flight", kGauge, "Calls that have no answer yet.",
     [](const ServerLevels& l) -> Number { return l.requests_in_flight; }},
    {"sru_connections", kGauge, "Open connections of clients, without those of HTTP/1.1.",
     [](const ServerLevels& l) -> Number { return l.connections; }},
    {"sru_http_connections", kGauge, "Open connections of the HTTP port.",
     [](const ServerLevels& l) { return l.http ? Number(l.http->connections) : std::nullopt; }},
    {"sru_http_requests_total", kCounter, "HTTP requests that were answered, by class of status.",
     AddHttpRequests},
    {"sru_http_body_bytes", kGauge, "Bodies of HTTP requests that are being read or handled.",
     [](const ServerLevels& l) { return l.http ? Number(l.http->body_bytes) : std::nullopt; }},
    {"sru_log_lines_suppressed_total", kCounter,
     "Lines of --log_requests beyond --log_requests_per_second.",
     [](const ServerLevels& l) -> Number { return l.suppressed_log_lines; }},
    {"sru_log_lines_dropped_total", kCounter,
     "Log lines that were lost because standard error did not take them.",
     [](const ServerLevels& l) -> Number { return l.dropped_log_lines; }},
    {"sru_spans_exported_total", kCounter, "Spans that the collector has taken.",
     [](const ServerLevels& l) { return l.spans ? Number(l.spans->exported) : std::nullopt; }},
    {"sru_spans_dropped_total", kCounter,
     "Spans that were lost, by reason: queue_full, collector (it refused them or was away), "
     "shutdown.",
     AddDroppedSpans},
    {"sru_receive_memory_bytes", kGauge,
     "Memory of messages that are still arriving, of open calls, and of large "
     "answers until their connection takes them.",
     [](const ServerLevels& l) -> Number { return l.receive_memory_bytes; }},
    {"sru_receive_memory_limit_bytes", kGauge,
     "Limit of sru_receive_memory_bytes (--max_receive_memory_mb).",
     [](const ServerLevels& l) -> Number { return l.receive_memory_limit_bytes; }},
    {"sru_received_message_bytes_total", kCounter,
     "Bytes that arrived as whole requests of calls that compute.",
     [](const ServerLevels& l) -> Number { return l.received_message_bytes; }},
    {"sru_inflight_bytes", kGauge,
     "Memory that calls hold from the arrival of their messages until their "
     "answers have left: an estimate, on the safe side.",
     [](const ServerLevels& l) -> Number { return l.inflight_bytes; }},
    {"sru_inflight_limit_bytes", kGauge, "Limit of sru_inflight_bytes (--max_inflight_mb).",
     [](const ServerLevels& l) -> Number { return l.inflight_limit_bytes; }},
    {"sru_unsent_answers", kGauge, "Answers that their clients have not taken yet.",
     [](const ServerLevels& l) -> Number { return l.unsent_answers; }},
    {"sru_answers_not_taken_total", kCounter,
     "Answers not taken within --send_timeout_s; their connections were closed.",
     [](const ServerLevels& l) -> Number { return l.answers_not_taken; }},
    {"sru_build_info", kGauge, "Always 1; the labels describe the build.", AddBuildInfo},
    {"sru_backend_info", kGauge, "Always 1; the labels say what the models run on.",
     AddBackendInfo},
    {"sru_model_info", kGauge, "Always 1; the label says what a version in service is for.",
     [](const ModelLevels& m) {
       return Values{"task", {{m.task, 1}}};
     }},
    {"sru_model_state", kGauge,
     "Versions in memory or failed, by state (loading, ready, unloading, failed); "
     "version 0 is the model's directory.",
     AddModelStates},
    {"sru_model_loads_total", kCounter, "Versions that were loaded, by model.",
     [](const ServerLevels& l, MetricFamily* family) {
       for (const ModelLoadCounts& model : l.load_counts) {
         Add(family, {{"model", model.model}}, static_cast<double>(model.loads));
       }
     }},
    {"sru_model_load_failures_total", kCounter, "Versions that could not be loaded, by model.",
     [](const ServerLevels& l, MetricFamily* family) {
       for (const ModelLoadCounts& model : l.load_counts) {
         Add(family, {{"model", model.model}}, static_cast<double>(model.failures));
       }
     }},
    {"sru_gpu_memory_bytes", kGauge,
     "Memory of a GPU: weights and workspaces of all versions in memory, the "
     "server's limit, and what is free and total.",
     AddDeviceMemory},
    {"sru_gpu_batches_total", kCounter,
     "Batches that ran on a GPU, by whether a CUDA graph was recorded for their "
     "size (hit, miss).",
     AddDeviceBatches},
    {"sru_device_lost_total", kCounter, "1 once the GPU has failed and was taken out of service.",
     [](const ServerLevels& l, MetricFamily* family) {
       for (const ServerLevels::DeviceLevels& device : l.devices) {
         Add(family, {{"device", absl::StrCat(device.info.ordinal)}}, device.lost ? 1 : 0);
       }
     }},
    {"sru_instances", kGauge, "Most batches at once, on devices in service.",
     [](const ModelLevels& m) -> Number { return m.instances; }},
    {"sru_queue_sequences", kGauge, "Sequences that wait for a batch.",
     [](const ModelLevels& m) -> Number { return m.stats.queued_sequences; }},
    {"sru_queue_tokens", kGauge, "Tokens that wait for a batch.",
     [](const ModelLevels& m) -> Number { return m.stats.queued_tokens; }},
    {"sru_queue_oldest_age_seconds", kGauge, "How long the oldest waiting sequence has waited.",
     [](const ModelLevels& m) -> Number { return absl::ToDoubleSeconds(m.stats.oldest_age); }},
    {"sru_running_batches", kGauge, "Batches that are being computed.",
     [](const ModelLevels& m) -> Number { return m.stats.running_batches; }},
    {"sru_open_streams", kGauge,
     "Calls of Generate, EncodeStream and ModelStreamInfer that are open.",
     [](const ServerLevels& l) -> Number { return l.open_streams; }},
    {"sru_generated_tokens_total", kCounter,
     "Tokens that Generate has picked and Translate has found.", GeneratedTokens},
    {"sru_translate_sentences", kGauge,
     "Sentences of Translate in steps (running) or before their first step "
     "(waiting).",
     [](const ModelLevels& m) {
       const auto& of = m.translations;
       return of ? Values{"state", {{"running", of->running}, {"waiting", of->waiting}}} : Values();
     }},
    {"sru_generate_calls", kGauge,
     "Calls of Generate in steps (running), before their first step (waiting), or "
     "waiting for their clients to read (paused).",
     [](const ModelLevels& m) {
       const auto& of = m.generator;
       return of ? Values{"state",
                          {{"running", of->running},
                           {"waiting", of->waiting},
                           {"paused", of->paused}}}
                 : Values();
     }},
    {"sru_state_slots", kGauge, "Sequences whose states are kept where the model runs.",
     [](const ModelLevels& m) {
       return m.states ? Values{"kind", {{"used", m.states->slots}}} : Values();
     }},
    {"sru_state_bytes", kGauge,
     "Memory for states of sequences: in use (used) and allocated (held).",
     [](const ModelLevels& m) {
       const auto& of = m.states;
       return of ? Values{"kind", {{"used", of->used_bytes}, {"held", of->held_bytes}}} : Values();
     }},
    {"sru_state_budget_bytes", kGauge,
     "Most memory for the states of all models together on a device "
     "(--state_memory_mb).",
     AddStateBudgets},
    {"sru_prefix_cache_hits_total", kCounter,
     "Prompts that began like an earlier one and continued from its state.",
     OfPrefixes<&batching::PrefixCache::Stats::hits>},
    {"sru_prefix_cache_misses_total", kCounter, "Prompts for whose beginning no state was kept.",
     OfPrefixes<&batching::PrefixCache::Stats::misses>},
    {"sru_prefix_cache_hit_tokens_total", kCounter,
     "Tokens of prompts that were not computed because a state after them was "
     "kept.",
     OfPrefixes<&batching::PrefixCache::Stats::hit_tokens>},
    {"sru_prefix_cache_evictions_total", kCounter, "Kept states that were evicted for others.",
     OfPrefixes<&batching::PrefixCache::Stats::evictions>},
    {"sru_prefix_cache_states", kGauge, "States that the prefix cache keeps.",
     OfPrefixes<&batching::PrefixCache::Stats::states>},
    {"sru_prefix_cache_bytes", kGauge,
     "Memory of the states that the prefix cache keeps, and of their index.",
     OfPrefixes<&batching::PrefixCache::Stats::bytes>},
    {"sru_rejections_total", kCounter,
     "Calls refused before they were queued: queue_full; deadline (could not be "
     "met); draining; no_worker (every GPU has failed); memory "
     "(--max_inflight_mb); streams (--max_streams).",
     AddRejections},
    {"sru_caller_calls_total", kCounter,
     "Calls that have ended, by caller: the 20 busiest, and \"other\" for the "
     "rest.",
     AddCallers<&ServerLevels::CallerLevels::calls>},
    {"sru_caller_tokens_total", kCounter,
     "Tokens that a caller sent, and that were generated for it.",
     AddCallers<&ServerLevels::CallerLevels::tokens>},
    {"sru_caller_refusals_total", kCounter,
     "Calls of a caller that ended with RESOURCE_EXHAUSTED or PERMISSION_DENIED.",
     AddCallers<&ServerLevels::CallerLevels::refused>},
    {"sru_caller_calls_in_flight", kGauge,
     "Calls of a caller that compute and are not answered yet.",
     AddCallers<&ServerLevels::CallerLevels::in_flight>},
    {"sru_expired_total", kCounter,
     "Calls whose deadline passed while they were queued; they cost no compute.",
     [](const ModelLevels& m) -> Number {
       return m.stats.expired + (m.generator.has_value() ? m.generator->expired : 0);
     }},
    {"sru_cancelled_total", kCounter, "Calls cancelled while they were queued.",
     [](const ModelLevels& m) -> Number {
       return m.stats.cancelled + (m.generator.has_value() ? m.generator->cancelled : 0);
     }},
    {"process_start_time_seconds", kGauge, "Start of the process, in seconds since the epoch.",
     [](const ServerLevels& /*l*/) -> Number {
       return absl::ToDoubleSeconds(absl::FromChrono(kProcessStart) - absl::UnixEpoch());
     }},
    {"process_cpu_seconds_total", kCounter, "CPU time of user and system, in seconds.",
     [](const ServerLevels& /*l*/) { return ProcessCpuSeconds(); }},
    {"process_resident_memory_bytes", kGauge, "Resident memory in bytes.",
     [](const ServerLevels& /*l*/) { return ProcessResidentBytes(); }},
};

}  // namespace

ModelMetrics::ModelMetrics(prometheus::Registry* registry, const Clock* clock,
                           const std::string& model, int64_t version, int max_batch_tokens)
    : owner_(registry, model, absl::StrCat(version)),
      clock_(*clock),
      max_batch_tokens_(max_batch_tokens) {}

void ModelMetrics::SumBatch(int sequences, absl::Duration compute) {
  MutexLock lock(&sums_mutex_);
  BatchSum& sum = sums_.batches[sequences];
  ++sum.batches;
  sum.compute += compute;
}

void ModelMetrics::OnCall(calls::MethodId method, absl::StatusCode code, const CallTimes& times,
                          int64_t sequences) {
  requests_.Count(method, code);
  if (!calls::Describe(method).computes()) return;
  {
    const absl::Time now = clock_.WallNow();
    MutexLock lock(&sums_mutex_);
    sums_.last_end = now;
    if (code != absl::StatusCode::kOk) {
      ++sums_.failed;
      sums_.failed_total += times.total;
      return;
    }
    ++sums_.succeeded;
    sums_.sequences += sequences;
    sums_.times.tokenize += times.tokenize;
    sums_.times.queue += times.queue;
    sums_.times.compute += times.compute;
    sums_.times.total += times.total;
  }
  request_duration_.Of(method).Observe(times.total);
  tokenize_duration_.Observe(times.tokenize);
  if (!calls::Describe(method).is_stream()) queue_duration_.Observe(times.queue);
}

void ModelMetrics::OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
                           const absl::Status& /*status*/) {
  SumBatch(num_sequences, compute);
  compute_duration_.Observe(compute);
  batch_sequences_.Observe(num_sequences);
  batch_tokens_.Observe(num_tokens);
  batch_fill_ratio_.Observe(static_cast<double>(num_tokens) / max_batch_tokens_);
}

void ModelMetrics::OnStep(int sequences, absl::Duration compute) {
  SumBatch(sequences, compute);
  decode_sequences_.Observe(sequences);
  compute_duration_.Observe(compute);
}

Metrics::Metrics(const Clock* clock)
    : clock_(*clock),
      unknown_methods_(prometheus::BuildCounter()
                           .Name("sru_unknown_method_calls_total")
                           .Help("Calls of methods that this server does not have.")
                           .Register(registry_)
                           .Add({})),
      load_duration_(prometheus::BuildHistogram()
                         .Name("sru_model_load_duration_seconds")
                         .Help("Time to load a version, from its files to a warm engine.")
                         .Register(registry_)
                         .Add({}, LoadDurationBuckets())) {}

std::shared_ptr<ModelMetrics> Metrics::ForModel(
    const std::string& model, int64_t version, int max_batch_tokens,
    const std::function<bool(calls::MethodId)>& answers) {
  const ModelKey key(model, version);
  MutexLock lock(&mutex_);
  SharedModelMetrics& shared = models_[key];
  if (shared.metrics == nullptr) {
    shared.metrics.reset(new ModelMetrics(&registry_, &clock_, model, version, max_batch_tokens));
  }
  for (size_t i = 0; i < calls::kNumMethods; ++i) {
    const auto method = static_cast<calls::MethodId>(i);
    const calls::MethodInfo info = calls::Describe(method);
    if (!info.computes() || (answers && !answers(method))) continue;
    shared.metrics->request_duration_.Of(method).Make();
    if (info.work == calls::Work::kSteps) {
      if (info.is_stream()) shared.metrics->first_token_.Make();
      if (info.is_stream()) shared.metrics->next_token_.Make();
      shared.metrics->decode_sequences_.Make();
    }
  }
  ++shared.owners;
  return std::shared_ptr<ModelMetrics>(shared.metrics.get(),
                                       [this, key](ModelMetrics*) { Release(key); });
}

void Metrics::Release(const ModelKey& key) {
  MutexLock lock(&mutex_);
  const auto it = models_.find(key);
  if (--it->second.owners > 0) return;
  models_.erase(it);
}

std::vector<MetricFamily> Metrics::Collect(const ServerLevels& levels) const {
  std::vector<MetricFamily> families = registry_.Collect();
  for (const LevelMetric& metric : kLevelMetrics) {
    MetricFamily family = Read(metric, levels);
    if (!family.metric.empty()) families.push_back(std::move(family));
  }
  return families;
}

std::string Metrics::Text(const ServerLevels& levels) const {
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, Collect(levels));
  return out.str();
}

}  // namespace sru::server::telemetry
