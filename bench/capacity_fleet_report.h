// What sru_bench capacity prints of a fleet: its phases and its time line, as text, JSON and a drawing.
#ifndef SRU_BENCH_CAPACITY_FLEET_REPORT_H_
#define SRU_BENCH_CAPACITY_FLEET_REPORT_H_

#include <string>

#include "bench/capacity_fleet.h"
#include "nlohmann/json.hpp"

namespace sru::bench {

// `took_s`: how long the simulation took.
std::string FleetText(const FleetResult& result, double took_s);
nlohmann::ordered_json FleetJson(const FleetResult& result, double took_s);

// The time line as an SVG: p50 and p99 on a logarithmic scale, the servers, and the share of calls without an
// OK answer.
std::string FleetSvg(const FleetResult& result);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_FLEET_REPORT_H_
