#include "server/lifecycle/model_manager.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/engine_call.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/notification.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::server::lifecycle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Counts the engines that live.
class FakeEngine : public batching::Engine {
 public:
  explicit FakeEngine(std::atomic<int>* live) : live_(*live) { ++live_; }
  ~FakeEngine() override { --live_; }
  batching::Batcher& batcher() override { std::abort(); }
  int instances() const override { return 1; }
  void TakeOutDevice(int /*device*/, const absl::Status& /*error*/) override {}
  void Close() override {}
  bool Drain(absl::Time /*deadline*/) override { return true; }

 private:
  std::atomic<int>& live_;
};

// A version is what its config.json says: "broken" cannot be loaded.
class FakeLoader : public ModelLoader {
 public:
  explicit FakeLoader(FakeClock* clock) : clock_(*clock) {}

  absl::StatusOr<std::unique_ptr<ServedModel>> Load(
      const models::ModelLocation& location) override {
    attempts.push_back(absl::StrCat(location.name, ":", location.version));
    clock_.Advance(absl::Seconds(2));
    const std::string config = models::ReadWholeFile(location.directory + "/config.json");
    if (during_load) during_load();
    if (config == "broken") {
      return absl::InvalidArgumentError(location.directory + "/config.json: it is broken");
    }
    if (config == "huge") return absl::ResourceExhaustedError("no memory");
    auto served = std::make_unique<ServedModel>();
    served->name = location.name;
    served->version = location.version;
    served->engine = std::make_unique<FakeEngine>(&live);
    return served;
  }

  models::MemoryEstimate Estimate(const models::ModelLocation& location) override {
    models::MemoryEstimate estimate;
    estimate.files = 10;
    if (location.version == large_version) estimate.packed = 600000000;
    if (location.version == large_version) estimate.passing = 400000000;
    return estimate;
  }

  std::string Cure(int64_t bytes) override { return absl::StrCat("--flag=", bytes, " would fit"); }

  // Returns what was loaded since its last call.
  std::vector<std::string> TakeAttempts() { return std::exchange(attempts, {}); }

  int64_t large_version = -1;  // this version needs 1000 MB, all others none

  std::vector<std::string> attempts;
  std::function<void()> during_load;
  std::atomic<int> live{0};

 private:
  FakeClock& clock_;
};

class FakeObserver : public ModelObserver {
 public:
  void OnLoad(const models::ModelLocation& /*location*/, absl::Duration duration,
              const absl::Status& status) override {
    last_duration = duration;
    last_status = status;
  }
  void OnServing(const std::string& model, bool is_serving) override {
    serving[model] = is_serving;
  }

  absl::Duration last_duration;
  absl::Status last_status;
  std::map<std::string, bool> serving;
};

class ModelManagerTest : public ::testing::Test {
 protected:
  // Makes or replaces a version.
  void Write(const std::string& version, const std::string& config) {
    repository_.Write(version + "/config.json", config);
  }
  void Delete(const std::string& name) { std::filesystem::remove_all(repository_.path(name)); }

  absl::Status Start(ModelControl control, models::VersionPolicy policy = {},
                     std::vector<std::string> load_models = {}) {
    ModelManagerOptions options;
    options.repository = repository_.path();
    options.control = control;
    options.version_policy = std::move(policy);
    options.poll_interval = absl::Milliseconds(1);
    options.load_models = std::move(load_models);
    options.empty_repository_grace = empty_repository_grace_;
    options.unload_wait = unload_wait_;
    options.free_memory = [this] { return free_memory_; };
    manager_ = std::make_unique<ModelManager>(options, &loader_, &registry_, &clock_, &observer_);
    return manager_->Start();
  }

  // Looks twice: the first time sees a change, the second time sees that it has settled.
  void PollTwice() {
    manager_->Poll();
    manager_->Poll();
  }

  std::vector<std::string> Served() const {
    std::vector<std::string> served;
    for (const auto& model : registry_.List()) {
      served.push_back(absl::StrCat(model->name, ":", model->version));
    }
    return served;
  }
  std::vector<std::string> States() const {
    std::vector<std::string> states;
    for (const telemetry::ModelStatus& status : manager_->Statuses()) {
      states.push_back(absl::StrCat(status.model, ":", status.version, " ",
                                    telemetry::ModelStateName(status.state)));
    }
    return states;
  }
  // What is served, the states, and what the manager has tried to load since, once it has looked.
  std::vector<std::string> ServedAfterPolls() {
    PollTwice();
    return Served();
  }
  std::vector<std::string> StatesAfterPolls() {
    PollTwice();
    return States();
  }
  std::vector<std::string> AttemptsOfPolls() {
    PollTwice();
    return loader_.TakeAttempts();
  }
  std::string MessageOf(const std::string& model, int64_t version) const {
    for (const telemetry::ModelStatus& status : manager_->Statuses()) {
      if (status.model == model && status.version == version) return status.message;
    }
    return "no such version";
  }

