// Runs the program sru_server as its users start and stop it: exit codes, its one line of error,
// signals.
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/background_calls.h"
#include "tests/integration/server_fixture.h"
#include "tests/integration/unread_call.h"
#include "tests/testing/http_get.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Command(const std::string& repository,
                                 const std::vector<std::string>& flags = {}) {
  // Not --backend=auto, which warns of a machine with a toolkit and no GPU.
  std::vector<std::string> command = {
      SRU_SERVER_BINARY,      "--model_repository=" + repository, "--backend=cpu",
      "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",     "--http_listen=127.0.0.1:0"};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

// Expects the server to end with code 1 and one line that contains all of `parts`.
void ExpectRefusesToStart(const std::vector<std::string>& command,
                          const std::vector<std::string>& parts,
                          const std::vector<std::string>& environment = {}) {
  Subprocess process(command, environment);
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_EQ(process.out(), "");
  std::vector<std::string> errors;
  for (const std::string& line : Lines(process.err())) {
    if (!absl::StrContains(line, " INFO ")) errors.push_back(line);
  }
  ASSERT_EQ(errors.size(), 1u) << process.err();
  for (const std::string& part : parts) EXPECT_THAT(errors[0], HasSubstr(part));
}

// A server process that is ready, and the addresses on which it listens.
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& flags)
      : process_(Command(std::filesystem::absolute(kBundledRepository), flags)) {
    EXPECT_TRUE(process_.AwaitLine()) << process_.err();
    // listening on 127.0.0.1:PORT, metrics on 127.0.0.1:PORT, HTTP on 127.0.0.1:PORT
    const std::string line = process_.out();
    EXPECT_THAT(
        line, ::testing::MatchesRegex("listening on 127.0.0.1:[0-9]+, metrics on 127.0.0.1:[0-9]+, "
                                      "HTTP on 127.0.0.1:[0-9]+\n"))
        << process_.err();
    address_ = line.substr(13, line.find(',') - 13);
    const size_t metrics = line.find("metrics on 127.0.0.1:");
    metrics_port_ = metrics == std::string::npos ? 0 : std::atoi(line.c_str() + metrics + 21);
    const size_t http = line.rfind(':');
    http_port_ = http == std::string::npos ? 0 : std::atoi(line.c_str() + http + 1);
    channel_ = MakeChannel(address_);
    stub_ = v1::InferenceService::NewStub(channel_);
  }

  Subprocess& process() { return process_; }
  const std::string& address() const { return address_; }
  v1::InferenceService::Stub& stub() { return *stub_; }
  HttpResponse Get(const std::string& path) const { return HttpGet(metrics_port_, path); }
  int metrics_port() const { return metrics_port_; }
  int http_port() const { return http_port_; }

 private:
  Subprocess process_;
  std::string address_;
  int metrics_port_ = 0;
  int http_port_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
};

// What is wrong with a model's files is found where they are read; the server names the file.
TEST(StartTest, ABrokenModelIsNamed) {
  models::TestTensors tensors = models::SmallTensors();
  const std::string weights = models::Safetensors(tensors);
  tensors["out.weight"] = models::MakeTensor({2, 7});
  struct Case {
    std::string file;
    std::string contents;  // "absent": there is no such file
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"model.safetensors", weights.substr(0, weights.size() - 5), {}},
      {"model.safetensors", "", {}},
      {"model.safetensors", models::RawSafetensors("{not json", ""), {"JSON"}},
      {"model.safetensors", models::Safetensors(tensors), {"out.weight", "[2, 6]", "[2, 7]"}},
      {"config.json", "{", {"JSON"}},
      {"model.safetensors", "absent", {}},
      {"config.json", "absent", {}},
      {"vocab.txt", "absent", {}},
  };
  for (const Case& one : cases) {
    models::TempDirectory repository;
    models::WriteSmallModel(repository, "m/1");
    repository.Write("m/1/" + one.file, one.contents);
    if (one.contents == "absent") std::filesystem::remove(repository.path("m/1/" + one.file));
    std::vector<std::string> parts = one.parts;
    parts.push_back(one.file);
    ExpectRefusesToStart(Command(repository.path()), parts);
  }
}

TEST(StartTest, WrongOptions) {
  const std::string repository = kBundledRepository;
  ExpectRefusesToStart(Command(repository, {"--no_such_flag=1"}), {"no_such_flag"});
  ExpectRefusesToStart(Command(repository, {"--max_batch_tokens=many"}),
                       {"max_batch_tokens", "many"});
  ExpectRefusesToStart(Command(repository, {"--max_batch_tokens=100"}),
                       {"--max_sequence_tokens", "--max_batch_tokens", "100"});
  ExpectRefusesToStart(Command(repository, {"stray"}), {"stray"});
  ExpectRefusesToStart(Command(repository), {"SRU_DTYPE", "float8"}, {"SRU_DTYPE=float8"});
  ExpectRefusesToStart(Command("/no/such/directory"), {"/no/such/directory"});
  ExpectRefusesToStart({SRU_SERVER_BINARY}, {"--model_repository"});
}

