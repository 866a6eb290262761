#include "server/callers/caller_limits.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "server/calls/method_info.h"

namespace sru::server::callers {
namespace {

using batching::Priority;

constexpr std::array<absl::string_view, 8> kKeys = {
    "tokens_per_second", "burst",  "calls_in_flight", "open_streams",
    "highest_priority",  "models", "methods",         "weight"};

constexpr int64_t kMostTokens = int64_t{1} << 40;
constexpr int64_t kMostCalls = 1 << 20;

absl::Status Expected(absl::string_view key, absl::string_view what, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(key, ": expected ", what, ", found '", found.substr(0, 64), "'"));
}

// "none": no limit, also where the default has one.
absl::Status ParseCount(absl::string_view key, absl::string_view value, int64_t most,
                        int64_t* count) {
  if (value == "none") {
    *count = 0;
    return absl::OkStatus();
  }
  if (absl::SimpleAtoi(value, count) && *count >= 1 && *count <= most) return absl::OkStatus();
  return Expected(key, absl::StrCat("a whole number from 1 to ", most, ", or none"), value);
}

// Parses names between commas.
absl::StatusOr<std::vector<std::string>> ParseNames(absl::string_view key,
                                                    absl::string_view value) {
  std::vector<std::string> names = absl::StrSplit(value, ',');
  if (std::any_of(names.begin(), names.end(), [](const std::string& name) { return name.empty(); }))
    return Expected(key, "names between commas", value);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<absl::string_view> MethodNames() {
  std::vector<absl::string_view> names;
  for (size_t i = 0; i < calls::kNumMethods; ++i) {
    const auto method = static_cast<calls::MethodId>(i);
    if (calls::IsLimited(method)) names.emplace_back(calls::MethodName(method));
  }
  return names;
}

absl::Status ParseMethods(absl::string_view key, absl::string_view value,
                          std::vector<std::string>* methods) {
  SRU_ASSIGN_OR_RETURN(*methods, ParseNames(key, value));
  const std::vector<absl::string_view> known = MethodNames();
  for (const std::string& method : *methods) {
    if (std::find(known.begin(), known.end(), method) != known.end()) continue;
    return Expected(key, absl::StrCat("some of ", absl::StrJoin(known, ", ")), method);
  }
  return absl::OkStatus();
}

absl::Status ParseOne(absl::string_view key, absl::string_view value, CallerLimits* limits) {
  if (key == "tokens_per_second") {
    return ParseCount(key, value, kMostTokens, &limits->tokens_per_second);
  }
  if (key == "burst") return ParseCount(key, value, kMostTokens, &limits->burst);
  if (key == "calls_in_flight") return ParseCount(key, value, kMostCalls, &limits->calls_in_flight);
  if (key == "open_streams") return ParseCount(key, value, kMostCalls, &limits->open_streams);
  if (key == "highest_priority") {
    for (const Priority priority : {Priority::kLow, Priority::kNormal, Priority::kHigh}) {
      if (value != PriorityName(priority)) continue;
      limits->highest_priority = priority;
      return absl::OkStatus();
    }
    return Expected(key, "low, normal or high", value);
  }
  if (key == "models") {
    SRU_ASSIGN_OR_RETURN(limits->models, ParseNames(key, value));
    return absl::OkStatus();
  }
  if (key == "methods") return ParseMethods(key, value, &limits->methods);
  if (absl::SimpleAtod(value, &limits->weight) && limits->weight >= 0.01 && limits->weight <= 100) {
    return absl::OkStatus();
  }
  return Expected(key, "a number from 0.01 to 100", value);
}

absl::string_view KeyOf(absl::string_view word) { return word.substr(0, word.find('=')); }

}  // namespace

bool IsLimit(absl::string_view word) {
  const absl::string_view key = KeyOf(word);
  return word.size() > key.size() + 1 && std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

absl::StatusOr<CallerLimits> ParseLimits(absl::Span<const absl::string_view> words,
                                         CallerLimits defaults) {
  CallerLimits limits = std::move(defaults);
  std::set<absl::string_view> seen;
  for (const absl::string_view word : words) {
    if (!IsLimit(word)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "expected KEY=VALUE with a key of ", absl::StrJoin(kKeys, ", "), ", found another word"));
    }
    const absl::string_view key = KeyOf(word);
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": expected once, found twice"));
    }
    SRU_RETURN_UNLESS_OK(ParseOne(key, word.substr(key.size() + 1), &limits));
  }
  if (limits.burst > 0 && limits.tokens_per_second == 0) {
    return absl::InvalidArgumentError("burst: expected tokens_per_second beside it, found none");
  }
  return limits;
}

absl::StatusOr<CallerLimits> ParseLimitsFlag(absl::string_view flag, absl::string_view text) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  absl::StatusOr<CallerLimits> limits = ParseLimits(words, {});
  if (limits.ok()) return limits;
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", limits.status().message()));
}

const char* PriorityName(Priority priority) {
  static constexpr const char* kNames[] = {"low", "normal", "high"};
  return kNames[static_cast<size_t>(priority)];
}

}  // namespace sru::server::callers
