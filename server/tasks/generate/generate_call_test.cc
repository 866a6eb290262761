// Generate with a transport and a generator that do what the test says.
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/language_model.h"
#include "models/model.h"
#include "models/state_codec.h"
#include "server/base/clock.h"
#include "server/base/retry.h"
#include "server/base/side_threads.h"
#include "server/batching/engine.h"
#include "server/calls/message_cord.h"
#include "server/tasks/tasks.h"
#include "sru/v1/inference.pb.h"
#include "tests/testing/protos.h"
#include "tests/testing/puppet_exchange.h"
#include "tests/testing/puppet_generator.h"
#include "tests/testing/test_files.h"

namespace sru::server::tasks {
namespace {

using ::sru::testing::HasFieldsOf;
using ::sru::testing::Message;
using ::sru::testing::Sends;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// An engine that has nothing but a generator.
class GeneratorEngine final : public batching::Engine {
 public:
  explicit GeneratorEngine(batching::StepService* steps) : steps_(steps) {}
  batching::Batcher& batcher() override { return *batcher_; }
  int instances() const override { return 1; }
  batching::StepService* steps() override { return steps_; }
  void TakeOutDevice(int /*device*/, const absl::Status& /*error*/) override {}
  void Close() override {}
  bool Drain(absl::Time /*deadline*/) override { return true; }

 private:
  batching::StepService* const steps_;
  const RealClock clock_;
  const std::unique_ptr<batching::Batcher> batcher_ =
      *batching::Batcher::Create(batching::BatcherOptions(), &clock_);
};

// One call, as a client sees it.
class Call {
 public:
  Call(const calls::Method& row, const v1::GenerateRequest& request) {
    exchange_.Start(row);
    exchange_.Bring(request);
  }

  v1::GenerateResponse MustRead() {
    v1::GenerateResponse response;
    const std::optional<absl::Cord> message = exchange_.Take();
    EXPECT_TRUE(message.has_value() && calls::ParseCord(*message, &response));
    return response;
  }
  // The end, after which nothing is left.
  absl::Status Finish() {
    EXPECT_FALSE(exchange_.Take().has_value());
    EXPECT_TRUE(exchange_.end().has_value());
    return exchange_.end().has_value() ? exchange_.end()->status : absl::UnknownError("no end");
  }
  void Cancel() { exchange_.Cancel(); }
  bool has_retry_info() const { return RetryAfterOf(exchange_.end()->status).has_value(); }

 private:
  sru::testing::PuppetExchange exchange_;
};

class GenerateCallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    models::WriteSmallLanguageModel(directory_, "lm/1");
    models::WriteSmallModel(directory_, "trec/1");
    ASSERT_TRUE(kernels::CreateBackend("reference", &backend_).ok());
    registry_.Replace({Serve("lm", &generator_), Serve("trec", nullptr)});
    context_.registry = &registry_;
    context_.metrics = &metrics_;
    context_.in_flight = &in_flight_;
    context_.budget = &budget_;
    context_.access_log = &access_log_;
    context_.clock = &clock_;
    context_.received_bytes = &received_bytes_;
    context_.streams = &streams_;
    request_.set_model("lm");
    request_.mutable_prompt()->set_text("a b");
  }

  void TearDown() override {
    EXPECT_EQ(streams_.count(), 0);
    EXPECT_EQ(budget_.used(), 0);
    EXPECT_EQ(in_flight_.count(), 0);
  }

  std::shared_ptr<lifecycle::ServedModel> Serve(const std::string& name,
                                                batching::StepService* steps) {
    auto model = models::Model::Load(directory_.path(name + "/1"), name, 1, *backend_, {});
    EXPECT_TRUE(model.ok()) << model.status();
    auto served = std::make_shared<lifecycle::ServedModel>();
    served->name = name;
    served->version = 1;
    served->model = *model;
    served->metrics = metrics_.ForModel(name, 1, 4096);
    served->engine = std::make_unique<GeneratorEngine>(steps);
    return served;
  }

  // Starts a call, which the generator has then.
  std::unique_ptr<Call> Start() {
    const size_t before = generator_.num_calls();
    auto call = std::make_unique<Call>(generate_, request_);
    EXPECT_EQ(generator_.num_calls(), before + 1);
    return call;
  }

