#include "server/callers/callers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace sru::server::callers {
namespace {

// How fast it is forgotten how busy a caller was.
constexpr absl::Duration kFade = absl::Seconds(60);
// Who is so many times as busy takes another one's name among the metrics.
constexpr double kClearlyBusier = 2;
// Names of levels: of tokens without a name, and of all that have no level of their own.
constexpr absl::string_view kUnnamed = "unnamed";
constexpr absl::string_view kOther = "other";

}  // namespace

CallerPtr Callers::Find(absl::string_view id, absl::string_view name, bool proven,
                        const CallerLimits* limits) {
  MutexLock lock(&mutex_);
  auto found = known_.find(id);
  if (found == known_.end()) {
    if (known_.size() >= forget_at_) Forget();
    auto caller = std::make_shared<Caller>(std::string(id), std::string(name), proven,
                                           limits == nullptr ? limits_ : *limits,
                                           name == kUnnamed ? unnamed_ : others_, &clock_);
    found = known_.emplace(std::string(id), Known{std::move(caller)}).first;
    if (num_apart_ < kNamed && name != kUnnamed) SetApart(&found->second, true);
  } else if (limits != nullptr) {
    found->second.caller->SetLimits(*limits);
  }
  found->second.caller->OnSeen();
  return found->second.caller;
}

CallerPtr Callers::WithLimits(absl::string_view id, absl::string_view name,
                              const CallerLimits& limits) {
  return Find(id, name.empty() ? kUnnamed : name, /*proven=*/true, &limits);
}

CallerPtr Callers::ByCertificate(absl::string_view subject) {
  // A certificate may have another encoding, but metrics are UTF-8.
  const std::string name = FindInvalidUtf8({subject.data(), subject.size()}) == subject.size()
                               ? std::string(subject)
                               : absl::CHexEscape(subject);
  return Find(absl::StrCat("certificate ", name), name, /*proven=*/true, nullptr);
}

CallerPtr Callers::ByAddress(absl::string_view address) {
  return Find(address, address, /*proven=*/false, nullptr);
}

void Callers::SetApart(Known* known, bool apart) {
  if (known->apart == apart) return;
  known->apart = apart;
  known->caller->CountApart(apart);
  num_apart_ += apart ? 1 : -1;
}

void Callers::Forget() {
  std::vector<absl::Time> seen;
  for (const auto& [id, known] : known_) {
    if (known.caller.use_count() == 1) seen.push_back(known.caller->last_seen());
  }
  absl::Time middle = absl::InfinitePast();
  if (!seen.empty()) {
    const auto at = seen.begin() + static_cast<std::ptrdiff_t>(seen.size() / 2);
    std::nth_element(seen.begin(), at, seen.end());
    middle = *at;
  }
  for (auto it = known_.begin(); it != known_.end();) {
    const auto here = it++;
    if (here->second.caller.use_count() > 1 || here->second.caller->last_seen() > middle) continue;
    SetApart(&here->second, false);
    known_.erase(here);
  }
  // Callers in use may exceed the bound.
  forget_at_ = std::max(kMostIdle, 2 * known_.size());
}

std::vector<Callers::Level> Callers::Levels() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  const double kept =
      std::exp(-absl::FDivDuration(now - std::max(chosen_at_, now - 100 * kFade), kFade));
  chosen_at_ = now;
  std::vector<std::pair<double, Known*>> ranking;
  Level unnamed{std::string(kUnnamed), unnamed_->calls, unnamed_->tokens, unnamed_->refused, 0};
  for (auto& [id, known] : known_) {
    if (known.caller->name() == kUnnamed) {
      unnamed.in_flight += known.caller->in_flight();
      continue;
    }
    known.score = known.score * kept + static_cast<double>(known.caller->TakeActivity());
    ranking.emplace_back(known.score * (known.apart ? kClearlyBusier : 1), &known);
  }
  const size_t most = std::min(kNamed, ranking.size());
  std::partial_sort(ranking.begin(), ranking.begin() + static_cast<std::ptrdiff_t>(most),
                    ranking.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (size_t i = most; i < ranking.size(); ++i) SetApart(ranking[i].second, false);

  std::map<std::string, Level> by_name;  // certificates of several authorities may have one
  Level others{std::string(kOther), others_->calls, others_->tokens, others_->refused, 0};
  for (size_t i = 0; i < ranking.size(); ++i) {
    Known* const known = ranking[i].second;
    const Caller& caller = *known->caller;
    Level* level = &others;
    if (i < most) {
      SetApart(known, true);
      level = &by_name[caller.name() == kOther ? absl::StrCat("'", kOther, "'") : caller.name()];
      level->calls += caller.counts().calls;
      level->tokens += caller.counts().tokens;
      level->refused += caller.counts().refused;
    }
    level->in_flight += caller.in_flight();
  }
  std::vector<Level> levels;
  for (auto& [name, level] : by_name) {
    level.name = name;
    levels.push_back(std::move(level));
  }
  if (unnamed.calls > 0 || unnamed.in_flight > 0) levels.push_back(std::move(unnamed));
  if (ranking.size() > kNamed || others.calls > 0) levels.push_back(std::move(others));
  return levels;
}

}  // namespace sru::server::callers
