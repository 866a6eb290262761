#include "server/tracing/tracing_options.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/build_info.h"
#include "base/host_port.h"
#include "server/tracing/call_trace.h"

namespace sru::server::tracing {
namespace {

// "%2C" becomes ","; nullopt if it is malformed or not printable.
std::optional<std::string> Decode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      if (digits.size() < 2 || !std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit)) {
        return std::nullopt;
      }
      c = absl::HexStringToBytes(digits)[0];
      i += 2;
    }
    if (!absl::ascii_isprint(c)) return std::nullopt;
    decoded += c;
  }
  return decoded;
}

// Remembers the first error.
class Reader {
 public:
  explicit Reader(const char* (*get)(const char*)) : get_(get) {}

  struct Variable {
    std::string name;
    std::string value;  // empty: not set, as the standard has it
  };
  Variable Get(const std::string& name) const {
    const char* const value = get_(name.c_str());
    return {name, std::string(absl::StripAsciiWhitespace(value == nullptr ? "" : value))};
  }
  // What is said of traces goes before what is said of all signals.
  Variable OfExporter(const std::string& name) const {
    Variable of_traces = Get("OTEL_EXPORTER_OTLP_TRACES_" + name);
    return of_traces.value.empty() ? Get("OTEL_EXPORTER_OTLP_" + name) : of_traces;
  }

  void CheckOneOf(const Variable& from, absl::string_view first, absl::string_view second) {
    if (from.value.empty() || from.value == first || from.value == second) return;
    Refuse(from, absl::StrCat(first, " or ", second));
  }

  void ReadNumber(const Variable& from, int64_t most, absl::string_view unit, int64_t* to) {
    if (from.value.empty()) return;
    if (!absl::SimpleAtoi(from.value, to) || *to < 1 || *to > most) {
      Refuse(from, absl::StrCat("1 to ", most, " ", unit));
    }
  }

  void ReadTime(const Variable& from, absl::Duration* to) {
    int64_t milliseconds = absl::ToInt64Milliseconds(*to);
    ReadNumber(from, 3600000, "(milliseconds)", &milliseconds);
    *to = absl::Milliseconds(milliseconds);
  }

  void ReadPairs(const Variable& from, std::vector<std::pair<std::string, std::string>>* pairs) {
    for (const absl::string_view part : absl::StrSplit(from.value, ',', absl::SkipWhitespace())) {
      const size_t equals = std::min(part.find('='), part.size());
      const std::string key(absl::StripAsciiWhitespace(part.substr(0, equals)));
      const std::optional<std::string> value =
          Decode(absl::StripAsciiWhitespace(absl::ClippedSubstr(part, equals + 1)));
      if (key.empty() || !std::all_of(key.begin(), key.end(), absl::ascii_isgraph) ||
          equals == part.size() || !value.has_value()) {
        // The value may be a secret.
        Refuse({from.name, key}, "KEY=VALUE,KEY=VALUE with printable ASCII, %2C for a comma");
        return;
      }
      pairs->emplace_back(key, *value);
    }
  }

  void ReadEndpoint(const Variable& from, TracingOptions* o) {
    absl::string_view rest = from.value;
    o->tls = absl::ConsumePrefix(&rest, "https://");
    const bool has_scheme = o->tls || absl::ConsumePrefix(&rest, "http://");
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::optional<HostPort> place = SplitHostPort(rest.substr(0, slash));
    int port = 0;
    if (place.has_value()) {
      o->host = std::string(place->host);
      o->port = std::string(place->port.value_or(o->tls ? "443" : "80"));
    }
    if (!has_scheme || o->host.empty() || absl::StrContains(o->host, '@') ||
        !absl::SimpleAtoi(o->port, &port) || port < 1 || port > 65535) {
      Refuse(from, absl::StrCat("http://HOST:PORT or https://HOST:PORT, such as http://collector:",
                                o->grpc ? "4317" : "4318"));
    }
    o->path = std::string(rest.substr(slash));
    if (!absl::StrContains(from.name, "TRACES")) {
      o->path = absl::StrCat(absl::StripSuffix(o->path, "/"), "/v1/traces");
    } else if (o->path.empty()) {
      o->path = "/";
    }
    o->endpoint = from.value;
  }

