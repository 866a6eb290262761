#include "server/http/status_json.h"

#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/build_info.h"
#include "nlohmann/json.hpp"

namespace sru::server::http {
namespace {

using nlohmann::json;
using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;

json HistogramJson(const ClientMetric::Histogram& histogram) {
  json bounds = json::array();
  json counts = json::array();
  for (const ClientMetric::Bucket& bucket : histogram.bucket) {
    if (std::isfinite(bucket.upper_bound)) bounds.push_back(bucket.upper_bound);
    counts.push_back(bucket.cumulative_count);
  }
  return {{"count", histogram.sample_count},
          {"sum", histogram.sample_sum},
          {"bounds", std::move(bounds)},
          {"counts", std::move(counts)}};
}

const char* TypeName(MetricType type) {
  switch (type) {
    case MetricType::Counter:
      return "counter";
    case MetricType::Gauge:
      return "gauge";
    case MetricType::Histogram:
      return "histogram";
    default:
      return "untyped";
  }
}

json FamilyJson(const MetricFamily& family) {
  json series = json::array();
  for (const ClientMetric& metric : family.metric) {
    json one = family.type == MetricType::Histogram ? HistogramJson(metric.histogram)
               : family.type == MetricType::Counter ? json{{"value", metric.counter.value}}
               : family.type == MetricType::Gauge   ? json{{"value", metric.gauge.value}}
                                                    : json{{"value", metric.untyped.value}};
    json labels = json::object();
    for (const ClientMetric::Label& label : metric.label) labels[label.name] = label.value;
    one["labels"] = std::move(labels);
    series.push_back(std::move(one));
  }
  return {{"type", TypeName(family.type)}, {"help", family.help}, {"series", std::move(series)}};
}

// Four digits are enough to draw it.
json Short(float value) {
  return std::isnan(value) ? json() : json::parse(absl::StrFormat("%.4g", value));
}

double UnixSeconds(absl::Time time) { return static_cast<double>(absl::ToUnixMicros(time)) / 1e6; }

json HistoryJson(const std::vector<telemetry::History::Point>& points) {
  json times = json::array();
  json figures = json::object();
  for (size_t i = 0; i < telemetry::History::kNumFigures; ++i) {
    json& values = figures[telemetry::History::NameOf(i)] = json::array();
    for (const auto& [time, one] : points) values.push_back(Short(one[i]));
  }
  for (const auto& [time, one] : points) times.push_back(UnixSeconds(time));
  return {{"interval_s", absl::ToDoubleSeconds(telemetry::History::kInterval)},
          {"times", std::move(times)},
          {"figures", std::move(figures)}};
}

// A call has more fields in the log than here: the page must not show who called.
json CallsJson(const std::vector<telemetry::RecentCall>& calls) {
  static const auto* const kShown =
      new json{{"method", ""},   {"code", ""},  {"error", ""},      {"model", ""},   {"version", 0},
               {"sequences", 0}, {"tokens", 0}, {"request_id", ""}, {"trace_id", ""}};
  json all = json::array();
  for (const telemetry::RecentCall& call : calls) {
    json one = *kShown;
    one["time"] = UnixSeconds(call.time);
    const json line = json::parse(call.line);
    for (const auto& [name, value] : line.items()) {
      const bool is_stage = absl::EndsWith(name, "_us") || absl::StartsWith(name, "batch_");
      if (kShown->contains(name) || is_stage || name == "steps") one[name] = value;
      if (name == "reason") one["error"] = value;
    }
    all.push_back(std::move(one));
  }
  return all;
}

// `latest`: null for a version without.
json ModelJson(const ModelView& model, const telemetry::History::Figures* latest) {
  json figures = json::object();
  for (size_t i = 0; latest != nullptr && i < latest->size(); ++i) {
    figures[telemetry::History::NameOf(i)] = Short((*latest)[i]);
  }
  return {{"figures", std::move(figures)},
          {"name", model.name},
          {"version", model.version},
          {"latest", model.latest},
          {"state", model.state},
          {"reason", model.reason},
          {"description", model.description},
          {"backend", model.backend},
          {"backend_description", model.backend_description},
          {"dtype", model.dtype},
          {"instances", model.instances},
          {"parameters", model.parameters},
          {"task", model.task},
          {"labels", model.labels},
          {"takes_text", model.takes_text}};
}

json Build() {
  return {{"version", BuildVersion()}, {"commit", BuildCommit()}, {"build_id", BuildId()}};
}

}  // namespace

std::string BuildJson() { return Build().dump(); }

std::string StatusJson(const StatusSnapshot& snapshot, const absl::Status& try_access,
                       const telemetry::History::Key& scope) {
  static const auto* const kNoHistory = new telemetry::History();
  const telemetry::History& history = snapshot.history == nullptr ? *kNoHistory : *snapshot.history;
  const auto latest = history.Latest();
  json models = json::array();
  for (const ModelView& model : snapshot.models) {
    const auto found = latest.find({model.name, absl::StrCat(model.version)});
    models.push_back(ModelJson(model, found == latest.end() ? nullptr : &found->second));
  }
  json metrics = json::object();
  for (const MetricFamily& family : snapshot.metrics) metrics[family.name] = FamilyJson(family);
  json flags = json::array();
  for (const Flags::Setting& flag : snapshot.flags) {
    flags.push_back({{"name", flag.name}, {"value", flag.value}, {"source", flag.source}});
  }
  const json status = {
      {"time", UnixSeconds(snapshot.time)},
      {"version", BuildVersion()},
      {"build", Build()},
      {"flags", std::move(flags)},
      {"state", snapshot.state},
      {"limits",
       {{"max_batch_tokens", snapshot.limits.max_batch_tokens},
        {"max_queue_tokens", snapshot.limits.max_queue_tokens},
        {"max_queue_sequences", snapshot.limits.max_queue_sequences},
        {"max_sequence_tokens", snapshot.limits.max_sequence_tokens}}},
      {"try", {{"allowed", try_access.ok()}, {"reason", std::string(try_access.message())}}},
      {"models", std::move(models)},
      {"history", HistoryJson(history.Of(scope))},
      {"slow_calls",
       {{"log_slow_ms", absl::ToInt64Milliseconds(snapshot.slow)},
        {"calls", CallsJson(snapshot.slow_calls)}}},
      {"errors", CallsJson(snapshot.errors)},
      {"metrics", std::move(metrics)}};
  return status.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace sru::server::http
