// Files of Marian that tests make: the binary shortlist, gzip'd files.
#ifndef SRU_TESTS_TESTING_MARIAN_FILES_H_
#define SRU_TESTS_TESTING_MARIAN_FILES_H_

#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sru::testing {

// Appends a little-endian number.
template <typename T>
void AppendNumber(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A gzip file with these contents.
inline std::string Gzip(const std::string& contents) {
  z_stream stream = {};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  std::string bytes(deflateBound(&stream, contents.size()) + 64, '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(contents.data()));
  stream.avail_in = static_cast<uInt>(contents.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

// lex*.bin with the right checksum; `lists` has the target words of each source word.
inline std::string ShortlistFile(uint64_t first_num, uint64_t best_num,
                                 const std::vector<std::vector<uint32_t>>& lists) {
  std::string data;
  AppendNumber(first_num, &data);
  AppendNumber(best_num, &data);
  AppendNumber<uint64_t>(lists.size() + 1, &data);
  std::string offsets;
  std::string words;
  uint64_t count = 0;
  for (const std::vector<uint32_t>& list : lists) {
    AppendNumber(count, &offsets);
    count += list.size();
    for (const uint32_t word : list) AppendNumber(word, &words);
  }
  AppendNumber(count, &offsets);
  AppendNumber(count, &data);
  data += offsets + words;
  uint64_t sum = 0;
  for (size_t at = 0; at + 8 <= data.size(); at += 8) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(data[at + i]);
    sum ^= value + 0x9e3779b9 + (sum << 6) + (sum >> 2);
  }
  std::string bytes;
  AppendNumber<uint64_t>(0xF11A48D5013417F5, &bytes);
  AppendNumber(sum, &bytes);
  return bytes + data;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_MARIAN_FILES_H_
