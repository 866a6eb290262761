// Devices that fail under the engine: fake runners on fake devices and real threads. Nothing
// sleeps: a device fails when the test says so, and a runner computes when the test lets it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "server/batching/batch_runner.h"
#include "server/batching/engine.h"
#include "server/batching/worker_pool.h"
#include "server/tasks/tasks.h"
#include "tests/testing/engine_call.h"
#include "tests/testing/failing_backend.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

using ::sru::testing::FailingBackend;
using ::sru::testing::FailingDevices;
using ::sru::testing::InThreads;
using ::sru::testing::kFailingWorkspaceBytes;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Shared by the runners of a test: which devices fail, which hold their batches, and what ran
// where.
class Devices {
 public:
  static constexpr int32_t kBreaksDevices = 666;  // a token id that no device survives
  static constexpr int32_t kInvalid = 667;
  static constexpr int32_t kBreaksOneAlone = 668;  // the first device that runs it by itself

  void Break(int device) {
    MutexLock lock(&mutex_);
    broken_[device] = true;
  }
  // Batches on the device wait until Release().
  void Hold(int device) {
    MutexLock lock(&mutex_);
    held_[device] = true;
  }
  void Release(int device) {
    MutexLock lock(&mutex_);
    held_[device] = false;
    changed_.SignalAll();
  }
  void AwaitRunning(int device, int count) {
    MutexLock lock(&mutex_);
    while (running_[device] < count) changed_.Wait(&mutex_);
  }
  absl::Status WarmUp(int device) {
    MutexLock lock(&mutex_);
    if (broken_[device]) return absl::UnavailableError(absl::StrCat("device ", device, " died"));
    return absl::OkStatus();
  }
  // "device:name" of the first sequence of each batch, in the order in which they ended.
  std::vector<std::string> runs() {
    MutexLock lock(&mutex_);
    return runs_;
  }

