#include "server/unknown_variables.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "re2/re2.h"
#include "server/base/flag_table.h"

namespace sru::server {
namespace {

// Those of sru_client and sru_bench that are no flags of the server, those of the tests and of the
// scripts that build images, and Kubernetes' for services.
constexpr char kOtherVariables[] =
    "SRU_(ADDRESS|ADMIN_ADDRESS|TOKEN_FILE|TLS_CA|TLS_CLIENT_CERT|TLS_CLIENT_KEY|TLS_SERVER_NAME|"
    "SHARED_DIR|SOURCE_ROOT|PYTHON|DEBIAN_MIRROR|IMAGE_STORAGE|TEST_.*|FUZZ_.*|GOLDEN_.*|"
    "(.*_)?SERVICE_(HOST|PORT)(_.*)?|(.*_)?PORT(_\\d+_.*)?)";

}  // namespace

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
    const std::string nearest = absl::AsciiStrToUpper(NearestFlag(name, flags));
    warnings.push_back(
        absl::StrCat("environment variable ", absl::CHexEscape(variable),
                     " has no effect: there is no such option",
                     nearest.empty() ? "" : absl::StrCat("; did you mean SRU_", nearest, "?")));
  }
  std::sort(warnings.begin(), warnings.end());
  return warnings;
}

}  // namespace sru::server
