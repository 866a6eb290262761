// Many real threads submit, pause, resume, cancel, run out of time, run steps, find no memory and
// lose a device at random. Each accepted sequence must end exactly once, with a status that can be
// explained, and its tokens must be those of an undisturbed run. Meant for the thread sanitizer as
// much as for its assertions.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/batching/steps/sequence_scheduler.h"
#include "tests/testing/poll.h"
#include "tests/testing/puppet_engine.h"
#include "tests/testing/puppet_sequence.h"

namespace sru::server::batching {
namespace {

constexpr int kSubmitters = 4;
constexpr int kWorkersPerDevice = 2;
constexpr int kSequencesPerSubmitter = 1000;

uint64_t Seed() {
  const char* seed = std::getenv("SRU_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20180903;
}

enum class Stop { kServeAll, kSuspend, kLoseADevice, kLoseAllDevices };

struct Entry {
  PuppetSequence::Plan plan;
  PuppetOutcome outcome;
  bool accepted = false;
};

// Waits for the next step; null once the scheduler is done. Looks only when it says so.
std::unique_ptr<Step> TakeStep(SequenceScheduler& scheduler, Bell& bell, int device) {
  while (true) {
    const int64_t rings = bell.rings();
    std::unique_ptr<Step> step = scheduler.TryTakeStep(device);
    if (step != nullptr) return step;
    if (scheduler.IsDone()) {
      bell.Ring();  // the last step may have been this worker's
      return nullptr;
    }
    bell.WaitBeyond(rings, scheduler.Next(device, absl::Now()).at);
  }
}

void Work(SequenceScheduler& scheduler, Bell& bell, int device, const std::atomic<bool>& lost,
          uint64_t seed) {
  std::mt19937_64 random(seed);
  while (std::unique_ptr<Step> step = TakeStep(scheduler, bell, device)) {
    EXPECT_FALSE(step->shares.empty());
    absl::Status status;
    const uint64_t dice = random() % 64;
    if (lost.load()) {
      status = absl::UnavailableError("gone");
    } else if (dice == 0) {
      status = absl::ResourceExhaustedError("memory");
    }
    for (StepShare& share : step->shares) {
      if (!status.ok()) break;
      if (random() % 64 == 0) {
        share.status = absl::ResourceExhaustedError("no room");
      } else {
        static_cast<PuppetSequence*>(share.sequence)->Advance(share.rows);
      }
    }
    if (absl::IsUnavailable(status)) scheduler.LoseDevice(device, status);
    if (dice < 8) std::this_thread::yield();
    scheduler.FinishStep(std::move(step), status, absl::Microseconds(10));
  }
}

void Submit(SequenceScheduler& scheduler, const Clock& clock, uint64_t first, uint64_t seed,
            std::atomic<int>* accepted, std::vector<std::unique_ptr<Entry>>* entries) {
  std::mt19937_64 random(seed);
  std::vector<SequenceHandle> handles;
  for (int i = 0; i < kSequencesPerSubmitter; ++i) {
    auto& entry = entries->emplace_back(std::make_unique<Entry>());
    entry->plan.name = first + i;
    entry->plan.prompt = static_cast<int64_t>(1 + random() % (random() % 8 == 0 ? 300 : 10));
    entry->plan.tokens = static_cast<int>(1 + random() % 30);
    entry->plan.branches = static_cast<int>(1 + random() % 3);
    entry->plan.whole = entry->plan.prompt + entry->plan.tokens <= 60 && random() % 2 == 0;
    std::vector<SequenceRequest> requests(1);
    SequenceRequest& request = requests[0];
    request.sequence = std::make_unique<PuppetSequence>(entry->plan, &entry->outcome);
    request.priority = static_cast<Priority>(random() % 3);
    request.branches = entry->plan.branches;
    if (random() % 8 == 0) {
      request.deadline = clock.Now() + absl::Microseconds(random() % 20000);
    }
    auto handle = scheduler.Submit(std::move(requests));
    for (int tries = 0; absl::IsResourceExhausted(handle.status()) && tries < 100000; ++tries) {
      std::this_thread::yield();
      if (!handles.empty()) scheduler.Resume(handles[random() % handles.size()]);
      handle = scheduler.Submit(std::move(requests));  // NOLINT: consumed only when accepted
    }
    if (handle.ok()) {
      entry->accepted = true;
      ++*accepted;
      handles.push_back(handle->front());
    }
    if (handles.empty()) continue;
    const SequenceHandle& other = handles[random() % handles.size()];
    switch (random() % 16) {
      case 0:
        scheduler.Cancel(other);
        break;
      case 1:
      case 2:
        scheduler.Pause(other);
        break;
      case 3:
      case 4:
        scheduler.Resume(other);
        break;
      case 5:
        (void)scheduler.stats();
        (void)scheduler.CheckAdmission(5, 1, Priority::kLow, clock.Now() + absl::Milliseconds(1));
        break;
      default:
        break;
    }
  }
  for (const SequenceHandle& handle : handles) scheduler.Resume(handle);
}

void RunStress(uint64_t seed, Stop stop) {
  SCOPED_TRACE(absl::StrCat("SRU_TEST_SEED=", seed));
  const RealClock clock;
  SchedulerOptions options;
  options.max_step_tokens = 64;
  options.max_step_sequences = 16;
  options.rows_per_step = 8;
  options.max_streams = 200;
  options.max_waiting_rows = 3000;
  options.max_begun_branches = 60;
  options.ageing_interval = absl::Milliseconds(2);
  options.workers = {kWorkersPerDevice, kWorkersPerDevice};
  auto created = SequenceScheduler::Create(options, &clock);
  ASSERT_TRUE(created.ok()) << created.status();
  SequenceScheduler& scheduler = **created;
  Bell bell;
  scheduler.OnWork([&bell] { bell.Ring(); });

  std::atomic<bool> lost[2] = {{false}, {false}};
  std::vector<std::thread> workers;
  for (int device = 0; device < 2; ++device) {
    for (int i = 0; i < kWorkersPerDevice; ++i) {
      workers.emplace_back([&scheduler, &bell, &lost, device, worker_seed = seed + workers.size()] {
        Work(scheduler, bell, device, lost[device], worker_seed);
      });
    }
  }
  std::atomic<int> accepted{0};
  std::vector<std::vector<std::unique_ptr<Entry>>> entries(kSubmitters);
  std::vector<std::thread> submitters;
  for (int i = 0; i < kSubmitters; ++i) {
    submitters.emplace_back([&, i] {
      Submit(scheduler, clock, static_cast<uint64_t>(i) * 1000000, seed + 100 + i, &accepted,
             &entries[i]);
    });
  }
  // On a busy machine the submitters may not have begun after 5 ms.
  EXPECT_TRUE(testing::PollUntil([&accepted] { return accepted > 0; }));
  absl::SleepFor(absl::Milliseconds(5));
  if (stop == Stop::kLoseADevice || stop == Stop::kLoseAllDevices) {
    lost[0] = true;
    if (stop == Stop::kLoseAllDevices) lost[1] = true;
  } else if (stop == Stop::kSuspend) {
    scheduler.Suspend(absl::UnavailableError("stopping"));
  }
  for (std::thread& thread : submitters) thread.join();
  scheduler.Close();
  for (std::thread& thread : workers) thread.join();

  int64_t ok = 0;
  for (const auto& of_submitter : entries) {
    for (const auto& entry : of_submitter) {
      if (!entry->accepted) {
        EXPECT_EQ(entry->outcome.ends(), 0);
        continue;
      }
      ASSERT_EQ(entry->outcome.ends(), 1) << "sequence " << entry->plan.name;
      const absl::Status status = entry->outcome.status();
      std::vector<uint64_t> expected = PuppetSequence::Expected(entry->plan);
      const std::vector<uint64_t> tokens = entry->outcome.tokens();
      switch (status.code()) {
        case absl::StatusCode::kOk:
          ++ok;
          EXPECT_EQ(tokens, expected);
          break;
        case absl::StatusCode::kUnavailable:
          EXPECT_NE(stop, Stop::kServeAll) << status;
          EXPECT_NE(stop, Stop::kLoseADevice) << status;
          [[fallthrough]];
        case absl::StatusCode::kCancelled:
        case absl::StatusCode::kDeadlineExceeded:
          ASSERT_LE(tokens.size(), expected.size());
          expected.resize(tokens.size());
          EXPECT_EQ(tokens, expected);
          break;
        default:
          ADD_FAILURE() << status;
      }
    }
  }
  if (stop == Stop::kServeAll || stop == Stop::kLoseADevice) {
    EXPECT_GT(ok, accepted / 2);
  }
  const StepStats stats = scheduler.stats();
  EXPECT_EQ(stats.running + stats.waiting + stats.paused, 0);
  EXPECT_EQ(stats.waiting_rows, 0);
}

TEST(SequenceSchedulerStressTest, EverySequenceEndsOnceWithItsTokens) {
  RunStress(Seed(), Stop::kServeAll);
}

TEST(SequenceSchedulerStressTest, SuspendedInTheMiddle) { RunStress(Seed() + 1, Stop::kSuspend); }

TEST(SequenceSchedulerStressTest, WithADeviceThatIsLost) {
  RunStress(Seed() + 2, Stop::kLoseADevice);
}

TEST(SequenceSchedulerStressTest, WithAllDevicesLost) {
  RunStress(Seed() + 3, Stop::kLoseAllDevices);
}

}  // namespace
}  // namespace sru::server::batching
