// The memory for the states of sequences (kernels/state_arena.h): a budget for each device, which
// all models of a server share, and the arenas of one model, one on each device, which take from
// it.
//
// Whoever comes first gets the memory: no model has a part of its own. What an arena holds without
// using it is bounded (a block of each field, and free pages for the next step), so that an idle
// model keeps little from the others.
#ifndef SRU_SERVER_BATCHING_STATE_ARENAS_H_
#define SRU_SERVER_BATCHING_STATE_ARENAS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/state_arena.h"
#include "server/base/memory_limit.h"

namespace sru::server::batching {

// [device]; one entry for a backend on the processor.
using StateBudgets = std::vector<std::shared_ptr<kernels::ArenaBudget>>;

// `megabytes` (10^6 bytes) for each device, or with 0 a tenth of what is free now: of the memory of
// each of `devices`, or for a backend without devices of what `memory` has available; at least 16
// megabytes.
StateBudgets MakeStateBudgets(int64_t megabytes, const std::vector<kernels::DeviceInfo>& devices,
                              const MemoryLimits& memory);

// Thread-safe.
class StateArenas {
 public:
  struct Stats {
    int64_t slots = 0;
    int64_t used_bytes = 0;  // as kernels::StateArena::Stats, over all devices
    int64_t held_bytes = 0;
  };

  // A device that has failed has no arena, and says so when it is asked for. kInvalidArgument when
  // there are fewer budgets than devices. `executable` may be destroyed before the arenas.
  static absl::StatusOr<std::unique_ptr<StateArenas>> Create(
      const kernels::ProgramExecutable& executable, const StateBudgets& budgets);

  // That of the device, which all of its workers share. kUnavailable when the device had failed
  // already.
  absl::StatusOr<std::shared_ptr<kernels::StateArena>> arena(int device) const {
    return arenas_[device];
  }

  Stats stats() const;

 private:
  StateArenas() = default;

  std::vector<absl::StatusOr<std::shared_ptr<kernels::StateArena>>> arenas_;  // [device]
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STATE_ARENAS_H_
