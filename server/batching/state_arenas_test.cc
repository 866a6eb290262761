#include "server/batching/state_arenas.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

using ::testing::HasSubstr;

// A program with one field of 16 values, so that a page takes 64 bytes.
class FakeExecutable final : public kernels::ProgramExecutable {
 public:
  explicit FakeExecutable(std::vector<kernels::Status> devices) : devices_(std::move(devices)) {}

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  size_t weight_bytes() const override { return 0; }
  kernels::Status CreateWorkspace(
      const kernels::ProgramLimits& /*limits*/,
      std::unique_ptr<kernels::ProgramWorkspace>* /*workspace*/) const override {
    return kernels::Internal("not in this test");
  }
  kernels::Status CreateArena(const kernels::ArenaOptions& options,
                              std::unique_ptr<kernels::StateArena>* arena) const override {
    if (!devices_[options.device].ok()) return devices_[options.device];
    kernels::FieldSpec field;
    field.name = "c";
    field.width = 16;
    *arena = std::make_unique<kernels::StateArena>(std::vector<kernels::FieldSpec>{field},
                                                   std::vector<kernels::AxisId>{0}, options,
                                                   kernels::HostArenaMemory());
    return kernels::OkStatus();
  }
  kernels::Status Run(const kernels::ProgramBatch& /*batch*/,
                      const kernels::OutputBatch* /*outputs*/,
                      kernels::ProgramWorkspace& /*workspace*/) const override {
    return kernels::Internal("not in this test");
  }

 private:
  const std::vector<kernels::Status> devices_;
};

StateBudgets BudgetsOf(std::vector<size_t> bytes) {
  StateBudgets budgets;
  for (const size_t b : bytes) budgets.push_back(std::make_shared<kernels::ArenaBudget>(b));
  return budgets;
}

kernels::Status PutRow(kernels::StateArena& arena) {
  kernels::StateArena::Slot slot;
  kernels::Status status = arena.Allocate(&slot);
  if (!status.ok()) return status;
  kernels::StateArena::State state;
  state.rows = {1};
  state.values.assign(16, 1.0f);
  status = arena.Put(slot, state);
  if (!status.ok()) arena.Free(slot);
  return status;
}

TEST(MakeStateBudgetsTest, AreATenthOfWhatIsFreeUnlessTold) {
  MemoryLimits memory;
  memory.limit_bytes = 90000000000;
  memory.available_bytes = 5000000000;
  StateBudgets budgets = MakeStateBudgets(0, {}, memory);
  ASSERT_EQ(budgets.size(), 1u);
  EXPECT_EQ(budgets[0]->bytes(), 500000000u);
  budgets = MakeStateBudgets(7, {}, memory);
  ASSERT_EQ(budgets.size(), 1u);
  EXPECT_EQ(budgets[0]->bytes(), 7000000u);

  std::vector<kernels::DeviceInfo> devices(3);
  devices[0].memory_free = 80000000000;
  devices[1].memory_free = 40000000000;
  devices[2].lost = true;
  budgets = MakeStateBudgets(0, devices, memory);
  ASSERT_EQ(budgets.size(), 3u);
  EXPECT_EQ(budgets[0]->bytes(), 8000000000u);
  EXPECT_EQ(budgets[1]->bytes(), 4000000000u);
  EXPECT_EQ(budgets[2]->bytes(), 16000000u);
  budgets = MakeStateBudgets(1000, devices, memory);
  ASSERT_EQ(budgets.size(), 3u);
  EXPECT_EQ(budgets[1]->bytes(), 1000000000u);
  EXPECT_NE(budgets[0], budgets[1]);
}

TEST(MakeStateBudgetsTest, AreNeverTiny) {
  MemoryLimits memory;  // nothing could be read, or nothing is left
  EXPECT_EQ(MakeStateBudgets(0, {}, memory)[0]->bytes(), 16000000u);
  memory.available_bytes = 1000;
  EXPECT_EQ(MakeStateBudgets(0, {}, memory)[0]->bytes(), 16000000u);
}

TEST(StateArenasTest, ModelsShareTheBudgetOfEachDevice) {
  const FakeExecutable executable({kernels::OkStatus(), kernels::OkStatus()});
  const StateBudgets budgets = BudgetsOf({2 * 64, 64});
  const auto a = StateArenas::Create(executable, budgets);
  const auto b = StateArenas::Create(executable, budgets);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*(*a)->arena(1))->device(), 1);
  EXPECT_NE(*(*a)->arena(0), *(*b)->arena(0));

  EXPECT_TRUE(PutRow(**(*a)->arena(0)).ok());
  EXPECT_TRUE(PutRow(**(*b)->arena(0)).ok());
  for (const auto& arenas : {&*a, &*b}) {
    const kernels::Status full = PutRow(**(*arenas)->arena(0));
    EXPECT_EQ(full.code(), kernels::StatusCode::kResourceExhausted);
    EXPECT_THAT(full.message(), HasSubstr("budget of 128 bytes"));
  }
  EXPECT_TRUE(PutRow(**(*a)->arena(1)).ok());

  const StateArenas::Stats stats = (*a)->stats();
  EXPECT_EQ(stats.slots, 2);
  EXPECT_EQ(stats.used_bytes, 128);
  EXPECT_EQ(stats.held_bytes, 128);
  EXPECT_EQ((*b)->stats().slots, 1);
}

TEST(StateArenasTest, DevicesThatHaveFailedAreLeftOut) {
  const kernels::Status lost(kernels::StatusCode::kDeviceLost, "device 0 is lost");
  const StateBudgets budgets = BudgetsOf({1000, 1000});
  const auto arenas = StateArenas::Create(FakeExecutable({lost, kernels::OkStatus()}), budgets);
  ASSERT_TRUE(arenas.ok());
  EXPECT_EQ((*arenas)->arena(0).status(), absl::UnavailableError("device 0 is lost"));
  ASSERT_TRUE((*arenas)->arena(1).ok());
  EXPECT_TRUE(PutRow(**(*arenas)->arena(1)).ok());
  EXPECT_EQ((*arenas)->stats().slots, 1);
}

TEST(StateArenasTest, OtherErrorsAreReturned) {
  const absl::Status status =
      StateArenas::Create(FakeExecutable({kernels::OkStatus(), kernels::Unsupported("no states")}),
                          BudgetsOf({1, 1}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), HasSubstr("no states"));
  const absl::Status budgets =
      StateArenas::Create(FakeExecutable({kernels::OkStatus(), kernels::OkStatus()}),
                          BudgetsOf({1}))
          .status();
  EXPECT_EQ(budgets.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(budgets.message(), "state_budgets: expected one for each of 2 devices, found 1");
}

}  // namespace
}  // namespace sru::server::batching
