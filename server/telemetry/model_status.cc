#include "server/telemetry/model_status.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace sru::server::telemetry {
namespace {

bool IsOfPath(char c) { return absl::ascii_isalnum(c) || absl::StrContains("/._-", c); }

}  // namespace

std::string WithoutRepository(absl::string_view message, absl::string_view repository) {
  while (absl::EndsWith(repository, "/")) repository.remove_suffix(1);
  if (repository.empty()) return std::string(message);
  std::string out;
  char before = ' ';  // the character before `message`
  while (!message.empty()) {
    // Only where a path begins, not in the middle of another one.
    absl::string_view rest = message;
    if (!IsOfPath(before) && absl::ConsumePrefix(&rest, repository)) {
      if (absl::ConsumePrefix(&rest, "/")) {
        while (absl::ConsumePrefix(&rest, "/")) {
        }
        before = '/';
        message = rest;
        continue;
      }
      if (rest.empty() || !IsOfPath(rest.front())) {
        absl::StrAppend(&out, "the repository");
        before = 'y';
        message = rest;
        continue;
      }
    }
    before = message.front();
    out.push_back(before);
    message.remove_prefix(1);
  }
  return out;
}

const char* ModelStateName(ModelState state) {
  static constexpr const char* kNames[] = {"loading", "ready", "unloading", "failed"};
  return kNames[static_cast<size_t>(state)];
}

}  // namespace sru::server::telemetry
