#include "server/options.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/choose_backend.h"

namespace sru::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Options Valid() {
  Options options;
  options.models.repository = "models";
  return options;
}

std::string ErrorOf(const Options& options) {
  const absl::Status status = ValidateOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// What the server makes of a command line with --model_repository=models before these flags.
absl::StatusOr<Options> Parse(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "--model_repository=models");
  Options options;
  FlagTable flags;
  AddFlags(&options, &flags);
  absl::Status status = flags.SetFromArguments(arguments);
  status.Update(flags.Check());
  if (status.ok()) status = ValidateOptions(options);
  if (!status.ok()) return status;
  return options;
}

std::string ParseError(const std::vector<std::string>& arguments) {
  const absl::Status status = Parse(arguments).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(OptionsTest, DefaultsNeedOnlyARepository) {
  EXPECT_EQ(ValidateOptions(Options()).code(), absl::StatusCode::kInvalidArgument);
  const absl::StatusOr<Options> options = Parse({});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->models.repository, "models");
  EXPECT_EQ(options->listen.ToString(), "127.0.0.1:50051");
  EXPECT_EQ(options->transport.transport, door::GrpcTransport::kNative);
  EXPECT_EQ(options->http.metrics_listen.ToString(), "127.0.0.1:9090");
  ASSERT_TRUE(options->http.http_listen.has_value());
  EXPECT_EQ(options->http.http_listen->ToString(), "127.0.0.1:8080");
  EXPECT_EQ(options->batching.backend, "auto");
  EXPECT_EQ(options->batching.compile.dtype, kernels::DataType::kFloat32);
  EXPECT_EQ(options->batching.engine.batcher.max_queue_delay, absl::ZeroDuration());
  EXPECT_EQ(options->rpc.limits.max_sequence_tokens, 2048);
  EXPECT_TRUE(options->batching.engine.batcher.admission_by_deadline);
}

// Of each flag: what --help shows as its default can be given and changes nothing.
// Whatever the machine has: a server on the processor leaves a GPU's driver alone.
TEST(OptionsTest, TheVersionNamesTheBackendsOfTheBuild) {
  EXPECT_THAT(
      VersionText(),
      HasSubstr(absl::StrCat("(backends: ", absl::StrJoin(kernels::BuiltBackends(), ", "), ";")));
}

TEST(OptionsTest, EveryDefaultCanBeGiven) {
  const std::string help = HelpText();
  std::set<std::string> names;
  std::vector<std::string> arguments;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    const size_t variable = line.find("  [SRU_");
    if (!absl::StartsWith(line, "  --") || variable == absl::string_view::npos) continue;
    std::string argument(line.substr(2, variable - 2));
    const size_t equals = argument.find('=');
    EXPECT_TRUE(names.insert(argument.substr(2, equals - 2)).second) << argument << " twice";
    if (equals == std::string::npos) argument += "=";
    arguments.push_back(std::move(argument));
  }
  EXPECT_GE(names.size(), 60u);
  Options options;
  FlagTable flags;
  AddFlags(&options, &flags);
  ASSERT_TRUE(flags.SetFromArguments(arguments).ok());
  ASSERT_TRUE(flags.Check().ok());
  FlagTable same;
  AddFlags(&options, &same);
  std::string help_without_headings;
  for (const absl::string_view line : absl::StrSplit(help, '\n')) {
    if (absl::StartsWith(line, "  ")) absl::StrAppend(&help_without_headings, line, "\n");
  }
  EXPECT_THAT(help_without_headings, HasSubstr(same.Help()));
  options.models.repository = "models";
  EXPECT_TRUE(ValidateOptions(options).ok());
}

