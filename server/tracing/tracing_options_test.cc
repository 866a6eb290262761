#include "server/tracing/tracing_options.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::tracing {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

absl::StatusOr<TracingOptions> Read(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  absl::StatusOr<TracingOptions> options = ReadTracingOptions();
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return options;
}

TEST(TracingOptions, WithoutAnEndpointThereAreNoSpans) {
  EXPECT_FALSE(Read({})->enabled());
  EXPECT_FALSE(Read({{"OTEL_SERVICE_NAME", "x"}, {"OTEL_TRACES_SAMPLER", "nonsense"}})->enabled());
  EXPECT_FALSE(
      Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, {"OTEL_SDK_DISABLED", "True"}})
          ->enabled());
  EXPECT_FALSE(
      Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}, {"OTEL_TRACES_EXPORTER", "none"}})
          ->enabled());
}

TEST(TracingOptions, DefaultsAreThoseOfTheStandard) {
  const TracingOptions o = *Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"}});
  EXPECT_FALSE(o.grpc);
  EXPECT_FALSE(o.endpoint.tls);
  EXPECT_EQ(o.endpoint.host, "collector");
  EXPECT_EQ(o.endpoint.port, "4318");
  EXPECT_EQ(o.endpoint.path, "/v1/traces");
  EXPECT_TRUE(o.parent_based);
  EXPECT_EQ(o.ratio, 1);
  EXPECT_EQ(o.timeout, absl::Seconds(10));
  EXPECT_EQ(o.max_delay, absl::Seconds(5));
  EXPECT_EQ(o.max_queue_spans, 2048);
  EXPECT_EQ(o.max_batch_spans, 512);
  EXPECT_THAT(o.resource, ElementsAre(Pair("service.name", "sru_server"),
                                      Pair("service.version", _), Pair("service.instance.id", _)));
}

TEST(TracingOptions, EachVariableCounts) {
  const TracingOptions o =
      *Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1"},
             {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://[fd00::1]/own"},
             {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
             {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"},
             {"OTEL_EXPORTER_OTLP_HEADERS", "Api-Key=a%2Cb, x=y=z"},
             {"OTEL_EXPORTER_OTLP_TIMEOUT", "250"},
             {"OTEL_SERVICE_NAME", "mine"},
             {"OTEL_RESOURCE_ATTRIBUTES", "service.name=other,service.instance.id=pod%2C1"},
             {"OTEL_TRACES_SAMPLER", "traceidratio"},
             {"OTEL_TRACES_SAMPLER_ARG", "0.25"},
             {"OTEL_BSP_MAX_QUEUE_SIZE", "100"},
             {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50"},
             {"OTEL_BSP_SCHEDULE_DELAY", "1000"}});
  EXPECT_FALSE(o.grpc);
  EXPECT_TRUE(o.endpoint.tls);
  EXPECT_EQ(o.endpoint.host, "fd00::1");
  EXPECT_EQ(o.endpoint.port, "443");
  EXPECT_EQ(o.endpoint.authority, "[fd00::1]:443");
  EXPECT_EQ(o.endpoint.path, "/own");
  EXPECT_THAT(o.headers, ElementsAre(Pair("api-key", "a,b"), Pair("x", "y=z")));
  EXPECT_EQ(o.timeout, absl::Milliseconds(250));
  EXPECT_THAT(o.resource,
              ElementsAre(Pair("service.name", "mine"), Pair("service.instance.id", "pod,1"),
                          Pair("service.version", _)));
  EXPECT_FALSE(o.parent_based);
  EXPECT_EQ(o.ratio, 0.25);
  EXPECT_EQ(o.max_queue_spans, 100);
  EXPECT_EQ(o.max_batch_spans, 50);
  EXPECT_EQ(o.max_delay, absl::Seconds(1));
}

TEST(TracingOptions, Samplers) {
  const auto sampler = [](const std::string& name) {
    const TracingOptions o = *Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1"},
                                    {"OTEL_TRACES_SAMPLER", name},
                                    {"OTEL_TRACES_SAMPLER_ARG", "0.5"}});
    return std::pair(o.parent_based, o.ratio);
  };
  EXPECT_EQ(sampler("always_on"), std::pair(false, 1.0));
  EXPECT_EQ(sampler("always_off"), std::pair(false, 0.0));
  EXPECT_EQ(sampler("parentbased_always_on"), std::pair(true, 1.0));
  EXPECT_EQ(sampler("parentbased_always_off"), std::pair(true, 0.0));
  EXPECT_EQ(sampler("traceidratio"), std::pair(false, 0.5));
  EXPECT_EQ(sampler(""), std::pair(true, 0.5));
}

TEST(TracingOptions, WrongValuesAreRefusedByName) {
  const struct {
    const char* name;
    const char* value;
    const char* expected;
  } cases[] = {
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318",
       "http://HOST:PORT or https://HOST:PORT, such as http://collector:4318"},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:x",
       "http://HOST:PORT or https://HOST:PORT, such as http://collector:4318"},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://",
       "http://HOST:PORT or https://HOST:PORT, such as http://collector:4318"},
      {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://user@collector:1",
       "http://HOST:PORT or https://HOST:PORT, such as http://collector:4318"},
      {"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "http/protobuf or grpc"},
      {"OTEL_EXPORTER_OTLP_HEADERS", "novalue", "KEY=VALUE"},
      {"OTEL_EXPORTER_OTLP_HEADERS", "key=%0d%0aX: y", "KEY=VALUE"},
      {"OTEL_EXPORTER_OTLP_HEADERS", "key=%4", "KEY=VALUE"},
      {"OTEL_EXPORTER_OTLP_HEADERS", "bad key=1", "KEY=VALUE"},
      {"OTEL_EXPORTER_OTLP_TIMEOUT", "0", "1ms to 1h"},
      {"OTEL_TRACES_SAMPLER", "sometimes", "always_on, always_off, traceidratio, parentbased"},
      {"OTEL_TRACES_SAMPLER_ARG", "10%", "expected a number"},
      {"OTEL_TRACES_SAMPLER_ARG", "nan", "expected 0 to 1"},
      {"OTEL_TRACES_EXPORTER", "zipkin", "otlp or none"},
      {"OTEL_SDK_DISABLED", "perhaps", "true or false"},
      {"OTEL_BSP_MAX_QUEUE_SIZE", "-1", "1 to 100000"},
      {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "0", "1 to 100000"},
      {"OTEL_EXPORTER_OTLP_CERTIFICATE", "ca.pem", "expected none"},
      {"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "key.pem", "expected none"},
      {"OTEL_BSP_SCHEDULE_DELAY", "soon", "a number"},
      {"OTEL_RESOURCE_ATTRIBUTES", "=x", "KEY=VALUE"},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.value);
    std::map<std::string, std::string> variables = {
        {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"}};
    variables[one.name] = one.value;
    const absl::StatusOr<TracingOptions> options = Read(variables);
    ASSERT_TRUE(absl::IsInvalidArgument(options.status()));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(one.name));
    EXPECT_THAT(std::string(options.status().message()), HasSubstr(one.expected));
  }
}

TEST(TracingOptions, ASecretIsNotRepeated) {
  const absl::Status status = Read({{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318"},
                                    {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=hush\x01"}})
                                  .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("api-key"));
  EXPECT_THAT(std::string(status.message()), ::testing::Not(HasSubstr("hush")));
}

}  // namespace
}  // namespace sru::server::tracing