  static GeneratedChunk Chunk(const std::string& text, std::vector<int32_t> ids, int sample = 0) {
    GeneratedChunk chunk;
    chunk.sample = sample;
    chunk.text = text;
    chunk.token_ids = std::move(ids);
    return chunk;
  }
  static GeneratedChunk Last(GeneratedChunk chunk, FinishReason finish) {
    chunk.last = true;
    chunk.finish = finish;
    chunk.prompt_tokens = 2;
    chunk.generated_tokens = 5;
    return chunk;
  }

  static kernels::StateArena::State SomeState(const models::Model& model) {
    kernels::StateArena::State state;
    for (const kernels::FieldSpec& field : model.As<models::LanguageModel>()->program.fields) {
      state.rows.push_back(1);
      state.values.insert(state.values.end(), field.width, 0.25f);
    }
    return state;
  }

  void ExpectError(absl::StatusCode code, const std::string& start) {
    SCOPED_TRACE(start);
    Call call(generate_, request_);
    const absl::Status status = call.Finish();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(std::string(status.message()), StartsWith(start));
    EXPECT_EQ(generator_.num_calls(), 0);
  }

  models::TempDirectory directory_;
  std::unique_ptr<kernels::Backend> backend_;
  RealClock clock_;
  PuppetGenerator generator_;
  telemetry::Metrics metrics_{&clock_};
  lifecycle::ModelRegistry registry_;
  calls::InFlight in_flight_;
  calls::ByteBudget budget_{int64_t{64} << 20};
  telemetry::AccessLog access_log_{{telemetry::LogRequests::kNone}, &clock_};
  std::atomic<int64_t> received_bytes_{0};
  calls::OpenStreams streams_{3};
  calls::ServiceContext context_;
  const calls::Method generate_ = MethodOf(Generate(), context_);
  v1::GenerateRequest request_;
};

TEST_F(GenerateCallTest, TokensComeWithTheirTextsIfAskedFor) {
  request_.set_token_texts(true);
  const auto call = Start();
  generator_.Send(0, Chunk("one", {3, 2}));
  EXPECT_THAT(call->MustRead().token_texts(), ElementsAre("b", "a"));
}

TEST_F(GenerateCallTest, ALongPromptIsReadOnAnotherThread) {
  request_.mutable_prompt()->set_text(std::string(5000, ' ') + "a b");
  std::optional<SideThreads> readers(std::in_place, 1);
  context_.readers = &*readers;
  absl::Notification go;
  readers->Post([&] { go.WaitForNotification(); });
  Call call(generate_, request_);
  Call gone(generate_, request_);
  gone.Cancel();
  EXPECT_EQ(generator_.num_calls(), 0);
  go.Notify();
  readers.reset();  // has read both
  EXPECT_EQ(generator_.num_calls(), 2);
  EXPECT_EQ(gone.Finish().code(), absl::StatusCode::kCancelled);
  generator_.Send(0, Chunk("one", {3, 2}));
  EXPECT_EQ(call.MustRead().text(), "one");
}

