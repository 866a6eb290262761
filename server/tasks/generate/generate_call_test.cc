// Generate with a transport and a generator that do what the test says.
#include <cstdint>
#include <limits>
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
#include "models/sequence_state.h"
#include "server/base/clock.h"
#include "server/base/retry.h"
#include "server/base/side_threads.h"
#include "server/batching/engine.h"
#include "server/calls/message_cord.h"
#include "server/tasks/tasks.h"
#include "sru/v1/inference.pb.h"
#include "tests/testing/puppet_exchange.h"
#include "tests/testing/puppet_generator.h"
#include "tests/testing/test_files.h"

namespace sru::server::tasks {
namespace {

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
    context_.received = &received_;
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
  calls::ReceivedMessages received_;
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
  EXPECT_EQ(response.model(), "lm");
  EXPECT_EQ(response.version(), 1);
  EXPECT_EQ(response.text(), "one");
  EXPECT_THAT(response.token_ids(), ElementsAre(2));
  EXPECT_THAT(response.log_probs(), ElementsAre(-1.5f));
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_FALSE(response.has_times());

  chunk = Last(Chunk(" end", {3, 4}), FinishReason::kStop);
  chunk.state = "a state";
  generator_.Send(0, chunk);
  generator_.Finish(0, absl::OkStatus(), {absl::Milliseconds(3), absl::Milliseconds(5)});
  response = call->MustRead();
  EXPECT_EQ(response.text(), " end");
  EXPECT_EQ(response.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(response.state(), "a state");
  EXPECT_EQ(response.prompt_tokens(), 2);
  EXPECT_EQ(response.generated_tokens(), 5);
  EXPECT_EQ(response.times().queue_us(), 3000);
  EXPECT_EQ(response.times().compute_us(), 5000);
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
  EXPECT_EQ(response.candidates(1).candidates(0).token_id(), 4);
  EXPECT_EQ(response.candidates(1).candidates(0).text(), "c");
  EXPECT_EQ(response.candidates(1).candidates(0).log_prob(), -0.5f);
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
  kernels::StateArena::State state;
  for (const kernels::FieldSpec& field : model.As<models::LanguageModel>()->program.fields) {
    state.rows.push_back(1);
    state.values.insert(state.values.end(), field.width, 0.25f);
  }
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
  kernels::StateArena::State state;
  const models::Model& model = *(*registry_.Find("lm", 0))->model;
  for (const kernels::FieldSpec& field : model.As<models::LanguageModel>()->program.fields) {
    state.rows.push_back(1);
    state.values.insert(state.values.end(), field.width, 0.25f);
  }
  request_.set_state(model.state_codec().Encode(state, memo));
  request_.clear_prompt();
  v1::Sampling& sampling = *request_.mutable_sampling();
  sampling.set_temperature(0.5f);
  sampling.set_top_k(3);
  sampling.set_top_p(0.75f);
  sampling.set_min_p(0.25f);
  sampling.set_seed(0xFFFFFFFFFFFFFFFEu);
  sampling.set_repetition_penalty(2);
  sampling.set_presence_penalty(-3);
  sampling.set_frequency_penalty(4);
  (*sampling.mutable_logit_bias())[3] = -100;
  request_.set_max_new_tokens(9);
  request_.set_min_new_tokens(4);
  request_.add_stop("stop");
  request_.add_stop_token_ids(1);
  request_.set_num_samples(5);
  request_.set_token_log_probs(true);
  request_.set_top_candidates(2);
  request_.set_return_state(true);
  request_.set_priority(v1::PRIORITY_HIGH);
  request_.set_echo(true);
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
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto expect = [&](const std::string& start, const auto& change) {
    request_ = good;
    change(request_);
    ExpectError(absl::StatusCode::kInvalidArgument, start);
  };
  using Request = v1::GenerateRequest;
  expect("max_new_tokens: 4097 is out of range, expected 1 to 4096 (--max_new_tokens)",
         [](Request& r) { r.set_max_new_tokens(4097); });
  expect("max_new_tokens: -1", [](Request& r) { r.set_max_new_tokens(-1); });
  expect("min_new_tokens: 6 is out of range, expected 0 to 5 (max_new_tokens)", [](Request& r) {
    r.set_max_new_tokens(5);
    r.set_min_new_tokens(6);
  });
  expect("min_new_tokens: -1", [](Request& r) { r.set_min_new_tokens(-1); });
  expect("sampling.temperature:", [](Request& r) { r.mutable_sampling()->set_temperature(-1); });
  expect("sampling.temperature:", [&](Request& r) { r.mutable_sampling()->set_temperature(nan); });
  expect("sampling.top_k:", [](Request& r) { r.mutable_sampling()->set_top_k(-1); });
  expect("sampling.top_p:", [](Request& r) { r.mutable_sampling()->set_top_p(1.5f); });
  expect("sampling.min_p:", [&](Request& r) { r.mutable_sampling()->set_min_p(nan); });
  expect("sampling.repetition_penalty:",
         [](Request& r) { r.mutable_sampling()->set_repetition_penalty(-1); });
  expect("sampling.presence_penalty:",
         [](Request& r) { r.mutable_sampling()->set_presence_penalty(1000); });
  expect("sampling.frequency_penalty:",
         [&](Request& r) { r.mutable_sampling()->set_frequency_penalty(nan); });
  expect("sampling.logit_bias",
         [](Request& r) { (*r.mutable_sampling()->mutable_logit_bias())[5] = 1; });
  expect("stop: 10000 strings are too many, expected at most 64", [](Request& r) {
    for (int i = 0; i < 10000; ++i) r.add_stop(absl::StrCat("stop ", i));
  });
  expect("stop[1]: 0 bytes, expected 1 to 1024", [](Request& r) {
    r.add_stop("a");
    r.add_stop("");
  });
  expect("stop[0]: 1025 bytes", [](Request& r) { r.add_stop(std::string(1025, 'a')); });
  expect("stop_token_ids: 1025 are too many", [](Request& r) {
    for (int i = 0; i < 1025; ++i) r.add_stop_token_ids(1);
  });
  expect("stop_token_ids[1]: 5 is out of range, expected 0 to 4", [](Request& r) {
    r.add_stop_token_ids(4);
    r.add_stop_token_ids(5);
  });
  expect("num_samples: 65 is out of range, expected 1 to 64",
         [](Request& r) { r.set_num_samples(65); });
  expect("num_samples: -1", [](Request& r) { r.set_num_samples(-1); });
  expect("top_candidates: 6 is out of range, expected 0 to 5",
         [](Request& r) { r.set_top_candidates(6); });
  expect("priority: 9 is unknown",
         [](Request& r) { r.set_priority(static_cast<v1::Priority>(9)); });
  expect("prompt: empty, expected at least one token, or a state",
         [](Request& r) { r.clear_prompt(); });
  expect("prompt: empty", [](Request& r) { r.mutable_prompt()->set_text(""); });
  expect("prompt.text: no tokens are left", [](Request& r) { r.mutable_prompt()->set_text(" "); });
  expect("prompt.token_ids.values[0]: 9 is out of range, expected 0 to 4",
         [](Request& r) { r.mutable_prompt()->mutable_token_ids()->add_values(9); });
  expect("prompt.features: the model takes text",
         [](Request& r) { r.mutable_prompt()->mutable_features()->set_feature_size(4); });
  expect("prompt.tokens.values: 2049 tokens are too many, expected at most 2048", [](Request& r) {
    for (int i = 0; i < 2049; ++i) r.mutable_prompt()->mutable_tokens()->add_values("a");
  });
  expect("state: 5 bytes that are not a state", [](Request& r) { r.set_state("bytes"); });
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
