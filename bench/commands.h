// The subcommands of sru_bench. Each takes the arguments after the subcommand's name
// and returns the program's exit code.
#ifndef SRU_BENCH_COMMANDS_H_
#define SRU_BENCH_COMMANDS_H_

#include <string>
#include <vector>

namespace sru::bench {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the server or a call failed
inline constexpr int kExitUsage = 2;

int LoadMain(const std::vector<std::string>& args);
int GenerateMain(const std::vector<std::string>& args);
int ModelMain(const std::vector<std::string>& args);

}  // namespace sru::bench

#endif  // SRU_BENCH_COMMANDS_H_
