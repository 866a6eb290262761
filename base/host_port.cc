#include "base/host_port.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace sru {

std::optional<HostPort> SplitHostPort(absl::string_view text) {
  HostPort result;
  result.brackets = absl::ConsumePrefix(&text, "[");
  const size_t end = text.find(result.brackets ? ']' : ':');
  result.host = text.substr(0, end);
  if (end == absl::string_view::npos) {
    return result.brackets ? std::nullopt : std::optional<HostPort>(result);
  }
  absl::string_view rest = text.substr(result.brackets ? end + 1 : end);
  if (rest.empty()) return result;
  if (!absl::ConsumePrefix(&rest, ":")) return std::nullopt;
  if (!result.brackets && absl::StrContains(rest, ':')) {
    result.host = text;
  } else {
    result.port = rest;
  }
  return result;
}

}  // namespace sru
