#include "client/flag_set.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/nearest_name.h"
#include "base/status.h"

namespace sru::client {
namespace {

absl::Status BadValue(absl::string_view source, absl::string_view expected, absl::string_view text,
                      const std::string& error) {
  return InvalidArgument(source, ": expected ", expected, ", found '", text, "'",
                         error.empty() ? "" : ": ", error);
}

}  // namespace

bool AbslParseFlag(absl::string_view text, RepeatedText* flag, std::string* /*error*/) {
  flag->values.emplace_back(text);
  return true;
}

std::string AbslUnparseFlag(const RepeatedText& flag) { return absl::StrJoin(flag.values, ", "); }

FlagSet::Flag* FlagSet::Find(absl::string_view name) {
  for (Flag& flag : flags_) {
    if (flag.name == name) return &flag;
  }
  return nullptr;
}

std::string FlagSet::Unknown(absl::string_view name) const {
  std::string message = absl::StrCat("unknown flag --", name);
  std::vector<absl::string_view> names(flags_.size());
  std::transform(flags_.begin(), flags_.end(), names.begin(),
                 [](const Flag& flag) -> absl::string_view { return flag.name; });
  // A third of a name may be wrong, and two letters of a short one.
  const absl::string_view nearest =
      NearestName(name, names, std::max<int>(2, static_cast<int>(name.size()) / 3));
  if (!nearest.empty()) absl::StrAppend(&message, "; did you mean --", nearest, "?");
  return message;
}

absl::StatusOr<std::vector<std::string>> FlagSet::Parse(const std::vector<std::string>& args) {
  for (Flag& flag : flags_) {
    if (flag.environment.empty()) continue;
    const char* value = std::getenv(flag.environment.c_str());
    if (value == nullptr || *value == '\0') continue;
    std::string error;
    if (!flag.set(value, &error)) {
      return BadValue(absl::StrCat("environment variable ", flag.environment), flag.expected, value,
                      error);
    }
  }

  std::vector<std::string> positional;
  for (size_t i = 0; i < args.size(); ++i) {
    absl::string_view arg = args[i];
    if (arg == "--") {
      positional.insert(positional.end(), args.begin() + i + 1, args.end());
      break;
    }
    if (arg == "--help" || arg == "-h") {
      help_requested_ = true;
      return positional;
    }
    if (arg.size() < 2 || arg[0] != '-') {
      positional.emplace_back(arg);
      continue;
    }
    if (!absl::ConsumePrefix(&arg, "--")) {
      return InvalidArgument(
          "unknown flag ", arg,
          "; flags begin with two dashes. Put -- before text that begins with a dash");
    }
    const size_t equals = arg.find('=');
    const absl::string_view name = arg.substr(0, equals);
    Flag* flag = Find(name);
    bool negated = false;
    if (flag == nullptr && absl::StartsWith(name, "no")) {
      flag = Find(name.substr(2));
      negated = flag != nullptr && flag->is_bool && equals == absl::string_view::npos;
      if (!negated) flag = nullptr;
    }
    if (flag == nullptr) return absl::InvalidArgumentError(Unknown(name));
    std::string value;
    if (equals != absl::string_view::npos) {
      value = std::string(arg.substr(equals + 1));
    } else if (flag->is_bool) {
      value = negated ? "false" : "true";
    } else if (i + 1 < args.size()) {
      value = args[++i];
    } else {
      return InvalidArgument("--", name, " needs a value: --", name, "=VALUE");
    }
    std::string error;
    if (!flag->set(value, &error))
      return BadValue(absl::StrCat("--", name), flag->expected, value, error);
  }
  return positional;
}

std::string FlagSet::Help() const {
  size_t width = 0;
  for (const Flag& flag : flags_) width = std::max(width, flag.name.size());
  std::string text;
  for (const Flag& flag : flags_) {
    absl::StrAppend(&text, "  --", flag.name, std::string(width - flag.name.size() + 2, ' '),
                    flag.help);
    if (!flag.is_bool && !flag.default_text.empty()) {
      absl::StrAppend(&text, " (default ", flag.default_text);
      if (!flag.environment.empty()) absl::StrAppend(&text, ", or $", flag.environment);
      absl::StrAppend(&text, ")");
    } else if (!flag.environment.empty()) {
      absl::StrAppend(&text, " (or $", flag.environment, ")");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

absl::Status CheckAtLeast(absl::string_view flag, int64_t value, int64_t low) {
  if (value >= low) return absl::OkStatus();
  return InvalidArgument("--", flag, ": expected at least ", low, ", found ", value);
}

}  // namespace sru::client
