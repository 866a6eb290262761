#include "bench/capacity_report.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/report.h"
#include "client/text_table.h"

namespace sru::bench {
namespace {

double Share(int64_t part, int64_t all) {
  return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
}

std::string Percent(double share) { return absl::StrFormat("%.1f%%", 100 * share); }

std::string Rate(double per_s) { return FormatCount(static_cast<int64_t>(per_s + 0.5)); }

nlohmann::ordered_json ResultJson(const ServerRunResult& result) {
  nlohmann::ordered_json json = {{"calls", result.calls},
                                 {"ok", result.ok},
                                 {"good", result.good},
                                 {"refused", result.refused},
                                 {"expired", result.expired},
                                 {"ok_per_s", result.throughput()},
                                 {"busy", result.busy},
                                 {"batch_sequences", result.batch_sequences},
                                 {"server_us", result.server_us},
                                 {"client_us", result.client_us},
                                 {"latency_us", LatencyJson(result.latency)}};
  if (result.low_latency.count() > 0) {
    json["normal_priority_us"] = LatencyJson(result.normal_latency);
    json["low_priority_us"] = LatencyJson(result.low_latency);
  }
  return json;
}

}  // namespace

std::string SpeedText(const MachineSpeed& speed) {
  return absl::StrFormat(
      "%s, %d cores; %s, %s, %s\n"
      "  a batch takes %.1f us + %.3f us a token + %.2f us a sequence + %.3f us a step of the "
      "longest (within %.0f%% of what was measured)\n"
      "  beside that: %.1f us a call (%.1f more while %d are open), %.2f us a sequence, %.1f us "
      "each "
      "time that a thread takes up work, %.0f us until it wakes\n"
      "  each core is away %.1f times a second for %.2f ms in the mean\n",
      speed.machine, speed.cores, speed.model, speed.backend, speed.dtype, speed.batch.fixed_us,
      speed.batch.token_us, speed.batch.sequence_us, speed.batch.step_us, 100 * speed.batch_error,
      speed.call.call_us, speed.call.crowd_us, kCrowdCalls, speed.call.sequence_us,
      speed.call.turn_us, speed.call.wake_us, speed.pauses.per_s, MeanPauseUs(speed.pauses) / 1000);
}

nlohmann::ordered_json SpeedJson(const MachineSpeed& speed) {
  return {{"machine", speed.machine},
          {"model", speed.model},
          {"backend", speed.backend},
          {"dtype", speed.dtype},
          {"cores", speed.cores},
          {"batch",
           {{"fixed_us", speed.batch.fixed_us},
            {"token_us", speed.batch.token_us},
            {"sequence_us", speed.batch.sequence_us},
            {"step_us", speed.batch.step_us},
            {"largest_error", speed.batch_error}}},
          {"call",
           {{"wake_us", speed.call.wake_us},
            {"turn_us", speed.call.turn_us},
            {"call_us", speed.call.call_us},
            {"sequence_us", speed.call.sequence_us},
            {"crowd_us", speed.call.crowd_us}}},
          {"pauses", {{"per_s", speed.pauses.per_s}, {"mean_us", MeanPauseUs(speed.pauses)}}}};
}

nlohmann::ordered_json LoopsJson(const std::vector<LoopMeasurement>& measured,
                                 const std::vector<LoopMeasurement>& simulated) {
  const auto one = [](const LoopMeasurement& loop) {
    return nlohmann::ordered_json{{"server_us", loop.server_us},
                                  {"client_us", loop.client_us},
                                  {"p50_us", loop.p50_us},
                                  {"calls_per_s", loop.calls_per_s}};
  };
  auto json = nlohmann::ordered_json::array();
  for (size_t i = 0; i < measured.size(); ++i) {
    json.push_back({{"in_flight", measured[i].in_flight},
                    {"sequences", measured[i].sequences},
                    {"measured", one(measured[i])},
                    {"simulated", one(simulated[i])}});
  }
  return json;
}

std::string LoopsText(const std::vector<LoopMeasurement>& measured,
                      const std::vector<LoopMeasurement>& simulated) {
  std::ostringstream out;
  client::TextTable table({{"closed loop"},
                           {"server us", true},
                           {"client us", true},
                           {"p50 us", true},
                           {"calls/s", true}},
                          &out);
  for (size_t i = 0; i < measured.size(); ++i) {
    const auto cell = [](double was, double is) { return absl::StrFormat("%.1f / %.1f", was, is); };
    table.AddRow(
        {absl::StrCat(measured[i].in_flight, " in flight, ", measured[i].sequences,
                      measured[i].sequences == 1 ? " sequence" : " sequences"),
         cell(measured[i].server_us, simulated[i].server_us),
         cell(measured[i].client_us, simulated[i].client_us),
         cell(measured[i].p50_us, simulated[i].p50_us),
         absl::StrFormat("%.0f / %.0f", measured[i].calls_per_s, simulated[i].calls_per_s)});
  }
  table.Flush();
  return absl::StrCat("  measured / simulated, processor time a call:\n", out.str());
}

std::string MixText(const CallMix& mix, double rate) {
  const double mean = mix.mean_tokens() / mix.sequences;
  return absl::StrFormat(
      "%s calls/s of %d %s each, %.1f tokens in the mean, the longest %d: %s tokens/s%s\n",
      Rate(rate), mix.sequences, mix.sequences == 1 ? "sequence" : "sequences", mean, mix.longest(),
      Rate(rate * mix.mean_tokens()),
      mix.low_share > 0 ? absl::StrCat("; ", Percent(mix.low_share), " with PRIORITY_LOW") : "");
}

std::string RowsText(const std::vector<PlanRow>& rows) {
  std::ostringstream out;
  client::TextTable table({{"servers", true},
                           {"calls/s each", true},
                           {"p50", true},
                           {"p90", true},
                           {"p99", true},
                           {"p99.9", true},
                           {"refused", true},
                           {"late", true},
                           {"cores busy", true},
                           {"batch", true},
                           {"when"}},
                          &out);
  for (const PlanRow& row : rows) {
    const ServerRunResult& result = row.result;
    const auto cell = [&](double percent) {
      return FormatNs(static_cast<double>(result.latency.Percentile(percent)));
    };
    table.AddRow({absl::StrCat(row.servers), Rate(row.rate), cell(50), cell(90), cell(99),
                  cell(99.9), Percent(Share(result.refused, result.calls)),
                  Percent(Share(result.calls - result.good - result.refused, result.calls)),
                  Percent(result.busy), absl::StrFormat("%.1f", result.batch_sequences), row.what});
  }
  table.Flush();
  return out.str();
}

nlohmann::ordered_json RowsJson(const std::vector<PlanRow>& rows) {
  auto json = nlohmann::ordered_json::array();
  for (const PlanRow& row : rows) {
    nlohmann::ordered_json entry = {
        {"when", row.what}, {"servers", row.servers}, {"rate_per_server", row.rate}};
    entry.update(ResultJson(row.result));
    json.push_back(std::move(entry));
  }
  return json;
}

std::string PlanText(const PlanOptions& options, const Plan& plan) {
  std::string text = absl::StrFormat(
      "\nOne server keeps a p99 of %s and refuses or misses at most %s up to so many calls/s:\n",
      FormatNs(options.p99_us * 1000), Percent(options.refused_share));
  std::ostringstream out;
  client::TextTable table({{"--instances", true},
                           {"--max_batch_tokens", true},
                           {"--max_queue_delay_us", true},
                           {"calls/s", true},
                           {"of saturation", true},
                           {""}},
                          &out);
  for (size_t i = 0; i < plan.choices.size(); ++i) {
    const PlanChoice& choice = plan.choices[i];
    table.AddRow({absl::StrCat(choice.instances), absl::StrCat(choice.max_batch_tokens),
                  absl::StrCat(choice.max_queue_delay_us), Rate(choice.rate),
                  choice.saturation > 0 ? Percent(choice.rate / choice.saturation) : "-",
                  plan.possible && i == plan.best ? "<- best" : ""});
  }
  table.Flush();
  absl::StrAppend(&text, out.str());
  if (!plan.possible) {
    absl::StrAppend(&text,
                    "\nNo number of servers keeps it: under a hundredth of what it can do, one "
                    "server has a p99 of ",
                    FormatNs(static_cast<double>(plan.lightest.latency.Percentile(99))),
                    ". That is this machine's batch, its wakes and its pauses; ask for a longer "
                    "p99, or measure a "
                    "quieter machine.\n");
    return text;
  }
  const PlanChoice& best = plan.choices[plan.best];
  absl::StrAppend(
      &text, "\n", plan.servers, plan.servers == 1 ? " server" : " servers",
      options.spare > 0 ? absl::StrCat(", of which ", options.spare, " may be lost") : "",
      ", each with\n  --instances=", best.instances, " --max_batch_tokens=", best.max_batch_tokens,
      " --max_queue_tokens=", plan.max_queue_tokens,
      " --max_queue_delay_us=", best.max_queue_delay_us, "\n\n", RowsText(plan.rows));
  return text;
}

nlohmann::ordered_json PlanJson(const PlanOptions& options, const Plan& plan) {
  nlohmann::ordered_json json = {{"rate_per_s", options.rate},
                                 {"p99_us", options.p99_us},
                                 {"refused_share", options.refused_share},
                                 {"spare", options.spare},
                                 {"possible", plan.possible}};
  for (const PlanChoice& choice : plan.choices) {
    json["choices"].push_back({{"instances", choice.instances},
                               {"max_batch_tokens", choice.max_batch_tokens},
                               {"max_queue_delay_us", choice.max_queue_delay_us},
                               {"saturation_per_s", choice.saturation},
                               {"rate_per_s", choice.rate}});
  }
  json["lightest_p99_us"] = static_cast<double>(plan.lightest.latency.Percentile(99)) / 1000;
  if (!plan.possible) return json;
  const PlanChoice& best = plan.choices[plan.best];
  json["servers"] = plan.servers;
  json["flags"] = {{"instances", best.instances},
                   {"max_batch_tokens", best.max_batch_tokens},
                   {"max_queue_tokens", plan.max_queue_tokens},
                   {"max_queue_delay_us", best.max_queue_delay_us}};
  json["rows"] = RowsJson(plan.rows);
  return json;
}

}  // namespace sru::bench
