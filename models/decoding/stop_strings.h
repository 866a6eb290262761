// StopStrings: finds the first of several strings that appears in bytes that come one at a time
// (Aho and Corasick, 1975).
//
// The first is the one that ends first, and of those that end at the same byte the longest. A byte
// takes amortized constant time, whatever the strings are, and building takes time in proportion to
// their bytes, with kBytesPerByte bytes of memory for each of them.
#ifndef SRU_MODELS_DECODING_STOP_STRINGS_H_
#define SRU_MODELS_DECODING_STOP_STRINGS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sru::models {

inline constexpr size_t kMaxStopStrings = 64;  // of a call
inline constexpr size_t kMaxStopStringBytes = 1024;

// Immutable and thread-safe; the texts of a call share one.
class StopStrings {
 public:
  static constexpr size_t kBytesPerByte = 24;

  // How far a text has come: the longest end of it that some string begins with.
  using State = int32_t;
  static constexpr State kStart = 0;

  // `strings` are not empty.
  explicit StopStrings(const std::vector<std::string>& strings);

  State Next(State state, unsigned char byte) const;

  // Bytes at the end of the text that may yet become one of the strings.
  size_t depth(State state) const { return static_cast<size_t>(nodes_[state].depth); }
  // Bytes of the longest string that the text ends with; 0 = none.
  size_t match(State state) const { return static_cast<size_t>(nodes_[state].match); }

 private:
  static constexpr int32_t kNone = -1;

  struct Node {
    int32_t child = kNone;  // the first; the root's are in root_
    int32_t sibling = kNone;
    State failure = kStart;  // the longest proper end of this one that is a node
    int32_t depth = 0;
    int32_t match = 0;
    unsigned char byte = 0;  // that leads here
  };
  static_assert(sizeof(Node) <= kBytesPerByte, "as the header says");

  int32_t Child(State state, unsigned char byte) const;
  void Insert(const std::string& string);
  void LinkFailures();

  std::vector<Node> nodes_;
  std::array<int32_t, 256> root_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_STOP_STRINGS_H_
