#include "bench/report.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace sru::bench {
namespace {

constexpr double kPercentiles[] = {50, 90, 99, 99.9};

std::atomic<bool> stop_requested{false};

void HandleSignal(int signal_number) {
  stop_requested.store(true);
  signal(signal_number, SIG_DFL);
}

// "NAME  p50 1.20 ms   p90 ...   max ...   mean ..." and a newline; empty if nothing was measured.
std::string LatencyLine(const char* name, const Histogram& latency) {
  if (latency.count() == 0) return "";
  std::string line = absl::StrFormat("%-12s", name);
  for (const double percent : kPercentiles) {
    absl::StrAppend(&line, "p", percent, " ", FormatNs(latency.Percentile(percent)), "   ");
  }
  absl::StrAppend(&line, "max ", FormatNs(latency.max()), "   mean ", FormatNs(latency.mean()),
                  "\n");
  return line;
}

// Percentiles in microseconds.
nlohmann::ordered_json LatencyJson(const Histogram& latency) {
  const auto us = [](double ns) { return std::round(ns) / 1000; };
  return {{"count", latency.count()},
          {"mean", us(latency.mean())},
          {"min", us(latency.min())},
          {"p50", us(latency.Percentile(50))},
          {"p90", us(latency.Percentile(90))},
          {"p99", us(latency.Percentile(99))},
          {"p99.9", us(latency.Percentile(99.9))},
          {"max", us(latency.max())}};
}

// `calls`: what the calls are called.
std::string Heading(const RunOptions& options, const RunResult& result, const char* calls,
                    const std::string& closed_loop) {
  return absl::StrCat(
      options.rate > 0 ? absl::StrFormat("open loop, %g %s/s offered", options.rate, calls)
                       : "closed loop, " + closed_loop,
      absl::StrFormat(", %s %s in %.2f s\n", FormatCount(result.calls), calls, result.elapsed_s));
}

// A line per code, with its count and its first message, and one of the calls that were not sent.
std::string Ends(const RunOptions& options, const RunResult& result, const char* why_unsent) {
  std::string text;
  for (const auto& [code, count] : result.codes) {
    const auto message = result.first_error.find(code);
    absl::StrAppendFormat(&text, "%-20s %12s%s%s\n", absl::StatusCodeToString(code),
                          FormatCount(count),
                          message == result.first_error.end() ? "" : "  first: ",
                          message == result.first_error.end() ? "" : message->second);
  }
  if (result.unsent > 0) {
    absl::StrAppendFormat(&text, "not sent             %12s  --max_outstanding=%d %s\n",
                          FormatCount(result.unsent), options.max_outstanding, why_unsent);
  }
  return text;
}

nlohmann::ordered_json RunJson(const RunOptions& options, const RunResult& result,
                               const char* calls, const char* concurrency, int concurrent) {
  nlohmann::ordered_json json;
  json["loop"] = options.rate > 0 ? "open" : "closed";
  if (options.rate > 0) {
    json["rate"] = options.rate;
  } else {
    json[concurrency] = concurrent;
  }
  json["connections"] = options.connections;
  json["elapsed_s"] = result.elapsed_s;
  json[calls] = result.calls;
  json["ok"] = result.ok;
  json["unsent"] = result.unsent;
  json["refused_us"] = LatencyJson(result.refused);
  json["codes"] = nlohmann::ordered_json::object();
  json["first_errors"] = nlohmann::ordered_json::object();
  for (const auto& [code, count] : result.codes) {
    json["codes"][absl::StatusCodeToString(code)] = count;
  }
  for (const auto& [code, message] : result.first_error) {
    json["first_errors"][absl::StatusCodeToString(code)] = message;
  }
  return json;
}

}  // namespace

std::string FormatNs(double ns) {
  if (ns < 1e3) return absl::StrFormat("%.0f ns", ns);
  if (ns < 1e5) return absl::StrFormat("%.1f us", ns / 1e3);
  if (ns < 1e6) return absl::StrFormat("%.0f us", ns / 1e3);
  if (ns < 1e9) return absl::StrFormat("%.2f ms", ns / 1e6);
  return absl::StrFormat("%.2f s", ns / 1e9);
}