  models::TempDirectory repository_;
  FakeClock clock_;
  FakeLoader loader_{&clock_};
  FakeObserver observer_;
  ModelRegistry registry_;
  std::optional<int64_t> free_memory_;
  absl::Duration empty_repository_grace_;  // none
  absl::Duration unload_wait_ = ModelManagerOptions().unload_wait;
  std::unique_ptr<ModelManager> manager_;
};

TEST_F(ModelManagerTest, StaticServesWhatThePolicyNames) {
  for (const char* version : {"a/1", "a/2", "a/10", "b/2"}) Write(version, "good");
  ASSERT_TRUE(Start(ModelControl::kStatic).ok());
  EXPECT_THAT(Served(), ElementsAre("a:10", "b:2"));
  ASSERT_TRUE(Start(ModelControl::kStatic, models::VersionPolicy::Latest(2)).ok());
  EXPECT_THAT(Served(), ElementsAre("a:2", "a:10", "b:2"));
  ASSERT_TRUE(Start(ModelControl::kStatic, models::VersionPolicy::All()).ok());
  EXPECT_THAT(Served(), ElementsAre("a:1", "a:2", "a:10", "b:2"));
  ASSERT_TRUE(Start(ModelControl::kStatic, models::VersionPolicy::Named({1, 2})).ok());
  EXPECT_THAT(Served(), ElementsAre("a:1", "a:2", "b:2"));
  manager_.reset();
  EXPECT_THAT(Served(), IsEmpty());
  EXPECT_EQ(loader_.live, 0);
}

TEST_F(ModelManagerTest, StaticRefusesWhatCannotBeLoaded) {
  Write("a/1", "good");
  Write("b/1", "broken");
  const absl::Status status = Start(ModelControl::kStatic);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  // The log has it with the whole path.
  EXPECT_EQ(status.message(), repository_.path("b/1/config.json") + ": it is broken");
  Delete("b");
  Delete("a");
  EXPECT_EQ(Start(ModelControl::kStatic).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelManagerTest, AFolderThatCannotBeListedChangesNothing) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_THAT(Served(), ElementsAre("m:1"));
  // A link out of the repository is not followed.
  const models::TempDirectory elsewhere;
  const std::string moved = elsewhere.path("m");
  std::filesystem::rename(repository_.path("m"), moved);
  std::filesystem::create_directory_symlink(moved, repository_.path("m"));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1"));
  EXPECT_FALSE(manager_->repository_emptied());
  std::filesystem::remove(repository_.path("m"));
  std::filesystem::rename(moved, repository_.path("m"));
  Write("m/2", "good");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:2"));
}

TEST_F(ModelManagerTest, PollingLoadsANewVersionBesideTheOldOneThenFreesIt) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_THAT(Served(), ElementsAre("m:1"));
  EXPECT_EQ(observer_.last_duration, absl::Seconds(2));

  Write("m/2", "good");
  std::vector<std::string> served_meanwhile;
  std::vector<std::string> states_meanwhile;
  loader_.during_load = [&] {
    served_meanwhile = Served();
    states_meanwhile = States();
  };
  auto call = registry_.Find("m", 0);
  ASSERT_TRUE(call.ok());
  PollTwice();
  EXPECT_THAT(served_meanwhile, ElementsAre("m:1"));
  EXPECT_THAT(states_meanwhile, ElementsAre("m:1 ready", "m:2 loading"));
  EXPECT_THAT(Served(), ElementsAre("m:2"));
  EXPECT_TRUE(observer_.serving["m"]);

  // The call keeps the version that it found.
  manager_->FreeReleased();
  EXPECT_EQ((*call)->version, 1);
  EXPECT_EQ(loader_.live, 2);
  EXPECT_THAT(States(), ElementsAre("m:1 unloading", "m:2 ready"));
  EXPECT_EQ(manager_->InMemory().size(), 2u);
  call->reset();
  EXPECT_EQ(loader_.live, 2);  // the call did not free it, the manager does
  manager_->FreeReleased();
  EXPECT_EQ(loader_.live, 1);
  EXPECT_THAT(States(), ElementsAre("m:2 ready"));
  EXPECT_EQ(manager_->InMemory().size(), 1u);
}

