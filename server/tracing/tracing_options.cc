#include "server/tracing/tracing_options.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/build_info.h"
#include "base/flags.h"
#include "base/host_port.h"
#include "base/status.h"
#include "server/telemetry/request_id.h"

namespace sru::server::tracing {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// The first of two with the same key counts.
void Add(const std::string& key, const std::string& value, Pairs* pairs) {
  const auto is_same = [&key](const auto& pair) { return pair.first == key; };
  if (absl::c_none_of(*pairs, is_same)) pairs->emplace_back(key, value);
}

// "%2C" becomes ","; nullopt if it is malformed or not printable.
std::optional<std::string> Decode(absl::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const absl::string_view digits = text.substr(i + 1, 2);
      if (digits.size() < 2 || !absl::c_all_of(digits, absl::ascii_isxdigit)) return std::nullopt;
      c = absl::HexStringToBytes(digits)[0];
      i += 2;
    }
    if (!absl::ascii_isprint(c)) return std::nullopt;
    decoded += c;
  }
  return decoded;
}

absl::StatusOr<Pairs> ParsePairs(absl::string_view variable, absl::string_view text) {
  Pairs pairs;
  for (const absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const size_t equals = std::min(part.find('='), part.size());
    const std::string key(absl::StripAsciiWhitespace(part.substr(0, equals)));
    const std::optional<std::string> value =
        Decode(absl::StripAsciiWhitespace(absl::ClippedSubstr(part, equals + 1)));
    if (key.empty() || !absl::c_all_of(key, absl::ascii_isgraph) || equals == part.size() ||
        !value.has_value()) {
      // The value may be a secret.
      return InvalidArgument(variable,
                             ": expected KEY=VALUE,KEY=VALUE with printable ASCII, %2C for a "
                             "comma, found something else after '",
                             absl::CHexEscape(key), "'");
    }
    Add(key, *value, &pairs);
  }
  return pairs;
}

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view variable, absl::string_view text) {
  Endpoint endpoint;
  endpoint.text = std::string(text);
  absl::string_view rest = text;
  endpoint.tls = absl::ConsumePrefix(&rest, "https://");
  const bool has_scheme = endpoint.tls || absl::ConsumePrefix(&rest, "http://");
  const absl::string_view authority = rest.substr(0, rest.find('/'));
  const HostPort place = SplitHostPort(authority).value_or(HostPort());
  endpoint.host = std::string(place.host);
  endpoint.port = std::string(place.port.value_or(endpoint.tls ? "443" : "80"));
  endpoint.authority = absl::StrCat(authority, place.port.has_value() ? "" : ":" + endpoint.port);
  int port = 0;
  if (!has_scheme || endpoint.host.empty() || absl::StrContains(endpoint.host, '@') ||
      !absl::SimpleAtoi(endpoint.port, &port) || port < 1 || port > 65535) {
    return InvalidArgument(variable,
                           ": expected http://HOST:PORT or https://HOST:PORT, such as "
                           "http://collector:4318, or 4317 for gRPC, found '",
                           text, "'");
  }
  endpoint.path = std::string(rest.substr(authority.size()));
  if (!absl::StrContains(variable, "TRACES")) {
    endpoint.path = absl::StrCat(absl::StripSuffix(endpoint.path, "/"), "/v1/traces");
  } else if (endpoint.path.empty()) {
    endpoint.path = "/";
  }
  return endpoint;
}

absl::StatusOr<bool> RefuseFile(absl::string_view variable, absl::string_view text) {
  return InvalidArgument(variable, ": expected none, as https trusts the system's authorities, ",
                         "found '", text, "'");
}

}  // namespace

absl::StatusOr<TracingOptions> ReadTracingOptions() {
  constexpr absl::Duration kMillisecond = absl::Milliseconds(1);
  constexpr Flags::TimeRange kTimes = {kMillisecond, absl::Hours(1)};
  TracingOptions o;
  bool disabled = false;
  bool no_exporter = false;
  bool ignored = false;
  std::string service;
  Pairs resource;
  std::pair<bool, double> sampler = {true, -1};  // its ratio; -1: OTEL_TRACES_SAMPLER_ARG
  Flags flags(Flags::Environment::kSame);
  flags.Add("OTEL_SDK_DISABLED", &disabled, "");
  flags.AddChoice("OTEL_TRACES_EXPORTER", &no_exporter, {{"otlp", false}, {"none", true}}, "");
  // What is said of traces overrides what is said of all signals.
  for (const std::string all : {"OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"}) {
    flags.AddParsed(all + "ENDPOINT", &o.endpoint, "", ParseEndpoint, "");
    flags.AddChoice(all + "PROTOCOL", &o.grpc, {{"http/protobuf", false}, {"grpc", true}}, "");
    flags.AddParsed(all + "HEADERS", &o.headers, "", ParsePairs, "");
    flags.AddTime(all + "TIMEOUT", &o.timeout, kMillisecond, kTimes, "");
    for (const char* const file : {"CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"}) {
      flags.AddParsed(all + file, &ignored, "", RefuseFile, "");
    }
  }
  flags.AddChoice("OTEL_TRACES_SAMPLER", &sampler,
                  {{"always_on", {false, 1}},
                   {"always_off", {false, 0}},
                   {"traceidratio", {false, -1}},
                   {"parentbased_always_on", {true, 1}},
                   {"parentbased_always_off", {true, 0}},
                   {"parentbased_traceidratio", {true, -1}}},
                  "");
  flags.Add("OTEL_TRACES_SAMPLER_ARG", &o.ratio, {0, 1}, "");
  flags.AddTime("OTEL_BSP_SCHEDULE_DELAY", &o.max_delay, kMillisecond, kTimes, "");
  flags.Add("OTEL_BSP_MAX_QUEUE_SIZE", &o.max_queue_spans, {1, 100000}, "");
  flags.Add("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", &o.max_batch_spans, {1, 100000}, "");
  flags.Add("OTEL_SERVICE_NAME", &service, "");
  flags.AddParsed("OTEL_RESOURCE_ATTRIBUTES", &resource, "", ParsePairs, "");
  const absl::Status status = flags.ParseFlagsOnly({});
  const auto is_endpoint = [](const auto& given) { return absl::EndsWith(given.name, "ENDPOINT"); };
  if (disabled || no_exporter || absl::c_none_of(flags.changed(), is_endpoint)) {
    return TracingOptions();
  }
  SRU_RETURN_UNLESS_OK(status);

  o.parent_based = sampler.first;
  if (sampler.second >= 0) o.ratio = sampler.second;
  for (auto& header : o.headers) absl::AsciiStrToLower(&header.first);
  o.max_batch_spans = std::min(o.max_batch_spans, o.max_queue_spans);
  if (!service.empty()) Add("service.name", service, &o.resource);
  for (const auto& [key, value] : resource) Add(key, value, &o.resource);
  Add("service.name", "sru_server", &o.resource);
  Add("service.version", BuildVersion(), &o.resource);
  Add("service.instance.id", telemetry::MakeRequestId(), &o.resource);
  return o;
}

}  // namespace sru::server::tracing
