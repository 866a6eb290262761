#include "server/options.h"

#include <map>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/compat/grpc_version.h"

ABSL_DECLARE_FLAG(std::string, model_repository);
ABSL_DECLARE_FLAG(std::string, listen);
ABSL_DECLARE_FLAG(std::string, devices);
ABSL_DECLARE_FLAG(std::string, dtype);
ABSL_DECLARE_FLAG(std::string, admin_listen);
ABSL_DECLARE_FLAG(std::string, status_page_host);
ABSL_DECLARE_FLAG(std::string, model_control);
ABSL_DECLARE_FLAG(std::string, scheduling);
ABSL_DECLARE_FLAG(int32_t, compute_turn_us);
ABSL_DECLARE_FLAG(int32_t, read_pause_us);
ABSL_DECLARE_FLAG(std::string, version_policy);
ABSL_DECLARE_FLAG(std::string, load_models);
ABSL_DECLARE_FLAG(double, poll_interval_s);
ABSL_DECLARE_FLAG(double, empty_repository_grace_s);
ABSL_DECLARE_FLAG(std::string, admission);
ABSL_DECLARE_FLAG(int32_t, max_batch_tokens);
ABSL_DECLARE_FLAG(int64_t, max_queue_delay_us);

namespace sru::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Options Valid() {
  Options options;
  options.model_repository = "models";
  return options;
}

std::string ErrorOf(const Options& options) {
  const absl::Status status = ValidateOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

absl::Status Apply(const std::map<std::string, std::string>& environment) {
  return ApplyEnvironment([&environment](const char* name) {
    const auto it = environment.find(name);
    return it == environment.end() ? nullptr : it->second.c_str();
  });
}

TEST(OptionsTest, DefaultsNeedOnlyARepository) {
  absl::FlagSaver saver;
  EXPECT_EQ(OptionsFromFlags().status().code(), absl::StatusCode::kInvalidArgument);
  absl::SetFlag(&FLAGS_model_repository, "models");
  const absl::StatusOr<Options> options = OptionsFromFlags();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->listen.ToString(),
            kGrpcWithstandsFloods ? "0.0.0.0:50051" : "127.0.0.1:50051");
  EXPECT_EQ(options->metrics_listen.ToString(), "0.0.0.0:9090");
  EXPECT_EQ(options->backend, "auto");
  EXPECT_EQ(options->dtype, kernels::DataType::kFloat32);
  EXPECT_EQ(options->max_queue_delay, absl::ZeroDuration());
  EXPECT_EQ(options->max_sequence_tokens, 2048);
  EXPECT_TRUE(options->admission_by_deadline);
}

TEST(OptionsTest, FlagsAndStructHaveTheSameDefaults) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_model_repository, "models");
  const absl::StatusOr<Options> flags = OptionsFromFlags();
  ASSERT_TRUE(flags.ok());
  const Options defaults = Valid();
  EXPECT_EQ(flags->instances, defaults.instances);
  EXPECT_EQ(flags->pin_cores, defaults.pin_cores);
  EXPECT_EQ(flags->scheduling, defaults.scheduling);
  EXPECT_EQ(flags->compute_turn, defaults.compute_turn);
  EXPECT_EQ(flags->read_pause, defaults.read_pause);
  EXPECT_EQ(flags->devices, defaults.devices);
  EXPECT_EQ(flags->gpu_memory_limit_mb, defaults.gpu_memory_limit_mb);
  EXPECT_EQ(flags->allow_tf32, defaults.allow_tf32);
  EXPECT_EQ(flags->fuse_layers, defaults.fuse_layers);
  EXPECT_EQ(flags->max_batch_tokens, defaults.max_batch_tokens);
  EXPECT_EQ(flags->max_batch_sequences, defaults.max_batch_sequences);
  EXPECT_EQ(flags->max_queue_tokens, defaults.max_queue_tokens);
  EXPECT_EQ(flags->max_queue_sequences, defaults.max_queue_sequences);
  EXPECT_EQ(flags->empty_repository_grace, defaults.empty_repository_grace);
  EXPECT_EQ(flags->drain_timeout, defaults.drain_timeout);
  EXPECT_EQ(flags->drain_delay, defaults.drain_delay);
  EXPECT_EQ(flags->max_sequence_tokens, defaults.max_sequence_tokens);
  EXPECT_EQ(flags->max_sequences_per_request, defaults.max_sequences_per_request);
  EXPECT_EQ(flags->max_message_bytes, defaults.max_message_bytes);
  EXPECT_EQ(flags->max_concurrent_streams, defaults.max_concurrent_streams);
}