TEST_F(ModelManagerTest, ARepositoryThatIsEmptiedUnloadsNothingForAWhile) {
  empty_repository_grace_ = absl::Seconds(300);
  Write("a/1", "good");
  Write("b/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_FALSE(manager_->repository_emptied());

  // That is not so if one model is removed and others stay.
  Delete("b");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("a:1"));
  EXPECT_FALSE(manager_->repository_emptied());

  std::filesystem::rename(repository_.path("a"), repository_.path(".away"));
  PollTwice();
  EXPECT_TRUE(manager_->repository_emptied());
  clock_.Advance(absl::Seconds(299));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("a:1"));
  EXPECT_TRUE(manager_->repository_emptied());
  // A directory without a version does not count as a model.
  std::filesystem::create_directory(repository_.path("a"));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("a:1"));

  // The model is back unchanged: nothing is reloaded, and the time starts again.
  std::filesystem::remove(repository_.path("a"));
  std::filesystem::rename(repository_.path(".away"), repository_.path("a"));
  loader_.TakeAttempts();
  PollTwice();
  EXPECT_FALSE(manager_->repository_emptied());
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  Delete("a");
  PollTwice();
  clock_.Advance(absl::Seconds(299));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("a:1"));
  clock_.Advance(absl::Seconds(1));
  EXPECT_THAT(ServedAfterPolls(), IsEmpty());
  PollTwice();
  EXPECT_FALSE(manager_->repository_emptied());
}

TEST_F(ModelManagerTest, ARepositoryThatVanishesUnloadsNothing) {
  empty_repository_grace_ = absl::Seconds(300);
  Write("a/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  const std::string root(absl::StripSuffix(repository_.path(), "/"));
  const std::string away = absl::StrCat(root, ".away");
  std::filesystem::rename(root, away);
  PollTwice();
  clock_.Advance(absl::Seconds(1000));
  PollTwice();
  EXPECT_TRUE(manager_->repository_emptied());
  EXPECT_THAT(Served(), ElementsAre("a:1"));

  // A volume that comes back empty is not taken at its word either.
  std::filesystem::create_directory(root);
  PollTwice();
  EXPECT_TRUE(manager_->repository_emptied());
  clock_.Advance(absl::Seconds(299));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("a:1"));
  std::filesystem::remove(root);
  std::filesystem::rename(away, root);
  PollTwice();
  EXPECT_FALSE(manager_->repository_emptied());
  EXPECT_THAT(Served(), ElementsAre("a:1"));
}

TEST_F(ModelManagerTest, AVersionThatDoesNotFitIsNotReadAndIsTriedAgainWhenItDoes) {
  loader_.large_version = 2;
  free_memory_ = 999000000;
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  Write("m/2", "good");
  loader_.TakeAttempts();
  EXPECT_THAT(AttemptsOfPolls(), IsEmpty());
  EXPECT_THAT(Served(), ElementsAre("m:1"));
  EXPECT_THAT(States(), ElementsAre("m:1 ready", "m:2 failed"));
  EXPECT_THAT(MessageOf("m", 2),
              ::testing::AllOf(HasSubstr("m/2"), HasSubstr("at least 1000.0 MB of free memory"),
                               HasSubstr("packed weights 600.0 MB"), HasSubstr("other 400.0 MB"),
                               HasSubstr("found 999.0 MB; --flag=999000000 would fit; not read")));
  EXPECT_EQ(observer_.last_status.code(), absl::StatusCode::kResourceExhausted);

  // Nothing happens while there is no room, and it counts as one failure.
  for (int i = 0; i < 5; ++i) manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  EXPECT_EQ(manager_->LoadCounts()[0].failures, 1);
  // A caller that asks for it is refused too.
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());

  free_memory_ = 1000000000;
  manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), ElementsAre("m:2"));
  EXPECT_THAT(Served(), ElementsAre("m:2"));
  EXPECT_THAT(States(), ElementsAre("m:2 ready"));
  manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
}

TEST_F(ModelManagerTest, AVersionThatDoesNotFitAtTheStart) {
  loader_.large_version = 2;
  free_memory_ = 10;
  Write("m/1", "good");
  Write("m/2", "good");
  // The lower version takes its place, as with any failure.
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_THAT(Served(), ElementsAre("m:1"));
  EXPECT_EQ(Start(ModelControl::kStatic).code(), absl::StatusCode::kResourceExhausted);
  // If nothing is known about memory, nothing is refused for lack of it.
  free_memory_ = std::nullopt;
  ASSERT_TRUE(Start(ModelControl::kStatic).ok());
  EXPECT_THAT(Served(), ElementsAre("m:2"));
}

