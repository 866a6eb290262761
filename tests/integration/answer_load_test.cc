// Answer under load: what the server promises for Classify holds for queries, too. Nothing that was accepted is
// lost, and no answer is wrong, whatever else happens.
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/plain_reader.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/poll.h"
#include "tests/testing/small_reader.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;

constexpr char kLabels[] = "{model=\"reader\",version=\"1\"}";

std::string Words(std::mt19937* random, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, i > 0 ? " " : "",
                    std::string(1, static_cast<char>('a' + (*random)() % 9)));
  }
  return text;
}

// Answers `request`, sent in the background.
struct Call {
  grpc::ClientContext context;
  v1::AnswerRequest request;
  v1::AnswerResponse response;
  grpc::Status status;
};

class AnswerLoadTest : public ::testing::Test {
 protected:
  AnswerLoadTest() {
    models::WriteSmallReader(repository_, "reader/1");
    plain_ = std::make_unique<PlainReader>(repository_.path("reader/1"), "reference");
    options_ = TestOptions(repository_.path());
    options_.security.caller_limits =
        *server::callers::ParseLimitsFlag("caller_limits", "highest_priority=high");
    options_.batching.engine.instances = 1;
    options_.batching.engine.batcher.max_batch_tokens = 2048;
    options_.batching.engine.batcher.max_queue_tokens = 10000000;
  }

  // A server with one worker, on device_.
  std::unique_ptr<RunningServer> Start() {
    return std::make_unique<RunningServer>(std::make_unique<FailingBackend>(device_), options_);
  }

  // Queries of 1 to 3 passages; each has the answers of a plain run.
  void MakeRequests(int count, int max_words) {
    std::mt19937 random(11);
    for (int i = 0; i < count; ++i) {
      v1::AnswerRequest request;
      request.set_model("reader");
      request.set_top_n(1 + i % 5);
      request.set_no_overlap(i % 2 == 0);
      for (int q = 0; q < 1 + i % 3; ++q) {
        v1::Query* const query = request.add_queries();
        query->set_question(Words(&random, 1 + i % 7));
        for (int p = 0; p < 1 + (i + q) % 3; ++p) {
          query->add_passages(Words(&random, 1 + static_cast<int>(random() % max_words)));
        }
      }
      expected_.push_back(plain_->Answer(request));
      requests_.push_back(std::move(request));
    }
  }

  void ExpectRight(size_t request, const v1::AnswerResponse& response) const {
    ASSERT_EQ(response.results_size(), static_cast<int>(expected_[request].size()));
    for (int q = 0; q < response.results_size(); ++q) {
      ExpectSameAnswers(response.results(q), expected_[request][q]);
    }
  }

  // Goes before calls of other priorities, whatever their deadlines.
  static v1::AnswerRequest SlowAndFirst() {
    v1::AnswerRequest request = Slow();
    request.set_priority(v1::PRIORITY_HIGH);
    return request;
  }

  // A query that is a batch by itself.
  static v1::AnswerRequest Slow() {
    std::mt19937 random(3);
    v1::AnswerRequest request;
    request.set_model("reader");
    request.add_queries()->set_question(Words(&random, 1000));
    request.mutable_queries(0)->add_passages(Words(&random, 900));
    return request;
  }

  // Sends calls, which wait until Release().
  class Background {
   public:
    Background(RunningServer* server, FailingDevices* device, const v1::AnswerRequest& request,
               int count)
        : device_(*device), done_(count) {
      device_.held = true;
      for (int i = 0; i < count; ++i) {
        Call& call = *calls_.emplace_back(std::make_unique<Call>());
        call.request = request;
        server->stub().async()->Answer(&call.context, &call.request, &call.response,
                                       [this, &call](grpc::Status status) {
                                         call.status = std::move(status);
                                         done_.DecrementCount();
                                       });
      }
    }
    ~Background() {
      Release();
      if (!waited_) done_.Wait();
    }
    void Release() { device_.held = false; }
    void Cancel() {
      for (auto& call : calls_) call->context.TryCancel();
    }
    void Wait() {
      Release();
      done_.Wait();
      waited_ = true;
    }
    const std::vector<std::unique_ptr<Call>>& calls() const { return calls_; }