TEST(OptionsTest, EnvironmentSetsFlags) {
  absl::FlagSaver saver;
  ASSERT_TRUE(Apply({{"SRU_MODEL_REPOSITORY", "from-environment"},
                     {"SRU_MAX_QUEUE_DELAY_US", "250"},
                     {"SRU_ADMISSION", "none"},
                     {"SRU_PIN_CORES", "true"},
                     {"SRU_COMPUTE_TURN_US", "250"},
                     {"SRU_READ_PAUSE_US", "0"},
                     {"SRU_CPU_ISA", "avx2"},
                     {"SRU_CPU_THREADS", "3"},
                     {"SRU_DTYPE", "bfloat16"}})
                  .ok());
  const absl::StatusOr<Options> options = OptionsFromFlags();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->model_repository, "from-environment");
  EXPECT_EQ(options->max_queue_delay, absl::Microseconds(250));
  EXPECT_FALSE(options->admission_by_deadline);
  EXPECT_TRUE(options->pin_cores);
  EXPECT_EQ(options->compute_turn, absl::Microseconds(250));
  EXPECT_EQ(options->read_pause, absl::ZeroDuration());
  EXPECT_EQ(options->dtype, kernels::DataType::kBFloat16);
  EXPECT_EQ(options->cpu_isa, "avx2");
  EXPECT_EQ(options->cpu_threads, 3);
}

TEST(OptionsTest, BadEnvironmentNamesTheVariable) {
  absl::FlagSaver saver;
  const absl::Status status = Apply({{"SRU_MAX_BATCH_TOKENS", "many"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("SRU_MAX_BATCH_TOKENS"), HasSubstr("many")));
}

TEST(OptionsTest, BadFlagValuesNameTheFlagAndTheValue) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_model_repository, "models");
  const auto error = [] { return std::string(OptionsFromFlags().status().message()); };
  absl::SetFlag(&FLAGS_dtype, "float64");
  EXPECT_EQ(error(), "--dtype: expected float32 or bfloat16, found 'float64'");
  absl::SetFlag(&FLAGS_dtype, "float32");
  absl::SetFlag(&FLAGS_admission, "maybe");
  EXPECT_EQ(error(), "--admission: expected deadline or none, found 'maybe'");
  absl::SetFlag(&FLAGS_admission, "none");
  absl::SetFlag(&FLAGS_listen, "50051");
  EXPECT_THAT(error(), AllOf(HasSubstr("--listen"), HasSubstr("HOST:PORT"), HasSubstr("50051")));
}