TEST_F(ModelManagerTest, WhatFailsForAnotherReasonIsNotTriedAgainForMemory) {
  loader_.large_version = 2;
  free_memory_ = 10;
  Write("m/2", "broken");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  loader_.TakeAttempts();
  free_memory_ = 5000000000;
  manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), ElementsAre("m:2"));
  for (int i = 0; i < 3; ++i) manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  EXPECT_EQ(MessageOf("m", 2), "m/2/config.json: it is broken");
}

TEST_F(ModelManagerTest, AVersionThatFailsLeavesTheOldOneAndIsTriedAgainWhenItsFilesChange) {
  Write("m/2", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  loader_.TakeAttempts();
  Write("m/3", "broken");
  EXPECT_THAT(AttemptsOfPolls(), ElementsAre("m:3"));
  EXPECT_THAT(Served(), ElementsAre("m:2"));
  EXPECT_THAT(States(), ElementsAre("m:2 ready", "m:3 failed"));
  EXPECT_EQ(MessageOf("m", 3), "m/3/config.json: it is broken");
  EXPECT_TRUE(observer_.serving["m"]);
  EXPECT_EQ(observer_.last_status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(manager_->LoadCounts()[0].loads, 1);
  EXPECT_EQ(manager_->LoadCounts()[0].failures, 1);

  // It is not tried again and again, nor when another version changes.
  for (int i = 0; i < 5; ++i) manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  Write("m/1", "good");
  EXPECT_THAT(AttemptsOfPolls(), IsEmpty());
  EXPECT_EQ(manager_->LoadCounts()[0].failures, 1);

  Write("m/3", "mended");
  EXPECT_THAT(AttemptsOfPolls(), ElementsAre("m:3"));
  EXPECT_THAT(Served(), ElementsAre("m:3"));
  EXPECT_THAT(States(), ElementsAre("m:3 ready"));
  EXPECT_EQ(loader_.live, 1);
}

TEST_F(ModelManagerTest, AStartWithABrokenVersionServesTheHighestThatLoads) {
  Write("m/1", "good");
  Write("m/2", "good");
  Write("m/3", "broken");
  Write("n/1", "huge");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_THAT(loader_.TakeAttempts(), ElementsAre("m:3", "m:2", "n:1"));
  EXPECT_THAT(States(), ElementsAre("m:2 ready", "m:3 failed", "n:1 failed"));
  EXPECT_FALSE(observer_.serving["n"]);
  Delete("m/3");
  EXPECT_THAT(StatesAfterPolls(), ElementsAre("m:2 ready", "n:1 failed"));
  Delete("n");
  EXPECT_THAT(StatesAfterPolls(), ElementsAre("m:2 ready"));
  EXPECT_EQ(manager_->LoadCounts().size(), 1u);
}

TEST_F(ModelManagerTest, AVersionThatIsBeingCopiedIsLeftAlone) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  loader_.TakeAttempts();
  std::string config;
  for (int i = 0; i < 5; ++i) {
    Write("m/2", config += "x");
    manager_->Poll();
  }
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  manager_->Poll();
  EXPECT_THAT(loader_.TakeAttempts(), ElementsAre("m:2"));
  EXPECT_THAT(Served(), ElementsAre("m:2"));
}

TEST_F(ModelManagerTest, WhatChangedWhileItWasLoadedIsDropped) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  Write("m/2", "half");
  loader_.during_load = [this] { Write("m/2", "half, and the other half"); };
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1"));
  EXPECT_THAT(States(), ElementsAre("m:1 ready"));
  EXPECT_EQ(manager_->LoadCounts()[0].failures, 0);
  loader_.during_load = nullptr;
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:2"));
  EXPECT_EQ(loader_.live, 1);
}

TEST_F(ModelManagerTest, WhatChangedAndThenWentLeavesNothingBehind) {
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  Write("m/1", "half");
  loader_.during_load = [this] { Write("m/1", "half, and the other half"); };
  EXPECT_THAT(AttemptsOfPolls(), ElementsAre("m:1"));
  Delete("m");
  PollTwice();
  EXPECT_THAT(manager_->Statuses(), IsEmpty());
  EXPECT_THAT(manager_->LoadCounts(), IsEmpty());
  EXPECT_EQ(loader_.live, 0);
}

TEST_F(ModelManagerTest, AVersionThatIsChangedInPlaceIsLoadedAnew) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  const ServedModel* first = registry_.Find("m", 1)->get();
  auto call = registry_.Find("m", 1);
  Write("m/1", "better");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1"));
  EXPECT_NE(registry_.Find("m", 1)->get(), first);
  EXPECT_THAT(States(), ElementsAre("m:1 ready", "m:1 unloading"));
  call->reset();
  manager_->FreeReleased();

  Write("m/1", "broken");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1"));
  EXPECT_THAT(States(), ElementsAre("m:1 ready"));
  EXPECT_EQ(MessageOf("m", 1), "m/1/config.json: it is broken");
  Write("m/1", "better again");
  PollTwice();
  EXPECT_EQ(MessageOf("m", 1), "");
  EXPECT_EQ(loader_.live, 1);
}

