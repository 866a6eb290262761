#include "server/http/status_json.h"

#include <cmath>

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

json ModelJson(const ModelView& model) {
  return {{"name", model.name},
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

std::string StatusJson(const StatusSnapshot& snapshot, const absl::Status& try_access) {
  json models = json::array();
  for (const ModelView& model : snapshot.models) models.push_back(ModelJson(model));
  json metrics = json::object();
  for (const MetricFamily& family : snapshot.metrics) metrics[family.name] = FamilyJson(family);
  json flags = json::array();
  for (const Flags::Setting& flag : snapshot.flags) {
    flags.push_back({{"name", flag.name}, {"value", flag.value}, {"source", flag.source}});
  }
  const json status = {
      {"time", static_cast<double>(absl::ToUnixMicros(snapshot.time)) / 1e6},
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
      {"metrics", std::move(metrics)}};
  return status.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace sru::server::http
