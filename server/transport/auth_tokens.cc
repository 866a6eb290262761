#include "server/transport/auth_tokens.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace sru::server::transport {
namespace {

constexpr size_t kShortToken = 16;

// SHA-256 of "abc", as FIPS 180-2 gives it.
constexpr unsigned char kDigestOfAbc[] = {
    0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
    0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad};

// Without a digest no token could be told from another, so that all or none would pass.
absl::Status NoDigest(absl::string_view source) {
  char reason[256] = "its digest is wrong";
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

}  // namespace

absl::StatusOr<TokenSet> TokenSet::Parse(absl::string_view text, absl::string_view source) {
  TokenSet set;
  ERR_clear_error();
  set.sha256_.reset(EVP_MD_fetch(nullptr, "SHA256", nullptr), EVP_MD_free);
  const std::optional<Digest> known = set.DigestOf("abc");
  if (!known.has_value() || !std::equal(known->begin(), known->end(), kDigestOfAbc)) {
    return NoDigest(source);
  }
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
    const std::optional<Digest> digest = set.DigestOf(token);
    if (!digest.has_value()) return NoDigest(source);
    Entry entry;
    entry.digest = *digest;
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

const TokenSet::Entry* TokenSet::FindEntry(absl::string_view token) const {
  const std::optional<Digest> digest = DigestOf(token);
  if (!digest.has_value()) return nullptr;
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {
    if (CRYPTO_memcmp(entry.digest.data(), digest->data(), digest->size()) == 0) found = &entry;
  }
  return found;
}

const std::string* TokenSet::Find(absl::string_view token) const {
  const Entry* const entry = FindEntry(token);
  return entry == nullptr ? nullptr : &entry->name;
}

std::string TokenSet::CallerId(absl::string_view token) const {
  const Entry* const entry = FindEntry(token);
  if (entry == nullptr) return "";
  if (!entry->name.empty()) return absl::StrCat("name ", entry->name);
  return absl::StrCat("digest ", std::string(entry->digest.begin(), entry->digest.end()));
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