// What artefacts with a fixed time and tools that keep times do. The new contents have the size of
// the old ones.
TEST_F(ModelManagerTest, OtherContentsAreLoadedWhateverTheirTimes) {
  const auto time = std::filesystem::file_time_type();
  const std::string path = repository_.path("m/1/config.json");
  const auto write = [&](const std::string& config) {
    const std::string before = models::FileSignature(repository_.path("m/1"));
    ASSERT_TRUE(testing::PollUntil([&] {  // the clock of a file system moves in ticks
      Write("m/1", config);
      std::filesystem::last_write_time(path, time);
      return models::FileSignature(repository_.path("m/1")) != before;
    }));
  };
  write("good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  loader_.TakeAttempts();
  write("fine");  // cp -p
  EXPECT_THAT(AttemptsOfPolls(), ElementsAre("m:1"));
  Delete("m/1");  // within an interval
  write("well");
  EXPECT_THAT(AttemptsOfPolls(), ElementsAre("m:1"));

  // The same contents are not loaded again, however they come.
  std::filesystem::create_hard_link(path, repository_.path("m/1/backup"));
  PollTwice();
  write("well");
  PollTwice();
  Delete("m/1");
  write("well");
  EXPECT_THAT(AttemptsOfPolls(), IsEmpty());
  EXPECT_EQ(MessageOf("m", 1), "");
}

// A file that is written through a mapping keeps its times, so that polling sees nothing.
TEST_F(ModelManagerTest, WhoAsksGetsContentsThatLookTheSame) {
  for (const ModelControl control : {ModelControl::kPoll, ModelControl::kExplicit}) {
    const bool polls = control == ModelControl::kPoll;
    SCOPED_TRACE(polls);
    Write("m/1", "good");
    const std::string path = repository_.path("m/1/config.json");
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    void* const mapped = mmap(nullptr, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ASSERT_NE(mapped, MAP_FAILED);
    std::memcpy(mapped, "good", 4);  // from now on, the system sees no write
    ASSERT_TRUE(Start(control, {}, {"m"}).ok());
    loader_.TakeAttempts();
    const auto ask = [&] {
      if (!polls) return manager_->Load("m").status();
      manager_->RequestPoll();
      return absl::OkStatus();
    };
    const std::string before = models::FileSignature(repository_.path("m/1"));
    std::memcpy(mapped, "fine", 4);
    ASSERT_EQ(models::FileSignature(repository_.path("m/1")), before);
    if (polls) {
      EXPECT_THAT(AttemptsOfPolls(), IsEmpty());
      manager_->StartThread();
    }
    EXPECT_TRUE(ask().ok());
    EXPECT_TRUE(testing::PollUntil([&] { return manager_->LoadCounts()[0].loads == 2; }));
    EXPECT_TRUE(ask().ok());  // nothing else has changed
    std::memcpy(mapped, "well", 4);
    EXPECT_TRUE(ask().ok());
    EXPECT_TRUE(testing::PollUntil([&] { return manager_->LoadCounts()[0].loads == 3; }));
    munmap(mapped, 4);
    manager_.reset();
    EXPECT_EQ(loader_.TakeAttempts().size(), 2u);
  }
}

TEST_F(ModelManagerTest, WhatDisappearsIsUnloaded) {
  for (const char* version : {"m/1", "m/2", "n/1"}) Write(version, "good");
  ASSERT_TRUE(Start(ModelControl::kPoll, models::VersionPolicy::All()).ok());
  EXPECT_THAT(Served(), ElementsAre("m:1", "m:2", "n:1"));
  // If it is absent for one look only, as in a replacement by two renames, nothing happens.
  std::filesystem::rename(repository_.path("m/2"), repository_.path("m/.old"));
  manager_->Poll();
  std::filesystem::rename(repository_.path("m/.old"), repository_.path("m/2"));
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1", "m:2", "n:1"));
  EXPECT_EQ(manager_->LoadCounts()[0].loads, 2);

  Delete("m/2");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1", "n:1"));
  EXPECT_TRUE(observer_.serving["m"]);
  Delete("m/1");  // the model's directory is still there
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("n:1"));
  EXPECT_FALSE(observer_.serving["m"]);
  Delete("n");
  EXPECT_THAT(ServedAfterPolls(), IsEmpty());
  EXPECT_THAT(manager_->Statuses(), IsEmpty());
  EXPECT_THAT(manager_->LoadCounts(), IsEmpty());
  EXPECT_EQ(loader_.live, 0);
  Write("n/1", "good");
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("n:1"));
}

