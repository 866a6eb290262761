#include "server/telemetry/history.h"

#include <cmath>
#include <string>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/telemetry/metrics.h"

namespace sru::server::telemetry {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pair;

class HistoryTest : public ::testing::Test {
 protected:
  // Takes a sample `seconds` after the last one.
  void Sample(double seconds = 2) {
    time_ += absl::Seconds(seconds);
    history_.Add({time_, metrics_.Collect(levels_)});
  }
  void Call(absl::StatusCode code, absl::Duration total, ModelMetrics* model,
            calls::MethodId method = calls::MethodId::kClassify) {
    CallTimes times;
    times.total = total;
    times.compute = total / 2;
    model->OnCall(method, code, times);
  }
  // The newest figure of this name.
  float Now(const std::string& name, const History::Key& key = {}) {
    for (size_t i = 0; i < History::kNumFigures; ++i) {
      if (History::NameOf(i) == name) return history_.Latest().at(key)[i];
    }
    ADD_FAILURE() << "there is no figure " << name;
    return 0;
  }

  RealClock clock_;
  Metrics metrics_{&clock_};
  ServerLevels levels_;
  absl::Time time_ = absl::FromUnixSeconds(1000);
  History history_;
};

TEST_F(HistoryTest, FiguresAreThoseSinceTheSampleBefore) {
  const auto a = metrics_.ForModel("a", 1, 1000);
  const auto b = metrics_.ForModel("b", 2, 1000);
  const History::Key of_a("a", "1");
  Call(absl::StatusCode::kOk, absl::Seconds(9), a.get());
  Sample();
  EXPECT_TRUE(std::isnan(Now("calls"))) << "nobody knows since when";

  for (int i = 0; i < 6; ++i) Call(absl::StatusCode::kOk, absl::Milliseconds(1.5), a.get());
  for (int i = 0; i < 2; ++i) Call(absl::StatusCode::kInternal, absl::Seconds(5), b.get());
  a->OnBatch(4, 500, absl::Milliseconds(1), absl::OkStatus());
  a->OnBatch(2, 100, absl::Milliseconds(3), absl::OkStatus());
  levels_.requests_in_flight = 7;
  Sample();
  EXPECT_FLOAT_EQ(Now("calls"), 4);
  EXPECT_FLOAT_EQ(Now("calls", of_a), 3);
  EXPECT_FLOAT_EQ(Now("errors"), 1);
  EXPECT_FLOAT_EQ(Now("errors", of_a), 0);
  EXPECT_FLOAT_EQ(Now("errors", {"b", "2"}), 1);
  EXPECT_THAT(Now("p99"), FloatNear(0.002, 0.0002)) << "in the bucket from 1 to 2 ms";
  EXPECT_TRUE(std::isnan(Now("p99", {"b", "2"}))) << "no call of it was answered with OK";
  EXPECT_FLOAT_EQ(Now("batch"), 3);
  EXPECT_FLOAT_EQ(Now("fill"), 0.3);
  EXPECT_FLOAT_EQ(Now("compute"), 0.002);
  EXPECT_FLOAT_EQ(Now("in_flight"), 7);

  Sample();
  EXPECT_FLOAT_EQ(Now("calls"), 0);
  EXPECT_TRUE(std::isnan(Now("p50")));
}

TEST_F(HistoryTest, TextsThatLastAsLongAsCallersWantAreNoLatency) {
  const auto model = metrics_.ForModel("lm", 1, 1000);
  Sample();
  Call(absl::StatusCode::kOk, absl::Seconds(8), model.get(), calls::MethodId::kGenerate);
  Call(absl::StatusCode::kOk, absl::Milliseconds(1.5), model.get(), calls::MethodId::kScore);
  model->OnFirstToken(absl::Milliseconds(15));
  Sample();
  EXPECT_LE(Now("p99"), 0.002);
  EXPECT_THAT(Now("first_p50"), FloatNear(0.015, 0.006));
}

TEST_F(HistoryTest, KeepsTenMinutesAndTheModelsThatAreThere) {
  auto early = metrics_.ForModel("early", 1, 1000);
  for (size_t i = 0; i < History::kSamples + 5; ++i) Sample();
  const auto late = metrics_.ForModel("late", 1, 1000);
  Sample();
  Sample();
  const std::vector<History::Point> all = history_.Of({});
  ASSERT_EQ(all.size(), History::kSamples);
  EXPECT_EQ(all.back().first, time_);
  EXPECT_EQ(all.front().first, time_ - absl::Seconds(2) * (History::kSamples - 1));
  EXPECT_THAT(history_.Of({"late", "1"}),
              ElementsAre(Pair(time_ - absl::Seconds(2), _), Pair(time_, _)));
  EXPECT_EQ(history_.Of({"early", "1"}).size(), History::kSamples);

  // Without its counts the sum of all is smaller, but nobody has taken calls back.
  for (int i = 0; i < 8; ++i) Call(absl::StatusCode::kOk, absl::Milliseconds(1), early.get());
  Sample();
  early.reset();
  Sample();
  EXPECT_FLOAT_EQ(Now("calls"), 0);
  EXPECT_TRUE(history_.Of({"early", "1"}).empty());
  EXPECT_TRUE(history_.Of({"never", "1"}).empty());
}

TEST_F(HistoryTest, MemoryIsBounded) {
  std::vector<std::shared_ptr<ModelMetrics>> models;
  for (size_t i = 0; i < History::kMostModels + 10; ++i) {
    models.push_back(metrics_.ForModel("m" + std::to_string(i), 1, 1000));
    Call(absl::StatusCode::kOk, absl::Milliseconds(1), models.back().get());
  }
  Sample();
  EXPECT_EQ(history_.Latest().size(), History::kMostModels + 1);
}

TEST_F(HistoryTest, TakesSamplesByItself) {
  absl::Notification taken;
  history_.Start([&] {
    if (!taken.HasBeenNotified()) taken.Notify();
    return History::Sample(time_, metrics_.Collect(levels_));
  });
  taken.WaitForNotification();
  history_.Stop();
  EXPECT_EQ(history_.Of({}).size(), 1u);
}

}  // namespace
}  // namespace sru::server::telemetry
