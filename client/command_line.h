// The command line of sru_client and sru_bench: subcommands, the flags of TLS, names of the wire's
// enums as a user types and reads them, and errors that say what to do next.
#ifndef SRU_CLIENT_COMMAND_LINE_H_
#define SRU_CLIENT_COMMAND_LINE_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/flags.h"
#include "client/connect_options.h"

namespace google::protobuf {
class EnumValueDescriptor;
}

namespace sru::client {

inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;  // the server or a call failed
inline constexpr int kExitUsage = 2;   // the command line is wrong

// A subcommand.
struct Command {
  const char* name;
  const char* summary;  // its line in the program's --help
  const char* help;     // what its own --help prints above the flags: purpose, usage, examples
  // Takes the arguments after the subcommand's name and returns the program's exit code.
  int (*run)(const Command& command, const std::vector<std::string>& args);
};

struct Program {
  const char* name;
  const char* purpose;    // what it does: follows its name in --help
  const char* arguments;  // of a subcommand, besides flags
  const char* more;       // at the end of --help
  std::string version;    // what --version prints
};

// Runs the command that `args` begin with, prints --help or --version, or says that there is no
// such command. Returns the exit code.
int RunProgram(const Program& program, absl::Span<const Command* const> commands,
               const std::vector<std::string>& args);

// Adds --tls and the other flags that begin so.
void AddTlsFlags(ConnectOptions* options, Flags* flags);

// The names that users type and read for the values of enums: "max" for POOLING_MAX, "" for one
// that is unspecified. The states of models, "READY" and so on, are read as they are.
std::string NameOf(const google::protobuf::EnumValueDescriptor& value);

// The values of an enum that have such a name, for Flags::AddChoice(): of Priority, Unknown,
// Pooling, LengthPenalty::Form or OutputFormat.
template <typename Enum>
std::vector<std::pair<std::string, Enum>> NamedValues();

// "RESOURCE_EXHAUSTED: the queue is full" and, on the next line, what the user can do about it.
std::string ExplainError(const absl::Status& status, absl::string_view address,
                         absl::Duration deadline);

// Like ExplainError(), for a call that was to load or unload a model.
std::string ExplainAdminError(const absl::Status& status, absl::string_view address,
                              absl::Duration deadline);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMAND_LINE_H_
