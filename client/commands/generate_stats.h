// The speed of a text as the one who waits for it sees it: --stats of `sru_client generate`.
#ifndef SRU_CLIENT_COMMANDS_GENERATE_STATS_H_
#define SRU_CLIENT_COMMANDS_GENERATE_STATS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/commands/json_output.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

// Of one call. Not thread-safe.
class GenerateStats {
 public:
  explicit GenerateStats(absl::Time start) : start_(start) {}

  void Add(const v1::GenerateResponse& response, absl::Time now);

  // One line: the time to the first token, tokens per second, the time between tokens, and why each
  // text ended. What is not known is left out.
  std::string Text() const;
  Json ToJson() const;

 private:
  struct Sample {
    absl::Time last;
    v1::FinishReason finish_reason = v1::FINISH_REASON_UNSPECIFIED;
  };

  // Nearest rank of the times between tokens.
  absl::Duration Percentile(double percent) const;
  double TokensPerSecond() const;

  const absl::Time start_;
  absl::Time first_;
  absl::Time last_;
  std::map<int, Sample> samples_;
  std::vector<absl::Duration> gaps_;  // between two messages with tokens of one sample
  int prompt_tokens_ = 0;
  int generated_tokens_ = 0;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_GENERATE_STATS_H_
