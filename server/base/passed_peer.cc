#include "server/base/passed_peer.h"

#include <cstdint>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sru::server {
namespace {

constexpr size_t kSecretDigits = 32;

const std::string& Secret() {
  static const auto* const secret = [] {
    std::random_device device;
    auto* const digits = new std::string;
    while (digits->size() < kSecretDigits) {
      absl::StrAppend(digits, absl::Hex(uint32_t{device()}, absl::kZeroPad8));
    }
    return digits;
  }();
  return *secret;
}

// Takes the same time wherever the two differ.
bool IsSecret(absl::string_view text) {
  const std::string& secret = Secret();
  if (text.size() != secret.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    difference |= static_cast<unsigned char>(text[i] ^ secret[i]);
  }
  return difference == 0;
}

}  // namespace

std::string PeerAt(absl::string_view address, int port) {
  if (absl::StrContains(address, ':')) return absl::StrCat("ipv6:[", address, "]:", port);
  return absl::StrCat("ipv4:", address, ":", port);
}

std::string PassPeer(absl::string_view peer) { return absl::StrCat(Secret(), peer); }

absl::string_view ParsePassedPeer(absl::string_view value) {
  if (value.size() <= kSecretDigits || !IsSecret(value.substr(0, kSecretDigits))) return {};
  return value.substr(kSecretDigits);
}

}  // namespace sru::server