TEST_F(GenerateCallTest, ALongTextOfAnyTaskIsReadOnAnotherThread) {
  const calls::Method classify = MethodOf(Classify(), context_);
  v1::ClassifyRequest request;
  request.set_model("trec");
  request.add_sequences()->set_text(std::string(100000, ' ') + "a b");
  std::optional<SideThreads> readers(std::in_place, 1);
  context_.readers = &*readers;
  absl::Notification go;
  readers->Post([&] { go.WaitForNotification(); });
  sru::testing::PuppetExchange gone;
  gone.Start(classify);
  gone.Bring(request);
  gone.Cancel();
  EXPECT_FALSE(gone.end().has_value());
  sru::testing::PuppetExchange waits;
  waits.Start(classify);
  waits.Bring(request);
  go.Notify();
  readers.reset();                      // has read both
  ASSERT_TRUE(gone.end().has_value());  // nothing of it was submitted
  EXPECT_EQ(gone.end()->status.code(), absl::StatusCode::kCancelled);
  const batching::Batcher& batcher = registry_.List()[1]->engine->batcher();
  EXPECT_EQ(batcher.stats().queued_sequences, 1);
  EXPECT_FALSE(waits.end().has_value());
  waits.Cancel();
  ASSERT_TRUE(waits.end().has_value());
  EXPECT_EQ(waits.end()->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(batcher.stats().queued_sequences, 0);
}

TEST_F(GenerateCallTest, AnAnswerThatCannotFitIsRefusedBeforeTheWork) {
  const calls::Method classify = MethodOf(Classify(), context_);
  v1::ClassifyRequest request;
  request.set_model("trec");
  for (int i = 0; i < 256; ++i) request.add_sequences()->set_text("a b");
  sru::testing::PuppetExchange exchange;
  exchange.expansion = 1 << 20;
  exchange.Start(classify);
  exchange.Bring(request);
  ASSERT_TRUE(exchange.end().has_value());
  EXPECT_EQ(exchange.end()->status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(exchange.end()->status.message()),
              StartsWith("sequences: the answer would take about"));
}

TEST_F(GenerateCallTest, SendsWhatComes) {
  request_.set_token_log_probs(true);
  const auto call = Start();
  GeneratedChunk chunk = Chunk("one", {2});
  chunk.log_probs = {-1.5f};
  generator_.Send(0, chunk);
  v1::GenerateResponse response = call->MustRead();
  EXPECT_THAT(response, Sends("model: 'lm' version: 1 text: 'one' token_ids: 2 log_probs: -1.5"));

  chunk = Last(Chunk(" end", {3, 4}), FinishReason::kStop);
  chunk.state = "a state";
  generator_.Send(0, chunk);
  batching::RequestTimes times;
  times.queue = absl::Milliseconds(3);
  times.compute = absl::Milliseconds(5);
  generator_.Finish(0, absl::OkStatus(), times);
  response = call->MustRead();
  EXPECT_THAT(response,
              HasFieldsOf("text: ' end' finish_reason: FINISH_REASON_STOP state: 'a state' "
                          "prompt_tokens: 2 generated_tokens: 5 "
                          "times { queue_us: 3000 compute_us: 5000 }"));
  EXPECT_GT(response.times().total_us(), 0);
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(GenerateCallTest, TheTimesComeWithTheLastMessageOfTheLastSample) {
  request_.set_num_samples(2);
  const auto call = Start();
  EXPECT_EQ(generator_.task(0).num_samples, 2);
  generator_.Send(0, Last(Chunk("b", {2}, 1), FinishReason::kLength));
  v1::GenerateResponse response = call->MustRead();
  EXPECT_EQ(response.sample(), 1);
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_FALSE(response.has_times());
  generator_.Send(0, Chunk("a", {3}, 0));
  EXPECT_EQ(call->MustRead().sample(), 0);
  generator_.Send(0, Last(Chunk("c", {2}, 0), FinishReason::kStop));
  generator_.Finish(0, absl::OkStatus());
  response = call->MustRead();
  EXPECT_EQ(response.sample(), 0);
  EXPECT_TRUE(response.has_times());
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(GenerateCallTest, OnlyTheFirstTokenOfAFreshPromptHasNoCandidates) {
  request_.set_echo(true);
  request_.set_top_candidates(2);
  const auto call = Start();
  EXPECT_TRUE(generator_.task(0).echo);
  GeneratedChunk chunk = Chunk("a b", {2, 3});
  chunk.candidates = {{4, -0.5f}, {0, -2.0f}};
  generator_.Send(0, chunk);
  v1::GenerateResponse response = call->MustRead();
  ASSERT_EQ(response.candidates_size(), 2);
  EXPECT_EQ(response.candidates(0).candidates_size(), 0);
  ASSERT_EQ(response.candidates(1).candidates_size(), 2);
  EXPECT_THAT(response.candidates(1).candidates(0), Sends("token_id: 4 text: 'c' log_prob: -0.5"));
  generator_.Finish(0, absl::InternalError("the end"));
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kInternal);
}

TEST_F(GenerateCallTest, AClientThatReadsSlowlyPausesItsTextAndGetsItMerged) {
  const auto call = Start();
  generator_.Send(0, Chunk("first", {2}));
  generator_.Send(0, Chunk("", std::vector<int32_t>(40, 3)));
  EXPECT_FALSE(generator_.paused(0));
  generator_.Send(0, Chunk("d", std::vector<int32_t>(40, 4)));
  EXPECT_TRUE(generator_.paused(0));
  generator_.Send(0, Chunk("e", {2}));  // a step that was under way
  EXPECT_EQ(call->MustRead().text(), "first");
  const v1::GenerateResponse merged = call->MustRead();
  EXPECT_EQ(merged.text(), "de");
  EXPECT_EQ(merged.token_ids_size(), 81);
  EXPECT_EQ(merged.token_ids(40), 4);
  EXPECT_EQ(merged.token_ids(80), 2);
  EXPECT_FALSE(generator_.paused(0));
  generator_.Send(0, Last(Chunk("f", {2}), FinishReason::kLength));
  generator_.Finish(0, absl::OkStatus());
  EXPECT_EQ(call->MustRead().text(), "f");
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(GenerateCallTest, TheEndWaitsForTheMessageThatIsOnItsWay) {
  const auto call = Start();
  generator_.Send(0, Chunk("first", {2}));
  generator_.Send(0, Last(Chunk("end", {3}), FinishReason::kLength));
  generator_.Finish(0, absl::OkStatus());
  EXPECT_EQ(in_flight_.count(), 0);  // nothing is left to compute
  EXPECT_EQ(call->MustRead().text(), "first");
  EXPECT_EQ(call->MustRead().text(), "end");
  EXPECT_TRUE(call->Finish().ok());
}

TEST_F(GenerateCallTest, ACancelledCallLeavesTheGenerator) {
  const auto call = Start();
  generator_.Send(0, Chunk("a", {2}));
  call->MustRead();
  call->Cancel();
  EXPECT_GT(generator_.cancels(0), 0);
  EXPECT_EQ(call->Finish().code(), absl::StatusCode::kCancelled);
}

TEST_F(GenerateCallTest, ACallInAStepEndsWithTheStep) {
  generator_.set_cancel_ends(false);
  const auto call = Start();
  call->Cancel();
  EXPECT_GT(generator_.cancels(0), 0);
  EXPECT_EQ(streams_.count(), 1);
  generator_.Send(0, Chunk("a", {2}));
  generator_.Finish(0, absl::CancelledError("cancelled"));
}

TEST_F(GenerateCallTest, StatesAreHandedOutBeforeAnError) {
  request_.set_num_samples(2);
  const auto call = Start();
  for (const int sample : {0, 1}) {
    GeneratedChunk chunk = Last(Chunk("", {}, sample), FinishReason::kNone);
    chunk.state = absl::StrCat("state ", sample);
    generator_.Send(0, chunk);
  }
  generator_.Finish(0, absl::UnavailableError("the server is shutting down"));
  for (const int sample : {0, 1}) {
    const v1::GenerateResponse response = call->MustRead();
    EXPECT_EQ(response.state(), absl::StrCat("state ", sample));
    EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
    EXPECT_EQ(response.has_times(), sample == 1);
  }
  const absl::Status status = call->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "the server is shutting down");
}

TEST_F(GenerateCallTest, RefusalsSayWhenToComeBack) {
  generator_.Refuse(
      RetryAfter(absl::ResourceExhaustedError("the queue is full"), absl::Seconds(2)));
  Call call(generate_, request_);
  const absl::Status status = call.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "the queue is full");
  EXPECT_TRUE(call.has_retry_info());
}

TEST_F(GenerateCallTest, MoreCallsThanMayBeOpen) {
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < 3; ++i) calls.push_back(Start());
  Call fourth(generate_, request_);
  const absl::Status status = fourth.Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--max_streams"));
  EXPECT_TRUE(fourth.has_retry_info());
}

