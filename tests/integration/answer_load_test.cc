// Answer under load: what the server promises for Classify holds for queries, too. Nothing that was
// accepted is lost, and no answer is wrong, whatever else happens.
#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/background_calls.h"
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

  static void ExpectAnswers(const v1::AnswerResponse& response,
                            const std::vector<v1::QueryAnswers>& expected) {
    ASSERT_EQ(response.results_size(), static_cast<int>(expected.size()));
    for (int q = 0; q < response.results_size(); ++q) {
      ExpectSameAnswers(response.results(q), expected[q]);
    }
  }
  void ExpectRight(size_t request, const v1::AnswerResponse& response) const {
    ExpectAnswers(response, expected_[request]);
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
  class Background : public BackgroundCalls<v1::AnswerRequest, v1::AnswerResponse> {
   public:
    Background(RunningServer* server, FailingDevices* device, const v1::AnswerRequest& request,
               int count)
        : BackgroundCalls(Hold(device, server->stub()), &AsyncStub::Answer, request, count),
          device_(*device) {}
    ~Background() { Release(); }
    void Release() { device_.held = false; }
    const std::vector<grpc::Status>& Wait() {
      Release();
      return BackgroundCalls::Wait();
    }

   private:
    static v1::InferenceService::Stub& Hold(FailingDevices* device,
                                            v1::InferenceService::Stub& stub) {
      device->held = true;
      return stub;
    }

    FailingDevices& device_;
  };

  // Sends the requests again and again from several threads while `meanwhile` runs; every call must
  // be answered, and rightly. Returns how many there were.
  template <typename Meanwhile>
  int ExpectAllAnswered(RunningServer& server, const Meanwhile& meanwhile) {
    std::atomic<bool> stop{false};
    std::atomic<int> answered{0};
    std::vector<std::thread> callers;
    for (int thread = 0; thread < 3; ++thread) {
      callers.emplace_back([&, thread] {
        for (size_t i = thread; !stop; i = (i + 1) % requests_.size()) {
          v1::AnswerResponse response;
          const grpc::Status status = server.Call(requests_[i], &response);
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

// What is refused is told so at once and when to come back; all that is accepted is answered, and
// rightly.
TEST_F(AnswerLoadTest, AFullQueueRefusesAndLosesNothing) {
  MakeRequests(20, 40);
  options_.batching.engine.batcher.max_queue_tokens = 3 * 2048;
  const auto server = Start();
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
  int refused = 0;
  const auto check = [&](Background& calls, const std::vector<v1::QueryAnswers>& expected) {
    for (size_t i = 0; i < calls.Wait().size(); ++i) {
      const grpc::Status& status = calls.Wait()[i];
      if (status.ok()) {
        ExpectAnswers(calls.responses()[i], expected);
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
      EXPECT_TRUE(HasRetryInfo(status));
    }
  };
  check(background, slow_answers);
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 12);
  for (size_t i = 0; i < small.size(); ++i) check(*small[i], expected_[i]);
  EXPECT_EQ(rejections(), refused);
  EXPECT_TRUE(server->Becomes("sru_inflight_bytes", 0));
}

TEST_F(AnswerLoadTest, CancelledCallsLeaveTheQueue) {
  const auto server = Start();
  const auto waiting = [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)); };
  Background background(server.get(), device_.get(), Slow(), 400);
  ASSERT_TRUE(PollUntil([&] { return waiting() > 0; }));
  background.Cancel();
  int cancelled = 0;
  for (const grpc::Status& status : background.Wait()) {
    if (status.error_code() == StatusCode::CANCELLED) ++cancelled;
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_TRUE(PollUntil([&] {
    return waiting() == 0 && server->Metric("sru_requests_in_flight") == 0 &&
           server->Metric("sru_inflight_bytes") == 0;
  }));
  MakeRequests(1, 10);
  ExpectRight(0, server->Must(requests_[0]));
}

TEST_F(AnswerLoadTest, ADeadlineThatCannotBeMetIsRefusedAtOnce) {
  device_->run_milliseconds = 20;
  const auto server = Start();
  v1::AnswerResponse response;
  grpc::Status status = server->Call(Slow(), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();  // the speed is measured
  Background background(server.get(), device_.get(), SlowAndFirst(), 100);
  // All but the one that is held.
  ASSERT_TRUE(server->Becomes(absl::StrCat("sru_queue_sequences", kLabels), 99));
  // A quarter of what the queue takes.
  const absl::Duration deadline = 25 * absl::Microseconds(response.times().compute_us());
  status = server->Call(Slow(), &response, deadline);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
  EXPECT_EQ(
      server->Metric("sru_rejections_total{model=\"reader\",version=\"1\",reason=\"deadline\"}"),
      1);
  background.Cancel();
}

TEST_F(AnswerLoadTest, WithoutAdmissionByDeadlineWaitingCallsExpire) {
  options_.batching.engine.batcher.admission_by_deadline = false;
  const auto server = Start();
  Background background(server.get(), device_.get(), SlowAndFirst(), 100);
  ASSERT_TRUE(server->Becomes(absl::StrCat("sru_queue_sequences", kLabels), 99));
  v1::AnswerResponse response;
  const grpc::Status status = server->Call(Slow(), &response, absl::Milliseconds(20));
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  background.Cancel();
}

// A call of high priority goes before those that wait.
TEST_F(AnswerLoadTest, PrioritiesAreKept) {
  device_->run_milliseconds = 20;
  options_.batching.engine.batcher.ageing_interval = absl::Minutes(10);
  const auto server = Start();
  const auto waiting = [&] { return server->Metric(absl::StrCat("sru_queue_sequences", kLabels)); };
  v1::AnswerRequest low = Slow();
  low.set_priority(v1::PRIORITY_LOW);
  Background background(server.get(), device_.get(), low, 100);
  ASSERT_TRUE(PollUntil([&] { return waiting() == 99; }));
  MakeRequests(1, 20);
  requests_[0].set_priority(v1::PRIORITY_HIGH);
  Background first(server.get(), device_.get(), requests_[0], 1);
  ASSERT_TRUE(PollUntil([&] { return waiting() > 99; }));
  EXPECT_TRUE(first.Wait()[0].ok()) << first.Wait()[0].error_message();
  ExpectRight(0, first.responses()[0]);
  // Most of those that came before it still wait.
  EXPECT_GT(waiting(), 30);
  background.Cancel();
}

TEST_F(AnswerLoadTest, ADrainAnswersWhatWasAcceptedAndRefusesTheRest) {
  const auto server = Start();
  const v1::AnswerRequest slow = Slow();
  const std::vector<v1::QueryAnswers> expected = plain_->Answer(slow);
  Background background(server.get(), device_.get(), slow, 10);
  // All but the one that is held: a call that is still being read is not accepted.
  ASSERT_TRUE(server->Becomes(absl::StrCat("sru_queue_sequences", kLabels), 9));
  background.Release();
  EXPECT_TRUE(server->server().Drain());
  for (const grpc::Status& status : background.Wait()) {
    ASSERT_TRUE(status.ok()) << status.error_message();
  }
  for (const v1::AnswerResponse& response : background.responses()) {
    ExpectSameAnswers(response.results(0), expected[0]);
  }
  EXPECT_EQ(server->Call(slow).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(AnswerLoadTest, ADrainThatRunsOutOfTimeSaysUnavailable) {
  device_->run_milliseconds = 20;
  options_.drain_timeout = absl::Milliseconds(50);
  const auto server = Start();
  Background background(server.get(), device_.get(), Slow(), 100);
  ASSERT_TRUE(server->Becomes("sru_requests_in_flight", 100));
  background.Release();
  EXPECT_FALSE(server->server().Drain());
  int unavailable = 0;
  for (const grpc::Status& status : background.Wait()) {
    if (status.ok()) continue;
    ++unavailable;
    EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE) << status.error_message();
  }
  EXPECT_GT(unavailable, 0);
}

TEST_F(AnswerLoadTest, NoCallFailsWhileVersionsAreReplaced) {
  MakeRequests(30, 30);
  options_.admin_listen = server::ListenAddress{"127.0.0.1", 0};
  options_.models.control = server::lifecycle::ModelControl::kExplicit;
  options_.models.load_models = {"reader"};
  const auto server = Start();
  const auto admin = server->AdminStub();
  const int answered = ExpectAllAnswered(*server, [&] {
    for (int version = 2; version <= 6; ++version) {
      models::WriteSmallReader(repository_, absl::StrCat("reader/", version));
      const grpc::Status status = LoadModel(*admin, "reader");
      EXPECT_TRUE(status.ok()) << status.error_message();
    }
  });
  EXPECT_GT(answered, 20);
  EXPECT_EQ(server->Must(requests_[0]).version(), 6);
  EXPECT_TRUE(server->server().Drain());
}

TEST_F(AnswerLoadTest, CallsMoveToTheDeviceThatIsLeft) {
  MakeRequests(30, 30);
  auto devices = std::make_shared<FailingDevices>(2);
  server::Options options = TestOptions(repository_.path());
  RunningServer server(std::make_unique<FailingBackend>(devices), options);
  const std::string instances = absl::StrCat("sru_instances", kLabels);
  EXPECT_EQ(server.Metric(instances), 4);
  ExpectAllAnswered(server, [&] {
    devices->failed[0] = true;
    EXPECT_TRUE(server.Becomes(instances, 2));
  });
  devices->failed[1] = true;
  EXPECT_THAT(server.Call(requests_[0]),
              Fails(StatusCode::UNAVAILABLE, HasSubstr("unspecified launch failure")));
  EXPECT_TRUE(server.server().Drain());
}

// Poisoned calls fail alone among good ones.
TEST_F(AnswerLoadTest, BadCallsHarmNoOther) {
  MakeRequests(30, 30);
  server::Options options = TestOptions(repository_.path());
  options.batching.backend = "reference";
  RunningServer server(options);
  std::vector<v1::AnswerRequest> bad(3, requests_[0]);
  bad[0].mutable_queries(0)->set_question(" ");
  bad[1].set_top_n(-1);
  bad[2].mutable_queries(0)->add_passage_tags()->add_pos_ids(1);
  ExpectAllAnswered(server, [&] {
    for (int i = 0; i < 60; ++i) {
      EXPECT_EQ(server.Call(bad[i % 3]).error_code(), StatusCode::INVALID_ARGUMENT);
    }
  });
}

}  // namespace
}  // namespace sru::testing
