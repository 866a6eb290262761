// Three server processes under load, of which one is killed and one drained, behind the round robin
// of the client library and behind nginx with the shipped configuration (deploy/nginx/sru.conf).
// No call fails except those that were in flight on the killed server, and with the retry policy
// that the client library ships those do not fail either.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "client/client.h"
#include "gtest/gtest.h"
#include "tests/testing/http_get.h"
#include "tests/testing/poll.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

constexpr int kNumServers = 3;
constexpr int kNumCallers = 8;
// A call without an answer for this long hangs on the server that was stopped.
constexpr absl::Duration kStuck = absl::Milliseconds(500);
// After this time a server that has frozen gets no calls.
constexpr absl::Duration kLeft = absl::Seconds(10);

class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& flags) : process_(Command(flags)) {}

  // Waits until the server accepts calls; the servers start in parallel.
  void AwaitReady() {
    ASSERT_TRUE(process_.AwaitLine()) << process_.err();
    // listening on 127.0.0.1:PORT, metrics on 127.0.0.1:PORT
    const std::string line = process_.out();
    ASSERT_TRUE(absl::StartsWith(line, "listening on 127.0.0.1:")) << line << process_.err();
    address_ = line.substr(13, line.find(',') - 13);
    metrics_port_ = std::atoi(line.c_str() + line.rfind(':') + 1);
  }

  Subprocess& process() { return process_; }
  const std::string& address() const { return address_; }

  // Classify calls that this server has answered with OK.
  int64_t calls() const {
    const std::string text = HttpGet(metrics_port_, "/metrics").body;
    const std::string series = "sru_requests_total{code=\"OK\",method=\"Classify\"";
    const size_t at = text.find(series);
    if (at == std::string::npos) return 0;
    return std::atoll(text.c_str() + text.find("} ", at) + 2);
  }

 private:
  static std::vector<std::string> Command(const std::vector<std::string>& flags) {
    std::vector<std::string> command = {
        SRU_SERVER_BINARY,
        absl::StrCat("--model_repository=",
                     std::filesystem::absolute("models/pretrained").string()),
        "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0",
        "--http_listen=",
        "--instances=1"};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }

  Subprocess process_;
  std::string address_;
  int metrics_port_ = 0;
};

// Callers that share one client, each with one call in flight at any time, and the outcomes of
// their calls.
class Load {
 public:
  explicit Load(client::Client* client) : client_(client) {
    for (int i = 0; i < kNumCallers; ++i) {
      threads_.emplace_back([this, i] { Call(i); });
    }
  }
  ~Load() { Stop(); }

  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  int64_t answered() const { return answered_; }

  // The number of callers whose call has had no answer for this long.
  int CountStuck(absl::Duration time) {
    MutexLock lock(&mutex_);
    int count = 0;
    for (const absl::Time start : starts_) count += absl::Now() - start > time;
    return count;
  }

  // Counts failed calls by their status.
  std::map<std::string, int> failures() {
    MutexLock lock(&mutex_);
    return failures_;
  }
  int num_failures() {
    int count = 0;
    for (const auto& [status, number] : failures()) count += number;
    return count;
  }
  int most_failures_of_a_caller() {
    MutexLock lock(&mutex_);
    return *std::max_element(failures_of_caller_.begin(), failures_of_caller_.end());
  }

 private:
  void Call(int caller) {
    v1::ClassifyRequest request;
    *request.add_sequences() = client::TextSequence("How many bricks are there in a chimney?");
    request.set_top_k(1);
    while (!stop_) {
      {
        MutexLock lock(&mutex_);
        starts_[caller] = absl::Now();
      }
      const absl::StatusOr<v1::ClassifyResponse> response = client_->Classify(request);
      MutexLock lock(&mutex_);
      starts_[caller] = absl::InfiniteFuture();
      if (!response.ok()) {
        ++failures_[response.status().ToString()];
        ++failures_of_caller_[caller];
      } else if (response->classifications(0).labels(0).name() != "NUM") {
        ++failures_["a wrong label"];
      } else {
        ++answered_;
      }
    }
  }

  client::Client* const client_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> answered_{0};
  Mutex mutex_;
  std::array<absl::Time, kNumCallers> starts_ ABSL_GUARDED_BY(mutex_){};
  std::map<std::string, int> failures_ ABSL_GUARDED_BY(mutex_);
  std::array<int, kNumCallers> failures_of_caller_ ABSL_GUARDED_BY(mutex_){};
  std::vector<std::thread> threads_;
};

std::string Describe(const std::map<std::string, int>& failures) {
  std::string text;
  for (const auto& [status, count] : failures) absl::StrAppend(&text, count, " x ", status, "\n");
  return text;
}

