#include "server/transport/auth_tokens.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::server {
namespace {

constexpr size_t kShortToken = 16;

bool IsVisible(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

absl::StatusOr<TokenSet> TokenSet::Parse(absl::string_view text, absl::string_view source) {
  TokenSet set;
  int line_number = 0;
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": line ", line_number, ": ", what));
  };
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");  // some editors' byte order mark
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    line = absl::StripAsciiWhitespace(line);
    if (line.empty() || line[0] == '#') continue;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() > 2) {
      return error(absl::StrCat("expected TOKEN or NAME TOKEN, found ", words.size(), " words"));
    }
    for (absl::string_view word : words) {
      if (!IsVisible(word)) return error("expected visible ASCII characters");
    }
    const absl::string_view token = words.back();
    if (token.size() > kMaxTokenLength) {
      return error(absl::StrCat("expected a token of at most ", kMaxTokenLength,
                                " characters, found ", token.size()));
    }
    Entry entry;
    entry.digest = DigestOf(token);
    if (words.size() == 2) entry.name = std::string(words[0]);
    const auto same = [&](const Entry& other) { return other.digest == entry.digest; };
    if (std::any_of(set.entries_.begin(), set.entries_.end(), same)) {
      return error("this token stands on an earlier line already");
    }
    if (set.entries_.size() == kMaxTokens) {
      return error(absl::StrCat("expected at most ", kMaxTokens, " tokens"));
    }
    set.entries_.push_back(std::move(entry));
    if (token.size() < kShortToken) ++set.num_short_;
  }
  if (set.entries_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source,
                     ": expected at least one token, found none; make one with "
                     "`openssl rand -base64 32`"));
  }
  return set;
}

TokenSet::Digest TokenSet::DigestOf(absl::string_view token) {
  // Looked up once: OpenSSL 3 searches its providers at each use of EVP_sha256().
  static EVP_MD* const sha256 = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  Digest digest{};
  EVP_Digest(token.data(), token.size(), digest.data(), nullptr, sha256, nullptr);
  return digest;
}

const std::string* TokenSet::Find(absl::string_view token) const {
  const Digest digest = DigestOf(token);
  const std::string* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry.name;
  }
  return found;
}

absl::string_view BearerToken(absl::string_view header) {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(header, kScheme)) return {};
  header.remove_prefix(kScheme.size());
  while (absl::ConsumePrefix(&header, " ")) {
  }
  if (header.size() > kMaxTokenLength || !IsVisible(header)) return {};
  return header;
}

}  // namespace sru::server
