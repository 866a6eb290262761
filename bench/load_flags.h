// Parses flags and reports errors for all subcommands. Defines the flags of sru_bench load,
// prepares its requests, runs them and prints the report.
#ifndef SRU_BENCH_LOAD_FLAGS_H_
#define SRU_BENCH_LOAD_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags.h"
#include "bench/load_generator.h"
#include "bench/requests.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

// Adds the flags that say how many calls there are, when and how they are sent.
void AddLoadFlags(LoadOptions* load, Flags* flags);

// Parses `args`. Returns the exit code if the program should end now: after --help, which prints
// `usage` and the flags, and after an error. No subcommand of sru_bench takes plain arguments.
std::optional<int> ParseFlags(const std::string& command, const char* usage,
                              const std::vector<std::string>& args, Flags* flags);

// Sets load->method and makes the requests; asks the server about its model if necessary.
absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load);

// Asks the server of the load about the model that a call reaches which names this one, or none: see
// client::FindModel. Errors are also those of ResolveLoopback, before anything is sent anywhere.
absl::StatusOr<v1::ModelInfo> FindModel(const LoadOptions& load, const std::string& model,
                                        int64_t version, const std::vector<std::string>& tasks);

// Runs the load, prints the result, as JSON or as text, and returns the exit code: kExitFailed if no
// call was answered OK.
int RunAndReport(LoadOptions load, const std::vector<std::string>& requests, bool json);

// Prints the error, with advice, to standard error and returns the exit code for it.
int Fail(const std::string& command, const absl::Status& status, const LoadOptions& load);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_FLAGS_H_
