#include "client/resume_generate.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/rpc/retry.pb.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Status kDraining = absl::UnavailableError("the server is shutting down");

// What one call is to do: how many tokens of each sample it generates before it stops with
// `status`; whether the samples then have states.
struct Step {
  int tokens = 1000;
  absl::Status status;
  bool states = true;
};

// Replicas of a model whose token at position p of sample s is 100 s + p, and whose state is the
// position.
class Replicas {
 public:
  explicit Replicas(std::vector<Step> steps) : steps_(std::move(steps)) {}

  absl::Status Run(const v1::GenerateRequest& request, int max_attempts = 4) {
    return ResumeGenerate(
        request, max_attempts,
        [this](const v1::GenerateRequest& part, TakeGenerated take) { return Call(part, take); },
        [this](absl::Duration wait) { waits.push_back(wait); },
        [this](v1::GenerateResponse* response) {
          if (samples.size() <= static_cast<size_t>(response->sample())) {
            samples.resize(response->sample() + 1);
          }
          samples[response->sample()].MergeFrom(*response);
          ++messages;
          return messages < enough;
        });
  }

  std::vector<v1::GenerateRequest> requests;
  std::vector<v1::GenerateResponse> samples;  // all messages of each, merged
  std::vector<absl::Duration> waits;
  int messages = 0;
  int enough = 1000000;

 private:
  absl::Status Call(const v1::GenerateRequest& request, TakeGenerated take) {
    const Step step = requests.size() < steps_.size() ? steps_[requests.size()] : Step();
    requests.push_back(request);
    const int start = request.state().empty() ? 0 : std::stoi(request.state());
    const int prompt = static_cast<int>(request.prompt().token_ids().values_size());
    const int wanted = request.max_new_tokens();
    for (int t = 0; t < wanted && t < step.tokens; ++t) {
      for (int s = 0; s < std::max(1, request.num_samples()); ++s) {
        v1::GenerateResponse response;
        response.set_version(5);
        response.set_sample(s);
        const int position = start + prompt + t;
        response.add_token_ids(100 * s + position);
        response.set_text(absl::StrCat(position, " "));
        const bool last = t + 1 == wanted;
        const bool stopped = !last && t + 1 == step.tokens;
        if (last) response.set_finish_reason(v1::FINISH_REASON_LENGTH);
        if (last || (stopped && step.states)) {
          if (stopped || request.return_state()) response.set_state(absl::StrCat(position + 1));
          response.set_prompt_tokens(prompt);
          response.set_generated_tokens(t + 1);
        }
        if (!take(&response)) return absl::CancelledError("enough");
      }
    }
    return step.status;
  }

  const std::vector<Step> steps_;
};

v1::GenerateRequest Request(int max_new_tokens, int num_samples = 0) {
  v1::GenerateRequest request;
  request.set_model("m");
  for (int i = 0; i < 3; ++i) request.mutable_prompt()->mutable_token_ids()->add_values(i);
  request.set_max_new_tokens(max_new_tokens);
  request.set_num_samples(num_samples);
  return request;
}

TEST(ResumeGenerateTest, AnUninterruptedCallIsPassedOn) {
  Replicas replicas({});
  v1::GenerateRequest request = Request(2);
  request.set_return_state(true);
  EXPECT_TRUE(replicas.Run(request).ok());
  ASSERT_EQ(replicas.requests.size(), 1u);
  EXPECT_EQ(replicas.requests[0].SerializeAsString(), request.SerializeAsString());
  ASSERT_EQ(replicas.samples.size(), 1u);
  EXPECT_THAT(replicas.samples[0].token_ids(), ElementsAre(3, 4));
  EXPECT_EQ(replicas.samples[0].state(), "5");
  EXPECT_EQ(replicas.samples[0].generated_tokens(), 2);
  EXPECT_EQ(replicas.samples[0].prompt_tokens(), 3);
}