   private:
    FailingDevices& device_;
    absl::BlockingCounter done_;
    bool waited_ = false;
    std::vector<std::unique_ptr<Call>> calls_;
  };

  static grpc::Status Answer(RunningServer& server, const v1::AnswerRequest& request,
                             v1::AnswerResponse* response,
                             absl::Duration timeout = absl::InfiniteDuration()) {
    grpc::ClientContext context;
    if (timeout != absl::InfiniteDuration()) {
      context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    }
    return server.stub().Answer(&context, request, response);
  }

  // Sends the requests again and again from several threads while `meanwhile` runs; every call must be
  // answered, and rightly. Returns how many there were.
  template <typename Meanwhile>
  int ExpectAllAnswered(RunningServer& server, const Meanwhile& meanwhile) {
    std::atomic<bool> stop{false};
    std::atomic<int> answered{0};
    std::vector<std::thread> callers;
    for (int thread = 0; thread < 3; ++thread) {
      callers.emplace_back([&, thread] {
        for (size_t i = thread; !stop; i = (i + 1) % requests_.size()) {
          v1::AnswerResponse response;
          const grpc::Status status = Answer(server, requests_[i], &response);
          EXPECT_TRUE(status.ok()) << status.error_message();
          if (status.ok()) ExpectRight(i, response);
          ++answered;
        }
      });
    }
    EXPECT_TRUE(PollUntil([&] { return answered > 10; }));
    meanwhile();
    const int before = answered;
    EXPECT_TRUE(PollUntil([&] { return answered > before + 10; }));
    stop = true;
    for (std::thread& caller : callers) caller.join();
    return answered;
  }

  models::TempDirectory repository_;
  const std::shared_ptr<FailingDevices> device_ = std::make_shared<FailingDevices>(1);
  server::Options options_;
  std::unique_ptr<PlainReader> plain_;
  std::vector<v1::AnswerRequest> requests_;
  std::vector<std::vector<v1::QueryAnswers>> expected_;
};

// What is refused is told so at once and when to come back; all that is accepted is answered, and rightly.
TEST_F(AnswerLoadTest, AFullQueueRefusesAndLosesNothing) {
  MakeRequests(20, 40);
  options_.batching.engine.batcher.max_queue_tokens = 3 * 2048;
  const auto server = Start();
  ASSERT_TRUE(server->started());
  const v1::AnswerRequest slow = Slow();
  const std::vector<v1::QueryAnswers> slow_answers = plain_->Answer(slow);
  Background background(server.get(), device_.get(), slow, 12);
  std::vector<std::unique_ptr<Background>> small;
  for (const v1::AnswerRequest& request : requests_) {
    small.push_back(std::make_unique<Background>(server.get(), device_.get(), request, 1));
  }
  const auto rejections = [&] {
    return server->Metric(
        "sru_rejections_total{model=\"reader\",version=\"1\",reason=\"queue_full\"}");
  };
  ASSERT_TRUE(PollUntil([&] { return rejections() > 0; }));
  background.Wait();
  int refused = 0;
  const auto check = [&](const Call& call, const std::vector<v1::QueryAnswers>& expected) {
    if (call.status.ok()) {
      ASSERT_EQ(call.response.results_size(), static_cast<int>(expected.size()));
      for (int q = 0; q < call.response.results_size(); ++q) {
        ExpectSameAnswers(call.response.results(q), expected[q]);
      }
      return;
    }
    ++refused;
    EXPECT_EQ(call.status.error_code(), StatusCode::RESOURCE_EXHAUSTED)
        << call.status.error_message();
    EXPECT_TRUE(HasRetryInfo(call.status));
  };
  for (const auto& call : background.calls()) check(*call, slow_answers);
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 12);
  for (size_t i = 0; i < small.size(); ++i) {
    small[i]->Wait();
    check(*small[i]->calls()[0], expected_[i]);
  }
  EXPECT_EQ(rejections(), refused);
  EXPECT_TRUE(PollUntil([&] { return server->Metric("sru_inflight_bytes") == 0; }));
}

