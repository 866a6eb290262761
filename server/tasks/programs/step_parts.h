// PlanItems and RunInParts: how a StepRunner makes items of a step's shares, and runs them in
// parts.
#ifndef SRU_SERVER_TASKS_PROGRAMS_STEP_PARTS_H_
#define SRU_SERVER_TASKS_PROGRAMS_STEP_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "base/status.h"

namespace sru::server::tasks {

// Lets each share's sequence plan its items: `plan` writes them to `planned`, of share i, and `add`
// takes them one by one. Sets each share's status, and its `unused` rows unless that is an error.
template <typename Item, typename Share, typename Plan, typename Add>
void PlanItems(std::vector<Share>& shares, std::vector<Item>* planned, const Plan& plan,
               const Add& add) {
  for (size_t i = 0; i < shares.size(); ++i) {
    Share& share = shares[i];
    planned->clear();
    share.status = plan(share, i);
    if (!share.status.ok()) continue;
    share.unused = share.rows;
    for (const Item& item : *planned) {
      share.unused -= std::max(item.count, 1);  // an item without tokens picks the first one
      add(item);
    }
  }
}

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

// The same for all of `items`, as many together as fit: `end_of` returns the end of the part that
// begins with an item.
template <typename Item, typename Share, typename EndOf, typename Run, typename Commit>
absl::Status RunInParts(const std::vector<Item>& items, std::vector<Share>& shares,
                        const EndOf& end_of, const Run& run, const Commit& commit) {
  for (size_t begin = 0; begin < items.size();) {
    const size_t end = end_of(begin);
    SRU_RETURN_UNLESS_OK(RunInHalves(items, begin, end, shares, run, commit));
    begin = end;
  }
  return absl::OkStatus();
}

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_PROGRAMS_STEP_PARTS_H_