TEST(OptionsTest, ModelControl) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_model_repository, "models");
  Options options = *OptionsFromFlags();
  EXPECT_EQ(options.model_control, ModelControl::kStatic);
  EXPECT_FALSE(options.admin_listen.has_value());
  EXPECT_EQ(options.version_policy.kind, models::VersionPolicy::Kind::kLatest);
  EXPECT_EQ(options.version_policy.latest, 1);
  absl::SetFlag(&FLAGS_model_control, "poll");
  absl::SetFlag(&FLAGS_poll_interval_s, 0.5);
  absl::SetFlag(&FLAGS_version_policy, "named:1,3");
  options = *OptionsFromFlags();
  EXPECT_EQ(options.model_control, ModelControl::kPoll);
  EXPECT_EQ(options.poll_interval, absl::Milliseconds(500));
  EXPECT_THAT(options.version_policy.named, ::testing::ElementsAre(1, 3));
  absl::SetFlag(&FLAGS_load_models, "a,b");
  EXPECT_THAT(std::string(OptionsFromFlags().status().message()),
              AllOf(HasSubstr("--load_models"), HasSubstr("--model_control=explicit")));
  absl::SetFlag(&FLAGS_model_control, "explicit");
  absl::SetFlag(&FLAGS_admin_listen, "127.0.0.1:0");
  options = *OptionsFromFlags();
  EXPECT_EQ(options.model_control, ModelControl::kExplicit);
  EXPECT_THAT(options.load_models, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(options.admin_listen->ToString(), "127.0.0.1:0");

  const auto expect_error = [](const char* part) {
    const absl::Status status = OptionsFromFlags().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  };
  absl::SetFlag(&FLAGS_load_models, "a,../b");
  expect_error("--load_models: expected names of models separated by commas, found '../b'");
  absl::SetFlag(&FLAGS_load_models, "");
  absl::SetFlag(&FLAGS_poll_interval_s, 0);
  expect_error("--poll_interval_s");
  absl::SetFlag(&FLAGS_poll_interval_s, 1);
  absl::SetFlag(&FLAGS_empty_repository_grace_s, -1);
  expect_error("--empty_repository_grace_s: expected 0 to");
  absl::SetFlag(&FLAGS_empty_repository_grace_s, 0);
  absl::SetFlag(&FLAGS_version_policy, "newest");
  expect_error("--version_policy: expected latest:N");
  absl::SetFlag(&FLAGS_version_policy, "all");
  absl::SetFlag(&FLAGS_model_control, "dynamic");
  expect_error("--model_control: expected static, poll or explicit, found 'dynamic'");
  absl::SetFlag(&FLAGS_model_control, "static");
  absl::SetFlag(&FLAGS_scheduling, "fifo");
  expect_error("--scheduling: expected batch or normal, found 'fifo'");
  absl::SetFlag(&FLAGS_scheduling, "normal");
  EXPECT_EQ(OptionsFromFlags()->scheduling, Scheduling::kNormal);
  absl::SetFlag(&FLAGS_scheduling, "batch");
  for (const int out_of_range : {-1, 1000001}) {
    absl::SetFlag(&FLAGS_compute_turn_us, out_of_range);
    expect_error("--compute_turn_us: expected 0 to 1s");
    absl::SetFlag(&FLAGS_compute_turn_us, 0);
    absl::SetFlag(&FLAGS_read_pause_us, out_of_range);
    expect_error("--read_pause_us: expected 0 to 1s");
    absl::SetFlag(&FLAGS_read_pause_us, 0);
  }
  absl::SetFlag(&FLAGS_admin_listen, "50052");
  expect_error("--admin_listen");
}

TEST(OptionsTest, RangesAreChecked) {
  Options options = Valid();
  options.model_repository = "";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--model_repository"));

  options = Valid();
  options.backend = "tpu";
  EXPECT_EQ(ErrorOf(options), "--backend: expected auto, cpu, cuda or reference, found 'tpu'");

  options = Valid();
  options.max_batch_tokens = 0;
  EXPECT_EQ(ErrorOf(options), "--max_batch_tokens: expected 1 to 4194304, found 0");

  options = Valid();
  options.cpu_threads = 1025;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--cpu_threads: expected 0 to 1024, found 1025"));
  options.cpu_threads = 0;
  options.instances = -1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--instances"));

  options = Valid();
  options.max_queue_delay = -absl::Microseconds(1);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_queue_delay_us"));

  options = Valid();
  options.max_message_bytes = 1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_message_bytes"));

  options = Valid();
  options.max_concurrent_streams = 0;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_concurrent_streams"));

  options = Valid();
  options.drain_timeout = absl::Seconds(1);
  options.drain_delay = absl::Seconds(2);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--drain_delay_s"));
}

TEST(OptionsTest, ASequenceMustFitIntoABatchAndIntoTheQueue) {
  Options options = Valid();
  options.max_batch_tokens = 1000;
  options.max_sequence_tokens = 1001;
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--max_sequence_tokens"),
                                      HasSubstr("--max_batch_tokens"), HasSubstr("1001")));
  options.max_sequence_tokens = 1000;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.max_queue_tokens = 999;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_queue_tokens"));
}

TEST(OptionsTest, WarnsOfListenersThatStrangersCanStop) {
  Options options = Valid();
  const auto warnings = [&](const char* grpc, bool withstands_floods) {
    return ExposureWarnings(options, grpc, withstands_floods);
  };
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    options.listen.host = host;
    EXPECT_TRUE(warnings("1.51.1", false).empty()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) {
    options.listen.host = host;
    ASSERT_EQ(warnings("1.51.1", false).size(), 1u) << host;
    EXPECT_THAT(warnings("1.51.1", false).front(),
                AllOf(StartsWith(absl::StrCat("--listen=", options.listen.ToString(), ": ")),
                      HasSubstr("gRPC 1.51.1 has CVE-2023-33953"), HasSubstr("CVE-2023-44487"),
                      HasSubstr("container image"), HasSubstr("--tls_client_ca"),
                      HasSubstr("nginx 1.26"), HasSubstr("Envoy 1.27.1")));
    EXPECT_TRUE(warnings("1.83.0", true).empty());
  }
  options.admin_listen = ListenAddress{"10.0.0.2", 50052};
  ASSERT_EQ(warnings("1.51.1", false).size(), 2u);
  EXPECT_THAT(warnings("1.51.1", false).back(), StartsWith("--admin_listen=10.0.0.2:50052: "));
  // Tokens do not help; certificates do, since gRPC reads no frame before the handshake is done.
  options.security.auth_tokens_file = "tokens";
  EXPECT_EQ(warnings("1.51.1", false).size(), 2u);
  options.security.tls_client_ca = "ca.pem";
  EXPECT_TRUE(warnings("1.51.1", false).empty());
}

