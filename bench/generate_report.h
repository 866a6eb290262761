// Results of `sru_bench generate` as text and as JSON, and its progress line.
#ifndef SRU_BENCH_GENERATE_REPORT_H_
#define SRU_BENCH_GENERATE_REPORT_H_

#include <functional>
#include <string>

#include "bench/generate_load.h"
#include "nlohmann/json.hpp"

namespace sru::bench {

std::string GenerateText(const GenerateLoadOptions& options, const GenerateLoadResult& result);
// Times are in microseconds; see `sru_bench generate --help`.
nlohmann::ordered_json GenerateJson(const GenerateLoadOptions& options,
                                    const GenerateLoadResult& result);

// Prints one line per second to standard error, as ProgressPrinter() does; EndProgress() ends it.
std::function<void(const GenerateProgress&)> GenerateProgressPrinter();

}  // namespace sru::bench

#endif  // SRU_BENCH_GENERATE_REPORT_H_
