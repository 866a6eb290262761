#include "server/batching/state_arenas.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "models/kernel_status.h"

namespace sru::server::batching {
namespace {

constexpr int64_t kMegabyte = 1000000;
// The states of a hundred sequences of a language model with 12 layers, twice: a run writes new
// ones before it lets the old ones go.
constexpr int64_t kLeastMegabytes = 16;

}  // namespace

StateBudgets MakeStateBudgets(int64_t megabytes, const std::vector<kernels::DeviceInfo>& devices,
                              const MemoryLimits& memory) {
  std::vector<int64_t> free;
  for (const kernels::DeviceInfo& device : devices) {
    free.push_back(static_cast<int64_t>(device.memory_free));
  }
  if (free.empty()) free.push_back(memory.available_bytes);
  StateBudgets budgets;
  for (const int64_t bytes : free) {
    const int64_t tenth = std::max(bytes / 10, kLeastMegabytes * kMegabyte);
    budgets.push_back(std::make_shared<kernels::ArenaBudget>(
        static_cast<size_t>(megabytes > 0 ? megabytes * kMegabyte : tenth)));
  }
  return budgets;
}

absl::StatusOr<std::unique_ptr<StateArenas>> StateArenas::Create(
    const kernels::ProgramExecutable& executable, const StateBudgets& budgets) {
  const int num_devices = executable.num_devices();
  if (budgets.size() < static_cast<size_t>(num_devices)) {
    return InvalidArgument("state_budgets: expected one for each of ", num_devices,
                           " devices, found ", budgets.size());
  }
  std::unique_ptr<StateArenas> arenas(new StateArenas);
  for (int device = 0; device < num_devices; ++device) {
    kernels::ArenaOptions options;
    options.budget = budgets[device];
    options.device = device;
    std::unique_ptr<kernels::StateArena> arena;
    absl::Status status = models::ToAbslStatus(executable.CreateArena(options, &arena));
    if (status.ok()) {
      arenas->arenas_.emplace_back(std::move(arena));
    } else if (absl::IsUnavailable(status)) {
      arenas->arenas_.emplace_back(std::move(status));
    } else {
      return status;
    }
  }
  return arenas;
}

StateArenas::Stats StateArenas::stats() const {
  Stats stats;
  for (const auto& arena : arenas_) {
    if (!arena.ok()) continue;
    const kernels::StateArena::Stats of_device = (*arena)->stats();
    stats.slots += of_device.slots;
    stats.used_bytes += static_cast<int64_t>(of_device.used_bytes);
    stats.held_bytes += static_cast<int64_t>(of_device.held_bytes);
  }
  return stats;
}

}  // namespace sru::server::batching
