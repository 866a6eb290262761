#include "server/transport/auth_tokens.h"

#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::server::transport {
namespace {

constexpr size_t kShortToken = 16;
constexpr absl::string_view kDefaultLine = "default";

// Without a digest no token could be told from another, so that all or none would pass.
absl::Status NoDigest(absl::string_view source) {
  char reason[256] = "no reason given";
  if (const unsigned long code = ERR_peek_last_error(); code != 0) {
    ERR_error_string_n(code, reason, sizeof(reason));
  }
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrCat(
      source, ": tokens are compared by SHA-256, which OpenSSL cannot compute here (", reason,
      "); expected a configuration of OpenSSL (OPENSSL_CONF, openssl.cnf) that "
      "activates a provider of SHA-256, as `default` and `fips` are"));
}

bool IsVisible(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

// Whether the second word of a line with the name `default` is no token: in those of base64, `=`
// stands at the end alone.
bool IsMistypedLimit(absl::string_view word) {
  return absl::StrContains(absl::StripSuffix(absl::StripSuffix(word, "="), "="), '=') ||
         callers::IsLimit(absl::StrCat(word, "0")) || callers::IsLimit(absl::StrCat(word, "=0"));
}

}  // namespace

absl::StatusOr<TokenSet> TokenSet::Parse(absl::string_view text, absl::string_view source) {
  TokenSet set;
  ERR_clear_error();
  set.sha256_.reset(EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_free);
  if (set.sha256_ == nullptr) return NoDigest(source);
  struct Line {
    int number;
    std::vector<absl::string_view> limits;
  };
  std::vector<Line> lines;  // of the tokens
  int default_line = 0;
  std::vector<absl::string_view> default_words;
  int line_number = 0;
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": line ", line_number, ": ", what));
  };
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // some editors' byte order mark
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    words.erase(std::find_if(words.begin(), words.end(),
                             [](absl::string_view word) { return word[0] == '#'; }),
                words.end());
    if (words.empty()) continue;
    for (absl::string_view word : words) {
      if (!IsVisible(word)) return error("expected visible ASCII characters");
    }
    const auto end_of_names = std::find_if(words.begin() + 1, words.end(), callers::IsLimit);
    const std::vector<absl::string_view> limit_words(end_of_names, words.end());
    const size_t num_names = words.size() - limit_words.size();
    if (!limit_words.empty()) {
      const bool is_default = num_names == 1 && words[0] == kDefaultLine;
      if (num_names != 2 && !is_default) {
        return error("expected NAME TOKEN before limits, as limits need a name");
      }
      if (is_default) {
        if (default_line > 0)
          return error(absl::StrCat("the default stands on line ", default_line, " already"));
        default_line = line_number;
        default_words = limit_words;
        continue;
      }
    } else if (words[0] == kDefaultLine && (num_names == 1 || IsMistypedLimit(words[1]))) {
      return error("expected limits such as tokens_per_second=2000 after `default`");
    } else if (num_names > 2) {
      return error(absl::StrCat("expected TOKEN, or NAME TOKEN and limits such as weight=2, found ",
                                words.size(), " words"));
    }
    words.resize(num_names);
    const absl::string_view token = words.back();
    if (token.size() > kMaxTokenLength) {
      return error(absl::StrCat("expected a token of at most ", kMaxTokenLength,
                                " characters, found ", token.size()));
    }
    const std::optional<Digest> digest = set.DigestOf(token);
    if (!digest.has_value()) return NoDigest(source);
    Entry entry;
    entry.digest = *digest;
    if (words.size() == 2) entry.owner.name = std::string(words[0]);
    const auto same = [&](const Entry& other) { return other.digest == entry.digest; };
    if (std::any_of(set.entries_.begin(), set.entries_.end(), same)) {
      return error("this token stands on an earlier line already");
    }
    if (set.entries_.size() == kMaxTokens) {
      return error(absl::StrCat("expected at most ", kMaxTokens, " tokens"));
    }
    set.entries_.push_back(std::move(entry));
    lines.push_back({line_number, limit_words});
    if (token.size() < kShortToken) ++set.num_short_;
  }
  if (set.entries_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source,
                     ": expected at least one token, found none; make one with "
                     "`openssl rand -base64 32`"));
  }
  line_number = default_line;
  const absl::StatusOr<callers::CallerLimits> defaults = callers::ParseLimits(default_words, {});
  if (!defaults.ok()) return error(defaults.status().message());
  absl::flat_hash_map<std::string, std::pair<int, callers::CallerLimits>> by_name;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].limits.empty()) continue;
    line_number = lines[i].number;
    absl::StatusOr<callers::CallerLimits> limits = callers::ParseLimits(lines[i].limits, *defaults);
    if (!limits.ok()) return error(limits.status().message());
    const auto [known, is_new] =
        by_name.try_emplace(set.entries_[i].owner.name, line_number, *limits);
    if (is_new || known->second.second == *limits) continue;
    return error(absl::StrCat("expected the limits that line ", known->second.first,
                              " gives this name, or none"));
  }
  for (Entry& entry : set.entries_) {
    const auto found = by_name.find(entry.owner.name);
    entry.owner.limits = found == by_name.end() ? *defaults : found->second.second;
  }
  std::sort(set.entries_.begin(), set.entries_.end(),
            [](const Entry& a, const Entry& b) { return a.digest < b.digest; });
  return set;
}

void TokenSet::Register(callers::Callers* callers) {
  for (Entry& entry : entries_) {
    Owner& owner = entry.owner;
    const std::string id =
        owner.name.empty()
            ? absl::StrCat("digest ", std::string(entry.digest.begin(), entry.digest.end()))
            : absl::StrCat("name ", owner.name);
    owner.caller = callers->WithLimits(id, owner.name, owner.limits);
  }
}

std::optional<TokenSet::Digest> TokenSet::DigestOf(absl::string_view token) const {
  Digest digest{};
  unsigned int size = 0;
  if (sha256_ == nullptr ||
      EVP_Digest(token.data(), token.size(), digest.data(), &size, sha256_.get(), nullptr) != 1 ||
      size != digest.size()) {
    return std::nullopt;
  }
  return digest;
}

const TokenSet::Owner* TokenSet::Find(absl::string_view token) const {
  const std::optional<Digest> digest = DigestOf(token);
  if (!digest.has_value()) return nullptr;
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), *digest,
      [](const Entry& entry, const Digest& wanted) { return entry.digest < wanted; });
  return found != entries_.end() && found->digest == *digest ? &found->owner : nullptr;
}

absl::string_view BearerToken(absl::string_view header) {
  const auto has_scheme = [&header](absl::string_view scheme) {
    if (!absl::StartsWithIgnoreCase(header, scheme)) return false;
    header.remove_prefix(scheme.size());
    return true;
  };
  if (!has_scheme("Bearer ") && !has_scheme("DeepL-Auth-Key ")) return {};
  while (absl::ConsumePrefix(&header, " ")) {
  }
  if (header.size() > kMaxTokenLength || !IsVisible(header)) return {};
  return header;
}

}  // namespace sru::server::transport
