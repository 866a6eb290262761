#include "server/options.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
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
  Flags flags;
  AddFlags(&options, &flags);
  SRU_RETURN_UNLESS_OK(flags.ParseFlagsOnly(arguments));
  SRU_RETURN_UNLESS_OK(ValidateOptions(options));
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

TEST(OptionsTest, TheDemoNeedsNoRepository) {
  Options options;
  options.models.demo = true;
  EXPECT_TRUE(ValidateOptions(options).ok());
  options.models.directories = {{"trec", 1, "models/trec/1", "models/trec/1"}};
  EXPECT_THAT(ErrorOf(options), HasSubstr("--demo: has a meaning only without --model"));
}

// Four calls with as many rows as a call may have, of ten words each, find room in the queue.
TEST(OptionsTest, LargeCallsCanWait) {
  const Options defaults;
  const auto& batcher = defaults.batching.engine.batcher;
  const int64_t rows = 4 * int64_t{defaults.rpc.limits.max_sequences};
  EXPECT_EQ(rows, 4096);
  EXPECT_GE(batcher.max_queue_sequences, rows);
  EXPECT_GE(batcher.max_queue_tokens, 10 * rows);
}

// Whatever the machine has: a server on the processor leaves a GPU's driver alone.
TEST(OptionsTest, TheVersionNamesTheBackendsOfTheBuild) {
  EXPECT_THAT(VersionText(),
              HasSubstr(absl::StrCat("(commit unknown; backends: ",
                                     absl::StrJoin(kernels::BuiltBackends(), ", "), ";")));
}

// For each flag: the default that --help shows can be given and changes nothing.
TEST(OptionsTest, EveryDefaultCanBeGiven) {
  const std::string help = HelpText(/*all=*/true);
  const std::string joined = absl::StrReplaceAll(help, {{"\n      ", " "}});
  std::set<std::string> names;
  std::vector<std::string> arguments;
  for (const absl::string_view line : absl::StrSplit(joined, '\n')) {
    if (!absl::StartsWith(line, "  --") || absl::StartsWith(line, "  --help")) continue;
    const absl::string_view name = line.substr(4, line.find(' ', 4) - 4);
    EXPECT_TRUE(names.insert(std::string(name)).second) << name << " twice";
    const size_t begin = line.rfind("(default ");
    if (begin == absl::string_view::npos || !absl::EndsWith(line, ")")) continue;
    const absl::string_view value = line.substr(begin + 9);
    arguments.push_back(absl::StrCat("--", name, "=", value.substr(0, value.size() - 1)));
  }
  EXPECT_GE(names.size(), 60u);
  EXPECT_GE(arguments.size(), 35u);
  Options options;
  Flags flags;
  AddFlags(&options, &flags);
  const absl::Status status = flags.ParseFlagsOnly(arguments);
  ASSERT_TRUE(status.ok()) << status;
  Flags same;
  AddFlags(&options, &same);
  EXPECT_EQ(flags.Help(), same.Help());
  options.models.repository = "models";
  EXPECT_TRUE(ValidateOptions(options).ok());
}

TEST(OptionsTest, BadFlagValuesNameTheFlagAndTheValue) {
  EXPECT_EQ(ParseError({"--dtype=float64"}),
            "--dtype: expected float32, bfloat16 or int8, found 'float64'");
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
  EXPECT_THAT(ParseError({"--version_policy=newest"}),
              HasSubstr("--version_policy: expected latest:N"));
  EXPECT_TRUE(Parse({"--version_policy=all"}).ok());
  EXPECT_THAT(ParseError({"--model_control=dynamic"}),
              HasSubstr("--model_control: expected static, poll or explicit, found 'dynamic'"));
  EXPECT_THAT(ParseError({"--admin_listen=50052"}), HasSubstr("--admin_listen"));
}

TEST(OptionsTest, WrongValuesNameTheFlag) {
  Options options = Valid();
  options.models.repository = "";
  EXPECT_THAT(ErrorOf(options), HasSubstr("--model_repository"));
  EXPECT_EQ(ParseError({"--backend=tpu"}),
            "--backend: expected auto, cpu, cuda or reference, found 'tpu'");
  EXPECT_EQ(ParseError({"--max_batch_tokens=0"}),
            "--max_batch_tokens: expected 1 to 4194304, found 0");
  EXPECT_EQ(ParseError({"--state_memory_mb=-1"}),
            "--state_memory_mb: expected 0 or 1 to 1073741824, found -1");
  EXPECT_EQ(ParseError({"--state_memory_mb=16", "--prefix_cache_mb=17"}),
            "--prefix_cache_mb: expected at most --state_memory_mb, which is 16, found 17");
  EXPECT_EQ(ParseError({"--max_queue_delay_us=-1"}),
            "--max_queue_delay_us: expected 0 to 10s, found -1us");
  EXPECT_EQ(ParseError({"--send_timeout_s=0.001"}),
            "--send_timeout_s: expected 0 (never) or 10ms to 168h, found 1ms");
  EXPECT_THAT(ParseError({"--drain_timeout_s=1", "--drain_delay_s=2"}),
              HasSubstr("--drain_delay_s"));
  EXPECT_EQ(Parse({"--max_connection_age_s=0"})->connections.max_age, absl::InfiniteDuration());
  EXPECT_EQ(Parse({"--max_call_s=0"})->connections.max_call, absl::InfiniteDuration());
}

TEST(OptionsTest, EachErrorIsListed) {
  Options options = Valid();
  EXPECT_TRUE(OptionErrors(options).empty());
  options.models.repository = "";
  options.drain_delay = options.drain_timeout + absl::Seconds(1);
  options.security.tls_cert = "cert.pem";
  options.batching.backend = "tpu";
  EXPECT_EQ(OptionErrors(options).size(), 4u);
  EXPECT_EQ(ValidateOptions(options), OptionErrors(options).front());
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

TEST(OptionsTest, HelpShowsWhatMattersFirstAndTheRestOnRequest) {
  const std::string first = HelpText(/*all=*/false);
  const std::string all = HelpText(/*all=*/true);
  const auto count = [](const std::string& help) {
    const std::vector<std::string> parts = absl::StrSplit(help, "\n  --");
    return parts.size() - 2;  // without what stands before, and --help
  };
  EXPECT_EQ(count(first), 13u);
  EXPECT_THAT(first, AllOf(HasSubstr("--model_repository"), HasSubstr("--help=all"),
                           HasSubstr("(default 127.0.0.1:50051)"), HasSubstr("SRU_LISTEN")));
  const size_t rare = all.find(absl::StrCat("\n\n", Flags::kRarelyChanged, ":\n"));
  ASSERT_NE(rare, std::string::npos);
  EXPECT_LE(count(all.substr(0, rare)) + 1, 50u);
  EXPECT_THAT(all.substr(rare), HasSubstr("--grpc_transport"));
  for (const char* expected :
       {"\n\nWhat is served, and where:\n  --model_repository  ",
        "\n\nLimits:\n  --max_sequence_tokens  ", "\n\nWho may call:\n  --tls_cert  "}) {
    EXPECT_THAT(all, HasSubstr(expected));
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

}  // namespace
}  // namespace sru::server
