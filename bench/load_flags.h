// What the subcommands share: parsing of flags; and for load, sweep and echo the flags of a
// connection, the preparation of requests, and errors.
#ifndef SRU_BENCH_LOAD_FLAGS_H_
#define SRU_BENCH_LOAD_FLAGS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/load_generator.h"
#include "bench/requests.h"
#include "client/flag_set.h"

namespace sru::bench {

// Adds the flags that say how calls are sent.
void AddConnectionFlags(LoadOptions* load, client::FlagSet* flags);

// Parses `args`. Returns the exit code if the program should end now: after --help, which prints
// `usage` and the flags, and after an error. No subcommand of sru_bench takes plain arguments.
std::optional<int> ParseFlags(const std::string& command, const char* usage,
                              const std::vector<std::string>& args, client::FlagSet* flags);

// Sets load->method and makes the requests; asks the server about its model if necessary.
absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load);

// Prints the error, with advice, to standard error and returns the exit code for it.
int Fail(const std::string& command, const absl::Status& status, const LoadOptions& load);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_FLAGS_H_