TEST(StartTest, AMistypedVariableIsSaid) {
  Subprocess process(Command("/no/such/directory"), {"SRU_MAX_BATCH_TOKEN=9"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.err(), HasSubstr("WARN  environment variable SRU_MAX_BATCH_TOKEN has no "
                                       "effect"));
  EXPECT_THAT(process.err(), HasSubstr("did you mean SRU_MAX_BATCH_TOKENS?"));
}

TEST(StartTest, TheCommandLineWinsOverTheEnvironment) {
  Subprocess process(Command("/no/such/directory"), {"SRU_MODEL_REPOSITORY=/another"});
  EXPECT_EQ(process.Wait(), 1);
  EXPECT_THAT(process.err(), HasSubstr("/no/such/directory"));
}

TEST(StartTest, HelpAndVersion) {
  Subprocess help({SRU_SERVER_BINARY, "--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.out(), HasSubstr("--model_repository"));
  EXPECT_EQ(help.err(), "");
  Subprocess version({SRU_SERVER_BINARY, "--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_THAT(version.out(), HasSubstr("sru_server "));
  EXPECT_THAT(version.out(), HasSubstr(absl::StrCat("gRPC ", grpc::Version())));
}

TEST(StartTest, OneModelNeedsNoRepository) {
  ServerProcess server({"--model=student:tests/golden/student/int8"});
  const auto translate = [&server](const std::string& model) {
    v1::TranslateRequest request;
    request.set_model(model);
    request.add_sequences()->set_text("the state of a model");
    v1::TranslateResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server.stub().Translate(&context, request, &response);
    EXPECT_EQ(response.translations_size(), status.ok() ? 1 : 0);
    return status;
  };
  EXPECT_TRUE(translate("student").ok());
  EXPECT_EQ(translate("trec").error_code(), grpc::StatusCode::NOT_FOUND)
      << "the repository is not looked at";
  ExpectRefusesToStart(Command(kBundledRepository, {"--model=m:no/such/folder"}),
                       {"no/such/folder/config.json"});
}

TEST(StartTest, TakenPorts) {
  ServerProcess first({});
  ExpectRefusesToStart(Command(kBundledRepository, {"--listen=" + first.address()}),
                       {"cannot listen on " + first.address()});
  const std::string metrics = absl::StrCat("127.0.0.1:", first.metrics_port());
  ExpectRefusesToStart(Command(kBundledRepository, {"--metrics_listen=" + metrics}),
                       {"cannot listen on " + metrics});
  const std::string http = absl::StrCat("127.0.0.1:", first.http_port());
  ExpectRefusesToStart(Command(kBundledRepository, {"--http_listen=" + http}),
                       {"--http_listen", "cannot listen on " + http});
}

// This must be found before models are loaded, which may take minutes.
TEST(StartTest, AWrongAddressIsNoticedFirst) {
  ServerProcess first({});
  for (const std::string flag : {"--listen=", "--admin_listen=", "--http_listen="}) {
    Subprocess process(Command(kBundledRepository, {"--model_control=explicit",
                                                    "--load_models=trec", flag + first.address()}));
    EXPECT_EQ(process.Wait(), 1);
    EXPECT_THAT(process.err(), HasSubstr("cannot listen on " + first.address()));
    EXPECT_THAT(process.err(), ::testing::Not(HasSubstr("loading model")));
  }
}

TEST(StartTest, TooFewOpenFiles) {
  std::vector<std::string> command = {"prlimit", "--nofile=64"};
  for (const std::string& argument : Command(kBundledRepository)) command.push_back(argument);
  ExpectRefusesToStart(command, {"ulimit -n", "expected at least 96", "found 64"});
}

TEST(StopTest, SignalsEndAnIdleServerAtOnce) {
  for (const int signal : {SIGTERM, SIGINT}) {
    ServerProcess server({});
    EXPECT_EQ(server.Get("/readyz").status, 200);
    server.process().Signal(signal);
    EXPECT_EQ(server.process().Wait(absl::Seconds(20)), 0) << server.process().err();
    EXPECT_THAT(Lines(server.process().out()).size(), 1u);
  }
}

// A call that needs much work, so that many are in flight when the signal arrives.
v1::EncodeRequest LargeRequest() {
  v1::EncodeRequest request;
  for (int s = 0; s < 16; ++s) {
    v1::TokenIds* ids = request.add_sequences()->mutable_token_ids();
    for (int t = 0; t < 1024; ++t) ids->add_values((s * 1024 + t) % 8759);
  }
  request.set_pooling(v1::POOLING_LAST);
  return request;
}

double Metric(const ServerProcess& server, const std::string& series) {
  return MetricAt(server.metrics_port(), series);
}

TEST(StopTest, WhatWasAcceptedIsAnswered) {
  constexpr int kCalls = 64;
  // The delay lets calls that have arrived be parsed and queued, so that every one is accepted.
  ServerProcess server(
      {"--max_queue_tokens=4000000", "--drain_delay_s=3", "--drain_timeout_s=120"});
  BackgroundCalls load(server.stub(), &AsyncStub::Encode, LargeRequest(), kCalls);
  const auto seen = [&server] {
    const double done = Metric(
        server, "sru_requests_total{code=\"OK\",method=\"Encode\",model=\"trec\",version=\"1\"}");
    return Metric(server, "sru_requests_in_flight") + std::max(0.0, done);
  };
  ASSERT_TRUE(PollUntil([&] { return seen() >= kCalls; }));
  server.process().Signal(SIGTERM);
  for (const grpc::Status& status : load.Wait()) {
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
  }
  EXPECT_EQ(server.process().Wait(), 0) << server.process().err();
}

TEST(StopTest, ReadinessGoesFirstThenNewCallsAreUnavailable) {
  ServerProcess server(
      {"--max_queue_tokens=4000000", "--drain_delay_s=1", "--drain_timeout_s=120"});
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("Why?");
  const auto classify = [&] {
    grpc::ClientContext context;
    v1::ClassifyResponse response;
    return server.stub().Classify(&context, request, &response);
  };
  ASSERT_TRUE(classify().ok());
  server.process().Signal(SIGTERM);
  ASSERT_TRUE(PollUntil([&] { return server.Get("/readyz").status != 200; }));
  // During the delay the server still accepts calls.
  EXPECT_TRUE(classify().ok());
  grpc::Status status;
  ASSERT_TRUE(PollUntil([&] { return !(status = classify()).ok(); }));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(server.process().Wait(), 0) << server.process().err();
}

TEST(StopTest, TheDrainEndsInTime) {
  ServerProcess server({"--max_queue_tokens=4000000", "--backend=reference", "--instances=1",
                        "--drain_timeout_s=0.2"});
  BackgroundCalls load(server.stub(), &AsyncStub::Encode, LargeRequest(), 32);
  ASSERT_TRUE(PollUntil([&] { return Metric(server, "sru_requests_in_flight") >= 32; }));
  server.process().Signal(SIGTERM);
  int unavailable = 0;
  for (const grpc::Status& status : load.Wait()) {
    if (!status.ok()) {
      EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
      ++unavailable;
    }
  }
  EXPECT_GT(unavailable, 0);
  EXPECT_EQ(server.process().Wait(), 1) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("--drain_timeout_s"));
}

// A hang-up, from an operator or from a terminal that is closed, is no reason to lose a call.
TEST(StopTest, AHangUpChangesNothingOfWhatIsServed) {
  ServerProcess server({"--max_queue_tokens=4000000"});
  BackgroundCalls load(server.stub(), &AsyncStub::Encode, LargeRequest(), 16);
  for (int i = 0; i < 3; ++i) server.process().Signal(SIGHUP);
  for (const grpc::Status& status : load.Wait()) EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(PollUntil(
      [&] { return absl::StrContains(server.process().err(), "got Hangup, reloading"); }));
  EXPECT_EQ(server.Get("/readyz").status, 200);
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().err();
}

// Two hundred models take about ten seconds to load.
TEST(StopTest, ASignalEndsAStartWhileModelsLoad) {
  for (const int signal : {SIGTERM, SIGINT}) {
    models::TempDirectory repository;
    std::filesystem::copy(absl::StrCat(kBundledRepository, "/trec"), repository.path(".trec"),
                          std::filesystem::copy_options::recursive);
    for (int i = 0; i < 200; ++i) {
      std::filesystem::create_directory_symlink(".trec", repository.path(absl::StrCat("m", i)));
    }
    Subprocess process(Command(repository.path(), {"--instances=1"}));
    ASSERT_TRUE(PollUntil([&] { return absl::StrContains(process.err(), "loading model m0 "); }));
    process.Signal(SIGHUP);  // is handled and changes nothing
    process.Signal(signal);
    EXPECT_EQ(process.Wait(), 0) << process.err();
    EXPECT_EQ(process.out(), "");  // it never listened
    EXPECT_THAT(process.err(), HasSubstr("while starting, bye"));
    EXPECT_THAT(process.err(), ::testing::Not(HasSubstr("loading model m99 ")));
  }
}

TEST(StopTest, ClientsThatDoNotReadDoNotHoldItUp) {
  ServerProcess server({"--drain_timeout_s=600", "--send_timeout_s=0"});
  v1::EncodeRequest request;
  request.add_sequences()->set_text("Who wrote Hamlet ?");
  const int port = std::atoi(server.address().substr(server.address().rfind(':') + 1).c_str());
  UnreadCall unread(port, "/sru.v1.InferenceService/Encode", request.SerializeAsString());
  ASSERT_TRUE(PollUntil([&] { return Metric(server, "sru_unsent_answers") == 1; }));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(absl::Seconds(60)), 0) << server.process().err();
}

TEST(StopTest, ASecondSignalEndsTheServerAtOnce) {
  ServerProcess server({"--drain_delay_s=600", "--drain_timeout_s=600"});
  for (int i = 0; i < 2; ++i) server.process().Signal(SIGTERM);  // as timeout(1) does
  ASSERT_TRUE(PollUntil([&] { return server.Get("/readyz").status == 503; }));
  ASSERT_TRUE(PollUntil([&] {  // the second signal has no effect until the server waits for it
    server.process().Signal(SIGTERM);
    return server.process().HasExited();
  }));
  EXPECT_EQ(server.process().Wait(), 128 + SIGTERM);
}

// A file on which this process holds a lock, as a user of a shared server does.
class LockedFile {
 public:
  explicit LockedFile(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    EXPECT_EQ(flock(file_, LOCK_SH), 0);
  }
  ~LockedFile() { Release(); }

  bool TryAgain() const { return flock(file_, LOCK_SH | LOCK_NB) == 0; }
  void Unlock() const { flock(file_, LOCK_UN); }
  void Release() {
    if (file_ >= 0) close(file_);
    file_ = -1;
  }

 private:
  int file_;
};

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

TEST(OnDemandTest, TheAddressStandsInTheFileWhileItServes) {
  models::TempDirectory folder;
  const std::string path = folder.path("address");
  ServerProcess server({"--address_file=" + path});
  ASSERT_TRUE(PollUntil([&] { return FirstLine(path) == server.address(); }));
  server.process().Signal(SIGTERM);
  EXPECT_EQ(server.process().Wait(), 0) << server.process().err();
  EXPECT_FALSE(std::filesystem::exists(path));

  ServerProcess first({"--address_file=" + path});
  ASSERT_TRUE(PollUntil([&] { return FirstLine(path) == first.address(); }));
  ServerProcess second({"--address_file=" + path});
  ASSERT_TRUE(PollUntil([&] { return FirstLine(path) == second.address(); }));
  first.process().Signal(SIGTERM);
  EXPECT_EQ(first.process().Wait(), 0);
  EXPECT_EQ(FirstLine(path), second.address()) << "of another server it removes nothing";
}

TEST(OnDemandTest, ItDrainsOnceNobodyHoldsALock) {
  models::TempDirectory folder;
  const std::string users = folder.path("users");
  LockedFile first(users);
  LockedFile second(users);
  LockedFile late(users);
  late.Unlock();
  ServerProcess server({"--while_locked=" + users, "--max_queue_tokens=4000000",
                        "--drain_timeout_s=120", "--drain_delay_s=1"});
  first.Release();
  EXPECT_EQ(server.Get("/readyz").status, 200) << "another one holds a lock";
  BackgroundCalls load(server.stub(), &AsyncStub::Encode, LargeRequest(), 16);
  ASSERT_TRUE(PollUntil([&] { return Metric(server, "sru_requests_in_flight") >= 16; }));
  second.Release();
  ASSERT_TRUE(PollUntil([&] { return server.Get("/readyz").status == 503; }));
  EXPECT_FALSE(late.TryAgain()) << "who comes now waits until the server has ended";
  for (const grpc::Status& status : load.Wait()) EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(server.process().Wait(), 0) << server.process().err();
  EXPECT_THAT(server.process().err(), HasSubstr("nobody holds --while_locked, draining"));
  EXPECT_TRUE(late.TryAgain());
}

TEST(OnDemandTest, WhoIsGoneBeforeItServesEndsTheStart) {
  models::TempDirectory folder;
  LockedFile(folder.path("users")).Release();
  Subprocess process(Command(kBundledRepository, {"--while_locked=" + folder.path("users")}));
  EXPECT_EQ(process.Wait(), 0) << process.err();
  EXPECT_THAT(process.err(), HasSubstr("nobody holds --while_locked"));
}

TEST(OnDemandTest, FilesThatCannotBe) {
  ExpectRefusesToStart(Command(kBundledRepository, {"--address_file=/no/such/folder/address"}),
                       {"--address_file", "/no/such/folder/address"});
  ExpectRefusesToStart(Command(kBundledRepository, {"--while_locked=/no/such/file"}),
                       {"--while_locked", "/no/such/file"});
}

}  // namespace
}  // namespace sru::testing
