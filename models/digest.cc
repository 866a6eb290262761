#include "models/digest.h"

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "base/status.h"
#include "openssl/evp.h"

namespace sru::models {
namespace {

constexpr size_t kDigestBytes = 32;

unsigned char* Bytes(std::string& digest) {
  return reinterpret_cast<unsigned char*>(digest.data());
}

}  // namespace

std::string DigestOf(std::string_view bytes) {
  std::string digest(kDigestBytes, '\0');
  // What can fail here is an allocation.
  if (EVP_Digest(bytes.data(), bytes.size(), Bytes(digest), nullptr, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  return digest;
}

std::optional<std::string> KeyedDigest(std::string_view key, std::string_view bytes) {
  std::string digest(kDigestBytes, '\0');
  size_t size = 0;
  const bool done = EVP_Q_mac(nullptr, "HMAC", nullptr, "SHA256", nullptr, key.data(), key.size(),
                              reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
                              Bytes(digest), digest.size(), &size) != nullptr;
  if (!done || size != digest.size()) return std::nullopt;
  return digest;
}

absl::StatusOr<std::string> DigestOfFile(const OpenFile& file) {
  constexpr size_t kPieceBytes = 256 << 10;
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                   EVP_MD_CTX_free);
  if (context == nullptr || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
  std::vector<char> piece(kPieceBytes);
  for (uint64_t at = 0; at < file.size(); at += kPieceBytes) {
    const size_t size = std::min<uint64_t>(kPieceBytes, file.size() - at);
    SRU_RETURN_UNLESS_OK(file.Read(at, size, piece.data()));
    EVP_DigestUpdate(context.get(), piece.data(), size);
  }
  std::string digest(kDigestBytes, '\0');
  EVP_DigestFinal_ex(context.get(), Bytes(digest), nullptr);
  return digest;
}

}  // namespace sru::models
