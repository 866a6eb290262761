#include "models/digest.h"

#include <algorithm>
#include <new>
#include <vector>

#include "base/status.h"
#include "openssl/evp.h"

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
