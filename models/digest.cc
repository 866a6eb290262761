#include "models/digest.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/status.h"
#include "openssl/core_names.h"
#include "openssl/evp.h"
#include "openssl/params.h"

namespace sru::models {

struct Digest::Context {
  EVP_MD_CTX* const context = EVP_MD_CTX_new();

  ~Context() { EVP_MD_CTX_free(context); }
};

Digest::Digest() : context_(std::make_unique<Context>()) {
  // What can fail here is an allocation.
  if (context_->context == nullptr ||
      EVP_DigestInit_ex(context_->context, EVP_sha256(), nullptr) != 1) {
    throw std::bad_alloc();
  }
}

Digest::~Digest() = default;

void Digest::Update(std::string_view bytes) {
  EVP_DigestUpdate(context_->context, bytes.data(), bytes.size());
}

std::string Digest::Finish() {
  std::string digest(kBytes, '\0');
  EVP_DigestFinal_ex(context_->context, reinterpret_cast<unsigned char*>(digest.data()), nullptr);
  return digest;
}

std::string DigestOf(std::string_view bytes) {
  Digest digest;
  digest.Update(bytes);
  return digest.Finish();
}

std::optional<std::string> KeyedDigest(std::string_view key,
                                       std::initializer_list<std::string_view> parts) {
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> mac(
      EVP_MAC_fetch(nullptr, "HMAC", nullptr), EVP_MAC_free);
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      mac == nullptr ? nullptr : EVP_MAC_CTX_new(mac.get()), EVP_MAC_CTX_free);
  char hash[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, hash, 0),
                                   OSSL_PARAM_construct_end()};
  bool done = context != nullptr &&
              EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(key.data()),
                           key.size(), parameters) == 1;
  for (const std::string_view part : parts) {
    done =
        done && EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(part.data()),
                               part.size()) == 1;
  }
  std::string digest(Digest::kBytes, '\0');
  size_t size = 0;
  done = done && EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                               &size, digest.size()) == 1;
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
