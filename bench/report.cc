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

std::string CodeLines(const CodeCounts& codes, const FirstErrors& first_errors) {
  std::string text;
  for (const auto& [code, count] : codes) {
    const auto message = first_errors.find(code);
    absl::StrAppendFormat(&text, "%-20s %12s%s%s\n", absl::StatusCodeToString(code),
                          FormatCount(count), message == first_errors.end() ? "" : "  first: ",
                          message == first_errors.end() ? "" : message->second);
  }
  return text;
}

void AddCodes(const CodeCounts& codes, const FirstErrors& first_errors,
              nlohmann::ordered_json* json) {
  (*json)["codes"] = nlohmann::ordered_json::object();
  for (const auto& [code, count] : codes) {
    (*json)["codes"][absl::StatusCodeToString(code)] = count;
  }
  (*json)["first_errors"] = nlohmann::ordered_json::object();
  for (const auto& [code, message] : first_errors) {
    (*json)["first_errors"][absl::StatusCodeToString(code)] = message;
  }
}

std::string ResultText(const LoadOptions& options, const LoadResult& result) {
  std::string text;
  if (options.rate > 0) {
    absl::StrAppendFormat(&text, "open loop, %g calls/s offered", options.rate);
  } else {
    absl::StrAppendFormat(&text, "closed loop, %d in flight", options.in_flight);
  }
  absl::StrAppendFormat(&text, ", %s calls in %.2f s\n", FormatCount(result.calls),
                        result.elapsed_s);
  absl::StrAppendFormat(&text, "throughput  %.1f calls/s answered OK", result.throughput());
  if (options.deadline != absl::InfiniteDuration()) {
    absl::StrAppendFormat(&text, ", goodput %.1f within %s", result.goodput(),
                          absl::FormatDuration(options.deadline));
  }
  absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, LatencyLine("latency", result.latency),
                  LatencyLine("refusals", result.refused), LatencyLine("failures", result.failed),
                  CodeLines(result.codes, result.first_error));
  if (result.unsent > 0) {
    absl::StrAppendFormat(
        &text,
        "not sent             %12s  --max_outstanding=%d calls were on their way, "
        "or the deadline passed before one could be sent\n",
        FormatCount(result.unsent), options.max_outstanding);
  }
  if (result.connection_lost) {
    absl::StrAppend(&text, "ended early: the server closed the connection\n");
  }
  return text;
}

nlohmann::ordered_json ResultJson(const LoadOptions& options, const LoadResult& result) {
  nlohmann::ordered_json json;
  json["loop"] = options.rate > 0 ? "open" : "closed";
  if (options.rate > 0) {
    json["rate"] = options.rate;
  } else {
    json["in_flight"] = options.in_flight;
  }
  json["connections"] = options.connections;
  json["threads"] = options.threads;
  json["send_interval_us"] = absl::ToDoubleMicroseconds(options.send_interval);
  json["elapsed_s"] = result.elapsed_s;
  json["calls"] = result.calls;
  json["ok"] = result.ok;
  json["unsent"] = result.unsent;
  json["connection_lost"] = result.connection_lost;
  json["throughput_per_s"] = result.throughput();
  json["goodput_per_s"] = result.goodput();
  json["latency_us"] = LatencyJson(result.latency);
  json["refused_us"] = LatencyJson(result.refused);
  json["failed_us"] = LatencyJson(result.failed);
  AddCodes(result.codes, result.first_error, &json);
  return json;
}

std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void PrintProgress(double elapsed_s, bool warming_up, const std::string& progress) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  absl::FPrintF(stderr, "%s%5.0f s%s  %s%s", terminal ? "\r\x1b[K" : "", elapsed_s,
                warming_up ? " (warm-up)" : "", progress, terminal ? "" : "\n");
  std::fflush(stderr);
}

std::function<void(const Progress&)> ProgressPrinter() {
  return [last_ok = int64_t{0}, last_s = 0.0](const Progress& progress) mutable {
    const double rate = (progress.ok - last_ok) / std::max(progress.elapsed_s - last_s, 1e-9);
    last_ok = progress.ok;
    last_s = progress.elapsed_s;
    PrintProgress(progress.elapsed_s, progress.warming_up,
                  absl::StrFormat("%9.0f calls/s OK  %s OK  %s not OK  %s in flight", rate,
                                  FormatCount(progress.ok), FormatCount(progress.not_ok),
                                  FormatCount(progress.in_flight)));
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