TEST(OptionsTest, EnvironmentSetsFlags) {
  const std::map<std::string, std::string> environment = {
      {"SRU_MODEL_REPOSITORY", "from-environment"},
      {"SRU_MAX_QUEUE_DELAY_US", "250"},
      {"SRU_ADMISSION", "none"},
      {"SRU_PIN_CORES", "true"},
      {"SRU_COMPUTE_TURN_US", "250"},
      {"SRU_CPU_ISA", "avx2"},
      {"SRU_CPU_THREADS", "3"},
      {"SRU_DTYPE", "bfloat16"}};
  Options options;
  FlagTable flags;
  AddFlags(&options, &flags);
  ASSERT_TRUE(flags
                  .SetFromEnvironment([&environment](const char* name) {
                    const auto it = environment.find(name);
                    return it == environment.end() ? nullptr : it->second.c_str();
                  })
                  .ok());
  ASSERT_TRUE(flags.Check().ok());
  EXPECT_EQ(options.models.repository, "from-environment");
  EXPECT_EQ(options.batching.engine.batcher.max_queue_delay, absl::Microseconds(250));
  EXPECT_FALSE(options.batching.engine.batcher.admission_by_deadline);
  EXPECT_TRUE(options.batching.engine.pin_cores);
  EXPECT_EQ(options.batching.engine.compute_turn, absl::Microseconds(250));
  EXPECT_EQ(options.batching.compile.dtype, kernels::DataType::kBFloat16);
  EXPECT_EQ(options.batching.hardware.cpu_isa, "avx2");
  EXPECT_EQ(options.batching.hardware.cpu_threads, 3);
}

TEST(OptionsTest, BadEnvironmentNamesTheVariable) {
  Options options;
  FlagTable flags;
  AddFlags(&options, &flags);
  const absl::Status status = flags.SetFromEnvironment([](const char* name) {
    return std::string(name) == "SRU_MAX_BATCH_TOKENS" ? "many" : nullptr;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("SRU_MAX_BATCH_TOKENS"), HasSubstr("many")));
}

TEST(OptionsTest, BadFlagValuesNameTheFlagAndTheValue) {
  EXPECT_EQ(ParseError({"--dtype=float64"}),
            "--dtype: expected float32, bfloat16 or int8, found 'float64'");
  EXPECT_EQ(ParseError({"--admission=maybe"}),
            "--admission: expected deadline or none, found 'maybe'");
  EXPECT_THAT(ParseError({"--listen=50051"}),
              AllOf(HasSubstr("--listen"), HasSubstr("HOST:PORT"), HasSubstr("50051")));
}

TEST(OptionsTest, ModelsWithoutARepository) {
  const Options options = *Parse({"--model=ende:/models/a,fr-en:b:c"});
  ASSERT_EQ(options.models.directories.size(), 2U);
  EXPECT_EQ(options.models.directories[0].name, "ende");
  EXPECT_EQ(options.models.directories[0].directory, "/models/a");
  EXPECT_EQ(options.models.directories[1].name, "fr-en");
  EXPECT_EQ(options.models.directories[1].directory, "b:c");
  const auto locations = options.models.Locations();
  ASSERT_TRUE(locations.ok()) << locations.status();
  ASSERT_EQ(locations->size(), 2U);
  EXPECT_EQ((*locations)[0].name, "ende");
  EXPECT_EQ((*locations)[0].version, 1);
  EXPECT_EQ((*locations)[0].root, "/models/a") << "links stay in the folder";
  EXPECT_EQ((*Parse({"--model=a:d", "--follow_outside_links"})).models.Locations()->front().root,
            "");
  for (const char* text : {"--model=ende", "--model=:d", "--model=a:", "--model=a/b:d",
                           "--model=a:d,a:e", "--model=a:d,"}) {
    EXPECT_THAT(ParseError({text}), HasSubstr("--model: expected NAME:DIR")) << text;
  }
  EXPECT_THAT(ParseError({"--model=a:d", "--model_control=poll"}),
              HasSubstr("--model: has a meaning only with --model_control=static"));
}