  void ReadSampler(const Variable& sampler, const Variable& ratio, TracingOptions* o) {
    absl::string_view kind = sampler.value;
    if (kind.empty()) kind = "parentbased_traceidratio";
    o->parent_based = absl::ConsumePrefix(&kind, "parentbased_");
    if (kind == "always_on" || kind == "always_off") {
      o->ratio = kind == "always_on" ? 1 : 0;
    } else if (kind != "traceidratio") {
      Refuse(sampler, "always_on, always_off, traceidratio, or one of these after parentbased_");
    } else if (!ratio.value.empty() &&
               (!absl::SimpleAtod(ratio.value, &o->ratio) || !(o->ratio >= 0 && o->ratio <= 1))) {
      Refuse(ratio, "a number from 0 to 1, such as 0.1");
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  void Refuse(const Variable& from, absl::string_view expected) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat(from.name, ": expected ", expected, ", found '", from.value, "'")));
  }

  const char* (*const get_)(const char*);
  absl::Status status_;
};

}  // namespace

absl::StatusOr<TracingOptions> ReadTracingOptions(const char* (*get)(const char* name)) {
  Reader reader(get);
  TracingOptions o;
  const Reader::Variable endpoint = reader.OfExporter("ENDPOINT");
  Reader::Variable disabled = reader.Get("OTEL_SDK_DISABLED");
  absl::AsciiStrToLower(&disabled.value);
  const Reader::Variable exporter = reader.Get("OTEL_TRACES_EXPORTER");
  if (endpoint.value.empty() || disabled.value == "true" || exporter.value == "none") return o;
  reader.CheckOneOf(disabled, "true", "false");
  reader.CheckOneOf(exporter, "otlp", "none");
  const Reader::Variable protocol = reader.OfExporter("PROTOCOL");
  reader.CheckOneOf(protocol, "http/protobuf", "grpc");
  o.grpc = protocol.value == "grpc";
  reader.ReadEndpoint(endpoint, &o);
  reader.ReadPairs(reader.OfExporter("HEADERS"), &o.headers);
  for (auto& header : o.headers) absl::AsciiStrToLower(&header.first);
  reader.ReadTime(reader.OfExporter("TIMEOUT"), &o.timeout);
  reader.ReadSampler(reader.Get("OTEL_TRACES_SAMPLER"), reader.Get("OTEL_TRACES_SAMPLER_ARG"), &o);
  reader.ReadTime(reader.Get("OTEL_BSP_SCHEDULE_DELAY"), &o.max_delay);
  reader.ReadNumber(reader.Get("OTEL_BSP_MAX_QUEUE_SIZE"), 1000000, "(spans)", &o.max_queue_spans);
  o.max_batch_spans = std::min(o.max_batch_spans, o.max_queue_spans);
  reader.ReadNumber(reader.Get("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), o.max_queue_spans,
                    "(spans, at most OTEL_BSP_MAX_QUEUE_SIZE)", &o.max_batch_spans);
  // The first of two with the same name counts.
  const std::string service = reader.Get("OTEL_SERVICE_NAME").value;
  if (!service.empty()) o.resource.emplace_back("service.name", service);
  reader.ReadPairs(reader.Get("OTEL_RESOURCE_ATTRIBUTES"), &o.resource);
  o.resource.emplace_back("service.name", "sru_server");
  o.resource.emplace_back("service.version", std::string(BuildVersion()));
  o.resource.emplace_back("service.instance.id",
                          absl::StrCat(absl::Hex(RandomId(), absl::kZeroPad16)));
  for (auto pair = o.resource.begin(); pair != o.resource.end();) {
    const bool is_again = std::any_of(
        o.resource.begin(), pair, [&](const auto& before) { return before.first == pair->first; });
    pair = is_again ? o.resource.erase(pair) : pair + 1;
  }
  if (!reader.status().ok()) return reader.status();
  return o;
}

}  // namespace sru::server::tracing
