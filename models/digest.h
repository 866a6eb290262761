// SHA-256, by OpenSSL: what tells two contents apart that must not be taken for one another.
#ifndef SRU_MODELS_DIGEST_H_
#define SRU_MODELS_DIGEST_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "models/files/file.h"

struct evp_md_ctx_st;  // OpenSSL's EVP_MD_CTX

namespace sru::models {

// Not thread-safe.
class Digest {
 public:
  static constexpr size_t kBytes = 32;

  Digest();

  void Update(std::string_view bytes);
  // The digest of everything so far, kBytes long. Called once, at the end.
  std::string Finish();

 private:
  const std::unique_ptr<evp_md_ctx_st, void (*)(evp_md_ctx_st*)> context_;
};

std::string DigestOf(std::string_view bytes);

// HMAC-SHA256, Digest::kBytes long; nothing when OpenSSL refuses or has no memory.
std::optional<std::string> KeyedDigest(std::string_view key, std::string_view bytes);

// Returns the digest of a file's contents, which it reads piece by piece. The error is that of
// OpenFile::Read().
absl::StatusOr<std::string> DigestOfFile(const OpenFile& file);

}  // namespace sru::models

#endif  // SRU_MODELS_DIGEST_H_
