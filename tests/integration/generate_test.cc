// Generate over the wire with the bundled language model: known texts, the same tokens however they
// are asked for, and clients that are slow, late or gone.
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/integration/unread_call.h"
#include "tests/testing/checkpoints.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/poll.h"

namespace sru::testing {
namespace {

using ::grpc::StatusCode;
using ::testing::HasSubstr;

constexpr char kModel[] = "war_and_peace";
constexpr char kPrompt[] = "Prince Andrew looked at ";
constexpr char kUsedSlots[] =
    "sru_state_slots{model=\"war_and_peace\",version=\"1\",kind=\"used\"}";

// What a call has sent of one sample.
struct Text {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<float> log_probs;
  std::vector<v1::Candidates> candidates;
  v1::FinishReason finish = v1::FINISH_REASON_UNSPECIFIED;
  std::string state;
  int prompt_tokens = 0;
  int generated_tokens = 0;
};

class GenerateTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new RunningServer(Options()); }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static server::Options Options() {
    server::Options options = TestOptions(kBundledRepository);
    options.rpc.limits.max_new_tokens = 1 << 20;
    return options;
  }

  static v1::GenerateRequest Request(const std::string& prompt, int tokens) {
    v1::GenerateRequest request;
    request.set_model(kModel);
    if (!prompt.empty()) request.mutable_prompt()->set_text(prompt);
    request.set_max_new_tokens(tokens);
    return request;
  }
  static v1::GenerateRequest Sampled(const std::string& prompt, int tokens, uint64_t seed) {
    v1::GenerateRequest request = Request(prompt, tokens);
    request.mutable_sampling()->set_temperature(0.9f);
    request.mutable_sampling()->set_top_k(20);
    request.mutable_sampling()->set_repetition_penalty(1.1f);
    request.mutable_sampling()->set_seed(seed);
    return request;
  }

  // Adds what comes to `texts`, and returns how the call ended.
  static grpc::Status Generate(RunningServer& server, const v1::GenerateRequest& request,
                               std::vector<Text>* texts,
                               absl::Duration timeout = absl::Seconds(60)) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(timeout));
    const auto reader = server.stub().Generate(&context, request);
    texts->assign(std::max(request.num_samples(), 1), Text());
    v1::GenerateResponse response;
    while (reader->Read(&response)) {
      Text& text = (*texts)[response.sample()];
      text.text += response.text();
      text.ids.insert(text.ids.end(), response.token_ids().begin(), response.token_ids().end());
      text.log_probs.insert(text.log_probs.end(), response.log_probs().begin(),
                            response.log_probs().end());
      text.candidates.insert(text.candidates.end(), response.candidates().begin(),
                             response.candidates().end());
      text.finish = response.finish_reason();
      text.state = response.state();
      text.prompt_tokens = response.prompt_tokens();
      text.generated_tokens = response.generated_tokens();
    }
    return reader->Finish();
  }
  static Text MustGenerate(RunningServer& server, const v1::GenerateRequest& request) {
    std::vector<Text> texts;
    const grpc::Status status = Generate(server, request, &texts);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return texts[0];
  }
  static Text MustGenerate(const v1::GenerateRequest& request) {
    return MustGenerate(*server_, request);
  }

  static void ExpectNothingLeft(RunningServer& server) {
    EXPECT_TRUE(server.Becomes("sru_open_streams", 0));
    EXPECT_TRUE(server.Becomes(kUsedSlots, 0));
    server.ExpectIdle();
  }

  static inline RunningServer* server_ = nullptr;
};

TEST_F(GenerateTest, TheMostProbableTextsAreThoseOfTheCheckpoint) {
  const auto path = CheckpointsDirectory() / "lm_war_and_peace" / "expected.jsonl";
  std::ifstream file(path);
  if (!file) {
    GTEST_SKIP() << path << " is absent; set SRU_SHARED_DIR to the directory that has it";
  }
  int texts = 0;
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json expected = nlohmann::json::parse(line);
    if (expected["kind"] != "generate") continue;
    const auto log_probs = expected["log_probs"].get<std::vector<float>>();
    v1::GenerateRequest request =
        Request(expected["prompt"].get<std::string>(), static_cast<int>(log_probs.size()));
    request.set_token_log_probs(true);
    const Text text = MustGenerate(request);
    EXPECT_EQ(text.text, expected["continuation"].get<std::string>());
    EXPECT_EQ(text.finish, v1::FINISH_REASON_LENGTH);
    EXPECT_EQ(text.generated_tokens, static_cast<int>(log_probs.size()));
    ASSERT_EQ(text.log_probs.size(), log_probs.size());
    for (size_t i = 0; i < log_probs.size(); ++i) {
      EXPECT_NEAR(text.log_probs[i], log_probs[i], 2e-4) << i;
    }
    ++texts;
  }
  EXPECT_EQ(texts, 20);
}

