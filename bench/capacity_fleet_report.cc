#include "bench/capacity_fleet_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <sstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report.h"
#include "client/text_table.h"

namespace sru::bench {
namespace {

double P(const FleetCounts& counts, double percent) {
  return static_cast<double>(counts.latency.Percentile(percent));
}

std::string CountsText(const std::vector<FleetCounts>& all, bool names) {
  std::ostringstream out;
  client::TextTable table({{"from s", true},
                           {"to s", true},
                           {"calls/s", true},
                           {"servers", true},
                           {"busy", true},
                           {"waiting tokens", true},
                           {"p50", true},
                           {"p99", true},
                           {"refused", true},
                           {"late", true},
                           {"lost", true},
                           {"retried", true},
                           {names ? "phase" : ""}},
                          &out);
  for (const FleetCounts& counts : all) {
    const double calls_per_s =
        static_cast<double>(counts.calls) / std::max(1e-9, counts.to_s - counts.from_s);
    table.AddRow({absl::StrFormat("%.6g", counts.from_s), absl::StrFormat("%.6g", counts.to_s),
                  FormatCount(static_cast<int64_t>(calls_per_s + 0.5)),
                  absl::StrCat(counts.servers), absl::StrFormat("%.0f%%", 100 * counts.busy),
                  FormatCount(static_cast<int64_t>(counts.queue_tokens)), FormatNs(P(counts, 50)),
                  FormatNs(P(counts, 99)), FormatCount(counts.refused), FormatCount(counts.late),
                  FormatCount(counts.lost), FormatCount(counts.retried), counts.name});
  }
  table.Flush();
  return out.str();
}

nlohmann::ordered_json CountsJson(const std::vector<FleetCounts>& all) {
  auto json = nlohmann::ordered_json::array();
  for (const FleetCounts& counts : all) {
    nlohmann::ordered_json entry;
    if (!counts.name.empty()) entry["phase"] = counts.name;
    entry.update({{"from_s", counts.from_s},
                  {"to_s", counts.to_s},
                  {"calls", counts.calls},
                  {"ok", counts.ok},
                  {"refused", counts.refused},
                  {"late", counts.late},
                  {"lost", counts.lost},
                  {"retried", counts.retried},
                  {"servers", counts.servers},
                  {"busy", counts.busy},
                  {"queue_tokens", counts.queue_tokens},
                  {"latency_us", LatencyJson(counts.latency)}});
    json.push_back(std::move(entry));
  }
  return json;
}

// One panel of the drawing.
class Panel {
 public:
  Panel(double top, const std::vector<FleetCounts>& windows, std::string* svg)
      : top_(top), windows_(windows), svg_(svg) {}

  static constexpr double kWidth = 640;
  static constexpr double kHeight = 140;
  static constexpr double kLeft = 70;

  void Frame(const char* title, double low, double high,
             const std::function<std::string(double)>& label) {
    low_ = low;
    high_ = std::max(high, low + 1e-9);
    absl::StrAppendFormat(svg_,
                          "<rect x='%g' y='%g' width='%g' height='%g' fill='none' stroke='#999'/>"
                          "<text x='%g' y='%g'>%s</text>\n",
                          kLeft, top_, kWidth, kHeight, kLeft, top_ - 6, title);
    for (const double part : {0.0, 0.5, 1.0}) {
      absl::StrAppendFormat(svg_, "<text x='%g' y='%g' text-anchor='end'>%s</text>\n", kLeft - 6,
                            top_ + kHeight * (1 - part) + 4, label(low_ + part * (high_ - low_)));
    }
  }

  void Line(const char* color, const std::function<double(const FleetCounts&)>& value) {
    absl::StrAppend(svg_, "<polyline fill='none' stroke-width='2' stroke='", color, "' points='");
    const double end_s = windows_.back().to_s;
    for (const FleetCounts& window : windows_) {
      const double y = (std::clamp(value(window), low_, high_) - low_) / (high_ - low_);
      const double middle_s = (window.from_s + window.to_s) / 2;
      absl::StrAppendFormat(svg_, "%.1f,%.1f ", kLeft + kWidth * middle_s / end_s,
                            top_ + kHeight * (1 - y));
    }
    absl::StrAppend(svg_, "'/>\n");
  }

 private:
  const double top_;
  const std::vector<FleetCounts>& windows_;
  std::string* const svg_;
  double low_ = 0;
  double high_ = 1;
};

}  // namespace

std::string FleetText(const FleetResult& result, double took_s) {
  return absl::StrCat("\nPhases\n", CountsText(result.phases, /*names=*/true), "\nTime line\n",
                      CountsText(result.windows, /*names=*/false), "\n", FormatCount(result.calls),
                      " calls, simulated in ", absl::StrFormat("%.1f s", took_s), "\n");
}

nlohmann::ordered_json FleetJson(const FleetResult& result, double took_s) {
  return {{"calls", result.calls},
          {"took_s", took_s},
          {"phases", CountsJson(result.phases)},
          {"windows", CountsJson(result.windows)}};
}

std::string FleetSvg(const FleetResult& result) {
  const std::vector<FleetCounts>& windows = result.windows;
  const auto log_ms = [](double ns) { return std::log10(std::max(ns, 1e3) * 1e-6); };
  double low = 10;
  double high = -10;
  int most_servers = 1;
  for (const FleetCounts& window : windows) {
    most_servers = std::max(most_servers, window.servers);
    if (window.ok == 0) continue;
    low = std::min(low, std::floor(log_ms(P(window, 50))));
    high = std::max(high, std::ceil(log_ms(P(window, 99))));
  }
  if (low > high) low = high = 0;
  constexpr double kStep = Panel::kHeight + 40;
  std::string svg = absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' font-family='sans-serif' "
      "font-size='12'>\n<rect width='100%%' height='100%%' fill='white'/>\n",
      Panel::kLeft + Panel::kWidth + 20, 3 * kStep + 30);

  Panel latency(24, windows, &svg);
  latency.Frame("latency, ms: p99 (red), p50 (blue)", low, std::max(high, low + 1),
                [](double v) { return absl::StrFormat("%.3g", std::pow(10, v)); });
  latency.Line("#c00", [&](const FleetCounts& c) { return log_ms(P(c, 99)); });
  latency.Line("#06c", [&](const FleetCounts& c) { return log_ms(P(c, 50)); });

  Panel servers(24 + kStep, windows, &svg);
  const auto plain = [](double v) { return absl::StrFormat("%.3g", v); };
  servers.Frame("servers", 0, most_servers, plain);
  servers.Line("#333", [](const FleetCounts& c) { return c.servers; });

  Panel without(24 + 2 * kStep, windows, &svg);
  without.Frame("calls without an OK answer, %", 0, 100, plain);
  without.Line("#c60", [](const FleetCounts& c) {
    return c.calls > 0 ? 100.0 * static_cast<double>(c.calls - c.ok) / static_cast<double>(c.calls)
                       : 0.0;
  });
  absl::StrAppendFormat(&svg, "<text x='%g' y='%g' text-anchor='end'>%g s</text>\n</svg>\n",
                        Panel::kLeft + Panel::kWidth, 24 + 2 * kStep + Panel::kHeight + 16,
                        windows.back().to_s);
  return svg;
}

}  // namespace sru::bench
