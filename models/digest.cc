#include "models/digest.h"

#include <fstream>
#include <new>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

absl::StatusOr<std::string> DigestOfFile(const std::string& path) {
  constexpr size_t kPieceBytes = 256 << 10;
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be opened"));
  Digest digest;
  std::vector<char> piece(kPieceBytes);
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    digest.Update({piece.data(), static_cast<size_t>(file.gcount())});
  }
  if (file.bad()) return absl::UnavailableError(absl::StrCat(path, ": cannot be read"));
  return digest.Finish();
}

}  // namespace sru::models
