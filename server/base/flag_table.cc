#include "server/base/flag_table.h"

#include <algorithm>
#include <optional>

#include "absl/flags/marshalling.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"

namespace sru::server {
namespace {

constexpr char kWholeNumber[] = "a whole number";

std::string EnvironmentName(absl::string_view flag) {
  return absl::StrCat("SRU_", absl::AsciiStrToUpper(flag));
}

// Breaks `text` into lines of at most `width` characters, each after `indent`.
std::string Wrap(absl::string_view text, absl::string_view indent, size_t width) {
  std::string out;
  std::string line;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!line.empty() && line.size() + 1 + word.size() > width) {
      absl::StrAppend(&out, indent, line, "\n");
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", word);
  }
  absl::StrAppend(&out, indent, line, "\n");
  return out;
}

// `name` is that of an option or a variable, as a user writes it.
absl::Status BadValue(absl::string_view name, absl::string_view expected, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": expected ", expected, ", found '", absl::CHexEscape(found), "'"));
}

// Accepts the same spellings as a flag of Abseil.
template <typename T>
bool ParseInto(absl::string_view text, T* value) {
  std::string ignored;
  return absl::ParseFlag(text, value, &ignored);
}

}  // namespace

void FlagTable::Add(absl::string_view name, bool* field, absl::string_view help) {
  Flag flag;
  flag.name = std::string(name);
  flag.help = std::string(help);
  flag.default_text = absl::UnparseFlag(*field);
  flag.expected = "true or false";
  flag.is_bool = true;
  flag.set = [field](absl::string_view text) { return ParseInto(text, field); };
  flag.check = [] { return absl::OkStatus(); };
  flags_.push_back(std::move(flag));
}

void FlagTable::Add(absl::string_view name, std::string* field, absl::string_view help) {
  AddText(name, *field, help, [field](absl::string_view, absl::string_view text) {
    *field = std::string(text);
    return absl::OkStatus();
  });
}

void FlagTable::Add(absl::string_view name, int32_t* field, Range range, absl::string_view help) {
  AddNumber(name, field, range, help);
}

void FlagTable::Add(absl::string_view name, int64_t* field, Range range, absl::string_view help) {
  AddNumber(name, field, range, help);
}

template <typename T>
void FlagTable::AddNumber(absl::string_view name, T* field, Range range, absl::string_view help) {
  Flag flag;
  flag.name = std::string(name);
  flag.help = std::string(help);
  flag.default_text = absl::UnparseFlag(*field);
  flag.expected = kWholeNumber;
  flag.set = [field](absl::string_view text) { return ParseInto(text, field); };
  flag.check = [name = flag.name, field, range] {
    const int64_t value = *field;
    if ((range.or_zero && value == 0) || (value >= range.low && value <= range.high)) {
      return absl::OkStatus();
    }
    const std::string high = range.high == std::numeric_limits<int64_t>::max()
                                 ? "or more"
                                 : absl::StrCat("to ", range.high);
    return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected ",
                                                   range.or_zero ? "0 or " : "", range.low, " ",
                                                   high, ", found ", value));
  };
  flags_.push_back(std::move(flag));
}

void FlagTable::AddSeconds(absl::string_view name, absl::Duration* field, TimeRange range,
                           absl::string_view help) {
  Flag flag;
  flag.default_text =
      absl::UnparseFlag(*field == absl::InfiniteDuration() ? 0.0 : absl::ToDoubleSeconds(*field));
  flag.expected = "a number";
  flag.set = [field, or_never = range.or_never](absl::string_view text) {
    double seconds = 0;
    if (!ParseInto(text, &seconds)) return false;
    *field = or_never && seconds == 0 ? absl::InfiniteDuration() : absl::Seconds(seconds);
    return true;
  };
  AddDuration(name, field, range, std::move(flag), help);
}

void FlagTable::AddMicroseconds(absl::string_view name, absl::Duration* field, TimeRange range,
                                absl::string_view help) {
  Flag flag;
  flag.default_text = absl::UnparseFlag(absl::ToInt64Microseconds(*field));
  flag.expected = kWholeNumber;
  flag.set = [field](absl::string_view text) {
    int64_t microseconds = 0;
    if (!ParseInto(text, &microseconds)) return false;
    *field = absl::Microseconds(microseconds);
    return true;
  };
  AddDuration(name, field, range, std::move(flag), help);
}

void FlagTable::AddDuration(absl::string_view name, absl::Duration* field, TimeRange range,
                            Flag flag, absl::string_view help) {
  flag.name = std::string(name);
  flag.help = std::string(help);
  flag.check = [name = flag.name, field, range] {
    const bool never = range.or_never && *field == absl::InfiniteDuration();
    if (never || (*field >= range.low && *field <= range.high)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--", name, ": expected ", range.or_never ? "0 (never) or " : "",
                     absl::FormatDuration(range.low), " to ", absl::FormatDuration(range.high),
                     ", found ", absl::FormatDuration(*field)));
  };
  flags_.push_back(std::move(flag));
}