TEST_F(AnswerLoadTest, CancelledCallsLeaveTheQueue) {
  const auto server = Start();
  ASSERT_TRUE(server->started());
  const auto waiting = [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)); };
  Background background(server.get(), device_.get(), Slow(), 400);
  ASSERT_TRUE(PollUntil([&] { return waiting() > 0; }));
  background.Cancel();
  background.Wait();
  int cancelled = 0;
  for (const auto& call : background.calls()) {
    if (call->status.error_code() == StatusCode::CANCELLED) ++cancelled;
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_TRUE(PollUntil([&] {
    return waiting() == 0 && server->Metric("sru_requests_in_flight") == 0 &&
           server->Metric("sru_inflight_bytes") == 0;
  }));
  MakeRequests(1, 10);
  v1::AnswerResponse response;
  ASSERT_TRUE(Answer(*server, requests_[0], &response).ok());
  ExpectRight(0, response);
}

TEST_F(AnswerLoadTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  device_->run_milliseconds = 20;
  const auto server = Start();
  ASSERT_TRUE(server->started());
  v1::AnswerResponse response;
  grpc::Status status = Answer(*server, Slow(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();  // the speed is measured
  Background background(server.get(), device_.get(), SlowAndFirst(), 100);
  // All but the one that is held.
  ASSERT_TRUE(PollUntil(
      [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)) == 99; }));
  // A quarter of what the queue takes.
  const absl::Duration deadline = 25 * absl::Microseconds(response.times().compute_us());
  status = Answer(*server, Slow(), &response, deadline);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(
      server->Metric("sru_rejections_total{model=\"reader\",version=\"1\",reason=\"deadline\"}"),
      1);
  background.Cancel();
}

TEST_F(AnswerLoadTest, WithoutAdmissionByDeadlineWaitingCallsExpire) {
  options_.batching.engine.batcher.admission_by_deadline = false;
  const auto server = Start();
  ASSERT_TRUE(server->started());
  Background background(server.get(), device_.get(), SlowAndFirst(), 100);
  ASSERT_TRUE(PollUntil(
      [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)) == 99; }));
  v1::AnswerResponse response;
  const grpc::Status status = Answer(*server, Slow(), &response, absl::Milliseconds(20));
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  background.Cancel();
}

// A call of high priority goes before those that wait.
TEST_F(AnswerLoadTest, PrioritiesAreKept) {
  device_->run_milliseconds = 20;
  options_.batching.engine.batcher.ageing_interval = absl::Minutes(10);
  const auto server = Start();
  ASSERT_TRUE(server->started());
  const auto waiting = [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)); };
  v1::AnswerRequest low = Slow();
  low.set_priority(v1::PRIORITY_LOW);
  Background background(server.get(), device_.get(), low, 100);
  ASSERT_TRUE(PollUntil([&] { return waiting() == 99; }));
  MakeRequests(1, 20);
  requests_[0].set_priority(v1::PRIORITY_HIGH);
  Background first(server.get(), device_.get(), requests_[0], 1);
  ASSERT_TRUE(PollUntil([&] { return waiting() > 99; }));
  first.Wait();
  EXPECT_TRUE(first.calls()[0]->status.ok()) << first.calls()[0]->status.error_message();
  ExpectRight(0, first.calls()[0]->response);
  // Most of those that came before it still wait.
  EXPECT_GT(waiting(), 30);
  background.Cancel();
}