class SeveralServersTest : public ::testing::Test {
 protected:
  void StartServers(const std::vector<std::string>& flags = {}) {
    for (auto& server : servers_) server = std::make_unique<ServerProcess>(flags);
    for (auto& server : servers_) ASSERT_NO_FATAL_FAILURE(server->AwaitReady());
  }

  std::string AllAddresses() const {
    return absl::StrCat("ipv4:", servers_[0]->address(), ",", servers_[1]->address(), ",",
                        servers_[2]->address());
  }

  // Returns what a call of a text with so many bytes gets.
  absl::Status Refused(size_t bytes) {
    v1::ClassifyRequest large;
    *large.add_sequences() = client::TextSequence(std::string(bytes, 'x'));
    return client_->Classify(large).status();
  }

  void Connect(const std::string& address, int max_attempts,
               absl::Duration deadline = absl::Seconds(30)) {
    client::ConnectOptions options;
    options.address = address;
    options.deadline = deadline;
    if (max_attempts > 0) options.max_attempts = max_attempts;  // else as it is shipped
    // By default, channels to the same address share a connection and its back-off.
    options.channel_args = {{"grpc.use_local_subchannel_pool", 1}};
    auto client = client::Client::Create(options);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    const absl::Status connected = client_->Connect(absl::Seconds(30));
    ASSERT_TRUE(connected.ok()) << connected;
  }

  // Waits until each of the servers has answered this many more calls.
  void AwaitCalls(const std::vector<int>& servers, int64_t more,
                  absl::Duration timeout = absl::Seconds(30)) {
    for (const int i : servers) {
      const int64_t start = servers_[i]->calls();
      EXPECT_TRUE(PollUntil([&] { return servers_[i]->calls() >= start + more; }, timeout))
          << "server " << i << " got no calls";
    }
  }

  // Stops the first server in the middle of its calls, and kills it once `least` calls hang on it.
  // Returns how many were in flight on it.
  int KillTheFirst(Load& load, int least) {
    servers_[0]->process().Signal(SIGSTOP);
    EXPECT_TRUE(PollUntil([&] { return load.CountStuck(kStuck) >= least; }));
    const int in_flight = load.CountStuck(kStuck);
    servers_[0]->process().Signal(SIGKILL);
    EXPECT_EQ(servers_[0]->process().Wait(), 128 + SIGKILL);
    // Each of them has got its answer.
    EXPECT_TRUE(PollUntil([&] { return load.CountStuck(kStuck) == 0; }));
    return in_flight;
  }

  void DrainTheSecond() {
    servers_[1]->process().Signal(SIGTERM);
    EXPECT_EQ(servers_[1]->process().Wait(), 0) << servers_[1]->process().err();
  }

  std::array<std::unique_ptr<ServerProcess>, kNumServers> servers_;
  std::unique_ptr<client::Client> client_;
};

TEST_F(SeveralServersTest, RoundRobinWithTheShippedServiceConfigLosesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  Connect(AllAddresses(), /*max_attempts=*/0);
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  EXPECT_EQ(KillTheFirst(load, kNumCallers), kNumCallers);
  AwaitCalls({1, 2}, 100);
  DrainTheSecond();
  AwaitCalls({2}, 100);
  load.Stop();
  EXPECT_EQ(load.num_failures(), 0) << Describe(load.failures());
  RecordProperty("answered", static_cast<int>(load.answered()));
}

// A server that is stopped keeps its connections, and its health stream says what it last said.
TEST_F(SeveralServersTest, AFrozenServerIsLeftWithoutLosingACall) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  Connect(AllAddresses(), /*max_attempts=*/0);
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  servers_[0]->process().Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  EXPECT_TRUE(PollUntil([&] { return load.CountStuck(kStuck) == kNumCallers; }));
  EXPECT_TRUE(PollUntil([&] { return load.CountStuck(kStuck) == 0; }));
  EXPECT_LT(absl::Now() - stopped, kLeft);
  AwaitCalls({1, 2}, 10000, absl::Seconds(120));  // on a slow machine, under sanitizers
  EXPECT_EQ(load.CountStuck(kStuck), 0);
  servers_[0]->process().Signal(SIGCONT);
  AwaitCalls({0}, 100);
  load.Stop();
  EXPECT_EQ(load.num_failures(), 0) << Describe(load.failures());
}