TEST_F(ModelManagerTest, ARepositoryThatCannotBeListedChangesNothing) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  const std::string moved =
      std::filesystem::path(repository_.path()).parent_path().string() + "-moved";
  std::filesystem::rename(repository_.path(), moved);
  for (int i = 0; i < 3; ++i) manager_->Poll();
  EXPECT_THAT(Served(), ElementsAre("m:1"));
  std::filesystem::rename(moved, repository_.path());
  EXPECT_THAT(ServedAfterPolls(), ElementsAre("m:1"));
  EXPECT_EQ(manager_->LoadCounts()[0].loads, 1);

  std::filesystem::rename(repository_.path(), moved);
  EXPECT_EQ(Start(ModelControl::kPoll).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Start(ModelControl::kExplicit).code(), absl::StatusCode::kNotFound);
  std::filesystem::rename(moved, repository_.path());
}

TEST_F(ModelManagerTest, ADirectoryThatIsNoVersionIsReportedAndHidesNothing) {
  Write("m/1", "good");
  Write("m/2.bak", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll).ok());
  EXPECT_THAT(States(), ElementsAre("m:0 failed", "m:1 ready"));
  EXPECT_THAT(MessageOf("m", 0), HasSubstr("'2.bak' is not a version"));
  Delete("m/2.bak");
  EXPECT_THAT(StatesAfterPolls(), ElementsAre("m:1 ready"));
}

TEST_F(ModelManagerTest, NamedVersionsThatAModelLacksAreReported) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kPoll, models::VersionPolicy::Named({2, 3})).ok());
  EXPECT_THAT(States(), ElementsAre("m:0 failed"));
  EXPECT_THAT(MessageOf("m", 0), HasSubstr("none of the versions 2, 3"));
  Write("m/3", "good");
  EXPECT_THAT(StatesAfterPolls(), ElementsAre("m:3 ready"));
}

TEST_F(ModelManagerTest, ExplicitLoadsAndUnloadsWhatItIsTold) {
  for (const char* version : {"a/1", "b/1", "c/1"}) Write(version, "good");
  ASSERT_TRUE(Start(ModelControl::kExplicit, {}, {"b"}).ok());
  EXPECT_THAT(Served(), ElementsAre("b:1"));
  auto loaded = manager_->Load("a");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_EQ(loaded->size(), 1u);
  EXPECT_EQ((*loaded)[0].state, telemetry::ModelState::kReady);
  EXPECT_THAT(Served(), ElementsAre("a:1", "b:1"));

  // Another call looks and finds nothing to do.
  loader_.TakeAttempts();
  EXPECT_TRUE(manager_->Load("a").ok());
  EXPECT_THAT(loader_.TakeAttempts(), IsEmpty());
  Write("a/2", "good");
  EXPECT_TRUE(manager_->Load("a").ok());
  EXPECT_THAT(Served(), ElementsAre("a:2", "b:1"));

  EXPECT_TRUE(manager_->Unload("a").ok());
  EXPECT_THAT(Served(), ElementsAre("b:1"));
  EXPECT_FALSE(observer_.serving["a"]);
  EXPECT_EQ(loader_.live, 1);
  const absl::Status again = manager_->Unload("a");
  EXPECT_EQ(again.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(again.message()), HasSubstr("'a' is not loaded; loaded: b"));
}

