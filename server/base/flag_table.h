// FlagTable: the flags of the server. A flag is one entry, which binds a name to a field of an
// options struct, with the values that it takes and its help. The rest follows from the entry: the
// default is the field's value when the flag is added, the environment variable is SRU_ and the
// name in upper case, --help lists the entry, and a test compares docs/operations.md with --help.
//
//   void AddFlags(BatchingOptions* options, FlagTable* flags) {
//     flags->Add("max_batch_sequences", &options->max_batch_sequences, {1, 1 << 20}, "Help.");
//   }
//
//   FlagTable flags;
//   AddFlags(&options, &flags);
//   absl::Status status = flags.SetFromEnvironment(&std::getenv);
//   status.Update(flags.SetFromArguments(arguments));
//   status.Update(flags.Check());
//
// Not thread-safe. The fields must outlive it. All errors are kInvalidArgument and name the flag,
// what was expected and what was found.
#ifndef SRU_SERVER_BASE_FLAG_TABLE_H_
#define SRU_SERVER_BASE_FLAG_TABLE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace sru::server {

class FlagTable {
 public:
  // From `low` to `high`, both included.
  struct Range {
    int64_t low = 0;
    int64_t high = std::numeric_limits<int64_t>::max();
    bool or_zero = false;  // 0 is taken as well
  };
  struct TimeRange {
    absl::Duration low;
    absl::Duration high;
    bool or_never = false;  // 0 is taken as well, of seconds, and gives an infinite duration
  };

  FlagTable() = default;
  FlagTable(const FlagTable&) = delete;
  FlagTable& operator=(const FlagTable&) = delete;

  void Add(absl::string_view name, bool* field, absl::string_view help);
  void Add(absl::string_view name, std::string* field, absl::string_view help);
  void Add(absl::string_view name, int32_t* field, Range range, absl::string_view help);
  void Add(absl::string_view name, int64_t* field, Range range, absl::string_view help);

  // A decimal number of seconds. Names end with _s.
  void AddSeconds(absl::string_view name, absl::Duration* field, TimeRange range,
                  absl::string_view help);
  // A whole number of microseconds. Names end with _us.
  void AddMicroseconds(absl::string_view name, absl::Duration* field, TimeRange range,
                       absl::string_view help);

  // One of several words. The field's value must be among `choices`.
  template <typename T>
  void AddChoice(absl::string_view name, T* field, std::vector<std::pair<std::string, T>> choices,
                 absl::string_view help) {
    std::string default_text;
    std::vector<std::string> words;
    for (const auto& [word, value] : choices) {
      if (value == *field) default_text = word;
      words.push_back(word);
    }
    AddText(name, std::move(default_text), help,
            [field, choices = std::move(choices), words = std::move(words)](
                absl::string_view flag, absl::string_view text) {
              for (const auto& [word, value] : choices) {
                if (word != text) continue;
                *field = value;
                return absl::OkStatus();
              }
              return NotAmong(flag, words, text);
            });
  }

  // Text that `parse(flag, text)` makes a value of, as an absl::StatusOr<T>. `default_text` is the
  // field's value as a user would write it.
  template <typename T, typename Parse>
  void AddParsed(absl::string_view name, T* field, std::string default_text, Parse parse,
                 absl::string_view help) {
    AddText(name, std::move(default_text), help,
            [field, parse = std::move(parse)](absl::string_view flag, absl::string_view text) {
              auto value = parse(flag, text);
              if (!value.ok()) return value.status();
              *field = *std::move(value);
              return absl::OkStatus();
            });
  }

  // Sets each flag that the environment names; `get_env` gives null for a variable that is not set.
  // Goes on after an error, so that everything that is right is set, and returns the first.
  absl::Status SetFromEnvironment(const std::function<const char*(const char*)>& get_env);

  // Sets what `arguments` (without the program's name) say: --name=value, --name value, and --name
  // or --noname for a flag that is true or false; the last one of a flag counts. Goes on after an
  // error like SetFromEnvironment().
  absl::Status SetFromArguments(const std::vector<std::string>& arguments);

  // Call it once everything is set: converts what is more than a number, and checks the range of
  // every field, also of those that no flag has set. Goes on after an error like the others.
  absl::Status Check();

  // In the order in which they were added. Valid until the next one is added.
  std::vector<absl::string_view> names() const;

  // Every flag with its default, environment variable and meaning.
  std::string Help() const;

 private:
  struct Flag {
    std::string name;
    std::string help;
    std::string default_text;
    const char* expected = "a value";
    bool is_bool = false;
    std::function<bool(absl::string_view text)> set;  // false when `text` is no such value
    std::function<absl::Status()> check;
  };

  Flag* Find(absl::string_view name);
  template <typename T>
  void AddNumber(absl::string_view name, T* field, Range range, absl::string_view help);
  void AddDuration(absl::string_view name, absl::Duration* field, TimeRange range, Flag flag,
                   absl::string_view help);
  // `take(name, text)` is called by Check(), if the flag was set.
  void AddText(absl::string_view name, std::string default_text, absl::string_view help,
               std::function<absl::Status(absl::string_view, absl::string_view)> take);
  static absl::Status NotAmong(absl::string_view flag, const std::vector<std::string>& words,
                               absl::string_view found);

  std::vector<Flag> flags_;
};

// Whether every field of `options` is in the range of its flag. There must be an
// AddFlags(Options*, FlagTable*).
template <typename Options>
absl::Status CheckRanges(Options options) {
  FlagTable flags;
  AddFlags(&options, &flags);
  return flags.Check();
}

// "a, b or c".
std::string JoinChoices(const std::vector<std::string>& words);

// The one of `names` that `name` was probably meant to be; empty when none is near.
absl::string_view NearestFlag(absl::string_view name, absl::Span<const absl::string_view> names);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_FLAG_TABLE_H_
