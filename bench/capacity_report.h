// What sru_bench capacity prints: text for people, JSON for programs.
#ifndef SRU_BENCH_CAPACITY_REPORT_H_
#define SRU_BENCH_CAPACITY_REPORT_H_

#include <string>
#include <vector>

#include "bench/capacity_calibrate.h"
#include "bench/capacity_plan.h"
#include "nlohmann/json.hpp"

namespace sru::bench {

std::string SpeedText(const MachineSpeed& speed);
nlohmann::ordered_json SpeedJson(const MachineSpeed& speed);

// Measured loops beside what the simulation makes of them.
nlohmann::ordered_json LoopsJson(const std::vector<LoopMeasurement>& measured,
                                 const std::vector<LoopMeasurement>& simulated);
std::string LoopsText(const std::vector<LoopMeasurement>& measured,
                      const std::vector<LoopMeasurement>& simulated);

std::string MixText(const CallMix& mix, double rate);

std::string PlanText(const PlanOptions& options, const Plan& plan);
nlohmann::ordered_json PlanJson(const PlanOptions& options, const Plan& plan);

// Rows of simulated servers, as a table and as a list.
std::string RowsText(const std::vector<PlanRow>& rows);
nlohmann::ordered_json RowsJson(const std::vector<PlanRow>& rows);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_REPORT_H_