TEST_F(ModelManagerTest, LoadsWaitOnceForWhatWasUnloaded) {
  for (const char* version : {"a/1", "b/1", "c/1", "d/1"}) Write(version, "good");
  unload_wait_ = absl::Milliseconds(20);
  ASSERT_TRUE(Start(ModelControl::kExplicit, {}, {"a"}).ok());
  const std::shared_ptr<ServedModel> held = registry_.List().front();
  ASSERT_TRUE(manager_->Unload("a").ok());
  manager_->StartThread();
  const auto load = [this](const char* name) {
    auto loaded = std::make_shared<std::promise<bool>>();
    manager_->RequestLoad(
        name, [] { return false; },
        [loaded](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& result) {
          loaded->set_value(result.ok());
        });
    return loaded->get_future();
  };
  EXPECT_TRUE(load("b").get());
  std::future<bool> second = load("c");
  while (second.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
    clock_.Advance(unload_wait_);
  }
  // It is in memory still, and the clock stands.
  EXPECT_EQ(load("d").wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_THAT(Served(), ElementsAre("b:1", "c:1", "d:1"));
}

TEST_F(ModelManagerTest, ExplicitLoadThatFailsLeavesWhatIsServed) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kExplicit).ok());
  ASSERT_TRUE(manager_->Load("m").ok());
  loader_.TakeAttempts();
  Write("m/2", "broken");
  repository_.Write("m/2/model.safetensors", "");
  // Without contents; to read them would take an hour.
  std::filesystem::resize_file(repository_.path("m/2/model.safetensors"), int64_t{4} << 40);
  absl::Status status = manager_->Load("m").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "model m version 2: m/2/config.json: it is broken; version 1 is served");
  std::filesystem::remove(repository_.path("m/2/model.safetensors"));
  EXPECT_THAT(States(), ElementsAre("m:1 ready", "m:2 failed"));
  // Another call tries again, whether or not the files have changed.
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(loader_.TakeAttempts(), ElementsAre("m:2", "m:2"));
  Write("m/2", "huge");
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kResourceExhausted);
  loader_.during_load = [this] { Write("m/2", "changed"); };
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kAborted);
  loader_.during_load = nullptr;
  EXPECT_TRUE(manager_->Load("m").ok());
  EXPECT_THAT(States(), ElementsAre("m:2 ready"));

  // Its directory disappears: that is an error, and it is still served until it is unloaded.
  Delete("m/1");
  Delete("m/2");
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kFailedPrecondition);
  Delete("m");
  EXPECT_EQ(manager_->Load("m").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Served(), ElementsAre("m:2"));
}