TEST(ResumeGenerateTest, GoesOnFromTheStateOfAServerThatDrains) {
  Replicas replicas({{2, kDraining}, {1, kDraining}});
  v1::GenerateRequest request = Request(6);
  request.set_min_new_tokens(3);
  request.set_echo(true);
  ASSERT_TRUE(replicas.Run(request).ok());
  ASSERT_EQ(replicas.requests.size(), 3u);
  const v1::GenerateRequest& second = replicas.requests[1];
  EXPECT_EQ(second.state(), "5");
  EXPECT_EQ(second.model(), "m");
  EXPECT_EQ(second.version(), 5);
  EXPECT_FALSE(second.has_prompt());
  EXPECT_FALSE(second.echo());
  EXPECT_EQ(second.max_new_tokens(), 4);
  EXPECT_EQ(second.min_new_tokens(), 1);
  EXPECT_EQ(replicas.requests[2].max_new_tokens(), 3);
  EXPECT_EQ(replicas.requests[2].min_new_tokens(), 0);
  const v1::GenerateResponse& all = replicas.samples[0];
  EXPECT_THAT(all.token_ids(), ElementsAre(3, 4, 5, 6, 7, 8));
  EXPECT_EQ(all.finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(all.prompt_tokens(), 3);
  EXPECT_EQ(all.generated_tokens(), 6);
  EXPECT_THAT(all.state(), IsEmpty());  // nobody asked for it
}

TEST(ResumeGenerateTest, EachSampleGoesOnFromItsOwnState) {
  Replicas replicas({{2, kDraining}});
  v1::GenerateRequest request = Request(4, 3);
  request.mutable_sampling()->set_temperature(1);
  request.mutable_sampling()->set_seed(7);
  ASSERT_TRUE(replicas.Run(request).ok());
  // One call for all, one for the rest of each.
  ASSERT_EQ(replicas.requests.size(), 4u);
  for (int s = 0; s < 3; ++s) {
    EXPECT_EQ(replicas.requests[1 + s].num_samples(), s + 1);
    EXPECT_EQ(replicas.requests[1 + s].sampling().seed(), 7u);
    EXPECT_THAT(replicas.samples[s].token_ids(),
                ElementsAre(100 * s + 3, 100 * s + 4, 100 * s + 5, 100 * s + 6));
    EXPECT_EQ(replicas.samples[s].generated_tokens(), 4);
  }
}

TEST(ResumeGenerateTest, SamplesOfAGreedyTextAreEqual) {
  Replicas replicas({{1, kDraining}});
  ASSERT_TRUE(replicas.Run(Request(2, 2)).ok());
  ASSERT_EQ(replicas.requests.size(), 3u);
  EXPECT_EQ(replicas.requests[2].num_samples(), 1);
  EXPECT_EQ(replicas.samples[1].token_ids_size(), 2);
}

// Otherwise the rest would be that of another text.
TEST(ResumeGenerateTest, ATextWithoutASeedGetsOneThatItKeeps) {
  Replicas replicas({{2, kDraining}});
  v1::GenerateRequest request = Request(4);
  request.mutable_sampling()->set_temperature(0.5);
  ASSERT_TRUE(replicas.Run(request).ok());
  ASSERT_EQ(replicas.requests.size(), 2u);
  ASSERT_TRUE(replicas.requests[0].sampling().has_seed());
  EXPECT_EQ(replicas.requests[0].sampling().seed(), replicas.requests[1].sampling().seed());
  EXPECT_LT(replicas.requests[0].sampling().seed(), uint64_t{1} << 53);
}

TEST(ResumeGenerateTest, GivesUpAfterCallsWithoutAToken) {
  Replicas replicas(
      {{2, kDraining}, {0, kDraining}, {1, kDraining}, {0, kDraining}, {0, kDraining}});
  EXPECT_EQ(replicas.Run(Request(9), /*max_attempts=*/2), kDraining);
  EXPECT_EQ(replicas.requests.size(), 5u);
  EXPECT_THAT(replicas.samples[0].token_ids(), ElementsAre(3, 4, 5));
}

TEST(ResumeGenerateTest, OneAttemptMeansNoOther) {
  Replicas replicas({{2, kDraining}});
  EXPECT_EQ(replicas.Run(Request(4), /*max_attempts=*/1), kDraining);
  EXPECT_EQ(replicas.requests.size(), 1u);
}

TEST(ResumeGenerateTest, WithoutAStateThereIsNothingToGoOnFrom) {
  Replicas replicas({{2, kDraining, /*states=*/false}});
  EXPECT_EQ(replicas.Run(Request(4)), kDraining);
  EXPECT_EQ(replicas.requests.size(), 1u);
}

TEST(ResumeGenerateTest, ATextThatHasNotBegunBeginsElsewhere) {
  Replicas replicas({{0, kDraining}});
  v1::GenerateRequest request = Request(4);
  request.set_version(2);
  EXPECT_TRUE(replicas.Run(request).ok());
  ASSERT_EQ(replicas.requests.size(), 2u);
  EXPECT_EQ(replicas.requests[1].version(), 2) << "the caller has named it";
  EXPECT_EQ(replicas.requests[1].prompt().token_ids().values_size(), 3);
  EXPECT_EQ(replicas.samples[0].token_ids_size(), 4);
}

TEST(ResumeGenerateTest, OtherErrorsEndTheText) {
  Replicas replicas({{2, absl::DeadlineExceededError("late")}});
  EXPECT_EQ(replicas.Run(Request(4)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(replicas.requests.size(), 1u);
}

TEST(ResumeGenerateTest, WaitsForABusyServerOnlyWhenItGoesOn) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_nanos(30000000);
  absl::Status busy = absl::ResourceExhaustedError("busy");
  busy.SetPayload("type.googleapis.com/google.rpc.RetryInfo", absl::Cord(info.SerializeAsString()));
  Replicas resumed({{2, kDraining}, {0, busy}});
  EXPECT_TRUE(resumed.Run(Request(4)).ok());
  EXPECT_THAT(resumed.waits, ElementsAre(absl::Milliseconds(30)));
  EXPECT_EQ(resumed.samples[0].token_ids_size(), 4);
  Replicas fresh({{0, busy}});
  EXPECT_EQ(fresh.Run(Request(4)).code(), absl::StatusCode::kResourceExhausted);
}

TEST(ResumeGenerateTest, TheCallerMayHaveEnough) {
  Replicas replicas({});
  replicas.enough = 2;
  EXPECT_EQ(replicas.Run(Request(4)).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(replicas.samples[0].token_ids_size(), 2);
}

TEST(ResumeGenerateTest, AnswersThatMakeNoSense) {
  const auto run = [](const std::function<void(TakeGenerated)>& answer) {
    return ResumeGenerate(
        Request(4), 4,
        [&](const v1::GenerateRequest&, TakeGenerated take) {
          answer(take);
          return absl::OkStatus();
        },
        [](absl::Duration) {}, [](v1::GenerateResponse*) { return true; });
  };
  v1::GenerateResponse response;
  absl::Status status = run([](TakeGenerated) {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sample 0 has no finish_reason"));
  response.set_sample(1);
  status = run([&](TakeGenerated take) { take(&response); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("the answer has sample 1 of 1"));
  response.set_sample(0);
  response.set_finish_reason(v1::FINISH_REASON_STOP);
  status = run([&](TakeGenerated take) {
    if (take(&response)) take(&response);
  });
  EXPECT_THAT(std::string(status.message()), HasSubstr("goes on after its finish_reason"));
}

}  // namespace
}  // namespace sru::client
