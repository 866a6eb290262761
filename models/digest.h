// SHA-256, by OpenSSL: what tells two contents apart that must not be taken for one another.
#ifndef SRU_MODELS_DIGEST_H_
#define SRU_MODELS_DIGEST_H_

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "models/files/file.h"

namespace sru::models {

// Not thread-safe.
class Digest {
 public:
  static constexpr size_t kBytes = 32;

  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void Update(std::string_view bytes);
  // The digest of everything so far, kBytes long. Called once, at the end.
  std::string Finish();

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

std::string DigestOf(std::string_view bytes);

// HMAC-SHA256 of the parts one after the other, Digest::kBytes long; nothing when OpenSSL refuses or
// has no memory.
std::optional<std::string> KeyedDigest(std::string_view key,
                                       std::initializer_list<std::string_view> parts);

// Returns the digest of a file's contents, which it reads piece by piece. The error is that of OpenFile::Read().
absl::StatusOr<std::string> DigestOfFile(const OpenFile& file);

}  // namespace sru::models

#endif  // SRU_MODELS_DIGEST_H_
