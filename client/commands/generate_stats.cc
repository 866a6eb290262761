#include "client/commands/generate_stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/names.h"
#include "google/protobuf/descriptor.h"

namespace sru::client {
namespace {

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

// "length", "stop"; "unfinished" for a text without a reason.
std::string FinishReasonName(v1::FinishReason reason) {
  const auto* const known = v1::FinishReason_descriptor()->FindValueByNumber(reason);
  const std::string name = known == nullptr ? "" : NameOf(*known);
  return name.empty() ? "unfinished" : name;
}

}  // namespace

void GenerateStats::Add(const v1::GenerateResponse& response, absl::Time now) {
  const auto [it, is_first] = samples_.try_emplace(response.sample());
  Sample& sample = it->second;
  if (response.token_ids_size() > 0) {
    if (samples_.size() == 1 && is_first) first_ = now;
    if (!is_first) gaps_.push_back(now - sample.last);
    sample.last = now;
    last_ = now;
  }
  if (response.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) return;
  sample.finish_reason = response.finish_reason();
  prompt_tokens_ = response.prompt_tokens();
  generated_tokens_ += response.generated_tokens();
}

absl::Duration GenerateStats::Percentile(double percent) const {
  std::vector<absl::Duration> sorted = gaps_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

double GenerateStats::TokensPerSecond() const {
  return generated_tokens_ / std::max(absl::ToDoubleSeconds(last_ - start_), 1e-9);
}

std::string GenerateStats::Text() const {
  if (samples_.empty()) return "no token came";
  std::string text = absl::StrFormat("first token after %.1f ms", Milliseconds(first_ - start_));
  if (generated_tokens_ > 0) {
    absl::StrAppendFormat(&text, "; %d tokens in %.2f s, %.0f per second", generated_tokens_,
                          absl::ToDoubleSeconds(last_ - start_), TokensPerSecond());
  }
  if (!gaps_.empty()) {
    absl::StrAppendFormat(&text, "; between tokens p50 %.2f ms, p99 %.2f ms",
                          Milliseconds(Percentile(50)), Milliseconds(Percentile(99)));
  }
  absl::StrAppend(&text, "; prompt of ", prompt_tokens_, " tokens; ended by");
  std::map<std::string, int> reasons;
  for (const auto& [number, sample] : samples_) ++reasons[FinishReasonName(sample.finish_reason)];
  for (const auto& [reason, count] : reasons) {
    absl::StrAppend(&text, " ", reason);
    if (samples_.size() > 1) absl::StrAppend(&text, " (", count, ")");
  }
  return text;
}

Json GenerateStats::ToJson() const {
  Json reasons = Json::array();
  for (const auto& [number, sample] : samples_) {
    reasons.push_back(FinishReasonName(sample.finish_reason));
  }
  Json json = {{"prompt_tokens", prompt_tokens_},
               {"generated_tokens", generated_tokens_},
               {"finish_reasons", std::move(reasons)}};
  if (samples_.empty()) return json;
  json["time_to_first_token_ms"] = Milliseconds(first_ - start_);
  json["elapsed_s"] = absl::ToDoubleSeconds(last_ - start_);
  json["tokens_per_second"] = TokensPerSecond();
  if (gaps_.empty()) return json;
  json["time_between_tokens_ms"] = {{"p50", Milliseconds(Percentile(50))},
                                    {"p99", Milliseconds(Percentile(99))}};
  return json;
}

}  // namespace sru::client