TEST_F(ModelManagerTest, ExplicitDoesNotFallBackToALowerVersion) {
  Write("m/1", "good");
  Write("m/2", "broken");
  ASSERT_TRUE(Start(ModelControl::kExplicit).ok());
  const absl::Status status = manager_->Load("m").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no version of the model is served"));
  EXPECT_THAT(States(), ElementsAre("m:2 failed"));
  EXPECT_TRUE(manager_->Unload("m").ok());  // forgets the failure
  EXPECT_THAT(manager_->Statuses(), IsEmpty());
  EXPECT_EQ(Start(ModelControl::kExplicit, {}, {"m"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Start(ModelControl::kExplicit, {}, {"x"}).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelManagerTest, NamesCannotLeaveTheRepository) {
  Write("m/1", "good");
  ASSERT_TRUE(Start(ModelControl::kExplicit).ok());
  for (const std::string& name :
       {std::string(), std::string(".."), std::string("../x"), std::string("m/1"),
        std::string("/etc"), std::string("m\0", 2), std::string(".hidden")}) {
    EXPECT_EQ(manager_->Load(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(manager_->Unload(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(manager_->Load("unknown").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(loader_.attempts, IsEmpty());
  EXPECT_THAT(manager_->Statuses(), IsEmpty());
}

// Counts answers by code.
class Answers {
 public:
  void Add(const absl::Status& status) {
    MutexLock lock(&mutex_);
    codes_.push_back(status.code());
    changed_.SignalAll();
  }
  std::vector<absl::StatusCode> Await(size_t count) {
    MutexLock lock(&mutex_);
    while (codes_.size() < count) changed_.Wait(&mutex_);
    return codes_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::StatusCode> codes_ ABSL_GUARDED_BY(mutex_);
};

// One model, whose load waits until it is told to go on; requests' answers are collected.
class WaitingLoadTest : public ModelManagerTest {
 protected:
  void SetUp() override {
    Write("m/1", "good");
    ASSERT_TRUE(Start(ModelControl::kExplicit).ok());
    loader_.during_load = [this] {
      reached_.Notify();
      EXPECT_TRUE(open_.Wait());
    };
    manager_->StartThread();
  }
  void RequestLoad(std::function<bool()> cancelled = [] { return false; }) {
    manager_->RequestLoad(
        "m", std::move(cancelled),
        [this](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& result) {
          answers_.Add(result.status());
        });
  }

  sru::testing::Notification reached_;
  sru::testing::Notification open_;  // lets the load go on
  Answers answers_;
};

TEST_F(WaitingLoadTest, RequestsAreServedOneAfterTheOther) {
  for (int i = 0; i < 10; ++i) RequestLoad();
  ASSERT_TRUE(reached_.Wait());
  RequestLoad([] { return true; });  // its caller left meanwhile
  manager_->RequestUnload(
      "m", [] { return false; }, [this](const absl::Status& status) { answers_.Add(status); });
  open_.Notify();
  std::vector<absl::StatusCode> expected(12, absl::StatusCode::kOk);
  expected[10] = absl::StatusCode::kCancelled;
  EXPECT_EQ(answers_.Await(12), expected);
  EXPECT_EQ(loader_.attempts.size(), 1u);
  EXPECT_THAT(Served(), IsEmpty());
}

TEST_F(WaitingLoadTest, StoppingAnswersWhatWaitsAndDropsWhatIsLoaded) {
  RequestLoad();
  ASSERT_TRUE(reached_.Wait());
  for (int i = 0; i < 65; ++i) RequestLoad();
  EXPECT_THAT(answers_.Await(1), ElementsAre(absl::StatusCode::kResourceExhausted));
  manager_->BeginStop();
  RequestLoad();
  const std::vector<absl::StatusCode> codes = answers_.Await(66);
  EXPECT_EQ(std::count(codes.begin(), codes.end(), absl::StatusCode::kUnavailable), 65);
  open_.Notify();
  EXPECT_EQ(answers_.Await(67).back(), absl::StatusCode::kCancelled);
  EXPECT_THAT(Served(), IsEmpty());
  manager_.reset();
  EXPECT_EQ(loader_.live, 0);
}

struct OneToken : batching::SequenceTask {
  OneToken() { num_tokens = 1; }
};

// Does nothing, at once.
class IdleRunner : public batching::BatchRunner {
 public:
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const batching::SequenceTask*>& /*sequences*/) override {
    return absl::OkStatus();
  }
};

// Loads real engines, as the server does.
class EngineLoader : public ModelLoader {
 public:
  absl::StatusOr<std::unique_ptr<ServedModel>> Load(
      const models::ModelLocation& location) override {
    auto served = std::make_unique<ServedModel>();
    served->name = location.name;
    served->version = location.version;
    std::vector<std::unique_ptr<batching::BatchRunner>> runners;
    for (int i = 0; i < 2; ++i) runners.push_back(std::make_unique<IdleRunner>());
    auto engine =
        batching::Engine::CreateWithRunners(std::move(runners), options_, &clock_, nullptr);
    if (!engine.ok()) return engine.status();
    served->engine = *std::move(engine);
    return served;
  }

 private:
  RealClock clock_;
  batching::EngineOptions options_;
  const std::unique_ptr<batching::WorkerPool> pool_ = batching::MakePool({2}, &clock_, &options_);
};

// Calls as the service makes them, while the model is replaced over and over. A call lets go of the
// model on a thread of the model's own engine.
TEST(ModelManagerStressTest, NoCallFailsWhileModelsAreReplaced) {
  models::TempDirectory repository;
  repository.Write("m/1/config.json", "1");
  EngineLoader loader;
  ModelRegistry registry;
  RealClock clock;
  ModelManagerOptions options;
  options.repository = repository.path();
  options.control = ModelControl::kExplicit;
  options.load_models = {"m"};
  ModelManager manager(options, &loader, &registry, &clock, nullptr);
  ASSERT_TRUE(manager.Start().ok());
  manager.StartThread();

  std::atomic<bool> stop{false};
  std::atomic<int64_t> answered{0};
  std::atomic<int64_t> failed{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (!stop) {
        auto found = registry.Find("m", 0);
        if (!found.ok()) {
          ++failed;
          continue;
        }
        struct Call {
          std::shared_ptr<ServedModel> served;
          Answers answers;
          OneToken task;
        };
        auto call = std::make_shared<Call>();
        call->served = *std::move(found);
        batching::Batcher& batcher = call->served->engine->batcher();
        batching::BatchRequest request;
        request.sequences = {&call->task};
        request.done = [call](const absl::Status& status, const batching::RequestTimes& /*times*/) {
          call->served.reset();
          call->answers.Add(status);
        };
        // As in the service, `served` is held here too until Submit() has returned.
        const std::shared_ptr<ServedModel> held = call->served;
        if (!batcher.Submit(std::move(request)).ok()) ++failed;
        if (call->answers.Await(1)[0] != absl::StatusCode::kOk) ++failed;
        ++answered;
      }
    });
  }
  Answers loads;
  for (int i = 2; i < 60; ++i) {
    // Every other time a new version appears; otherwise the same one gets other files.
    repository.Write(absl::StrCat("m/", i / 2 + 1, "/config.json"), absl::StrCat(i));
    manager.RequestLoad(
        "m", [] { return false; },
        [&loads](const absl::StatusOr<std::vector<telemetry::ModelStatus>>& result) {
          loads.Add(result.status());
        });
    EXPECT_EQ(loads.Await(i - 1).back(), absl::StatusCode::kOk);
    const int64_t before = answered;
    while (answered < before + 20 && failed == 0) std::this_thread::yield();
  }
  stop = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 0);
  EXPECT_GE(answered, 58 * 20);
}

}  // namespace
}  // namespace sru::server::lifecycle
