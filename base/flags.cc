#include "base/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/similar_name.h"

namespace sru {
namespace {

constexpr char kPrefix[] = "SRU_";
constexpr size_t kLineWidth = 100;

// In the names of flags whose values are secret. A file's path is none.
constexpr absl::string_view kSecrets[] = {"headers", "password", "secret"};
constexpr char kHidden[] = "(hidden)";

// Variables that programs other than these flags' read: sru_client and sru_bench, the tests, and
// the scripts that build images.
constexpr absl::string_view kOtherVariables[] = {
    "ADDRESS",         "ADMIN_ADDRESS",  "TOKEN_FILE",      "TLS_CA",
    "TLS_CLIENT_CERT", "TLS_CLIENT_KEY", "TLS_SERVER_NAME", "SHARED_DIR",
    "SOURCE_ROOT",     "PYTHON",         "DEBIAN_MIRROR",   "IMAGE_STORAGE"};
constexpr absl::string_view kOtherPrefixes[] = {"TEST_", "FUZZ_", "GOLDEN_"};

bool IsOtherVariable(absl::string_view name) {
  const auto begins = [name](absl::string_view prefix) { return absl::StartsWith(name, prefix); };
  return std::find(std::begin(kOtherVariables), std::end(kOtherVariables), name) !=
             std::end(kOtherVariables) ||
         std::any_of(std::begin(kOtherPrefixes), std::end(kOtherPrefixes), begins) ||
         // Kubernetes' own, for services whose names begin with sru.
         begins("PORT") || absl::StrContains(name, "_PORT") ||
         absl::StrContains(name, "SERVICE_HOST");
}

// Joins words to lines of at most `width` characters; each but the first begins with `indent`.
std::string Wrap(const std::vector<std::string>& words, const std::string& indent, size_t width) {
  std::string out;
  size_t used = 0;
  for (const std::string& word : words) {
    if (used > 0 && used + 1 + word.size() > width) {
      absl::StrAppend(&out, "\n", indent);
      used = 0;
    }
    absl::StrAppend(&out, used == 0 ? "" : " ", word);
    used += word.size() + (used == 0 ? 0 : 1);
  }
  return out;
}

}  // namespace

absl::Status Flags::BadValue(absl::string_view source, absl::string_view expected,
                             absl::string_view found) {
  return InvalidArgument(source, ": expected ", expected, ", found '", absl::CHexEscape(found),
                         "'");
}

absl::Status Flags::OutOfRange(absl::string_view source, const Range& range,
                               absl::string_view found) {
  const std::string high = range.high == std::numeric_limits<double>::infinity()
                               ? "or more"
                               : "to " + absl::UnparseFlag(range.high);
  return InvalidArgument(source, ": expected ", range.or_zero ? "0 or " : "",
                         absl::UnparseFlag(range.low), " ", high, ", found ", found);
}

Flags::Flag* Flags::AddFlag(absl::string_view name, std::string default_text,
                            absl::string_view expected, absl::string_view help) {
  Flag flag;
  flag.name = std::string(name);
  flag.default_text = std::move(default_text);
  flag.expected = std::string(expected);
  flag.help = std::string(help);
  flag.group = group_;
  if (environment_ == Environment::kAll) {
    flag.variable = absl::StrCat(kPrefix, absl::AsciiStrToUpper(name));
  }
  if (environment_ == Environment::kSame) flag.variable = flag.name;
  flags_.push_back(std::move(flag));
  return &flags_.back();
}

void Flags::AddRepeated(absl::string_view name, std::vector<std::string>* field,
                        absl::string_view help) {
  Flag* const flag = AddFlag(name, "", "text", help);
  flag->is_repeated = true;
  flag->set = [field](absl::string_view /*source*/, absl::string_view text) {
    field->emplace_back(text);
    return absl::OkStatus();
  };
}

void Flags::AddTime(absl::string_view name, absl::Duration* field, absl::Duration unit,
                    TimeRange range, absl::string_view help) {
  const bool never = *field == absl::InfiniteDuration();
  const double now = never ? 0 : absl::FDivDuration(*field, unit);
  AddFlag(name, absl::UnparseFlag(now), Expected<double>(), help)->set =
      [=](absl::string_view source, absl::string_view text) {
        double number = 0;
        std::string ignored;
        if (!absl::ParseFlag(text, &number, &ignored)) {
          return BadValue(source, Expected<double>(), text);
        }
        const bool is_never = range.or_never && number == 0;
        const absl::Duration value = is_never ? absl::InfiniteDuration() : number * unit;
        if (!is_never && (value < range.low || value > range.high)) {
          return InvalidArgument(source, ": expected ", range.or_never ? "0 (never) or " : "",
                                 absl::FormatDuration(range.low), " to ",
                                 absl::FormatDuration(range.high), ", found ",
                                 absl::FormatDuration(value));
        }
        *field = value;
        return absl::OkStatus();
      };
}

void Flags::AddError(absl::Status error) {
  if (!error.ok()) errors_.push_back(std::move(error));
}

void Flags::AddChanged(const Flag& flag, const std::string& value, const std::string& source) {
  const bool is_default =
      value == flag.default_text || (flag.is_bool && flag.default_text.empty() && value == "false");
  if (is_default) return;
  Setting changed = {flag.name, value, source};
  for (const absl::string_view secret : kSecrets) {
    if (absl::StrContains(flag.name, secret) || absl::EndsWith(flag.name, "token")) {
      changed.value = kHidden;
    }
  }
  const size_t host = value.find("://");
  const size_t user = host == std::string::npos ? host : value.find_last_of('@');
  if (user != std::string::npos && user > host) {
    changed.value = absl::StrCat(value.substr(0, host + 3), kHidden, value.substr(user));
  }
  changed_.push_back(std::move(changed));
}

absl::StatusOr<std::vector<std::string>> Flags::Parse(const std::vector<std::string>& arguments) {
  CLI::App app;
  app.allow_extras();
  const CLI::Option* const help = app.set_help_flag("-h,--help");
  std::vector<const CLI::Option*> options;
  for (const Flag& flag : flags_) {
    const std::string name = "--" + flag.name;
    CLI::Option* const option =
        flag.is_bool ? app.add_flag(name + ",!--no" + flag.name) : app.add_option(name);
    options.push_back(option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
  }

  errors_.clear();
  changed_.clear();
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  std::vector<std::string> words;
  for (auto it = arguments.begin(); it != end; ++it) {
    words.push_back(*it);
    absl::string_view name = *it;
    if (!absl::ConsumePrefix(&name, "--") || !absl::ConsumeSuffix(&name, "=")) continue;
    // CLI11 would take the next argument for the value of "--name=".
    const Flag* const flag = Find(name);
    if (flag == nullptr) continue;
    if (flag->is_bool) {
      words.pop_back();
      AddError(BadValue(absl::StrCat("--", name), flag->expected, ""));
    } else {
      words.back().pop_back();
      words.emplace_back();
    }
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError&) {
    if (help->count() > 0) {
      help_ = help->results().back();
      return std::vector<std::string>();
    }
    // Nothing else is wrong for CLI11 than a last argument that is a flag without its value.
    const absl::string_view last = absl::StripPrefix(words.back(), "--");
    const Flag* const flag = Find(last);
    AddError(InvalidArgument("--", last, ": expected ",
                             flag == nullptr ? "a value" : flag->expected, ", found nothing"));
  }

  std::vector<std::string> texts;
  for (const std::string& word : app.remaining()) {
    if (word.size() < 2 || word[0] != '-') {
      texts.push_back(word);
    } else if (!absl::StartsWith(word, "--")) {
      AddError(InvalidArgument(
          "unknown flag ", absl::CHexEscape(word),
          "; flags begin with two dashes. Put -- before text that begins with a dash"));
    } else {
      const std::string name = word.substr(2, word.find('=') - 2);
      AddError(InvalidArgument("unknown flag --", absl::CHexEscape(name),
                               Suggestion(/*is_variable=*/false, name)));
    }
  }

  if (end != arguments.end()) texts.insert(texts.end(), end + 1, arguments.end());

  for (size_t i = 0; i < flags_.size(); ++i) {
    const Flag& flag = flags_[i];
    std::string source = "--" + flag.name;
    std::vector<std::string> values = options[i]->results();
    if (values.empty()) {
      const char* const value =
          flag.variable.empty() ? nullptr : std::getenv(flag.variable.c_str());
      if (value == nullptr || (*value == '\0' && environment_ != Environment::kAll)) continue;
      source = flag.variable;
      values = {value};
    }
    if (!flag.is_repeated) values.erase(values.begin(), values.end() - 1);
    for (const std::string& value : values) AddError(flag.set(source, value));
    AddChanged(flag, absl::StrJoin(values, ","), source == flag.variable ? source : "flag");
  }
  if (!errors_.empty()) return errors_.front();
  return texts;
}

absl::Status Flags::ParseFlagsOnly(const std::vector<std::string>& arguments) {
  SRU_ASSIGN_OR_RETURN(const std::vector<std::string> texts, Parse(arguments));
  if (texts.empty()) return absl::OkStatus();
  errors_.push_back(InvalidArgument("unexpected argument '", absl::CHexEscape(texts.front()),
                                    "'; flags begin with --"));
  return errors_.back();
}

const Flags::Flag* Flags::Find(absl::string_view name) const {
  const auto it = std::find_if(flags_.begin(), flags_.end(),
                               [name](const Flag& flag) { return flag.name == name; });
  return it == flags_.end() ? nullptr : &*it;
}

std::string Flags::Suggestion(bool is_variable, absl::string_view name) const {
  std::vector<absl::string_view> names;
  for (const Flag& flag : flags_) names.emplace_back(flag.name);
  const Flag* const nearest = Find(SimilarName(name, names));
  if (nearest == nullptr) return "";
  return absl::StrCat("; did you mean ", is_variable ? nearest->variable : "--" + nearest->name,
                      "?");
}

std::string Flags::Help(absl::Span<const absl::string_view> names) const {
  std::vector<const Flag*> shown;
  size_t width = 0;
  for (const Flag& flag : flags_) {
    if (!names.empty() && std::find(names.begin(), names.end(), flag.name) == names.end()) continue;
    shown.push_back(&flag);
    width = std::max(width, flag.name.size());
  }
  const std::string indent(width + 6, ' ');
  std::vector<std::string> groups;
  for (const Flag* flag : shown) {
    if (flag->group == kRarelyChanged) continue;
    if (std::find(groups.begin(), groups.end(), flag->group) == groups.end()) {
      groups.push_back(flag->group);
    }
  }
  groups.emplace_back(kRarelyChanged);
  std::string text;
  for (const std::string& group : groups) {
    std::string lines;
    for (const Flag* flag : shown) {
      if (flag->group != group) continue;
      std::vector<std::string> words = absl::StrSplit(flag->help, ' ');
      std::vector<std::string> notes;
      if (!flag->default_text.empty()) notes.push_back("default " + flag->default_text);
      if (environment_ == Environment::kNamed && !flag->variable.empty()) {
        notes.push_back("or $" + flag->variable);
      }
      if (!notes.empty()) words.push_back(absl::StrCat("(", absl::StrJoin(notes, ", "), ")"));
      absl::StrAppend(&lines, "  --", flag->name, std::string(width + 2 - flag->name.size(), ' '),
                      Wrap(words, indent, kLineWidth - indent.size()), "\n");
    }
    if (lines.empty()) continue;
    if (!group.empty()) absl::StrAppend(&text, text.empty() ? "" : "\n", group, ":\n");
    absl::StrAppend(&text, lines);
  }
  return text;
}

std::vector<std::string> Flags::UnknownVariables(const char* const* environment) const {
  std::vector<std::string> warnings;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const absl::string_view variable = entry.substr(0, entry.find('='));
    absl::string_view name = variable;
    if (!absl::ConsumePrefix(&name, kPrefix) || IsOtherVariable(name) ||
        Find(absl::AsciiStrToLower(name)) != nullptr) {
      continue;
    }
    warnings.push_back(absl::StrCat("environment variable ", absl::CHexEscape(variable),
                                    " has no effect: there is no such flag",
                                    Suggestion(/*is_variable=*/true, absl::AsciiStrToLower(name))));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

std::string Flags::JoinChoices(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 < words.size() ? ", " : " or ", words[i]);
  }
  return text;
}

}  // namespace sru
