// What the subcommands load, sweep and echo share: flags, preparation, errors.
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

// Flags that say where calls go and how they are sent.
void AddConnectionFlags(LoadOptions* load, client::FlagSet* flags);

// Parses `args`. Returns the exit code when the program should end: after --help, which prints
// `usage` and the flags, and after an error. No subcommand here takes plain arguments.
std::optional<int> ParseFlags(const std::string& command, const char* usage,
                              const std::vector<std::string>& args, client::FlagSet* flags);

// Sets load->method and makes the requests, asking the server about its model where needed.
absl::StatusOr<std::vector<std::string>> PrepareRequests(const RequestOptions& options,
                                                         LoadOptions* load);

// Prints the error with advice to standard error and returns the exit code for it.
int Fail(const std::string& command, const absl::Status& status, const LoadOptions& load);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_FLAGS_H_