TEST(OptionsTest, ModelControl) {
  Options options = *Parse({});
  EXPECT_EQ(options.models.control, lifecycle::ModelControl::kStatic);
  EXPECT_FALSE(options.admin_listen.has_value());
  EXPECT_EQ(options.models.version_policy.kind, models::VersionPolicy::Kind::kLatest);
  EXPECT_EQ(options.models.version_policy.latest, 1);
  const std::vector<std::string> poll = {"--model_control=poll", "--poll_interval_s=0.5",
                                         "--version_policy=named:1,3"};
  options = *Parse(poll);
  EXPECT_EQ(options.models.control, lifecycle::ModelControl::kPoll);
  EXPECT_EQ(options.models.poll_interval, absl::Milliseconds(500));
  EXPECT_THAT(options.models.version_policy.named, ElementsAre(1, 3));
  EXPECT_THAT(ParseError({"--model_control=poll", "--load_models=a,b"}),
              AllOf(HasSubstr("--load_models"), HasSubstr("--model_control=explicit")));
  options = *Parse({"--model_control=explicit", "--load_models=a,b", "--admin_listen=127.0.0.1:0"});
  EXPECT_EQ(options.models.control, lifecycle::ModelControl::kExplicit);
  EXPECT_THAT(options.models.load_models, ElementsAre("a", "b"));
  EXPECT_EQ(options.admin_listen->ToString(), "127.0.0.1:0");

  EXPECT_THAT(
      ParseError({"--model_control=explicit", "--load_models=a,../b"}),
      HasSubstr("--load_models: expected names of models separated by commas, found '../b'"));
  EXPECT_THAT(ParseError({"--poll_interval_s=0"}), HasSubstr("--poll_interval_s"));
  EXPECT_THAT(ParseError({"--empty_repository_grace_s=-1"}),
              HasSubstr("--empty_repository_grace_s: expected 0 to"));
  EXPECT_TRUE(Parse({"--empty_repository_grace_s=0"}).ok());
  EXPECT_THAT(ParseError({"--version_policy=newest"}),
              HasSubstr("--version_policy: expected latest:N"));
  EXPECT_TRUE(Parse({"--version_policy=all"}).ok());
  EXPECT_THAT(ParseError({"--model_control=dynamic"}),
              HasSubstr("--model_control: expected static, poll or explicit, found 'dynamic'"));
  for (const std::string out_of_range : {"-1", "1000001"}) {
    EXPECT_THAT(ParseError({"--compute_turn_us=" + out_of_range}),
                HasSubstr("--compute_turn_us: expected 0 to 1s"));
  }
  EXPECT_THAT(ParseError({"--admin_listen=50052"}), HasSubstr("--admin_listen"));
}

TEST(OptionsTest, RangesAreChecked) {
  Options options = Valid();
  options.models.repository = "";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--model_repository"));

  options = Valid();
  options.batching.backend = "tpu";
  EXPECT_EQ(ErrorOf(options), "--backend: expected auto, cpu, cuda or reference, found 'tpu'");

  options = Valid();
  options.batching.engine.batcher.max_batch_tokens = 0;
  EXPECT_EQ(ErrorOf(options), "--max_batch_tokens: expected 1 to 4194304, found 0");

  options = Valid();
  options.batching.hardware.cpu_threads = 1025;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--cpu_threads: expected 0 to 1024, found 1025"));
  options.batching.hardware.cpu_threads = 0;
  options.batching.engine.instances = -1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--instances"));
  options = Valid();
  options.batching.state_memory_mb = -1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--state_memory_mb: expected 0 or 1"));
  options.batching.state_memory_mb = 16;
  options.batching.prefix_cache_mb = 17;
  EXPECT_EQ(ErrorOf(options),
            "--prefix_cache_mb: expected at most --state_memory_mb, which is 16, found 17");
  options.batching.prefix_cache_mb = 0;

  options = Valid();
  options.batching.engine.batcher.max_queue_delay = -absl::Microseconds(1);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_queue_delay_us"));

  options = Valid();
  options.rpc.max_message_bytes = 1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_message_bytes"));

  options = Valid();
  options.connections.max_concurrent_streams = 0;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_concurrent_streams"));

  options = Valid();
  options.drain_timeout = absl::Seconds(1);
  options.drain_delay = absl::Seconds(2);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--drain_delay_s"));
}

