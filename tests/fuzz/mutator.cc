#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace sru::fuzz {
namespace {

constexpr size_t kMaxBytes = 4096;

// Pieces that have a meaning for one of the readers, with | between them.
constexpr char kPieces[] =
    "{|}|[|]|\"|,|:|-1|0|18446744073709551615|9223372036854775808|1e999|null|true|\"F32\"|\"F64\"|"
    "\"shape\"|\"data_offsets\"|\"labels\"|\n|\r\n|'s|n't| |\u00e9|\u3000|\xff|\xed\xa0\x80|"
    "\xef\xbb\xbf|Expect: 100-continue\n|Transfer-Encoding: chunked\n|\x0btraceparent|"
    "\x0cgrpc-timeout|\xff\xff\xff\xff\xff\xff\xff\xff|\0\0\0\0\0\0\0\0";

const std::vector<std::string>& Dictionary() {
  static const auto* const kDictionary = new std::vector<std::string>(
      absl::StrSplit(absl::string_view(kPieces, sizeof(kPieces) - 1), '|'));
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

Mutator::Mutator(const Target& target, std::vector<std::string> seeds, uint64_t seed)
    : target_(target), seeds_(std::move(seeds)), random_(seed) {}

std::string Mutator::Next() {
  std::string bytes = AnySeed();
  const std::string name = bytes.substr(0, target_.NameBytes(bytes));
  bytes.erase(0, name.size());
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
        const size_t first = target_.NameBytes(other);
        bytes = bytes.substr(0, at) + other.substr(first + Below(other.size() - first + 1));
        break;
      }
    }
  }
  bytes.insert(0, name);
  if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
  return bytes;
}

}  // namespace sru::fuzz
