// sru_bench sweep: measures latency against load.
#include <algorithm>
#include <iostream>

#include "absl/strings/str_format.h"
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/report.h"

namespace sru::bench {
namespace {

constexpr char kSweepUsage[] =
    R"(sru_bench sweep finds how much a server on this machine can take, and its latency below that.

First closed loops, with 1, 4, 16, ... --max_in_flight calls in flight. From the best of them on
downwards, in steps of 10%, open loops look for the saturation rate: the highest rate at which at
least 95% of what is offered is answered within --deadline. Then one open loop each runs at 10, 50,
80 and 95% of it.

examples:
  sru_bench sweep
  sru_bench sweep --step=10s --deadline=100ms --json
)";

constexpr int kMaxSteps = 12;  // down to 31% of the best closed loop

struct Row {
  std::string name;
  LoadOptions load;
  LoadResult result;
};

void PrintRow(const Row& row) {
  const Histogram& latency = row.result.latency;
  absl::PrintF("%-22s %10.0f %10s %10s %10s %10s %10s %8s\n", row.name, row.result.goodput(),
               FormatNs(latency.Percentile(50)), FormatNs(latency.Percentile(90)),
               FormatNs(latency.Percentile(99)), FormatNs(latency.Percentile(99.9)),
               FormatNs(latency.max()),
               FormatCount(row.result.calls - row.result.ok + row.result.unsent));
  std::fflush(stdout);
}

}  // namespace

int SweepMain(const std::vector<std::string>& args) {
  LoadOptions load;
  load.address = "localhost:50051";
  load.duration = absl::Seconds(5);
  load.deadline = absl::Seconds(1);
  RequestOptions request;
  int max_in_flight = 256;
  bool json = false;
  client::FlagSet flags;
  flags.Add("address", &load.address, "HOST:PORT of the server, on this machine", "SRU_ADDRESS");
  flags.Add("step", &load.duration, "duration of each run");
  flags.Add("warmup", &load.warmup, "of each run, not counted");
  flags.Add("max_in_flight", &max_in_flight, "closed loops go up to this many calls in flight");
  flags.Add(
      "max_outstanding", &load.max_outstanding,
      "open loops: bound on the calls on their way; what is over it is not sent, but counted");
  AddConnectionFlags(&load, &flags);
  request.AddFlags(&flags);
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("sweep", kSweepUsage, args, &flags)) return *exit_code;

  auto requests = PrepareRequests(request, &load);
  if (!requests.ok()) return Fail("sweep", requests.status(), load);
  load.stop = StopOnSignal();
  if (max_in_flight < 1) {
    return Fail("sweep", absl::InvalidArgumentError("--max_in_flight: expected at least 1"), load);
  }

  std::vector<Row> rows;
  absl::Status failure;
  const auto run = [&](const std::string& name, int in_flight, double rate) {
    Row row{name, load, {}};
    row.load.in_flight = in_flight;
    row.load.rate = rate;
    row.load.on_progress = ProgressPrinter(name + "  ");
    auto result = RunLoad(row.load, *requests);
    EndProgress();
    if (!result.ok()) {
      failure = result.status();
      return false;
    }
    row.result = *std::move(result);
    if (row.result.ok == 0 && rate == 0) {
      const auto& errors = row.result.first_error;
      failure = errors.empty() ? absl::CancelledError("stopped before an answer came")
                               : absl::Status(errors.begin()->first, errors.begin()->second);
      return false;
    }
    rows.push_back(std::move(row));
    if (!json) PrintRow(rows.back());
    return !load.stop->load();
  };

  if (!json) {
    absl::PrintF("%-22s %10s %10s %10s %10s %10s %10s %8s\n", "run", "good/s", "p50", "p90", "p99",
                 "p99.9", "max", "not OK");
  }
  bool running = true;
  double saturation = 0;
  for (int in_flight = 1; running && in_flight <= max_in_flight; in_flight *= 4) {
    running = run(absl::StrFormat("%d in flight", in_flight), in_flight, 0);
    if (running) saturation = std::max(saturation, rows.back().result.goodput());
  }
  for (int step = 0; running && step < kMaxSteps; ++step) {
    running = run(absl::StrFormat("offered: %.0f/s", saturation), 1, saturation);
    if (!running || rows.back().result.goodput() >= 0.95 * saturation) break;
    if (step + 1 < kMaxSteps) saturation *= 0.9;
  }
  for (const int percent : {10, 50, 80, 95}) {
    if (!running) break;
    running = run(absl::StrFormat("offered: %d%%", percent), 1, saturation * percent / 100);
  }
  if (!failure.ok()) return Fail("sweep", failure, load);
  if (!running) {
    std::cerr << "sru_bench sweep: stopped early\n";
    return kExitFailed;
  }

  const double idle_p50 = rows.front().result.latency.Percentile(50);
  double half_p99 = 0;
  for (const Row& row : rows) {
    if (row.name == "offered: 50%") half_p99 = row.result.latency.Percentile(99);
  }
  if (json) {
    nlohmann::ordered_json object;
    object["saturation_per_s"] = saturation;
    object["idle_p50_us"] = idle_p50 / 1000;
    object["p99_at_half_over_idle_p50"] = half_p99 / idle_p50;
    for (const Row& row : rows) {
      auto entry = ResultJson(row.load, row.result);
      entry["name"] = row.name;
      object["runs"].push_back(std::move(entry));
    }
    std::cout << JsonLine(object);
  } else {
    absl::PrintF("\nsaturation rate %.0f calls/s; p99 at half of it is %.1f times the idle p50\n",
                 saturation, half_p99 / idle_p50);
  }
  return kExitOk;
}

}  // namespace sru::bench
