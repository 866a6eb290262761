// The subcommands of sru_bench, and what they share: the flags of a load, parsing, and errors.
#ifndef SRU_BENCH_COMMANDS_H_
#define SRU_BENCH_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags.h"
#include "bench/run.h"
#include "client/command_line.h"
#include "client/messages_fwd.h"

namespace sru::bench {

using client::Command;
using client::kExitFailed;
using client::kExitOk;
using client::kExitUsage;

extern const Command kLoad;
extern const Command kGenerate;
extern const Command kModel;

// Adds the flags that say where calls are sent and when. `calls`: what the calls are called.
void AddRunFlags(const std::string& calls, RunOptions* run, Flags* flags);

// Checks the times among them. Errors name the flag.
absl::Status CheckRunOptions(const RunOptions& options);

// Parses `args`. Returns the exit code if the program should end now: after --help and after an
// error. No subcommand of sru_bench takes plain arguments.
std::optional<int> ParseFlags(const Command& command, const std::vector<std::string>& args,
                              Flags* flags);

// Asks the server for its description of `model`, or without a name of the only model whose task
// (ModelInfo.task) is one of `tasks`. Version 0 is the latest. Errors are also those of
// ResolveLoopback(), before anything is sent anywhere.
absl::StatusOr<v1::ModelInfo> FindModel(const RunOptions& run, const std::string& model,
                                        int64_t version, const std::vector<std::string>& tasks);

// Prints the error, with advice, to standard error and returns the exit code for it.
int Fail(const Command& command, const absl::Status& status, const RunOptions& run);

}  // namespace sru::bench

#endif  // SRU_BENCH_COMMANDS_H_
