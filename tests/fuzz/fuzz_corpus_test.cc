// Runs every fuzz target over its seeds and over a fixed number of mutations of them, so that the
// targets are useful in a plain build too. SRU_FUZZ_SEED and SRU_FUZZ_ROUNDS override the fixed
// seed and number.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gtest/gtest.h"
#include "tests/fuzz/fuzz_targets.h"

namespace sru::fuzz {
namespace {

constexpr size_t kMaxBytes = 4096;

unsigned long EnvironmentOr(const char* name, unsigned long fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoul(value, nullptr, 10);
}

std::vector<std::string> Seeds(const std::string& target) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/" + target)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return seeds;
}

// Pieces that have a meaning for one of the readers.
const std::vector<std::string>& Dictionary() {
  static const auto* const kDictionary = new std::vector<std::string>{"{",
                                                                      "}",
                                                                      "[",
                                                                      "]",
                                                                      "\"",
                                                                      ",",
                                                                      ":",
                                                                      "-1",
                                                                      "0",
                                                                      "18446744073709551615",
                                                                      "9223372036854775808",
                                                                      "1e999",
                                                                      "null",
                                                                      "true",
                                                                      "\"F32\"",
                                                                      "\"F64\"",
                                                                      "\"shape\"",
                                                                      "\"data_offsets\"",
                                                                      "\"labels\"",
                                                                      "\n",
                                                                      "\r\n",
                                                                      "'s",
                                                                      "n't",
                                                                      " ",
                                                                      "\u00e9",
                                                                      "\u3000",
                                                                      "\xff",
                                                                      "\xed\xa0\x80",
                                                                      "\xef\xbb\xbf",
                                                                      std::string(8, '\0'),
                                                                      std::string(8, '\xff')};
  return *kDictionary;
}

std::string Mutated(std::string bytes, const std::vector<std::string>& seeds,
                    std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (size_t n = 1 + below(4); n > 0; --n) {
    const size_t at = below(bytes.size() + 1);
    switch (below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << below(8));
        break;
      case 2:
        bytes.erase(at, 1 + below(16));
        break;
      case 3:
        bytes.insert(at, Dictionary()[below(Dictionary().size())]);
        break;
      case 4: {
        const std::string copy = bytes.substr(at, 1 + below(64));
        bytes.insert(below(bytes.size() + 1), copy);
        break;
      }
      case 5: {
        const std::string& other = seeds[below(seeds.size())];
        bytes = bytes.substr(0, at) + other.substr(below(other.size() + 1));
        break;
      }
    }
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
  return bytes;
}

// Copies the input to a block of exactly its size, so that ASan sees a read past its end.
void RunOne(const Target& target, const std::string& bytes) {
  const std::unique_ptr<char[]> exact(new char[bytes.size()]);
  std::copy(bytes.begin(), bytes.end(), exact.get());
  target.run(std::string_view(exact.get(), bytes.size()));
}

TEST(FuzzCorpusTest, EveryTargetKeepsItsPromises) {
  const unsigned long seed = EnvironmentOr("SRU_FUZZ_SEED", 1);
  const unsigned long rounds = EnvironmentOr("SRU_FUZZ_ROUNDS", 5000);
  for (const Target& target : kTargets) {
    SCOPED_TRACE(target.name);
    const std::vector<std::string> seeds = Seeds(target.name);
    ASSERT_FALSE(seeds.empty());
    for (const std::string& bytes : seeds) RunOne(target, bytes);
    std::mt19937_64 random(seed);
    for (unsigned long i = 0; i < rounds; ++i) {
      RunOne(target, Mutated(seeds[random() % seeds.size()], seeds, random));
    }
  }
}

}  // namespace
}  // namespace sru::fuzz
