// RunInHalves: what a step of a StepRunner does when it is too much for its memory.
#ifndef SRU_SERVER_TASKS_PROGRAMS_RUN_IN_HALVES_H_
#define SRU_SERVER_TASKS_PROGRAMS_RUN_IN_HALVES_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"

namespace sru::server::tasks {

// Runs items[begin, end), whose shares they name, by `run`; `commit` passes on what it resulted in.
// An error for want of memory, or of one item, runs them in halves, down to one. Returns only what
// ends the step: kUnavailable.
template <typename Item, typename Share, typename Run, typename Commit>
absl::Status RunInHalves(const std::vector<Item>& items, size_t begin, size_t end,
                         std::vector<Share>& shares, const Run& run, const Commit& commit) {
  const absl::Status status = run(begin, end);
  if (absl::IsUnavailable(status)) return status;
  if (!status.ok() && end - begin > 1 &&
      (absl::IsResourceExhausted(status) || absl::IsInvalidArgument(status))) {
    const size_t middle = begin + (end - begin) / 2;
    const absl::Status first = RunInHalves(items, begin, middle, shares, run, commit);
    return first.ok() ? RunInHalves(items, middle, end, shares, run, commit) : first;
  }
  for (size_t i = begin; i < end; ++i) shares[items[i].share].status.Update(status);
  if (status.ok()) commit();
  return absl::OkStatus();
}

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_PROGRAMS_RUN_IN_HALVES_H_
