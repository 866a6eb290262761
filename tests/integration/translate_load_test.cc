// Translate when there is more to do than can be done: overload, deadlines, clients that go, a
// drain, priorities, reloads, devices that fail and memory that runs out. Nothing that was accepted
// is lost, no translation is wrong, and in the end nothing is held.
#include <algorithm>
#include <atomic>
#include <future>
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
#include "tests/integration/server_fixture.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/poll.h"
#include "tests/testing/translator_files.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;

constexpr int kVocabulary = 40;
constexpr int kEnd = 3;

class TranslateLoadTest : public ::testing::Test {
 protected:
  TranslateLoadTest() {
    config_ = models::SmallTranslatorConfig();
    config_.erase("preprocessing");
    nlohmann::json& translator = config_["translator"];
    translator["source_vocabulary"] = translator["target_vocabulary"] = kVocabulary;
    translator["decoder_layers"] = 2;
    translator["max_positions"] = 4000;
    translator["max_length"] = 30;
    tensors_ = models::TranslatorTensors(config_, 11);
    models::WriteTranslator(directory_, "m/1", config_, tensors_);
    options_ = TestOptions(directory_.path());
    options_.security.caller_limits =
        *server::callers::ParseLimitsFlag("caller_limits", "highest_priority=high");
    options_.batching.backend = "reference";
    options_.batching.engine.instances = 2;
    options_.batching.engine.batcher.max_batch_sequences = 32;
  }

  void Start(std::unique_ptr<kernels::Backend> backend = nullptr) {
    server_ = std::make_unique<RunningServer>(std::move(backend), options_);
  }
  // Its translations go on up to their longest length.
  void WriteEndless() {
    models::TestTensors tensors = tensors_;
    tensors["generator.0.bias"].values[kEnd] = -100;
    models::WriteTranslator(directory_, "m/1", config_, tensors);
  }

  static v1::TranslateRequest Request(int seed, int sentences = 1) {
    std::minstd_rand random(static_cast<uint32_t>(seed) + 1);
    v1::TranslateRequest request;
    request.set_model("m");
    for (int i = 0; i < sentences; ++i) {
      v1::TokenIds* const ids = request.add_sequences()->mutable_token_ids();
      const int length = static_cast<int>(random() % 12);
      for (int k = 0; k < length; ++k) ids->add_values(static_cast<int>(random() % kVocabulary));
    }
    request.set_beam_size(static_cast<int>(random() % 6));
    request.set_return_alignment(random() % 3 == 0);
    return request;
  }
  // A call of WriteEndless() that takes long.
  static v1::TranslateRequest Long(int sentences, int tokens = 4000) {
    v1::TranslateRequest request;
    request.set_model("m");
    for (int i = 0; i < sentences; ++i) {
      v1::TokenIds* const ids = request.add_sequences()->mutable_token_ids();
      for (int k = 0; k < 10; ++k) ids->add_values(4 + (i + k) % 30);
    }
    request.set_beam_size(2);
    request.set_max_new_tokens(tokens);
    return request;
  }

