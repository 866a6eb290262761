// Results of the load generator as text and as JSON, and its progress line.
#ifndef SRU_BENCH_REPORT_H_
#define SRU_BENCH_REPORT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "bench/histogram.h"
#include "bench/load_generator.h"
#include "nlohmann/json.hpp"

namespace sru::bench {

// "412 us", "3.20 ms", "1.05 s".
std::string FormatNs(double nanoseconds);
// "1,234,567".
std::string FormatCount(int64_t count);

// "NAME  p50 1.20 ms   p90 ...   max ...   mean ..." and a newline; nothing if nothing was measured.
std::string LatencyLine(const char* name, const Histogram& latency);
// Percentiles in microseconds.
nlohmann::ordered_json LatencyJson(const Histogram& latency);

using CodeCounts = std::map<absl::StatusCode, int64_t>;
using FirstErrors = std::map<absl::StatusCode, std::string>;  // one message per code

// A line per code, with its count and its first message.
std::string CodeLines(const CodeCounts& codes, const FirstErrors& first_errors);
// Adds "codes" and "first_errors", both by the names of the codes.
void AddCodes(const CodeCounts& codes, const FirstErrors& first_errors,
              nlohmann::ordered_json* json);

// Throughput, percentiles and codes, for people to read.
std::string ResultText(const LoadOptions& options, const LoadResult& result);
// The same. Latencies are in microseconds; see `sru_bench load --help`.
nlohmann::ordered_json ResultJson(const LoadOptions& options, const LoadResult& result);

// A result on one line, as the program prints it.
std::string JsonLine(const nlohmann::ordered_json& json);

// Prints a line of progress to standard error. On a terminal it overwrites the previous line.
void PrintProgress(double elapsed_s, bool warming_up, const std::string& progress);
// Prints one line per second in this way.
std::function<void(const Progress&)> ProgressPrinter();
// Ends the line that PrintProgress left open on a terminal.
void EndProgress();

// Sets a flag at the first SIGINT or SIGTERM, so that a run ends early with a report; a second one
// kills the program as usual.
const std::atomic<bool>* StopOnSignal();

}  // namespace sru::bench

#endif  // SRU_BENCH_REPORT_H_
