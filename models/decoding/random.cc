#include "models/decoding/random.h"

namespace sru::models {

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                   const std::array<uint32_t, 2>& key) {
  constexpr int kRounds = 10;
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> x = counter;
  std::array<uint32_t, 2> k = key;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * x[0];
    const uint64_t product1 = kMultiplier1 * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ k[0], static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ k[1], static_cast<uint32_t>(product0)};
    k[0] += kWeyl0;
    k[1] += kWeyl1;
  }
  return x;
}

uint64_t RandomAt(uint64_t seed, int sample, int64_t position) {
  const auto at = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> words =
      Philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32),
                  static_cast<uint32_t>(sample), 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

}  // namespace sru::models