TEST(OptionsTest, ASequenceMustFitIntoABatchAndIntoTheQueue) {
  Options options = Valid();
  options.batching.engine.batcher.max_batch_tokens = 1000;
  options.rpc.limits.max_sequence_tokens = 1001;
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--max_sequence_tokens"),
                                      HasSubstr("--max_batch_tokens"), HasSubstr("1001")));
  options.rpc.limits.max_sequence_tokens = 1000;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.batching.engine.batcher.max_queue_tokens = 999;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_queue_tokens"));
}

TEST(OptionsTest, WarnsOfListenersThatStrangersCanStop) {
  Options options = Valid();
  options.listen.host = "0.0.0.0";
  EXPECT_TRUE(ExposureWarnings(options).empty());
  options.transport.transport = door::GrpcTransport::kLibrary;
  for (const char* host : {"127.0.0.1", "localhost", "::1"}) {
    options.listen.host = host;
    EXPECT_TRUE(ExposureWarnings(options).empty()) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "example.org"}) {
    options.listen.host = host;
    ASSERT_EQ(ExposureWarnings(options).size(), 1U) << host;
    EXPECT_THAT(ExposureWarnings(options).front(),
                AllOf(StartsWith(absl::StrCat("--listen=", options.listen.ToString(), ": ")),
                      HasSubstr("--grpc_transport=native"), HasSubstr("docs/security.md")));
  }
  options.admin_listen = ListenAddress{"10.0.0.2", 50052};
  ASSERT_EQ(ExposureWarnings(options).size(), 2U);
  EXPECT_THAT(ExposureWarnings(options).back(), StartsWith("--admin_listen=10.0.0.2:50052: "));
  // Tokens do not help, and certificates do not help against handshakes that never end.
  options.security.auth_tokens_file = "tokens";
  options.security.tls_client_ca = "ca.pem";
  EXPECT_EQ(ExposureWarnings(options).size(), 2U);
}

TEST(OptionsTest, HelpShowsEveryFlagWithItsVariable) {
  const std::string help = HelpText();
  for (const char* expected :
       {"--model_repository", "--listen=127.0.0.1:50051", "--grpc_transport=native",
        "--metrics_listen=127.0.0.1:9090", "--max_queue_delay_us=0", "[SRU_MAX_QUEUE_TOKENS]",
        "--drain_timeout_s=30"}) {
    EXPECT_THAT(help, HasSubstr(expected));
  }
}

TEST(OptionsTest, HelpHasAHeadingOverEachGroupOfFlags) {
  const std::string help = HelpText();
  for (const char* expected :
       {"\n\nWhat is served, and where:\n  --model_repository  [", "\n\nLimits:\n  --max_sequence",
        "\n\nWho may call:\n  --tls_cert  ["}) {
    EXPECT_THAT(help, HasSubstr(expected));
  }
}

TEST(OptionsTest, DevicesAreNumbersWithCommas) {
  const auto parse = [](const std::string& text) { return Parse({"--devices=" + text}); };
  EXPECT_TRUE(parse("")->batching.hardware.cuda_devices.empty());
  EXPECT_EQ(parse("1,0,12")->batching.hardware.cuda_devices, (std::vector<int>{1, 0, 12}));
  for (const char* wrong : {"0,", ",", "a", "0 1", "0,0", "-1", "99999999999"}) {
    const absl::Status status = parse(wrong).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--devices"), HasSubstr("such as 0,1"), HasSubstr(wrong)));
  }
}

TEST(OptionsTest, NamesOfTheStatusPage) {
  EXPECT_THAT(Parse({"--status_page_host=sru.example.org,gpu.lan"})->http.status_page_hosts,
              ElementsAre("sru.example.org", "gpu.lan"));
  EXPECT_THAT(ParseError({"--status_page_host=http://sru.example.org"}),
              AllOf(HasSubstr("--status_page_host"), HasSubstr("http://sru.example.org")));
}