TEST_F(AnswerLoadTest, ADrainAnswersWhatWasAcceptedAndRefusesTheRest) {
  const auto server = Start();
  ASSERT_TRUE(server->started());
  const v1::AnswerRequest slow = Slow();
  const std::vector<v1::QueryAnswers> expected = plain_->Answer(slow);
  Background background(server.get(), device_.get(), slow, 10);
  // All but the one that is held: a call that is still being read is not accepted.
  ASSERT_TRUE(
      PollUntil([&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)) == 9; }));
  background.Release();
  EXPECT_TRUE(server->server().Drain());
  background.Wait();
  for (const auto& call : background.calls()) {
    ASSERT_TRUE(call->status.ok()) << call->status.error_message();
    ExpectSameAnswers(call->response.results(0), expected[0]);
  }
  v1::AnswerResponse response;
  EXPECT_EQ(Answer(*server, slow, &response).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(AnswerLoadTest, ADrainThatRunsOutOfTimeSaysUnavailable) {
  device_->run_milliseconds = 20;
  options_.drain_timeout = absl::Milliseconds(50);
  const auto server = Start();
  ASSERT_TRUE(server->started());
  Background background(server.get(), device_.get(), Slow(), 100);
  ASSERT_TRUE(PollUntil([&] { return server->Metric("sru_requests_in_flight") == 100; }));
  background.Release();
  EXPECT_FALSE(server->server().Drain());
  background.Wait();
  int unavailable = 0;
  for (const auto& call : background.calls()) {
    if (call->status.ok()) continue;
    ++unavailable;
    EXPECT_EQ(call->status.error_code(), StatusCode::UNAVAILABLE) << call->status.error_message();
  }
  EXPECT_GT(unavailable, 0);
}

TEST_F(AnswerLoadTest, NoCallFailsWhileVersionsAreReplaced) {
  MakeRequests(30, 30);
  options_.admin_listen = server::ListenAddress{"127.0.0.1", 0};
  options_.models.control = server::lifecycle::ModelControl::kExplicit;
  options_.models.load_models = {"reader"};
  const auto server = Start();
  ASSERT_TRUE(server->started());
  const auto admin =
      v1::AdminService::NewStub(MakeChannel(server->server().admin_address()->ToString()));
  const int answered = ExpectAllAnswered(*server, [&] {
    for (int version = 2; version <= 6; ++version) {
      models::WriteSmallReader(repository_, absl::StrCat("reader/", version));
      const grpc::Status status = LoadModel(*admin, "reader");
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
  });
  EXPECT_GT(answered, 20);
  v1::AnswerResponse response;
  ASSERT_TRUE(Answer(*server, requests_[0], &response).ok());
  EXPECT_EQ(response.version(), 6);
  EXPECT_TRUE(server->server().Drain());
}

TEST_F(AnswerLoadTest, CallsMoveToTheDeviceThatIsLeft) {
  MakeRequests(30, 30);
  auto devices = std::make_shared<FailingDevices>(2);
  server::Options options = TestOptions(repository_.path());
  RunningServer server(std::make_unique<FailingBackend>(devices), options);
  ASSERT_TRUE(server.started());
  const std::string instances = absl::StrCat("sru_instances", kLabels);
  EXPECT_EQ(server.Metric(instances), 4);
  ExpectAllAnswered(server, [&] {
    devices->failed[0] = true;
    EXPECT_TRUE(PollUntil([&] { return server.Metric(instances) == 2; }));
  });
  devices->failed[1] = true;
  v1::AnswerResponse response;
  const grpc::Status status = Answer(server, requests_[0], &response);
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("unspecified launch failure"));
  EXPECT_TRUE(server.server().Drain());
}

// Poisoned calls fail alone among good ones.
TEST_F(AnswerLoadTest, BadCallsHarmNoOther) {
  MakeRequests(30, 30);
  server::Options options = TestOptions(repository_.path());
  options.batching.backend = "reference";
  RunningServer server(options);
  ASSERT_TRUE(server.started());
  std::vector<v1::AnswerRequest> bad(3, requests_[0]);
  bad[0].mutable_queries(0)->set_question(" ");
  bad[1].set_top_n(-1);
  bad[2].mutable_queries(0)->add_passage_tags()->add_pos_ids(1);
  ExpectAllAnswered(server, [&] {
    for (int i = 0; i < 60; ++i) {
      v1::AnswerResponse response;
      EXPECT_EQ(Answer(server, bad[i % 3], &response).error_code(), StatusCode::INVALID_ARGUMENT);
    }
  });
}

}  // namespace
}  // namespace sru::testing
