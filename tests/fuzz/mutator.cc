#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

namespace sru::fuzz {
namespace {

constexpr size_t kMaxBytes = 4096;

// Pieces that have a meaning for one of the readers.
const std::vector<std::string>& Dictionary() {
  static const auto* const kDictionary =
      new std::vector<std::string>{"{",
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
                                   "Expect: 100-continue\n",
                                   "Transfer-Encoding: chunked\n",
                                   "\x0btraceparent",
                                   "\x0cgrpc-timeout",
                                   std::string(8, '\0'),
                                   std::string(8, '\xff')};
  return *kDictionary;
}

}  // namespace

std::vector<std::string> ReadInputs(const std::string& directory) {
  std::vector<std::filesystem::path> paths;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(directory, absent)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return inputs;
}

Mutator::Mutator(std::vector<std::string> seeds, uint64_t seed)
    : seeds_(std::move(seeds)), random_(seed) {}

std::string Mutator::Next() {
  std::string bytes = AnySeed();
  for (size_t n = 1 + Below(4); n > 0; --n) {
    const size_t at = Below(bytes.size() + 1);
    switch (Below(6)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(random_());
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ 1 << Below(8));
        break;
      case 2:
        bytes.erase(at, 1 + Below(16));
        break;
      case 3:
        bytes.insert(at, Dictionary()[Below(Dictionary().size())]);
        break;
      case 4: {
        const std::string copy = bytes.substr(at, 1 + Below(64));
        bytes.insert(Below(bytes.size() + 1), copy);
        break;
      }
      case 5: {
        const std::string& other = AnySeed();
        bytes = bytes.substr(0, at) + other.substr(Below(other.size() + 1));
        break;
      }
    }
  }
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
  return bytes;
}

}  // namespace sru::fuzz
