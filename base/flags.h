// Flags: the command line of sru_server, and of each subcommand of sru_client and sru_bench. A flag
// binds a name to a field, with the values that the field takes and a help text. Its default is the
// field's value when the flag is added. CLI11 takes the command line apart; flags.cc alone includes
// it.
//
//   Flags flags;
//   flags.Add("top_k", &options.top_k, {0, 100}, "labels per text; 0 = all");
//   absl::StatusOr<std::vector<std::string>> texts = flags.Parse(arguments);
//
// The command line has --name=value or --name value, --name and --noname for true and false, and
// `--`, which ends the flags. The last value of a flag counts, and the command line overrides the
// environment.
//
// Not thread-safe. The fields must outlive Parse(). All errors are kInvalidArgument and name the
// flag or the variable, what was expected and what was found.
#ifndef SRU_BASE_FLAGS_H_
#define SRU_BASE_FLAGS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/flags/marshalling.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/status.h"

namespace sru {

class Flags {
 public:
  // From `low` to `high`, both included.
  struct Range {
    double low = -std::numeric_limits<double>::infinity();
    double high = std::numeric_limits<double>::infinity();
    bool or_zero = false;  // 0 is allowed as well
  };
  struct TimeRange {
    absl::Duration low;
    absl::Duration high;
    bool or_never = false;  // 0 is allowed as well and gives an infinite duration
  };
  enum class Environment {
    kNamed,  // only the variables that Variable() names; an empty one counts as not set
    kAll,    // every flag has the variable SRU_ + its name in upper case
    kSame,   // every flag is a variable of its own name, which is not set if it is empty
  };

  // A flag that was given, and not with the text of its default.
  struct Setting {
    std::string name;
    std::string value;   // as it was given; "(hidden)" if the flag's name tells of a secret
    std::string source;  // "flag", or the name of the variable
  };

  // The group that Help() lists last: flags whose default is right for nearly everyone.
  static constexpr char kRarelyChanged[] = "Rarely changed";

  explicit Flags(Environment environment = Environment::kNamed) : environment_(environment) {}
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  // Help() lists the flags added from now on under this heading.
  void Group(absl::string_view heading) { group_ = std::string(heading); }

  // Any type that absl::ParseFlag() knows: text, numbers, true or false, a duration such as 2s, or
  // a list of texts separated by commas.
  template <typename T>
  void Add(absl::string_view name, T* field, absl::string_view help) {
    Add(name, field, Range(), help);
  }
  // The range is that of a number.
  template <typename T>
  void Add(absl::string_view name, T* field, Range range, absl::string_view help) {
    const char* const expected = Expected<T>();
    Flag* const flag = AddFlag(name, DefaultText(*field), expected, help);
    flag->is_bool = std::is_same_v<T, bool>;
    flag->set = [=](absl::string_view source, absl::string_view text) {
      T value{};
      std::string ignored;
      if (!absl::ParseFlag(text, &value, &ignored)) return BadValue(source, expected, text);
      if constexpr (std::is_arithmetic_v<T>) {
        if (!Holds(range, static_cast<double>(value))) return OutOfRange(source, range, text);
      }
      *field = std::move(value);
      return absl::OkStatus();
    };
  }

  // A text that may be given several times. Each time adds one.
  void AddRepeated(absl::string_view name, std::vector<std::string>* field, absl::string_view help);

  // A decimal number of `unit`; names end with _s or _us.
  void AddTime(absl::string_view name, absl::Duration* field, absl::Duration unit, TimeRange range,
               absl::string_view help);

  // One of several words. There is no default if the field's value is not among `choices`.
  template <typename T>
  void AddChoice(absl::string_view name, T* field, std::vector<std::pair<std::string, T>> choices,
                 absl::string_view help) {
    std::string default_text;
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) {
      if (value == *field) default_text = word;
      words.push_back(word);
    }
    const std::string expected = JoinChoices(words);
    AddFlag(name, std::move(default_text), expected, help)->set = [=](absl::string_view source,
                                                                      absl::string_view text) {
      for (const auto& [word, value] : choices) {
        if (word != text) continue;
        *field = value;
        return absl::OkStatus();
      }
      return BadValue(source, expected, text);
    };
  }