  grpc::Status Translate(const v1::TranslateRequest& request, v1::TranslateResponse* response,
                         absl::Duration timeout = absl::Seconds(60)) {
    return server_->Call(request, response, timeout);
  }
  // The request of this kind has the answer that it had alone.
  void ExpectAsAlone(int kind, int sentences, const std::vector<std::string>& alone) {
    v1::TranslateResponse response;
    const grpc::Status status = Translate(Request(kind, sentences), &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(Content(response), alone[kind]);
  }
  // What each of the requests gives alone.
  std::vector<std::string> Alone(int count, int sentences) {
    std::vector<std::string> alone;
    for (int i = 0; i < count; ++i) alone.push_back(Content(server_->Must(Request(i, sentences))));
    return alone;
  }
  static std::string Content(v1::TranslateResponse content) {
    content.clear_times();
    content.clear_version();
    return content.SerializeAsString();
  }

  double Metric(const std::string& name) {
    return server_->Metric(absl::StrCat(name, "{model=\"m\",version=\"1\"}"));
  }
  double Sentences(const std::string& state) {
    return server_->Metric(
        absl::StrCat("sru_translate_sentences{model=\"m\",version=\"1\",state=\"", state, "\"}"));
  }
  void ExpectNothingLeft() {
    EXPECT_TRUE(server_->Becomes("sru_requests_in_flight", 0));
    EXPECT_TRUE(PollUntil([&] { return Sentences("running") + Sentences("waiting") == 0; }));
    EXPECT_TRUE(server_->Becomes("sru_state_slots{model=\"m\",version=\"1\",kind=\"used\"}", 0));
    EXPECT_TRUE(server_->Becomes("sru_inflight_bytes", 0));
    EXPECT_EQ(Metric("sru_queue_tokens"), 0);
  }

  models::TempDirectory directory_;
  nlohmann::json config_;
  models::TestTensors tensors_;
  server::Options options_;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(TranslateLoadTest, AFullQueueRefusesWholeCallsAndAnswersTheOthersRight) {
  options_.batching.engine.batcher.max_queue_sequences = 16;
  Start();
  constexpr int kKinds = 6;
  constexpr int kSentences = 8;
  const std::vector<std::string> alone = Alone(kKinds, kSentences);
  std::atomic<int> ok{0};
  std::atomic<int> refused{0};
  InThreads(12, [&](int i) {
    for (int k = 0; k < 10; ++k) {
      v1::TranslateResponse response;
      const int kind = (i + k) % kKinds;
      const grpc::Status status = Translate(Request(kind, kSentences), &response);
      if (status.ok()) {
        ++ok;
        EXPECT_EQ(Content(response), alone[kind]);
        continue;
      }
      ++refused;
      EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED) << status.error_message();
      EXPECT_TRUE(HasRetryInfo(status));
    }
  });
  EXPECT_GT(ok, 0);
  EXPECT_GT(refused, 0);
  double counted = 0;
  for (const char* reason : {"queue_full", "deadline"}) {
    counted += std::max(
        0.0, server_->Metric(absl::StrCat(
                 "sru_rejections_total{model=\"m\",version=\"1\",reason=\"", reason, "\"}")));
  }
  EXPECT_EQ(counted, refused);
  ExpectNothingLeft();
}

TEST_F(TranslateLoadTest, ADeadlineEndsACallBetweenTwoSteps) {
  WriteEndless();
  Start();
  v1::TranslateResponse response;
  const grpc::Status status = Translate(Long(3), &response, absl::Milliseconds(300));
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  EXPECT_GT(Metric("sru_decode_batch_sequences_count"), 2);
  ExpectNothingLeft();
}

TEST_F(TranslateLoadTest, CancelledCallsGiveBackTheirRowsAtTheNextStep) {
  WriteEndless();
  Start();
  BackgroundCalls background(server_->stub(), &AsyncStub::Translate, Long(10), 3);
  ASSERT_TRUE(PollUntil([&] { return Sentences("running") > 5; }));
  background.Cancel();
  for (const grpc::Status& status : background.Wait()) {
    EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
  }
  ExpectNothingLeft();
  EXPECT_EQ(Metric("sru_cancelled_total"), 3);
}

TEST_F(TranslateLoadTest, AClientThatVanishesIsForgotten) {
  WriteEndless();
  Start();
  {
    const auto channel = MakeChannel(server_->server().address().ToString());
    const auto stub = v1::InferenceService::NewStub(channel);
    grpc::ClientContext context;
    const v1::TranslateRequest request = Long(5);
    v1::TranslateResponse response;
    std::promise<void> done;
    stub->async()->Translate(&context, &request, &response,
                             [&done](const grpc::Status&) { done.set_value(); });
    ASSERT_TRUE(PollUntil([&] { return Sentences("running") > 0; }));
    context.TryCancel();
    done.get_future().wait();
  }
  ExpectNothingLeft();
}

TEST_F(TranslateLoadTest, ADrainLetsThemEnd) {
  WriteEndless();
  Start();
  BackgroundCalls background(server_->stub(), &AsyncStub::Translate, Long(4, 60), 4);
  ASSERT_TRUE(PollUntil([&] { return Sentences("running") > 0; }));
  EXPECT_TRUE(server_->server().Drain());
  for (const grpc::Status& status : background.Wait()) {
    EXPECT_TRUE(status.ok() || status.error_code() == StatusCode::UNAVAILABLE)
        << status.error_message();
  }
}

TEST_F(TranslateLoadTest, ADrainThatRunsOutOfTimeAnswersUnavailable) {
  WriteEndless();
  options_.drain_timeout = absl::Milliseconds(300);
  Start();
  BackgroundCalls background(server_->stub(), &AsyncStub::Translate, Long(8), 2);
  ASSERT_TRUE(PollUntil([&] { return Sentences("running") > 0; }));
  EXPECT_FALSE(server_->server().Drain());
  for (const grpc::Status& status : background.Wait()) {
    EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE) << status.error_message();
  }
}