// A state may name every token of a large vocabulary, and each sample remembers them.
TEST_F(GenerateCallTest, WhatAStateMakesSamplesRememberIsReserved) {
  constexpr int kSamples = 64;
  const models::Model& model = *(*registry_.Find("lm", 0))->model;
  const kernels::StateArena::State state = SomeState(model);
  request_.set_num_samples(kSamples);
  const auto reserved = [&](const models::DecodingMemo& memo, bool return_state) {
    request_.set_state(model.state_codec().Encode(state, memo));
    request_.set_return_state(return_state);
    const auto call = Start();
    const int64_t used = budget_.used();
    call->Cancel();
    return used;
  };
  models::DecodingMemo memo;
  const int64_t without = reserved(memo, false);
  const int64_t returned = reserved(memo, true) - without;
  memo.counts = {{0, 1}, {2, 1}};
  memo.prompt_ids = {1};
  EXPECT_GE(reserved(memo, false), without + kSamples * 3 * 32);
  EXPECT_GE(reserved(memo, true), without + returned + kSamples * 3 * (32 + 3 * 12));
  request_.mutable_sampling()->set_presence_penalty(1);
  request_.set_max_new_tokens(1000);
  EXPECT_GE(reserved(memo, false), without + kSamples * 1003 * 32);
  // More than there is: refused before a sample is made.
  request_.set_max_new_tokens(1);
  const int64_t needed = reserved(memo, true);
  calls::ByteReservation others(&budget_);
  ASSERT_TRUE(others.Grow(budget_.limit() - needed + 1));
  const size_t before = generator_.num_calls();
  Call call(generate_, request_);
  EXPECT_EQ(call.Finish().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(generator_.num_calls(), before);
}

TEST_F(GenerateCallTest, EveryFieldReachesTheGenerator) {
  models::DecodingMemo memo;
  memo.position = 7;
  const models::Model& model = *(*registry_.Find("lm", 0))->model;
  const kernels::StateArena::State state = SomeState(model);
  request_.set_state(model.state_codec().Encode(state, memo));
  request_.clear_prompt();
  request_.MergeFrom(Message<v1::GenerateRequest>(R"(
      sampling {
        temperature: 0.5 top_k: 3 top_p: 0.75 min_p: 0.25 seed: 0xFFFFFFFFFFFFFFFE
        repetition_penalty: 2 presence_penalty: -3 frequency_penalty: 4
        logit_bias { key: 3 value: -100 }
      }
      max_new_tokens: 9 min_new_tokens: 4 stop: 'stop' stop_token_ids: 1 num_samples: 5
      token_log_probs: true top_candidates: 2 return_state: true priority: PRIORITY_HIGH
      echo: true)"));
  const auto call = Start();
  const GenerateTask& task = generator_.task(0);
  EXPECT_TRUE(task.prompt.empty());
  ASSERT_NE(task.state, nullptr);
  EXPECT_EQ(task.state->memo.position, 7);
  EXPECT_EQ(task.state->state.values, state.values);
  EXPECT_EQ(task.sampling.temperature, 0.5f);
  EXPECT_EQ(task.sampling.top_k, 3);
  EXPECT_EQ(task.sampling.top_p, 0.75f);
  EXPECT_EQ(task.sampling.min_p, 0.25f);
  EXPECT_EQ(task.seed, 0xFFFFFFFFFFFFFFFEu);
  EXPECT_EQ(task.sampling.repetition_penalty, 2);
  EXPECT_EQ(task.sampling.presence_penalty, -3);
  EXPECT_EQ(task.sampling.frequency_penalty, 4);
  EXPECT_THAT(task.sampling.logit_bias, ElementsAre(std::pair(3, -100.0f)));
  EXPECT_EQ(task.max_new_tokens, 9);
  EXPECT_EQ(task.min_new_tokens, 4);
  EXPECT_THAT(task.stop, ElementsAre("stop"));
  EXPECT_THAT(task.stop_token_ids, ElementsAre(1));
  EXPECT_EQ(task.num_samples, 5);
  EXPECT_TRUE(task.token_log_probs);
  EXPECT_EQ(task.num_candidates, 2);
  EXPECT_TRUE(task.return_state);
  EXPECT_EQ(task.priority, batching::Priority::kHigh);
  EXPECT_TRUE(task.echo);
}

TEST_F(GenerateCallTest, WhatIsLeftOutHasADefault) {
  const auto call = Start();
  const auto again = Start();
  const GenerateTask& task = generator_.task(0);
  EXPECT_THAT(task.prompt, ElementsAre(2, 3));
  EXPECT_EQ(task.state, nullptr);
  EXPECT_EQ(task.max_new_tokens, 4096);
  EXPECT_EQ(task.num_samples, 1);
  EXPECT_EQ(task.priority, batching::Priority::kNormal);
  EXPECT_NE(task.seed, generator_.task(1).seed);
}

TEST_F(GenerateCallTest, FieldsThatAreWrong) {
  const v1::GenerateRequest good = request_;
  const auto repeated = [](const char* field, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) absl::StrAppend(&text, field, " ");
    return text;
  };
  for (const auto& [start, fields] : std::vector<std::pair<std::string, std::string>>{
           {"max_new_tokens: 4097 is out of range, expected 1 to 4096 (--max_new_tokens)",
            "max_new_tokens: 4097"},
           {"max_new_tokens: -1", "max_new_tokens: -1"},
           {"min_new_tokens: 6 is out of range, expected 0 to 5 (max_new_tokens)",
            "max_new_tokens: 5 min_new_tokens: 6"},
           {"min_new_tokens: -1", "min_new_tokens: -1"},
           {"sampling.temperature:", "sampling { temperature: -1 }"},
           {"sampling.temperature:", "sampling { temperature: nan }"},
           {"sampling.top_k:", "sampling { top_k: -1 }"},
           {"sampling.top_p:", "sampling { top_p: 1.5 }"},
           {"sampling.min_p:", "sampling { min_p: nan }"},
           {"sampling.repetition_penalty:", "sampling { repetition_penalty: -1 }"},
           {"sampling.presence_penalty:", "sampling { presence_penalty: 1000 }"},
           {"sampling.frequency_penalty:", "sampling { frequency_penalty: nan }"},
           {"sampling.logit_bias", "sampling { logit_bias { key: 5 value: 1 } }"},
           {"stop: 10000 strings are too many, expected at most 64", repeated("stop: 'a'", 10000)},
           {"stop[1]: 0 bytes, expected 1 to 1024", "stop: ['a', '']"},
           {"stop[0]: 1025 bytes", absl::StrCat("stop: '", std::string(1025, 'a'), "'")},
           {"stop_token_ids: 1025 are too many", repeated("stop_token_ids: 1", 1025)},
           {"stop_token_ids[1]: 5 is out of range, expected 0 to 4", "stop_token_ids: [4, 5]"},
           {"num_samples: 65 is out of range, expected 1 to 64", "num_samples: 65"},
           {"num_samples: -1", "num_samples: -1"},
           {"top_candidates: 6 is out of range, expected 0 to 5", "top_candidates: 6"},
           {"priority: 9 is unknown", "priority: 9"},
           {"prompt: empty", "prompt { text: '' }"},
           {"prompt.text: no tokens are left", "prompt { text: ' ' }"},
           {"prompt.token_ids.values[0]: 9 is out of range, expected 0 to 4",
            "prompt { token_ids { values: 9 } }"},
           {"prompt.features: the model takes text", "prompt { features { feature_size: 4 } }"},
           {"prompt.tokens.values: 2049 tokens are too many, expected at most 2048",
            absl::StrCat("prompt { tokens { ", repeated("values: 'a'", 2049), "} }")},
           {"state: 5 bytes that are not a state", "state: 'bytes'"},
       }) {
    request_ = good;
    request_.MergeFrom(Message<v1::GenerateRequest>(fields));
    ExpectError(absl::StatusCode::kInvalidArgument, start);
  }
  request_ = good;
  request_.clear_prompt();
  ExpectError(absl::StatusCode::kInvalidArgument,
              "prompt: empty, expected at least one token, or a state");
  request_ = good;
  request_.set_model("trec");
  ExpectError(absl::StatusCode::kFailedPrecondition,
              "model: 'trec' has the task classifier, Generate needs a language_model");
  request_.set_model("nobody");
  ExpectError(absl::StatusCode::kNotFound, "model: 'nobody' is not loaded");
}

TEST_F(GenerateCallTest, ACallThatCouldHoldTooMuch) {
  request_.clear_prompt();
  const std::vector<int> ids(2048, 1);
  request_.mutable_prompt()->mutable_token_ids()->mutable_values()->Assign(ids.begin(), ids.end());
  request_.set_echo(true);
  request_.set_top_candidates(5);
  request_.set_num_samples(64);
  ExpectError(absl::StatusCode::kResourceExhausted, "memory: the call would take about");
}

}  // namespace
}  // namespace sru::server::tasks