  // A text from which `parse(flag, text)` makes an absl::StatusOr<T>. `default_text` is the field's
  // value as a user would write it.
  template <typename T, typename Parse>
  void AddParsed(absl::string_view name, T* field, std::string default_text, Parse parse,
                 absl::string_view help) {
    AddFlag(name, std::move(default_text), "text", help)->set =
        [=, name = std::string(name)](absl::string_view /*source*/, absl::string_view text) {
          auto value = parse(name, text);
          if (!value.ok()) return value.status();
          *field = *std::move(value);
          return absl::OkStatus();
        };
  }

  // The flag that was added last also has this variable of the environment.
  void Variable(absl::string_view variable) { flags_.back().variable = std::string(variable); }

  // Sets the fields and returns the arguments that are no flags, in their order. After an error it
  // continues, so that everything that is right is set, and returns the first error. After --help
  // or -h it sets nothing.
  absl::StatusOr<std::vector<std::string>> Parse(const std::vector<std::string>& arguments);
  // The same for a command line that has nothing but flags.
  absl::Status ParseFlagsOnly(const std::vector<std::string>& arguments);

  // After Parse(): everything that was wrong.
  const std::vector<absl::Status>& errors() const { return errors_; }
  // After Parse(): what was changed, in the order of the flags. A user or password in a URL is
  // hidden, too.
  const std::vector<Setting>& changed() const { return changed_; }

  // After Parse(): whether there was --help, -h or --help=all.
  bool help_requested() const { return !help_.empty(); }
  bool full_help_requested() const { return help_ == "all"; }

  // The flags under their headings, each with its default; of `names` only, unless that is empty.
  std::string Help(absl::Span<const absl::string_view> names = {}) const;

  // A warning for each variable of `environment` ("NAME=value") that looks like one of these flags
  // and is none, with the most similar one.
  std::vector<std::string> UnknownVariables(const char* const* environment) const;

  // "a, b or c".
  static std::string JoinChoices(const std::vector<std::string>& words);

 private:
  struct Flag {
    std::string name;
    std::string default_text;
    std::string expected;
    std::string help;
    std::string group;
    std::string variable;
    bool is_bool = false;
    bool is_repeated = false;
    // `source` is "--name" or the variable.
    std::function<absl::Status(absl::string_view source, absl::string_view text)> set;
  };

  template <typename T>
  static constexpr const char* Expected() {
    return std::is_same_v<T, bool>             ? "true or false"
           : std::is_floating_point_v<T>       ? "a number"
           : std::is_integral_v<T>             ? "a whole number"
           : std::is_same_v<T, absl::Duration> ? "a duration such as 2s or 150ms"
                                               : "text";
  }
  template <typename T>
  static std::string DefaultText(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "";
    } else if constexpr (std::is_same_v<T, absl::Duration>) {
      return absl::FormatDuration(value);
    } else {
      return absl::UnparseFlag(value);
    }
  }
  // Not a number is in no range.
  static bool Holds(const Range& range, double value) {
    return (value >= range.low && value <= range.high) || (range.or_zero && value == 0);
  }
  static absl::Status BadValue(absl::string_view source, absl::string_view expected,
                               absl::string_view found);
  static absl::Status OutOfRange(absl::string_view source, const Range& range,
                                 absl::string_view found);

  void AddError(absl::Status error);
  void AddChanged(const Flag& flag, const std::string& value, const std::string& source);
  Flag* AddFlag(absl::string_view name, std::string default_text, absl::string_view expected,
                absl::string_view help);
  const Flag* Find(absl::string_view name) const;
  // "; did you mean X?", where X is the most similar flag or its variable; empty if none is
  // similar.
  std::string Suggestion(bool is_variable, absl::string_view name) const;

  const Environment environment_;
  std::string group_;
  std::vector<Flag> flags_;
  std::vector<absl::Status> errors_;
  std::vector<Setting> changed_;
  std::string help_;  // the value of --help
};

}  // namespace sru

#endif  // SRU_BASE_FLAGS_H_