std::string FormatCount(int64_t count) {
  std::string digits = absl::StrCat(count);
  for (int i = static_cast<int>(digits.size()) - 3; i > (count < 0 ? 1 : 0); i -= 3) {
    digits.insert(i, ",");
  }
  return digits;
}

std::string ResultText(const LoadOptions& options, const LoadResult& result) {
  std::string text =
      Heading(options, result, "calls", absl::StrCat(options.in_flight, " in flight"));
  absl::StrAppendFormat(&text, "throughput  %.1f calls/s answered OK", result.throughput());
  if (options.deadline != absl::InfiniteDuration()) {
    absl::StrAppendFormat(&text, ", goodput %.1f within %s", result.goodput(),
                          absl::FormatDuration(options.deadline));
  }
  absl::StrAppend(&text, "\n", LatencyLine("latency", result.latency),
                  LatencyLine("refusals", result.refused), LatencyLine("failures", result.failed),
                  Ends(options, result,
                       "calls were on their way, or the deadline passed before one "
                       "could be sent"));
  if (result.connection_lost) {
    absl::StrAppend(&text, "ended early: the server closed the connection\n");
  }
  return text;
}

std::string ResultText(const GenerateLoadOptions& options, const GenerateLoadResult& result) {
  std::string text = Heading(options, result, "texts", absl::StrCat(options.sessions, " sessions"));
  absl::StrAppendFormat(&text, "throughput  %.1f tokens/s, %.2f texts/s ended OK\n",
                        result.tokens_per_s(), result.PerSecond(result.ok));
  absl::StrAppend(&text, LatencyLine("first token", result.first_token),
                  LatencyLine("next tokens", result.between_tokens),
                  LatencyLine("whole text", result.text), LatencyLine("refusals", result.refused),
                  Ends(options, result, "texts were on their way"));
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

nlohmann::ordered_json ResultJson(const LoadOptions& options, const LoadResult& result) {
  nlohmann::ordered_json json = RunJson(options, result, "calls", "in_flight", options.in_flight);
  json["threads"] = options.threads;
  json["send_interval_us"] = absl::ToDoubleMicroseconds(options.send_interval);
  json["connection_lost"] = result.connection_lost;
  json["throughput_per_s"] = result.throughput();
  json["goodput_per_s"] = result.goodput();
  json["latency_us"] = LatencyJson(result.latency);
  json["failed_us"] = LatencyJson(result.failed);
  return json;
}

nlohmann::ordered_json ResultJson(const GenerateLoadOptions& options,
                                  const GenerateLoadResult& result) {
  nlohmann::ordered_json json = RunJson(options, result, "texts", "sessions", options.sessions);
  json["lost"] = result.lost;
  json["tokens"] = result.tokens;
  json["tokens_per_s"] = result.tokens_per_s();
  json["first_token_us"] = LatencyJson(result.first_token);
  json["between_tokens_us"] = LatencyJson(result.between_tokens);
  json["text_us"] = LatencyJson(result.text);
  if (options.check) {
    json["checked_tokens"] = result.checked_tokens;
    json["wrong_tokens"] = result.wrong_tokens;
  }
  return json;
}

std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::function<void(const Progress&)> ProgressPrinter(const char* done) {
  return [=, last = Progress()](const Progress& now) mutable {
    const double seconds = std::max(now.elapsed_s - last.elapsed_s, 1e-9);
    const bool terminal = isatty(STDERR_FILENO) != 0;
    absl::FPrintF(stderr, "%s%5.0f s%s  %9.0f %s/s  %s OK  %s not OK  %s running%s",
                  terminal ? "\r\x1b[K" : "", now.elapsed_s, now.warming_up ? " (warm-up)" : "",
                  static_cast<double>(now.done - last.done) / seconds, done, FormatCount(now.ok),
                  FormatCount(now.not_ok), FormatCount(now.running), terminal ? "" : "\n");
    std::fflush(stderr);
    last = now;
  };
}

void EndProgress() {
  if (isatty(STDERR_FILENO) != 0) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

const std::atomic<bool>* StopOnSignal() {
  signal(SIGINT, HandleSignal);
  signal(SIGTERM, HandleSignal);
  return &stop_requested;
}

}  // namespace sru::bench
