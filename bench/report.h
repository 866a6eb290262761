// Results of the load generator as text and as JSON, and its progress line.
#ifndef SRU_BENCH_REPORT_H_
#define SRU_BENCH_REPORT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "bench/generate_load.h"
#include "bench/load_generator.h"
#include "nlohmann/json.hpp"

namespace sru::bench {

// "412 us", "3.20 ms", "1.05 s".
std::string FormatNs(double nanoseconds);
// "1,234,567".
std::string FormatCount(int64_t count);

// Throughput, percentiles and codes, for people to read.
std::string ResultText(const LoadOptions& options, const LoadResult& result);
std::string ResultText(const GenerateLoadOptions& options, const GenerateLoadResult& result);
// The same. Times are in microseconds; see `sru_bench load --help`.
nlohmann::ordered_json ResultJson(const LoadOptions& options, const LoadResult& result);
nlohmann::ordered_json ResultJson(const GenerateLoadOptions& options,
                                  const GenerateLoadResult& result);

// A result on one line, as the program prints it.
std::string JsonLine(const nlohmann::ordered_json& json);

// Prints a line per second to standard error, with the rate of what is done: "calls" or "tokens".
// On a terminal it overwrites the previous line.
std::function<void(const Progress&)> ProgressPrinter(const char* done);
// Ends the line that is left open on a terminal.
void EndProgress();

// Sets a flag at the first SIGINT or SIGTERM, so that a run ends early with a report; a second one
// kills the program as usual.
const std::atomic<bool>* StopOnSignal();

}  // namespace sru::bench

#endif  // SRU_BENCH_REPORT_H_
