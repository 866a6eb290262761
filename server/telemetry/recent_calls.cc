#include "server/telemetry/recent_calls.h"

#include <algorithm>
#include <array>

namespace sru::server::telemetry {

void RecentCalls::Add(RecentCall call) {
  const MutexLock lock(&mutex_);
  if (calls_.size() >= most_) {
    std::array<int, 32> counts{};
    const auto of = [&counts](const RecentCall& one) -> int& {
      return counts[static_cast<size_t>(one.code) % counts.size()];
    };
    ++of(call);
    int highest = 0;
    for (const RecentCall& one : calls_) highest = std::max(highest, ++of(one));
    calls_.erase(std::find_if(calls_.begin(), calls_.end(),
                              [&](const RecentCall& one) { return of(one) == highest; }));
  }
  calls_.push_back(std::move(call));
}

std::vector<RecentCall> RecentCalls::List() const {
  const MutexLock lock(&mutex_);
  return {calls_.rbegin(), calls_.rend()};
}

}  // namespace sru::server::telemetry
