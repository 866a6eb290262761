#include "server/command_line.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>

#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "re2/re2.h"

namespace sru::server {
namespace {

// Those of sru_client and sru_bench that are no flags of the server, those of the tests and of the
// scripts that build images, and Kubernetes' for services.
constexpr char kOtherVariables[] =
    "SRU_(ADDRESS|ADMIN_ADDRESS|TOKEN_FILE|TLS_CA|TLS_CLIENT_CERT|TLS_CLIENT_KEY|TLS_SERVER_NAME|"
    "SHARED_DIR|SOURCE_ROOT|PYTHON|DEBIAN_MIRROR|IMAGE_STORAGE|TEST_.*|FUZZ_.*|GOLDEN_.*|"
    "(.*_)?SERVICE_(HOST|PORT)(_.*)?|(.*_)?PORT(_\\d+_.*)?)";

// Insertions, deletions and replacements that make one out of the other.
int Distance(absl::string_view a, absl::string_view b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string Suggestion(absl::string_view nearest, absl::string_view prefix) {
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", prefix, nearest, "?");
}

const char* Expected(const absl::CommandLineFlag& flag) {
  if (flag.IsOfType<bool>()) return "true or false";
  if (flag.IsOfType<int32_t>() || flag.IsOfType<int64_t>()) return "a whole number";
  if (flag.IsOfType<double>()) return "a number";
  return "a value";
}

absl::Status Set(absl::string_view name, absl::string_view value) {
  absl::CommandLineFlag& flag = *absl::FindCommandLineFlag(name);
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", name, ": expected ", Expected(flag),
                                                 ", found '", absl::CHexEscape(value), "'"));
}

}  // namespace

absl::string_view NearestName(absl::string_view name, absl::Span<const absl::string_view> names) {
  absl::string_view nearest;
  // A third of a name may be wrong, but not more than three letters.
  int least = std::min<int>(3, static_cast<int>(name.size()) / 3) + 1;
  for (const absl::string_view candidate : names) {
    const int distance = Distance(name, candidate);
    if (distance < least) {
      nearest = candidate;
      least = distance;
    }
  }
  return nearest;
}

absl::Status ApplyCommandLine(const std::vector<std::string>& arguments,
                              absl::Span<const absl::string_view> flags) {
  const auto is_flag = [flags](absl::string_view name) {
    return std::find(flags.begin(), flags.end(), name) != flags.end();
  };
  const auto is_bool = [](absl::string_view name) {
    return absl::FindCommandLineFlag(name)->IsOfType<bool>();
  };
  absl::Status status;
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
    const absl::string_view name = argument.substr(0, equals);
    absl::string_view positive = name;
    if (is_flag(name)) {
      if (equals != absl::string_view::npos) {
        status.Update(Set(name, argument.substr(equals + 1)));
      } else if (is_bool(name)) {
        status.Update(Set(name, "true"));
      } else if (i + 1 < arguments.size()) {
        status.Update(Set(name, arguments[++i]));
      } else {
        status.Update(absl::InvalidArgumentError(
            absl::StrCat("--", name, ": expected ", Expected(*absl::FindCommandLineFlag(name)),
                         ", found nothing")));
      }
    } else if (equals == absl::string_view::npos && absl::ConsumePrefix(&positive, "no") &&
               is_flag(positive) && is_bool(positive)) {
      status.Update(Set(positive, "false"));
    } else {
      status.Update(absl::InvalidArgumentError(
          absl::StrCat("--", absl::CHexEscape(name), ": there is no such option, see --help",
                       Suggestion(NearestName(name, flags), "--"))));
    }
  }
  return status;
}

std::vector<std::string> UnknownVariables(const char* const* environment,
                                          absl::Span<const absl::string_view> flags) {
  static const auto* const others = new RE2(kOtherVariables);
  std::vector<std::string> warnings;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const absl::string_view entry = *environment;
    const absl::string_view variable = entry.substr(0, entry.find('='));
    if (!absl::StartsWith(variable, "SRU_")) continue;
    const std::string name = absl::AsciiStrToLower(variable.substr(4));
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) continue;
    if (RE2::FullMatch(std::string(variable), *others)) continue;
    const std::string nearest = absl::AsciiStrToUpper(NearestName(name, flags));
    warnings.push_back(absl::StrCat("environment variable ", absl::CHexEscape(variable),
                                    " has no effect: there is no such option",
                                    Suggestion(nearest, "SRU_")));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

}  // namespace sru::server
