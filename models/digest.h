// SHA-256, by OpenSSL: what tells two contents apart that must not be taken for one another.
#ifndef SRU_MODELS_DIGEST_H_
#define SRU_MODELS_DIGEST_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "models/files/file.h"

namespace sru::models {

// 32 bytes.
std::string DigestOf(std::string_view bytes);

// HMAC-SHA256, as long; nothing when OpenSSL refuses or has no memory.
std::optional<std::string> KeyedDigest(std::string_view key, std::string_view bytes);

// Returns the digest of a file's contents, which it reads piece by piece. The error is that of
// OpenFile::Read().
absl::StatusOr<std::string> DigestOfFile(const OpenFile& file);

}  // namespace sru::models

#endif  // SRU_MODELS_DIGEST_H_
