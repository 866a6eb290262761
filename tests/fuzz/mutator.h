// Inputs by chance: changes to seeds, without a look at what they reach. For builds without
// libFuzzer.
#ifndef SRU_TESTS_FUZZ_MUTATOR_H_
#define SRU_TESTS_FUZZ_MUTATOR_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_targets.h"

namespace sru::fuzz {

// The contents of the files in `directory`, in the order of their names; none if there is no such
// directory.
std::vector<std::string> ReadInputs(const std::string& directory);

class Mutator {
 public:
  // `seeds` are of the target, and not empty. The same seeds and number give the same inputs.
  Mutator(const Target& target, std::vector<std::string> seeds, uint64_t seed);

  // A seed with one to four changes behind its name, of at most 4096 bytes.
  std::string Next();

 private:
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  const std::string& AnySeed() { return seeds_[Below(seeds_.size())]; }

  const Target& target_;
  const std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_MUTATOR_H_
