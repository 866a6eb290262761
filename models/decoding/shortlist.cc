#include "models/decoding/shortlist.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/status.h"

namespace sru::models {
namespace {

constexpr uint64_t kShortlistMagic = 0xF11A48D5013417F5;
// u64 magic | u64 checksum | u64 firstNum | u64 bestNum | u64 offsets | u64 words | u64
// offset[offsets] | u32 word[words]
constexpr size_t kShortlistHeader = 6 * sizeof(uint64_t);
// The checksum is over the 64-bit words that follow it.
constexpr size_t kChecksumBegin = 2 * sizeof(uint64_t);
constexpr int kWordsRoundedTo = 8;

template <typename T>
T LoadAt(std::string_view bytes, size_t at) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

uint64_t Checksum(std::string_view bytes) {
  uint64_t sum = 0;
  for (size_t at = kChecksumBegin; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    sum ^= LoadAt<uint64_t>(bytes, at) + 0x9e3779b9 + (sum << 6) + (sum >> 2);
  }
  return sum;
}

}  // namespace

absl::StatusOr<Shortlist> Shortlist::Parse(std::string_view bytes,
                                           const ShortlistVocabularies& vocabularies,
                                           const std::string& source) {
  if (bytes.size() < kShortlistHeader || LoadAt<uint64_t>(bytes, 0) != kShortlistMagic) {
    return InvalidArgument(source,
                           ": not a binary shortlist: expected its magic number and at least ",
                           kShortlistHeader, " bytes, found ", bytes.size(), " bytes");
  }
  const auto field = [&](int index) { return LoadAt<uint64_t>(bytes, index * sizeof(uint64_t)); };
  const uint64_t num_offsets = field(4);
  const uint64_t num_words = field(5);
  const size_t rest = bytes.size() - kShortlistHeader;
  // Neither product can overflow once its count is bounded.
  if (num_offsets > rest / sizeof(uint64_t) || num_words > rest / sizeof(uint32_t) ||
      num_offsets * sizeof(uint64_t) + num_words * sizeof(uint32_t) != rest) {
    return InvalidArgument(source, ": expected ", num_offsets, " offsets and ", num_words,
                           " words after the header, found ", rest,
                           " bytes; the file is damaged or truncated");
  }
  if (Checksum(bytes) != field(1)) {
    return InvalidArgument(source, ": the checksum is wrong; the file is damaged");
  }
  if (num_offsets < 1 || num_offsets > static_cast<uint64_t>(vocabularies.source) + 1) {
    return InvalidArgument(source, ": expected at most ", vocabularies.source + 1,
                           " offsets, one more than the source vocabulary has pieces, found ",
                           num_offsets);
  }
  if (num_words > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument(source, ": expected fewer than 2^32 words, found ", num_words);
  }
  Shortlist list;
  list.vocabularies_ = vocabularies;
  list.first_num_ = static_cast<int>(std::min<uint64_t>(field(2), vocabularies.target));
  list.offsets_.reserve(num_offsets);
  for (size_t i = 0; i < num_offsets; ++i) {
    const auto offset = LoadAt<uint64_t>(bytes, kShortlistHeader + i * sizeof(uint64_t));
    const uint64_t least = i == 0 ? 0 : list.offsets_.back();
    if (offset < least || offset > num_words) {
      return InvalidArgument(source, ": offset ", i, ": expected ", least, " to ", num_words,
                             ", found ", offset);
    }
    list.offsets_.push_back(static_cast<uint32_t>(offset));
  }
  const size_t words_begin = kShortlistHeader + num_offsets * sizeof(uint64_t);
  list.words_.resize(num_words);
  if (num_words > 0) {
    std::memcpy(list.words_.data(), bytes.data() + words_begin, num_words * sizeof(uint32_t));
  }
  for (size_t i = 0; i < num_words; ++i) {
    if (list.words_[i] >= static_cast<uint32_t>(vocabularies.target)) {
      return InvalidArgument(source, ": word ", i, ": expected an id below ", vocabularies.target,
                             ", the pieces of the target vocabulary, found ", list.words_[i]);
    }
  }
  return list;
}

std::vector<int32_t> Shortlist::For(absl::Span<const int32_t> source_ids) const {
  // One bit for each word. Sorting the lists of a sentence would take twenty times as long.
  std::vector<uint64_t> chosen((vocabularies_.target + 63) / 64, 0);
  int count = 0;
  const auto choose = [&](uint32_t word) {
    uint64_t& bits = chosen[word / 64];
    const uint64_t bit = uint64_t{1} << word % 64;
    count += (bits & bit) == 0 ? 1 : 0;
    bits |= bit;
  };
  for (int word = 0; word < first_num_; ++word) choose(word);
  const auto choose_list = [&](int32_t id) {
    if (static_cast<size_t>(id) + 1 >= offsets_.size()) return;
    for (uint32_t i = offsets_[id]; i < offsets_[id + 1]; ++i) choose(words_[i]);
  };
  choose_list(vocabularies_.eos_id);
  for (const int32_t id : source_ids) {
    choose_list(id);
    if (vocabularies_.shared) choose(id);
  }
  for (int word = first_num_; word < vocabularies_.target && count % kWordsRoundedTo != 0; ++word) {
    choose(word);
  }
  std::vector<int32_t> words;
  words.reserve(count);
  for (size_t i = 0; i < chosen.size(); ++i) {
    for (uint64_t bits = chosen[i]; bits != 0; bits &= bits - 1) {
      words.push_back(static_cast<int32_t>(i * 64) + __builtin_ctzll(bits));
    }
  }
  return words;
}

}  // namespace sru::models