TEST_F(TranslateLoadTest, AHighPriorityGoesAheadOfWhatWaits) {
  WriteEndless();
  options_.batching.engine.instances = 1;
  Start();
  // Many more than begin together.
  v1::TranslateRequest low = Long(200, 200);
  low.set_priority(v1::PRIORITY_LOW);
  BackgroundCalls background(server_->stub(), &AsyncStub::Translate, low, 1);
  ASSERT_TRUE(PollUntil([&] { return Sentences("waiting") > 100; }));
  v1::TranslateRequest high = Long(1, 5);
  high.set_priority(v1::PRIORITY_HIGH);
  v1::TranslateResponse response;
  ASSERT_TRUE(Translate(high, &response).ok());
  EXPECT_GT(Sentences("waiting"), 50);
  background.Cancel();
  background.Wait();
  ExpectNothingLeft();
}

TEST_F(TranslateLoadTest, AReloadUnderLoadLosesNothing) {
  options_.models.control = server::lifecycle::ModelControl::kPoll;
  options_.models.poll_interval = absl::Milliseconds(50);
  Start();
  constexpr int kKinds = 5;
  const std::vector<std::string> alone = Alone(kKinds, 3);
  std::atomic<bool> stop{false};
  std::atomic<int> answered{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&, i] {
      for (int k = 0; !stop; ++k) {
        ExpectAsAlone((i + k) % kKinds, 3, alone);
        ++answered;
      }
    });
  }
  // The same weights as another version.
  models::WriteTranslator(directory_, "m/2", config_, tensors_);
  EXPECT_TRUE(PollUntil([&] {
    return server_->Metric("sru_decode_batch_sequences_count{model=\"m\",version=\"2\"}") > 20;
  }));
  EXPECT_TRUE(PollUntil([&] { return answered > 20; }));
  stop = true;
  for (std::thread& client : clients) client.join();
}

TEST_F(TranslateLoadTest, AFailingDeviceLosesNothing) {
  options_.batching.engine.instances = 4;
  const auto devices = std::make_shared<FailingDevices>(2);
  options_.batching.backend = "auto";
  Start(std::make_unique<FailingBackend>(devices));
  constexpr int kKinds = 8;
  const std::vector<std::string> alone = Alone(kKinds, 4);
  std::atomic<int> answered{0};
  InThreads(6, [&](int i) {
    for (int k = 0; k < 20; ++k) {
      ExpectAsAlone((i + k) % kKinds, 4, alone);
      if (++answered == 20) devices->failed[1] = true;
    }
  });
  ExpectNothingLeft();
  EXPECT_EQ(server_->Metric("sru_device_lost_total{device=\"1\"}"), 1);
}

TEST_F(TranslateLoadTest, WithTheMemoryOfStatesUsedUpAllAreAnsweredRight) {
  constexpr int kKinds = 5;
  // Large enough that a megabyte holds a few sentences.
  config_["translator"]["d_model"] = 64;
  config_["translator"]["d_sru"] = 96;
  tensors_ = models::TranslatorTensors(config_, 3);
  tensors_["generator.0.bias"].values[kEnd] = -100;
  models::WriteTranslator(directory_, "m/1", config_, tensors_);
  options_.batching.backend = "cpu";
  Start();
  const std::vector<std::string> alone = Alone(kKinds, 20);
  server_.reset();
  options_.batching.state_memory_mb = 1;
  Start();
  InThreads(6, [&](int i) {
    for (int k = 0; k < 3; ++k) {
      ExpectAsAlone((i + k) % kKinds, 20, alone);
    }
  });
  ExpectNothingLeft();
}

}  // namespace
}  // namespace sru::testing