TEST(OptionsTest, OriginsOfPagesThatMayCall) {
  EXPECT_TRUE(Parse({})->http.allow_origins.empty());
  EXPECT_THAT(
      Parse({"--allow_origins=https://a.example,http://localhost:3000"})->http.allow_origins,
      ElementsAre("https://a.example", "http://localhost:3000"));
  EXPECT_THAT(ParseError({"--allow_origins=https://a.example,b.example"}),
              AllOf(HasSubstr("--allow_origins"), HasSubstr("'b.example'")));
}

TEST(OptionsTest, OnlyThisMachineReachesThePorts) {
  Options options = Valid();
  EXPECT_THAT(ReachNotice(options), HasSubstr("--listen=0.0.0.0:50051"));
  options.http.http_listen = std::nullopt;
  EXPECT_FALSE(ReachNotice(options).empty());
  options.http.metrics_listen.host = "0.0.0.0";
  EXPECT_EQ(ReachNotice(options), "");
}

TEST(OptionsTest, TokensDoNotCrossTheNetworkByHttp) {
  Options options = Valid();
  options.listen.host = "127.0.0.1";
  options.http.http_listen->host = "0.0.0.0";
  options.security.auth_tokens_file = "tokens";
  EXPECT_THAT(ErrorOf(options),
              AllOf(HasSubstr("--auth_tokens_file"), HasSubstr("or --http_listen= "),
                    HasSubstr("found --http_listen=0.0.0.0:8080")));
  options.http.http_listen->host = "127.0.0.1";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.http.http_listen = std::nullopt;
  EXPECT_TRUE(ValidateOptions(options).ok());
}

TEST(OptionsTest, HttpMayBeOff) {
  EXPECT_FALSE(Parse({"--http_listen="})->http.http_listen.has_value());
  EXPECT_EQ(Parse({"--http_listen=[::1]:0"})->http.http_listen->ToString(), "[::1]:0");
  EXPECT_THAT(ParseError({"--http_listen=8080"}), HasSubstr("--http_listen: expected HOST:PORT"));
}

TEST(OptionsTest, TokensDoNotCrossTheNetworkForTheStatusPage) {
  Options options = Valid();
  options.http.http_listen = std::nullopt;
  options.listen.host = "127.0.0.1";
  options.http.metrics_listen.host = "0.0.0.0";
  options.security.auth_tokens_file = "tokens";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.http.status_page_try = http::TryAccess::kAll;
  EXPECT_THAT(ErrorOf(options), AllOf(HasSubstr("--status_page_try"), HasSubstr("0.0.0.0:9090")));
  // TLS is that of the other port.
  options.security.tls_cert = "cert";
  options.security.tls_key = "key";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--status_page_try"));
  options.security.auth_without_tls = true;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.security.auth_without_tls = false;
  options.http.metrics_listen.host = "127.0.0.1";
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.http.metrics_listen.host = "0.0.0.0";
  options.security.tls_client_ca = "ca";  // then it is off
  EXPECT_TRUE(ValidateOptions(options).ok());
}

TEST(OptionsTest, DevicesNeedABackendThatHasSome) {
  Options options = Valid();
  options.batching.hardware.cuda_devices = {0};
  for (const char* backend : {"auto", "cuda"}) {
    options.batching.backend = backend;
    EXPECT_TRUE(ValidateOptions(options).ok());
  }
  options.batching.backend = "cpu";
  EXPECT_EQ(ErrorOf(options), "--devices: names GPUs, but --backend is cpu; use --backend=cuda");
}

TEST(OptionsTest, FusedLayersAreBFloat16) {
  Options options = Valid();
  options.batching.compile.dtype = kernels::DataType::kFloat32;
  EXPECT_TRUE(ValidateOptions(options).ok());  // auto
  options.batching.hardware.cuda_fuse_max_input = kernels::kFuseAll;
  options.batching.compile.dtype = kernels::DataType::kBFloat16;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.batching.compile.dtype = kernels::DataType::kFloat32;
  EXPECT_EQ(
      ErrorOf(options),
      "--fuse_layers: all fuses bfloat16 layers, but --dtype is float32; use --dtype=bfloat16");
}

}  // namespace
}  // namespace sru::server