  absl::Status Run(int device, const std::vector<const SequenceTask*>& sequences) {
    MutexLock lock(&mutex_);
    ++running_[device];
    changed_.SignalAll();
    while (held_[device]) changed_.Wait(&mutex_);
    --running_[device];
    runs_.push_back(absl::StrCat(device, ":", TaskOf(sequences[0]).token_ids[0]));
    bool invalid = false;
    if (sequences.size() == 1 && TaskOf(sequences[0]).token_ids[0] == kBreaksOneAlone &&
        !std::exchange(one_broke_, true)) {
      broken_[device] = true;
    }
    for (const SequenceTask* sequence : sequences) {
      if (TaskOf(sequence).token_ids[0] == kBreaksDevices) broken_[device] = true;
      if (TaskOf(sequence).token_ids[0] == kInvalid) invalid = true;
    }
    if (broken_[device]) return absl::UnavailableError(absl::StrCat("device ", device, " died"));
    if (invalid) return absl::InvalidArgumentError("invalid");
    for (const SequenceTask* sequence : sequences) {
      if (TaskOf(sequence).result != nullptr) {
        *TaskOf(sequence).result = static_cast<float>(TaskOf(sequence).token_ids[0]);
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kMaxDevices = 4;

  Mutex mutex_;
  CondVar changed_;
  bool broken_[kMaxDevices] ABSL_GUARDED_BY(mutex_) = {};
  bool held_[kMaxDevices] ABSL_GUARDED_BY(mutex_) = {};
  int running_[kMaxDevices] ABSL_GUARDED_BY(mutex_) = {};
  bool one_broke_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> runs_ ABSL_GUARDED_BY(mutex_);
};

class FakeRunner : public BatchRunner {
 public:
  FakeRunner(Devices* devices, int device) : devices_(*devices), device_(device) {}
  int device() const override { return device_; }
  absl::Status WarmUp() override { return devices_.WarmUp(device_); }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    return devices_.Run(device_, sequences);
  }

 private:
  Devices& devices_;
  const int device_;
};

// A call with one result.
class Call : public EngineCall {
 public:
  absl::Status Submit(Engine& engine, int32_t name) {
    return EngineCall::Submit(engine, MakeRequest(name, {1}, &result_));
  }
  float result() const { return result_; }

 private:
  float result_ = 0;
};

class EngineFailoverTest : public ::testing::Test {
 protected:
  EngineFailoverTest() {
    options_.on_device_lost = [this](int device, const absl::Status& error) {
      MutexLock lock(&mutex_);
      lost_.push_back(absl::StrCat(device, " ", error.message()));
    };
  }
  // One worker per entry, on that device.
  void Start(const std::vector<int>& devices) {
    const absl::Status status = TryStart(devices);
    ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status TryStart(const std::vector<int>& devices) {
    std::vector<std::unique_ptr<BatchRunner>> runners;
    std::vector<int> workers(*std::max_element(devices.begin(), devices.end()) + 1);
    for (int device : devices) {
      ++workers[device];
      runners.push_back(std::make_unique<FakeRunner>(&devices_, device));
    }
    pool_ = MakePool(std::move(workers), &clock_, &options_);
    auto engine = Engine::CreateWithRunners(std::move(runners), options_, &clock_, &observer_);
    if (!engine.ok()) return engine.status();
    engine_ = *std::move(engine);
    return absl::OkStatus();
  }
  std::vector<std::string> lost() {
    MutexLock lock(&mutex_);
    return lost_;
  }

  EngineOptions options_;
  RealClock clock_;
  Devices devices_;
  EngineObserver observer_;
  Mutex mutex_;
  std::vector<std::string> lost_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineFailoverTest, TheBatchOfAFailedDeviceIsRunOnAnother) {
  options_.batcher.max_batch_sequences = 1;
  Start({0, 1});
  EXPECT_EQ(engine_->instances(), 2);
  // Device 1 is busy with an earlier call, so that device 0 gets this one.
  devices_.Hold(0);
  devices_.Hold(1);
  Call calls[2];
  ASSERT_TRUE(calls[0].Submit(*engine_, 7).ok());
  ASSERT_TRUE(calls[1].Submit(*engine_, 8).ok());
  devices_.AwaitRunning(0, 1);
  devices_.AwaitRunning(1, 1);
  devices_.Break(0);
  devices_.Release(0);
  devices_.Release(1);
  EXPECT_TRUE(calls[0].Wait().ok());
  EXPECT_TRUE(calls[1].Wait().ok());
  EXPECT_EQ(calls[0].result(), 7);
  EXPECT_EQ(calls[1].result(), 8);
  EXPECT_EQ(engine_->instances(), 1);
  EXPECT_THAT(lost(), ElementsAre("0 device 0 died"));
  // The batch that moved counts once, with its final status.
  EXPECT_THAT(observer_.batches(), ElementsAre("1/1 OK", "1/1 OK"));
  // Serving goes on, on the device that is left.
  Call more;
  ASSERT_TRUE(more.Submit(*engine_, 9).ok());
  EXPECT_TRUE(more.Wait().ok());
  EXPECT_EQ(devices_.runs().back(), "1:9");
}

TEST_F(EngineFailoverTest, NoWorkerTakesAnythingForADeviceThatIsOut) {
  Start({0, 1, 0, 1});
  engine_->TakeOutDevice(0, absl::UnavailableError("told"));
  engine_->TakeOutDevice(0, absl::UnavailableError("told again"));
  EXPECT_EQ(engine_->instances(), 2);
  EXPECT_THAT(lost(), ElementsAre("0 told"));
  // Its idle workers are woken by these calls, too, but none of them lands on device 0.
  for (int i = 0; i < 50; ++i) {
    Call calls[3];
    for (Call& call : calls) ASSERT_TRUE(call.Submit(*engine_, 5).ok());
    for (Call& call : calls) EXPECT_TRUE(call.Wait().ok());
  }
  for (const std::string& run : devices_.runs()) EXPECT_EQ(run, "1:5");
}

TEST_F(EngineFailoverTest, ABatchThatIsRunAgainWaitsForItsTurn) {
  options_.batcher.max_batch_sequences = 1;
  devices_.Hold(0);
  devices_.Hold(1);
  Start({0, 1});
  Call first[2];
  ASSERT_TRUE(first[0].Submit(*engine_, 1).ok());
  ASSERT_TRUE(first[1].Submit(*engine_, 1).ok());
  devices_.AwaitRunning(0, 1);
  devices_.AwaitRunning(1, 1);
  constexpr int kWaiting = 100;
  std::vector<Call> waiting(kWaiting);
  for (Call& call : waiting) ASSERT_TRUE(call.Submit(*engine_, 2).ok());
  devices_.Break(0);
  devices_.Release(0);
  // The worker of device 0 now waits for its turn on device 1, or is about to; device 1's own
  // worker has a long queue.
  while (engine_->instances() > 1) std::this_thread::yield();
  devices_.Release(1);
  for (Call& call : first) EXPECT_TRUE(call.Wait().ok());
  for (Call& call : waiting) EXPECT_TRUE(call.Wait().ok());
  int ones = 0;
  for (const std::string& run : devices_.runs()) ones += run == "1:1" ? 1 : 0;
  EXPECT_EQ(ones, 2);
}

TEST_F(EngineFailoverTest, ABatchIsRunAgainOnlyOnce) {
  Start({0, 1, 2});
  Call poison;
  ASSERT_TRUE(poison.Submit(*engine_, Devices::kBreaksDevices).ok());
  const absl::Status status = poison.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("died"));
  // One device of three survives it.
  EXPECT_EQ(engine_->instances(), 1);
  EXPECT_EQ(devices_.runs().size(), 2u);
  EXPECT_EQ(lost().size(), 2u);
  EXPECT_THAT(observer_.batches(), ElementsAre("1/1 UNAVAILABLE"));
  Call more;
  ASSERT_TRUE(more.Submit(*engine_, 3).ok());
  EXPECT_TRUE(more.Wait().ok());
}

TEST_F(EngineFailoverTest, WithoutADeviceEverythingIsAnsweredUnavailableAtOnce) {
  options_.batcher.max_batch_sequences = 1;
  devices_.Hold(0);
  Start({0, 0});
  Call running[2];
  for (Call& call : running) ASSERT_TRUE(call.Submit(*engine_, 1).ok());
  devices_.AwaitRunning(0, 2);
  std::vector<Call> waiting(20);
  for (Call& call : waiting) ASSERT_TRUE(call.Submit(*engine_, 2).ok());
  devices_.Break(0);
  devices_.Release(0);
  for (Call& call : running) EXPECT_EQ(call.Wait().code(), absl::StatusCode::kUnavailable);
  for (Call& call : waiting) EXPECT_EQ(call.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->instances(), 0);
  EXPECT_EQ(lost().size(), 1u);
  // No waiting request was tried on the dead device.
  EXPECT_THAT(devices_.runs(), ElementsAre("0:1", "0:1"));

  Call late;
  const absl::Status refused = late.Submit(*engine_, 3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("device 0 died"));
  EXPECT_EQ(GetRejectReason(refused), RejectReason::kNoWorker);
  EXPECT_EQ(
      engine_->batcher().CheckAdmission(1, 1, Priority::kNormal, absl::InfiniteFuture()).code(),
      absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->batcher().stats().rejected[RejectReason::kNoWorker], 2);
  // A drain ends and is complete: everything was answered before.
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
}

TEST_F(EngineFailoverTest, TwoDevicesFailAtTheSameTime) {
  options_.batcher.max_batch_sequences = 1;
  devices_.Hold(0);
  devices_.Hold(1);
  Start({0, 1});
  Call calls[2];
  for (Call& call : calls) ASSERT_TRUE(call.Submit(*engine_, 1).ok());
  devices_.AwaitRunning(0, 1);
  devices_.AwaitRunning(1, 1);
  devices_.Break(0);
  devices_.Break(1);
  devices_.Release(0);
  devices_.Release(1);
  for (Call& call : calls) EXPECT_EQ(call.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(lost(), UnorderedElementsAre("0 device 0 died", "1 device 1 died"));
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
}

TEST_F(EngineFailoverTest, ADeviceLostWhileABadInputIsSoughtMovesTheWholeBatch) {
  // The three make a batch when the third is there.
  options_.batcher.max_batch_sequences = 3;
  options_.batcher.max_queue_delay = absl::InfiniteDuration();
  Start({0, 1});
  Call invalid, breaks, good;
  ASSERT_TRUE(invalid.Submit(*engine_, Devices::kInvalid).ok());
  ASSERT_TRUE(breaks.Submit(*engine_, Devices::kBreaksOneAlone).ok());
  ASSERT_TRUE(good.Submit(*engine_, 5).ok());
  EXPECT_EQ(invalid.Wait(), absl::InvalidArgumentError("invalid"));
  EXPECT_TRUE(breaks.Wait().ok());
  EXPECT_TRUE(good.Wait().ok());
  EXPECT_EQ(good.result(), 5);
  EXPECT_EQ(engine_->instances(), 1);
  // It ran as a whole and the first two alone on one device, then as a whole and all three alone on
  // the other.
  EXPECT_EQ(devices_.runs().size(), 3u + 4u);
  EXPECT_THAT(observer_.batches(), ElementsAre("3/3 INVALID_ARGUMENT"));
}

TEST_F(EngineFailoverTest, ARequestOfSeveralBatchesIsAnsweredOnce) {
  options_.batcher.max_batch_sequences = 1;
  options_.batcher.max_queue_delay = absl::ZeroDuration();
  Start({0, 1});
  for (int round = 0; round < 20; ++round) {
    EngineCall call;
    const bool accepted = call.Submit(*engine_, MakeRequest(1, {1, 1, 1, 1, 1, 1})).ok();
    if (round == 7) devices_.Break(0);
    if (round == 14) devices_.Break(1);
    if (!accepted) {
      EXPECT_EQ(engine_->instances(), 0);
      continue;
    }
    const absl::Status status = call.Wait();
    EXPECT_THAT(status.code(), AnyOf(absl::StatusCode::kOk, absl::StatusCode::kUnavailable));
    if (round < 14) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
}

TEST_F(EngineFailoverTest, ADeviceThatFailsWhileWarmingUpIsTakenOut) {
  devices_.Break(0);
  Start({0, 1, 0, 1});
  EXPECT_EQ(engine_->instances(), 2);
  EXPECT_THAT(lost(), ElementsAre("0 device 0 died"));
  Call call;
  ASSERT_TRUE(call.Submit(*engine_, 7).ok());
  EXPECT_TRUE(call.Wait().ok());
  EXPECT_THAT(devices_.runs(), ElementsAre("1:7"));
}

// As where a limit of threads is reached.
TEST_F(EngineFailoverTest, AWorkerThatCannotBeStartedEndsTheOthers) {
  std::thread first;
  WorkerPoolOptions options;
  options.workers = {1, 1, 1};
  options.launch = [&](std::function<void()> life) {
    if (first.joinable()) {
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    first = std::thread(std::move(life));
  };
  EXPECT_THROW(WorkerPool(options, &clock_), std::system_error);
  first.join();
}

TEST_F(EngineFailoverTest, WithoutADeviceThatWarmsUpThereIsNoEngine) {
  devices_.Break(0);
  devices_.Break(1);
  const absl::Status status = TryStart({0, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("died"));
}

// Tests engines of models that are loaded after a loss.
class EngineAfterLossTest : public EngineFailoverTest {
 protected:
  // The devices that this many workers run on; empty when the engine refuses.
  std::vector<int> DevicesOf(int instances, const std::vector<int>& failed) {
    auto devices = std::make_shared<FailingDevices>(3);
    FailingBackend backend(devices);
    auto model = models::Model::Load("models/pretrained/trec/1", "trec", 1, backend, {});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return {};
    for (int device : failed) devices->failed[device] = true;
    options_.instances = instances;
    options_.batcher.max_batch_tokens = 32;
    pool_ = MakePool({2, 2, 2}, &clock_, &options_);
    auto engine =
        Engine::Create(*model, tasks::RunnersOf((*model)->task()), options_, &clock_, nullptr);
    status_ = engine.status();
    if (!engine.ok()) return {};
    std::vector<int> workers;
    int workspaces = 0;
    for (const std::atomic<size_t>& bytes : devices->workspace_bytes) {
      workers.push_back(static_cast<int>(bytes / kFailingWorkspaceBytes));
      workspaces += workers.back();
    }
    EXPECT_EQ((*engine)->instances(), workspaces);
    return workers;
  }

  absl::Status status_;
};

TEST_F(EngineAfterLossTest, WorkersGoToTheDevicesThatAreLeft) {
  EXPECT_THAT(DevicesOf(0, {}), ElementsAre(2, 2, 2));
  EXPECT_THAT(DevicesOf(4, {}), ElementsAre(2, 1, 1));
  EXPECT_THAT(lost(), IsEmpty());
  EXPECT_THAT(DevicesOf(0, {1}), ElementsAre(2, 0, 2));
  EXPECT_THAT(lost(), ElementsAre("1 device 1 has failed and is out of use"));
  // No device gets more workers than with all in service, if that leaves a worker at all.
  EXPECT_THAT(DevicesOf(3, {0}), ElementsAre(0, 1, 1));
  EXPECT_THAT(DevicesOf(1, {0, 1}), ElementsAre(0, 0, 1));
  EXPECT_THAT(DevicesOf(4, {0}), ElementsAre(0, 2, 2));
}

TEST_F(EngineAfterLossTest, WithoutADeviceThereIsNoEngine) {
  EXPECT_THAT(DevicesOf(0, {0, 1, 2}), IsEmpty());
  EXPECT_EQ(status_, absl::UnavailableError("device 2 has failed and is out of use"));
}

// Devices fail while many threads call; every call is answered, once.
TEST_F(EngineFailoverTest, FailuresUnderLoad) {
  options_.batcher.max_batch_sequences = 4;
  Start({0, 1, 2, 3, 0, 1, 2, 3});
  constexpr int kCallers = 4;
  constexpr int kCallsEach = 300;
  std::atomic<int> ok{0};
  std::atomic<int> unavailable{0};
  InThreads(kCallers, [&](int c) {
    for (int i = 0; i < kCallsEach; ++i) {
      if (i == 50 + 50 * c) devices_.Break(c);
      Call call;
      absl::Status status = call.Submit(*engine_, i % 100);
      if (status.ok()) status = call.Wait();
      if (status.ok()) {
        ++ok;
        EXPECT_EQ(call.result(), static_cast<float>(i % 100));
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        ++unavailable;
      }
    }
  });
  EXPECT_EQ(ok + unavailable, kCallers * kCallsEach);
  EXPECT_GE(ok.load(), 50 * kCallers);
  EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture()));
}

}  // namespace
}  // namespace sru::server::batching
