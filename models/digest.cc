#include "models/digest.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/status.h"
#include "openssl/evp.h"

namespace sru::models {

Digest::Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  // What can fail here is an allocation.
  if (context_ == nullptr || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

void Digest::Update(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string Digest::Finish() {
  std::string digest(kBytes, '\0');
  EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string DigestOf(std::string_view bytes) {
  Digest digest;
  digest.Update(bytes);
  return digest.Finish();
}

std::optional<std::string> KeyedDigest(std::string_view key, std::string_view bytes) {
  std::string digest(Digest::kBytes, '\0');
  size_t size = 0;
  const bool done =
      EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                reinterpret_cast<unsigned char*>(digest.data()), digest.size(), &size) != nullptr;
  if (!done || size != digest.size()) return std::nullopt;
  return digest;
}

absl::StatusOr<std::string> DigestOfFile(const OpenFile& file) {
  constexpr size_t kPieceBytes = 256 << 10;
  Digest digest;
  std::vector<char> piece(kPieceBytes);
  for (uint64_t at = 0; at < file.size(); at += kPieceBytes) {
    const size_t size = std::min<uint64_t>(kPieceBytes, file.size() - at);
    SRU_RETURN_UNLESS_OK(file.Read(at, size, piece.data()));
    digest.Update({piece.data(), size});
  }
  return digest.Finish();
}

}  // namespace sru::models
