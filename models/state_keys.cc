#include "models/state_keys.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "models/digest.h"

namespace sru::models {
namespace {

// As many random bits as the digest of a state has, in the poorest form: binary digits need more,
// which nobody writes.
constexpr size_t kLeastKeyLength = 32;
// Each is tried on a state that none of them signed.
constexpr size_t kMostKeys = 8;

}  // namespace

absl::StatusOr<StateKeys::List> StateKeys::Parse(absl::string_view text, absl::string_view source) {
  List keys;
  int number = 0;
  for (const absl::string_view row : absl::StrSplit(text, '\n')) {
    ++number;
    std::vector<absl::string_view> words =
        absl::StrSplit(row, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    words.erase(std::find_if(words.begin(), words.end(),
                             [](absl::string_view word) { return word[0] == '#'; }),
                words.end());
    if (words.empty()) continue;
    std::string line = absl::StrJoin(words, " ");
    const bool visible = std::all_of(line.begin(), line.end(), absl::ascii_isgraph);
    if (!visible || line.size() < kLeastKeyLength) {
      return InvalidArgument(source, ": line ", number, ": expected a key of at least ",
                             kLeastKeyLength, " visible ASCII characters, found ", line.size(),
                             visible ? "" : ", some of them others",
                             "; make one with `openssl rand -base64 32`");
    }
    keys.push_back(std::move(line));
  }
  if (keys.empty() || keys.size() > kMostKeys) {
    return InvalidArgument(source, ": expected 1 to ", kMostKeys, " keys, one a line, found ",
                           keys.size());
  }
  if (!KeyedDigest(keys[0], "").has_value()) {
    return absl::FailedPreconditionError(absl::StrCat(
        source,
        ": states are signed by HMAC-SHA256, which OpenSSL cannot compute here; expected "
        "a configuration of OpenSSL that activates a provider of it"));
  }
  return keys;
}

}  // namespace sru::models