TEST_F(GenerateTest, ASeedGivesTheSameTextAloneAndUnderLoad) {
  const Text alone = MustGenerate(Sampled(kPrompt, 80, 7));
  EXPECT_EQ(alone.ids.size(), 80);
  EXPECT_NE(MustGenerate(Sampled(kPrompt, 80, 8)).ids, alone.ids);
  std::vector<Text> again(4);
  InThreads(8, [&again](int i) {
    if (i < 4) {
      again[i] = MustGenerate(Sampled(kPrompt, 80, 7));
    } else {
      MustGenerate(Sampled(std::string(static_cast<size_t>(i) * 31, 'a'), 60 + i, i));
    }
  });
  for (const Text& text : again) {
    EXPECT_EQ(text.ids, alone.ids);
    EXPECT_EQ(text.text, alone.text);
  }
  ExpectNothingLeft(*server_);
}

TEST_F(GenerateTest, ATextThatIsResumedGoesOnAsIfItHadNeverStopped) {
  constexpr int kTokens = 90;
  const Text whole = MustGenerate(Sampled(kPrompt, kTokens, 3));
  std::mt19937 random(5);
  for (int round = 0; round < 12; ++round) {
    Text parts;
    std::string state;
    for (int left = kTokens; left > 0;) {
      const int tokens = 1 + static_cast<int>(random() % left);
      v1::GenerateRequest request = Sampled(state.empty() ? kPrompt : "", tokens, 3);
      request.set_state(state);
      request.set_return_state(true);
      const Text part = MustGenerate(request);
      EXPECT_EQ(part.ids.size(), tokens);
      parts.ids.insert(parts.ids.end(), part.ids.begin(), part.ids.end());
      parts.text += part.text;
      state = part.state;
      ASSERT_FALSE(state.empty());
      left -= tokens;
    }
    EXPECT_EQ(parts.ids, whole.ids);
    EXPECT_EQ(parts.text, whole.text);
  }
}

TEST_F(GenerateTest, AStopStringEndsTheTextWhereverTokensEnd) {
  const Text whole = MustGenerate(Request(kPrompt, 120));
  // The model's tokens are bytes: every longer string lies across their borders.
  const std::string stop = whole.text.substr(40, 7);
  const size_t at = whole.text.find(stop);
  v1::GenerateRequest request = Request(kPrompt, 120);
  request.add_stop("this does not come");
  request.add_stop(stop);
  const Text stopped = MustGenerate(request);
  EXPECT_EQ(stopped.text, whole.text.substr(0, at));
  EXPECT_EQ(stopped.finish, v1::FINISH_REASON_STOP);
  EXPECT_EQ(stopped.ids.size(), at + stop.size());
  request.set_min_new_tokens(120);
  EXPECT_EQ(MustGenerate(request).text, whole.text);
}

TEST_F(GenerateTest, AnEchoHasTheLogProbabilitiesOfAScore) {
  v1::ScoreRequest score_request;
  score_request.set_model(kModel);
  score_request.add_sequences()->set_text(kPrompt);
  score_request.set_token_log_probs(true);
  score_request.set_top_candidates(3);
  const v1::ScoreResponse scores = server_->Must(score_request);
  const v1::Score& score = scores.scores(0);
  v1::GenerateRequest request = Request(kPrompt, 10);
  request.set_echo(true);
  request.set_token_log_probs(true);
  request.set_top_candidates(3);
  const Text text = MustGenerate(request);
  const size_t prompt_size = std::string(kPrompt).size();
  EXPECT_EQ(text.text.substr(0, prompt_size), kPrompt);
  ASSERT_EQ(text.ids.size(), prompt_size + 10);
  ASSERT_EQ(text.log_probs.size(), text.ids.size());
  ASSERT_EQ(text.candidates.size(), text.ids.size());
  EXPECT_EQ(text.log_probs[0], 0);
  EXPECT_EQ(text.candidates[0].candidates_size(), 0);
  EXPECT_EQ(text.prompt_tokens, static_cast<int>(prompt_size));
  for (size_t i = 1; i < text.ids.size(); ++i) {
    ASSERT_EQ(text.candidates[i].candidates_size(), 3);
    if (i < prompt_size) {
      const int scored = static_cast<int>(i) - 1;
      EXPECT_EQ(text.log_probs[i], score.token_log_probs(scored));
      EXPECT_EQ(text.candidates[i].SerializeAsString(),
                score.candidates(scored).SerializeAsString());
    } else {  // the most probable token was picked
      EXPECT_EQ(text.candidates[i].candidates(0).token_id(), text.ids[i]);
      EXPECT_EQ(text.candidates[i].candidates(0).log_prob(), text.log_probs[i]);
    }
  }
}