TEST(OptionsTest, HelpShowsEveryFlagWithItsVariable) {
  const std::string help = HelpText();
  EXPECT_THAT(help, HasSubstr(kGrpcWithstandsFloods ? "--listen=0.0.0.0:50051"
                                                    : "--listen=127.0.0.1:50051"));
  for (const char* expected :
       {"--model_repository", "--metrics_listen=0.0.0.0:9090", "--max_queue_delay_us=0",
        "[SRU_MAX_QUEUE_TOKENS]", "--drain_timeout_s=30"}) {
    EXPECT_THAT(help, HasSubstr(expected));
  }
}

TEST(OptionsTest, DevicesAreNumbersWithCommas) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_model_repository, "models");
  const auto parse = [](const std::string& text) {
    absl::SetFlag(&FLAGS_devices, text);
    return OptionsFromFlags();
  };
  EXPECT_TRUE(parse("")->devices.empty());
  EXPECT_EQ(parse("1,0,12")->devices, (std::vector<int>{1, 0, 12}));
  for (const char* wrong : {"0,", ",", "a", "0 1", "0,0", "-1", "99999999999"}) {
    const absl::Status status = parse(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--devices"), HasSubstr("such as 0,1"), HasSubstr(wrong)));
  }
}

TEST(OptionsTest, NamesOfTheStatusPage) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_model_repository, "models");
  absl::SetFlag(&FLAGS_status_page_host, "sru.example.org,gpu.lan");
  EXPECT_THAT(OptionsFromFlags()->status_page_hosts, ElementsAre("sru.example.org", "gpu.lan"));
  absl::SetFlag(&FLAGS_status_page_host, "http://sru.example.org");
  EXPECT_THAT(std::string(OptionsFromFlags().status().message()),
              AllOf(HasSubstr("--status_page_host"), HasSubstr("http://sru.example.org")));
}

TEST(OptionsTest, TokensDoNotCrossTheNetworkForTheStatusPage) {
  Options options = Valid();
  options.listen.host = "127.0.0.1";
  options.metrics_listen.host = "0.0.0.0";
  options.security.auth_tokens_file = "tokens";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.status_page_try = TryAccess::kAll;
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--status_page_try"), HasSubstr("0.0.0.0:9090")));
  // TLS is that of the other port.
  options.security.tls_cert = "cert";
  options.security.tls_key = "key";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--status_page_try"));
  options.security.auth_without_tls = true;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.security.auth_without_tls = false;
  options.metrics_listen.host = "127.0.0.1";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.metrics_listen.host = "0.0.0.0";
  options.security.tls_client_ca = "ca";  // then it is off
  EXPECT_TRUE(ValidateOptions(options).ok());
}

TEST(OptionsTest, DevicesNeedABackendThatHasSome) {
  Options options = Valid();
  options.devices = {0};
  for (const char* backend : {"auto", "cuda"}) {
    options.backend = backend;
    EXPECT_TRUE(ValidateOptions(options).ok());
  }
  options.backend = "cpu";
  EXPECT_EQ(ErrorOf(options), "--devices: names GPUs, but --backend is cpu; use --backend=cuda");
}

TEST(OptionsTest, FusedLayersAreBFloat16) {
  Options options = Valid();
  options.fuse_layers = true;
  options.dtype = kernels::DataType::kBFloat16;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.dtype = kernels::DataType::kFloat32;
  EXPECT_EQ(ErrorOf(options),
            "--fuse_layers: fuses bfloat16 layers, but --dtype is float32; use --dtype=bfloat16");
}

}  // namespace
}  // namespace sru::server
