// FlagSet: the flags of one subcommand.
//
// Abseil's own flags are global to a program, so every subcommand would accept, and list, the flags
// of all the others. Here each subcommand declares its own beside its options. absl::ParseFlag
// parses the values, so they are written as for the server: --deadline=2s, --json, --nojson,
// --json=false,
// --top_k 3. `--` ends the flags.
//
//   FlagSet flags;
//   flags.Add("top_k", &options.top_k, "labels per sequence; 0 = all");
//   absl::StatusOr<std::vector<std::string>> texts = flags.Parse(args);
//
// Not thread-safe. The variables must outlive Parse().
#ifndef SRU_CLIENT_FLAG_SET_H_
#define SRU_CLIENT_FLAG_SET_H_

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/status.h"

namespace sru::client {

// The value of a flag that may be given several times: each time adds a text. A default in the
// environment is one of them.
struct RepeatedText {
  std::vector<std::string> values;
};
bool AbslParseFlag(absl::string_view text, RepeatedText* flag, std::string* error);
std::string AbslUnparseFlag(const RepeatedText& flag);

class FlagSet {
 public:
  // The variable's present value is the default. `environment`, if not empty, names an environment
  // variable that overrides the default if it is set.
  template <typename T>
  void Add(absl::string_view name, T* value, absl::string_view help,
           absl::string_view environment = "") {
    Flag flag;
    flag.name = std::string(name);
    flag.help = std::string(help);
    flag.environment = std::string(environment);
    flag.is_bool = std::is_same<T, bool>::value;
    if constexpr (std::is_same<T, absl::Duration>::value) {
      flag.default_text = absl::FormatDuration(*value);
      flag.expected = "a duration such as 2s or 150ms";
    } else {
      flag.default_text = absl::UnparseFlag(*value);
      flag.expected = flag.is_bool                       ? "true or false"
                      : std::is_floating_point<T>::value ? "a number"
                      : std::is_integral<T>::value       ? "a whole number"
                                                         : "text";
    }
    flag.set = [value](absl::string_view text, std::string* error) {
      return absl::ParseFlag(text, value, error);
    };
    flags_.push_back(std::move(flag));
  }

  // Sets the variables and returns the arguments that are not flags, in their order.
  // kInvalidArgument names the flag and says what was expected; for an unknown flag it suggests the
  // most similar name.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& args);

  // True if --help or -h was among the arguments; nothing after it was parsed.
  bool help_requested() const { return help_requested_; }

  // One aligned line per flag, with its default.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    std::string environment;
    std::string default_text;
    std::string expected;
    bool is_bool = false;
    std::function<bool(absl::string_view, std::string*)> set;
  };

  Flag* Find(absl::string_view name);
  std::string Unknown(absl::string_view name) const;

  std::vector<Flag> flags_;
  bool help_requested_ = false;
};

// kInvalidArgument, with the name of the flag, unless `value` is from `low` to `high`; NaN is in no
// range.
template <typename T>
absl::Status CheckRange(absl::string_view flag, T value, std::common_type_t<T> low,
                        std::common_type_t<T> high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("--", flag, ": expected ", low, " to ", high, ", found ", value);
}

// The same for a value that has no upper limit.
absl::Status CheckAtLeast(absl::string_view flag, int64_t value, int64_t low);

}  // namespace sru::client

#endif  // SRU_CLIENT_FLAG_SET_H_