TEST_F(GenerateTest, SamplesDifferAndDoNotDependOnEachOther) {
  v1::GenerateRequest request = Sampled(kPrompt, 40, 11);
  request.set_num_samples(4);
  std::vector<Text> four;
  ASSERT_TRUE(Generate(*server_, request, &four).ok());
  request.set_num_samples(2);
  std::vector<Text> two;
  ASSERT_TRUE(Generate(*server_, request, &two).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(four[i].ids.size(), 40);
    EXPECT_EQ(four[i].finish, v1::FINISH_REASON_LENGTH);
    if (i < 2) {
      EXPECT_EQ(two[i].ids, four[i].ids);
    }
    for (int k = 0; k < i; ++k) EXPECT_NE(four[k].ids, four[i].ids);
  }
  ExpectNothingLeft(*server_);
}

TEST_F(GenerateTest, ADrainGivesAStateWithWhichAnotherServerGoesOn) {
  server::Options options = Options();
  options.drain_timeout = absl::Milliseconds(300);
  RunningServer first(options);
  constexpr int kMany = 1 << 20;
  std::vector<Text> cut;
  grpc::Status status;
  std::thread client([&] { status = Generate(first, Sampled(kPrompt, kMany, 5), &cut); });
  EXPECT_TRUE(PollUntil([&] {
    return first.Metric("sru_generated_tokens_total{model=\"war_and_peace\",version=\"1\"}") > 20;
  }));
  EXPECT_FALSE(first.server().Drain());
  client.join();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  const Text& begun = cut[0];
  ASSERT_GT(begun.ids.size(), 20);
  EXPECT_EQ(begun.finish, v1::FINISH_REASON_UNSPECIFIED);
  ASSERT_FALSE(begun.state.empty());
  v1::GenerateRequest rest_request = Sampled("", 50, 5);
  rest_request.set_state(begun.state);
  const Text rest = MustGenerate(rest_request);
  const Text whole = MustGenerate(Sampled(kPrompt, static_cast<int>(begun.ids.size()) + 50, 5));
  std::vector<int32_t> ids = begun.ids;
  ids.insert(ids.end(), rest.ids.begin(), rest.ids.end());
  EXPECT_EQ(ids, whole.ids);
  EXPECT_EQ(begun.text + rest.text, whole.text);
}

TEST_F(GenerateTest, AClientThatNeverReadsIsPausedAndThenGivenUp) {
  server::Options options = Options();
  options.memory.send_timeout = absl::Seconds(1);
  if (options.transport.transport == server::door::GrpcTransport::kLibrary) {
    GTEST_SKIP() << "gRPC's library keeps answers for any length of time";
  }
  RunningServer server(options);
  UnreadCall unread(server.port(), "/sru.v1.InferenceService/Generate",
                    Request(kPrompt, 1 << 20).SerializeAsString());
  EXPECT_TRUE(
      server.Becomes("sru_generate_calls{model=\"war_and_peace\",version=\"1\",state="
                     "\"paused\"}",
                     1));
  const double tokens =
      server.Metric("sru_generated_tokens_total{model=\"war_and_peace\",version=\"1\"}");
  EXPECT_LT(tokens, 200);
  EXPECT_TRUE(unread.IsClosedByServer());
  ExpectNothingLeft(server);
  EXPECT_EQ(server.Metric("sru_answers_not_taken_total"), 1);
  EXPECT_EQ(server.Metric("sru_generated_tokens_total{model=\"war_and_peace\",version=\"1\"}"),
            tokens);
}

TEST_F(GenerateTest, ACancelledCallFreesItsSlot) {
  grpc::ClientContext context;
  const auto reader = server_->stub().Generate(&context, Request(kPrompt, 1 << 20));
  v1::GenerateResponse response;
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(reader->Read(&response));
  EXPECT_EQ(server_->Metric(kUsedSlots), 1);
  context.TryCancel();
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  ExpectNothingLeft(*server_);
}

TEST_F(GenerateTest, ADeadlineMayPassBetweenTwoTokens) {
  std::vector<Text> texts;
  const grpc::Status status =
      Generate(*server_, Request(kPrompt, 1 << 20), &texts, absl::Milliseconds(500));
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_GT(texts[0].ids.size(), 0);
  ExpectNothingLeft(*server_);
}

TEST_F(GenerateTest, CallsAreCountedAndTimed) {
  const std::string labels = "{model=\"war_and_peace\",version=\"1\"}";
  const double first = server_->Metric("sru_time_to_first_token_seconds_count" + labels);
  const double next = server_->Metric("sru_inter_token_seconds_count" + labels);
  const double tokens = server_->Metric("sru_generated_tokens_total" + labels);
  MustGenerate(Request(kPrompt, 30));
  EXPECT_EQ(server_->Metric("sru_time_to_first_token_seconds_count" + labels), first + 1);
  EXPECT_EQ(server_->Metric("sru_inter_token_seconds_count" + labels), next + 29);
  EXPECT_EQ(server_->Metric("sru_generated_tokens_total" + labels), tokens + 30);
  EXPECT_GE(server_->Metric("sru_requests_total{code=\"OK\",method=\"Generate\",model=\"war_and_"
                            "peace\",version=\"1\"}"),
            1);
}

}  // namespace
}  // namespace sru::testing