void FlagTable::AddText(absl::string_view name, std::string default_text, absl::string_view help,
                        std::function<absl::Status(absl::string_view, absl::string_view)> take) {
  Flag flag;
  flag.name = std::string(name);
  flag.help = std::string(help);
  flag.default_text = std::move(default_text);
  auto given = std::make_shared<std::optional<std::string>>();
  flag.set = [given](absl::string_view text) {
    *given = std::string(text);
    return true;
  };
  flag.check = [given, name = flag.name, take = std::move(take)] {
    return given->has_value() ? take(name, **given) : absl::OkStatus();
  };
  flags_.push_back(std::move(flag));
}

absl::Status FlagTable::NotAmong(absl::string_view flag, const std::vector<std::string>& words,
                                 absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", JoinChoices(words), ", found '", found, "'"));
}

absl::Status FlagTable::SetFromEnvironment(const std::function<const char*(const char*)>& get_env) {
  absl::Status status;
  for (Flag& flag : flags_) {
    const std::string variable = EnvironmentName(flag.name);
    const char* const value = get_env(variable.c_str());
    if (value == nullptr || flag.set(value)) continue;
    status.Update(BadValue(variable, flag.expected, value));
  }
  return status;
}

absl::Status FlagTable::SetFromArguments(const std::vector<std::string>& arguments) {
  absl::Status status;
  const auto set = [&status](const Flag& flag, absl::string_view value) {
    if (flag.set(value)) return;
    status.Update(BadValue(absl::StrCat("--", flag.name), flag.expected, value));
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (!absl::ConsumePrefix(&argument, "-") || argument.empty() || argument == "-") {
      status.Update(absl::InvalidArgumentError(
          absl::StrCat("unexpected argument '", absl::CHexEscape(arguments[i]),
                       "'; options start with --, see --help")));
      continue;
    }
    absl::ConsumePrefix(&argument, "-");
    const size_t equals = argument.find('=');
    const bool has_value = equals != absl::string_view::npos;
    const absl::string_view name = argument.substr(0, equals);
    absl::string_view positive = name;
    if (const Flag* const flag = Find(name)) {
      if (has_value) {
        set(*flag, argument.substr(equals + 1));
      } else if (flag->is_bool) {
        set(*flag, "true");
      } else if (i + 1 < arguments.size()) {
        set(*flag, arguments[++i]);
      } else {
        status.Update(absl::InvalidArgumentError(
            absl::StrCat("--", name, ": expected ", flag->expected, ", found nothing")));
      }
      continue;
    }
    const Flag* const negated =
        !has_value && absl::ConsumePrefix(&positive, "no") ? Find(positive) : nullptr;
    if (negated != nullptr && negated->is_bool) {
      set(*negated, "false");
      continue;
    }
    const absl::string_view nearest = NearestFlag(name, names());
    status.Update(absl::InvalidArgumentError(
        absl::StrCat("--", absl::CHexEscape(name), ": there is no such option, see --help",
                     nearest.empty() ? "" : absl::StrCat("; did you mean --", nearest, "?"))));
  }
  return status;
}

absl::Status FlagTable::Check() {
  absl::Status status;
  for (const Flag& flag : flags_) status.Update(flag.check());
  return status;
}

FlagTable::Flag* FlagTable::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::vector<absl::string_view> FlagTable::names() const {
  std::vector<absl::string_view> names;
  for (const Flag& flag : flags_) names.push_back(flag.name);
  return names;
}

std::string FlagTable::Help() const {
  std::string text;
  for (const Flag& flag : flags_) {
    absl::StrAppend(&text, "  --", flag.name, flag.default_text.empty() ? "" : "=",
                    flag.default_text, "  [", EnvironmentName(flag.name), "]\n",
                    Wrap(flag.help, "      ", 88));
  }
  return text;
}

std::string JoinChoices(const std::vector<std::string>& words) {
  std::string text = words.empty() ? "" : words.front();
  for (size_t i = 1; i < words.size(); ++i) {
    absl::StrAppend(&text, i + 1 < words.size() ? ", " : " or ", words[i]);
  }
  return text;
}

absl::string_view NearestFlag(absl::string_view name, absl::Span<const absl::string_view> names) {
  // A third of a name may be wrong, but not more than three letters.
  return NearestName(name, names, std::min<int>(3, static_cast<int>(name.size()) / 3));
}

}  // namespace sru::server
