// CallerLimits: what a caller may take from the server ("none": without a limit), and how it is
// written in the file of tokens (docs/security.md) and in --caller_limits:
//
//   tokens_per_second=20000 burst=40000 calls_in_flight=64 open_streams=8 highest_priority=normal
//   models=trec,lm methods=Classify weight=2
#ifndef SRU_SERVER_CALLERS_CALLER_LIMITS_H_
#define SRU_SERVER_CALLERS_CALLER_LIMITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "server/batching/queue/order_tree.h"

namespace sru::server::callers {

struct CallerLimits {
  // Sequence tokens; 0 = no limit.
  int64_t tokens_per_second = 0;
  int64_t burst = 0;  // most that gather while nothing is used; 0 = those of one second
  // 0 = no limit.
  int64_t calls_in_flight = 0;
  int64_t open_streams = 0;
  batching::Priority highest_priority = batching::Priority::kNormal;
  std::vector<std::string> models;   // empty = all
  std::vector<std::string> methods;  // of those that compute; empty = all
  double weight = 1;                 // its share beside others', 0.01 to 100

  int64_t most_tokens() const { return burst > 0 ? burst : tokens_per_second; }
  friend bool operator==(const CallerLimits& a, const CallerLimits& b) {
    return a.tokens_per_second == b.tokens_per_second && a.burst == b.burst &&
           a.calls_in_flight == b.calls_in_flight && a.open_streams == b.open_streams &&
           a.highest_priority == b.highest_priority && a.models == b.models &&
           a.methods == b.methods && a.weight == b.weight;
  }
};

// True for KEY=VALUE with the key of a limit and a value.
bool IsLimit(absl::string_view word);

// Reads words that are all KEY=VALUE; what they do not say is as in `defaults`. kInvalidArgument
// names the key, and repeats no word that is no limit: it might be a secret.
absl::StatusOr<CallerLimits> ParseLimits(absl::Span<const absl::string_view> words,
                                         CallerLimits defaults);
// The same of words between spaces. Errors name `flag`.
absl::StatusOr<CallerLimits> ParseLimitsFlag(absl::string_view flag, absl::string_view text);

// "low", "normal" or "high".
const char* PriorityName(batching::Priority priority);

}  // namespace sru::server::callers

#endif  // SRU_SERVER_CALLERS_CALLER_LIMITS_H_
