// Bearer tokens that callers must show: the file that lists them and the header that brings one.
//
// The file has one token a line, of visible ASCII characters, optionally after a name and white
// space. The name stands in the access log; several tokens may have the same, so that one can be
// replaced without an interruption. Blank lines and lines that begin with # are skipped.
//   # team         token
//   search         4f6R0pXyY0b1nq3cVd2m    tokens_per_second=20000 calls_in_flight=64
//   4o1X9nUuPqL0aa7Zc8sE
//   default        tokens_per_second=2000
// After a name and a token, limits may follow (callers/caller_limits.h), which are those of all
// tokens of the name: the lines of one name that have limits have the same. A line of the word
// "default" and limits says what holds where a line does not say it; it may stand anywhere, once.
#ifndef SRU_SERVER_TRANSPORT_AUTH_TOKENS_H_
#define SRU_SERVER_TRANSPORT_AUTH_TOKENS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/callers/caller.h"
#include "server/callers/callers.h"

struct evp_md_st;  // OpenSSL's EVP_MD

namespace sru::server::transport {

inline constexpr size_t kMaxTokenLength = 4096;
inline constexpr size_t kMaxTokens = 10000;

// Holds digests only, not the tokens. Immutable, hence thread-safe.
class TokenSet {
 public:
  // kInvalidArgument names `source` and the line, and repeats no token. kFailedPrecondition when
  // OpenSSL's configuration leaves it without SHA-256.
  static absl::StatusOr<TokenSet> Parse(absl::string_view text, absl::string_view source);

  struct Owner {
    std::string name;  // that stands before the token; may be empty
    callers::CallerLimits limits;
    callers::CallerPtr caller;  // null before Register(); tokens of one name have one, those
                                // without a name each their own
  };
  // Null when the token is not in the set, or its digest could not be computed. The time tells
  // nothing about a token that is partly right: SHA-256 digests are compared, of which no caller
  // can choose the first bytes.
  const Owner* Find(absl::string_view token) const;

  // Finds the callers, whose limits are those of the set from now on. Once, before the set is
  // shared.
  void Register(callers::Callers* callers);

  size_t size() const { return entries_.size(); }
  // Tokens that can be guessed: of fewer than 16 characters.
  size_t num_short() const { return num_short_; }

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Entry {
    Digest digest;
    Owner owner;
  };

  // Nothing when OpenSSL refuses or has no memory.
  std::optional<Digest> DigestOf(absl::string_view token) const;

  // Looked up once a set: OpenSSL 3 searches its providers at each use of EVP_sha256().
  std::shared_ptr<evp_md_st> sha256_;
  std::vector<Entry> entries_;  // by digest
  size_t num_short_ = 0;
};

// The token of the header "authorization: Bearer TOKEN", or "DeepL-Auth-Key TOKEN" as clients of
// DeepL's API write it; the scheme in any case, as RFC 9110 has it. Empty when the header has
// another form. Pure.
absl::string_view BearerToken(absl::string_view header);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_AUTH_TOKENS_H_