// With deadlines that are shorter than it takes to find out, calls fail until the server is left,
// and none later.
TEST_F(SeveralServersTest, AFrozenServerFailsShortCallsForSeconds) {
  const char* const seconds = std::getenv("SRU_FROZEN_SECONDS");
  const absl::Duration frozen = absl::Seconds(seconds == nullptr ? 12 : std::atoi(seconds));
  ASSERT_NO_FATAL_FAILURE(StartServers());
  Connect(AllAddresses(), /*max_attempts=*/0, /*deadline=*/absl::Seconds(1));
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  servers_[0]->process().Signal(SIGSTOP);
  const absl::Time stopped = absl::Now();
  int failures = 0;
  absl::Time last = stopped;
  EXPECT_FALSE(PollUntil(
      [&] {
        if (const int now = load.num_failures(); now > failures) {
          failures = now;
          last = absl::Now();
        }
        return false;
      },
      frozen));
  EXPECT_GT(failures, 0);
  EXPECT_LT(last - stopped, kLeft);
  EXPECT_LE(load.most_failures_of_a_caller(), kLeft / absl::Seconds(1));
  servers_[0]->process().Signal(SIGCONT);
  AwaitCalls({0}, 100, absl::Seconds(150));  // gRPC tries again within two minutes
  load.Stop();
  EXPECT_EQ(load.num_failures(), failures) << Describe(load.failures());
}

TEST_F(SeveralServersTest, RoundRobinWithoutRetriesLosesWhatWasInFlightOnTheKilled) {
  // Gives the health watch time to reach the client before calls are refused.
  ASSERT_NO_FATAL_FAILURE(StartServers({"--drain_delay_s=0.5"}));
  Connect(AllAddresses(), /*max_attempts=*/1);
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  const int in_flight = KillTheFirst(load, kNumCallers);
  EXPECT_EQ(in_flight, kNumCallers);
  const std::map<std::string, int> lost = load.failures();
  for (const auto& [status, count] : lost) {
    EXPECT_TRUE(absl::StartsWith(status, "UNAVAILABLE")) << status;
  }
  EXPECT_EQ(load.num_failures(), in_flight) << Describe(lost);
  AwaitCalls({1, 2}, 100);
  DrainTheSecond();
  AwaitCalls({2}, 100);
  load.Stop();
  EXPECT_EQ(load.num_failures(), in_flight) << Describe(load.failures());
}

// nginx in front of the servers, on a socket of its own.
class NginxTest : public SeveralServersTest {
 protected:
  static std::string FindNginx() {
    for (const char* path : {"/usr/sbin/nginx", "/usr/bin/nginx", "/usr/local/sbin/nginx"}) {
      if (access(path, X_OK) == 0) return path;
    }
    return "";
  }

  void SetUp() override {
    if (FindNginx().empty()) GTEST_SKIP() << "nginx is not installed";
  }

  void TearDown() override {
    if (nginx_ == nullptr) return;
    client_.reset();
    nginx_->Signal(SIGTERM);
    EXPECT_EQ(nginx_->Wait(), 0) << nginx_->err();
  }

  std::string target() const { return "unix:" + socket(); }

  void StartNginx() {
    std::ifstream file("deploy/nginx/sru.conf");
    std::string config((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const auto replace = [&config](const std::string& from, const std::string& to) {
      ASSERT_EQ(absl::StrReplaceAll({{from, to}}, &config), 1) << from;
    };
    replace("listen 50050 http2", absl::StrCat("listen unix:", socket(), " http2"));
    for (int i = 0; i < kNumServers; ++i) {
      replace(absl::StrCat("127.0.0.1:", 50051 + i), servers_[i]->address());
    }
    directory_.Write("sru.conf", config);
    std::string temporary;
    for (const char* kind : {"client_body", "proxy", "fastcgi", "uwsgi", "scgi"}) {
      absl::StrAppend(&temporary, "  ", kind, "_temp_path ", directory_.path(kind), ";\n");
    }
    // Sets everything for which the distribution's nginx.conf names places that others share. Root
    // must say which user the workers run as; they must be able to reach the test's folder.
    directory_.Write(
        "nginx.conf",
        absl::StrCat(geteuid() == 0 ? "user root;\n" : "", "daemon off;\npid ",
                     directory_.path("nginx.pid"),
                     ";\nworker_processes 2;\nerror_log stderr warn;\n"
                     "events { worker_connections 1024; }\nhttp {\n  access_log off;\n",
                     temporary, "  include ", directory_.path("sru.conf"), ";\n}\n"));
    nginx_ = std::make_unique<Subprocess>(std::vector<std::string>{
        FindNginx(), "-e", "stderr", "-p", directory_.path(), "-c", directory_.path("nginx.conf")});
    ASSERT_TRUE(PollUntil([this] { return nginx_->HasExited() || Listens(socket()); }));
    ASSERT_FALSE(nginx_->HasExited()) << nginx_->err();
  }

  const std::string& nginx_log() {
    log_ = nginx_->err();
    return log_;
  }

 private:
  std::string socket() const { return directory_.path("nginx.sock"); }

  static bool Listens(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof(address.sun_path)) return false;
    path.copy(address.sun_path, path.size());
    const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connected =
        connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    close(fd);
    return connected;
  }

  models::TempDirectory directory_;
  std::unique_ptr<Subprocess> nginx_;
  std::string log_;
};

TEST_F(NginxTest, WithTheShippedServiceConfigNothingIsLost) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  ASSERT_NO_FATAL_FAILURE(StartNginx());
  Connect(target(), /*max_attempts=*/0);
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  EXPECT_GE(KillTheFirst(load, 1), 1);
  AwaitCalls({1, 2}, 100);
  DrainTheSecond();
  AwaitCalls({2}, 100);
  load.Stop();
  EXPECT_EQ(load.num_failures(), 0) << Describe(load.failures()) << nginx_log();
}

