#include "bench/generate_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report.h"

namespace sru::bench {

std::string GenerateText(const GenerateLoadOptions& options, const GenerateLoadResult& result) {
  std::string text;
  if (options.rate > 0) {
    absl::StrAppendFormat(&text, "open loop, %g texts/s offered", options.rate);
  } else {
    absl::StrAppendFormat(&text, "closed loop, %s sessions", FormatCount(options.sessions));
  }
  absl::StrAppendFormat(&text, ", %s texts ended in %.2f s\n", FormatCount(result.texts),
                        result.elapsed_s);
  absl::StrAppendFormat(
      &text, "throughput  %.1f tokens/s, %.2f texts/s ended OK\n", result.tokens_per_s(),
      result.elapsed_s > 0 ? static_cast<double>(result.ok) / result.elapsed_s : 0.0);
  absl::StrAppend(&text, LatencyLine("first token", result.first_token),
                  LatencyLine("next tokens", result.between_tokens),
                  LatencyLine("whole text", result.text), LatencyLine("refusals", result.refused),
                  CodeLines(result.codes, result.first_error));
  if (result.unsent > 0) {
    absl::StrAppendFormat(&text,
                          "not sent             %12s  --max_outstanding=%d texts were on their "
                          "way\n",
                          FormatCount(result.unsent), options.max_outstanding);
  }
  if (result.lost > 0) {
    absl::StrAppendFormat(&text, "lost                 %12s  ended in the middle without a state\n",
                          FormatCount(result.lost));
  }
  if (options.check) {
    absl::StrAppendFormat(&text, "checked              %12s  tokens, of which %s were wrong\n",
                          FormatCount(result.checked_tokens), FormatCount(result.wrong_tokens));
  }
  return text;
}

nlohmann::ordered_json GenerateJson(const GenerateLoadOptions& options,
                                    const GenerateLoadResult& result) {
  nlohmann::ordered_json json;
  json["loop"] = options.rate > 0 ? "open" : "closed";
  if (options.rate > 0) {
    json["rate"] = options.rate;
  } else {
    json["sessions"] = options.sessions;
  }
  json["connections"] = options.connections;
  json["elapsed_s"] = result.elapsed_s;
  json["texts"] = result.texts;
  json["ok"] = result.ok;
  json["lost"] = result.lost;
  json["unsent"] = result.unsent;
  json["tokens"] = result.tokens;
  json["tokens_per_s"] = result.tokens_per_s();
  json["first_token_us"] = LatencyJson(result.first_token);
  json["between_tokens_us"] = LatencyJson(result.between_tokens);
  json["text_us"] = LatencyJson(result.text);
  json["refused_us"] = LatencyJson(result.refused);
  AddCodes(result.codes, result.first_error, &json);
  if (options.check) {
    json["checked_tokens"] = result.checked_tokens;
    json["wrong_tokens"] = result.wrong_tokens;
  }
  return json;
}

std::function<void(const GenerateProgress&)> GenerateProgressPrinter() {
  return [last_tokens = int64_t{0}, last_s = 0.0](const GenerateProgress& progress) mutable {
    const double rate = static_cast<double>(progress.tokens - last_tokens) /
                        std::max(progress.elapsed_s - last_s, 1e-9);
    last_tokens = progress.tokens;
    last_s = progress.elapsed_s;
    PrintProgress(progress.elapsed_s, progress.warming_up,
                  absl::StrFormat("%9.0f tokens/s  %s texts OK  %s not OK  %s running", rate,
                                  FormatCount(progress.ok), FormatCount(progress.not_ok),
                                  FormatCount(progress.running)));
  };
}

}  // namespace sru::bench
