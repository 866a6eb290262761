// An input that says what is to be done, read from its front.
#ifndef SRU_TESTS_FUZZ_SCRIPT_H_
#define SRU_TESTS_FUZZ_SCRIPT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace sru::fuzz {

// The first line, which names what is fuzzed, and the input behind it.
inline std::pair<std::string_view, std::string_view> SplitName(std::string_view bytes) {
  const size_t end = std::min(bytes.find('\n'), bytes.size());
  return {bytes.substr(0, end), bytes.substr(std::min(end + 1, bytes.size()))};
}

// Beyond its end an input has zeros as numbers and nothing as bytes.
class Script {
 public:
  explicit Script(std::string_view bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  size_t Byte() {
    const std::string_view byte = Bytes(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  size_t Word() {
    const size_t high = Byte();
    return high << 8 | Byte();
  }
  std::string_view Bytes(size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view rest_;
};

}  // namespace sru::fuzz

#endif  // SRU_TESTS_FUZZ_SCRIPT_H_