// Two servers are restarted one after the other: nginx sends calls to the first within little more
// than fail_timeout after it is back, and from then on the other may stop.
TEST_F(NginxTest, AServerThatRestartedIsUsedAgainWithinSeconds) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  ASSERT_NO_FATAL_FAILURE(StartNginx());
  servers_[2]->process().Signal(SIGTERM);
  EXPECT_EQ(servers_[2]->process().Wait(), 0) << servers_[2]->process().err();
  Connect(target(), /*max_attempts=*/0);
  Load load(client_.get());
  AwaitCalls({0, 1}, 100);
  const std::string first = servers_[0]->address();
  servers_[0]->process().Signal(SIGKILL);
  EXPECT_EQ(servers_[0]->process().Wait(), 128 + SIGKILL);
  servers_[0] = std::make_unique<ServerProcess>(std::vector<std::string>{"--listen=" + first});
  ASSERT_NO_FATAL_FAILURE(servers_[0]->AwaitReady());
  const absl::Time back = absl::Now();
  AwaitCalls({0}, 1);
  EXPECT_LT(absl::Now() - back, absl::Seconds(3));
  DrainTheSecond();
  AwaitCalls({0}, 100);
  load.Stop();
  EXPECT_EQ(load.num_failures(), 0) << Describe(load.failures()) << nginx_log();
}

// nginx does not keep a request that it has sent, so it can retry only requests that it could not
// send.
TEST_F(NginxTest, WithoutRetriesOfTheClientWhatWasInFlightOnTheKilledIsLost) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  ASSERT_NO_FATAL_FAILURE(StartNginx());
  Connect(target(), /*max_attempts=*/1);
  Load load(client_.get());
  AwaitCalls({0, 1, 2}, 100);
  const int in_flight = KillTheFirst(load, 1);
  AwaitCalls({1, 2}, 100);
  load.Stop();
  // The last call to reach the stopped server may not have been counted.
  EXPECT_GE(load.num_failures(), in_flight) << Describe(load.failures()) << nginx_log();
  EXPECT_LE(load.most_failures_of_a_caller(), 1) << Describe(load.failures()) << nginx_log();
  for (const auto& [status, count] : load.failures()) {
    EXPECT_EQ(status, "UNAVAILABLE: no server answered");
  }
}

TEST_F(NginxTest, WhatItRefusesItselfHasAnErrorOfGrpc) {
  ASSERT_NO_FATAL_FAILURE(StartServers({"--max_message_bytes=33554432"}));
  ASSERT_NO_FATAL_FAILURE(StartNginx());
  Connect(target(), /*max_attempts=*/1);
  const absl::Status too_large = Refused(17 << 20);
  EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << too_large;
  EXPECT_TRUE(absl::StrContains(too_large.message(), "client_max_body_size")) << too_large;
  v1::ClassifyRequest request;
  *request.add_sequences() = client::TextSequence("Where is Lake Titicaca ?");
  EXPECT_TRUE(client_->Classify(request).ok());
}

TEST_F(NginxTest, ErrorsAreThoseOfGrpc) {
  ASSERT_NO_FATAL_FAILURE(StartServers());
  ASSERT_NO_FATAL_FAILURE(StartNginx());
  Connect(target(), /*max_attempts=*/1);
  v1::ClassifyRequest request;
  *request.add_sequences() = client::TextSequence("Where is Lake Titicaca ?");
  EXPECT_TRUE(client_->Classify(request).ok());
  // The servers refuse this by the length that it announces.
  EXPECT_EQ(Refused(4500 << 10).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(client_->Classify(request).ok());  // its connection continues, or a new one serves
  for (auto& server : servers_) {
    server->process().Signal(SIGKILL);
    EXPECT_EQ(server->process().Wait(), 128 + SIGKILL);
  }
  const absl::Status status = client_->Classify(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(status.message(), "no server answered");
}

}  // namespace
}  // namespace sru::testing
