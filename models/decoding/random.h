// The random numbers that tokens are picked with.
//
// A number is a function of where it is used, not of what was drawn before: a text that is resumed
// from a state, or that is computed again, on any machine, goes on with the numbers that it would
// have had. It is the generator Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011), whose outputs for different counters are independent.
#ifndef SRU_MODELS_DECODING_RANDOM_H_
#define SRU_MODELS_DECODING_RANDOM_H_

#include <array>
#include <cstdint>

namespace sru::models {

std::array<uint32_t, 4> Philox4x32(const std::array<uint32_t, 4>& counter,
                                   const std::array<uint32_t, 2>& key);

// Uniform over all values. `sample` counts the texts of one call from 0; `position` is the number
// of tokens of the sequence before the one that is picked.
uint64_t RandomAt(uint64_t seed, int sample, int64_t position);

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_RANDOM_H_
