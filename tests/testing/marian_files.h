// Files of Marian that tests make: options, weights, the binary shortlist, gzip'd files.
#ifndef SRU_TESTS_TESTING_MARIAN_FILES_H_
#define SRU_TESTS_TESTING_MARIAN_FILES_H_

#include <zlib.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

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

// special:model.yml of a small student, with other values of some options; "" leaves one out.
inline std::string MarianOptionsText(const std::map<std::string, std::string>& changes) {
  std::map<std::string, std::string> options = {{"type", "transformer"},
                                                {"transformer-decoder-autoreg", "rnn"},
                                                {"dec-cell", "ssru"},
                                                {"dim-emb", "8"},
                                                {"transformer-dim-ffn", "12"},
                                                {"transformer-ffn-activation", "relu"},
                                                {"transformer-heads", "2"},
                                                {"enc-depth", "2"},
                                                {"dec-depth", "1"},
                                                {"dim-vocabs", "[270, 270]"},
                                                {"tied-embeddings-all", "true"},
                                                {"transformer-preprocess", "\"\""},
                                                {"transformer-postprocess", "dan"},
                                                {"transformer-tied-layers", "[]"},
                                                {"transformer-guided-alignment-layer", "last"}};
  for (const auto& [key, value] : changes) options[key] = value;
  std::string text;
  for (const auto& [key, value] : options) {
    if (!value.empty()) absl::StrAppend(&text, key, ": ", value, "\n");
  }
  return text;
}

struct BinTensor {
  std::string name;
  uint64_t type = 0x404;
  std::vector<int32_t> shape;
  std::string data;
};

// A file of weights in Marian's binary format.
inline std::string BinFile(const std::vector<BinTensor>& tensors, uint64_t version = 1) {
  const auto padded = [](std::string bytes) {
    bytes.resize((bytes.size() + 255) / 256 * 256);
    return bytes;
  };
  std::string bytes;
  AppendNumber(version, &bytes);
  AppendNumber<uint64_t>(tensors.size(), &bytes);
  for (const BinTensor& tensor : tensors) {
    AppendNumber<uint64_t>(tensor.name.size() + 1, &bytes);
    AppendNumber(tensor.type, &bytes);
    AppendNumber<uint64_t>(tensor.shape.size(), &bytes);
    AppendNumber<uint64_t>(padded(tensor.data).size(), &bytes);
  }
  for (const BinTensor& tensor : tensors) bytes += tensor.name + '\0';
  for (const BinTensor& tensor : tensors) {
    for (const int32_t size : tensor.shape) AppendNumber(size, &bytes);
  }
  const uint64_t gap = 256 - (bytes.size() + 8) % 256;
  AppendNumber(gap, &bytes);
  bytes.append(gap, '\0');
  for (const BinTensor& tensor : tensors) bytes += padded(tensor.data);
  return bytes;
}

// The weights of a student with one table: sizes as in special:model.yml. With int8, matrices and
// the table are intgemm8.
inline std::string StudentBin(int width, int ffn, int heads, int encoder_layers, int decoder_layers,
                              int vocabulary, bool int8) {
  std::vector<BinTensor> tensors;
  const auto vector = [&](const std::string& name, int size) {
    std::string data;
    for (int i = 0; i < size; ++i) AppendNumber(0.01f * static_cast<float>(i % 7 - 3), &data);
    tensors.push_back({name, 0x404, {1, size}, data});
  };
  const auto matrix = [&](const std::string& name, int rows, int columns) {
    std::string data;
    for (int i = 0; i < rows * columns; ++i) {
      const int value = i * 37 % 101 - 50;
      int8 ? AppendNumber(static_cast<int8_t>(value), &data)
           : AppendNumber(0.004f * static_cast<float>(value), &data);
    }
    if (int8) AppendNumber(250.0f, &data);
    tensors.push_back({name, int8 ? uint64_t{0x4101} : uint64_t{0x404}, {rows, columns}, data});
  };
  const auto norm = [&](const std::string& name) {
    vector(name + "_ln_scale", width);
    vector(name + "_ln_bias", width);
  };
  const auto attention = [&](const std::string& name) {
    for (const char* part : {"q", "k", "v", "o"}) {
      matrix(name + "_W" + part, width, width);
      vector(name + "_b" + part, width);
    }
    norm(name + "_Wo");
  };
  const auto feed_forward = [&](const std::string& name) {
    matrix(name + "_W1", width, ffn);
    vector(name + "_b1", ffn);
    matrix(name + "_W2", ffn, width);
    vector(name + "_b2", width);
    norm(name + "_ffn");
  };
  matrix("Wemb", vocabulary, width);
  vector("decoder_ff_logit_out_b", vocabulary);
  for (int i = 1; i <= encoder_layers; ++i) {
    attention("encoder_l" + std::to_string(i) + "_self");
    feed_forward("encoder_l" + std::to_string(i) + "_ffn");
  }
  for (int i = 1; i <= decoder_layers; ++i) {
    const std::string layer = "decoder_l" + std::to_string(i);
    matrix(layer + "_rnn_W", width, width);
    matrix(layer + "_rnn_Wf", width, width);
    vector(layer + "_rnn_bf", width);
    norm(layer + "_rnn_ffn");
    attention(layer + "_context");
    feed_forward(layer + "_ffn");
  }
  const std::string pieces = std::to_string(vocabulary);
  const std::string options =
      MarianOptionsText({{"dim-emb", std::to_string(width)},
                         {"transformer-dim-ffn", std::to_string(ffn)},
                         {"transformer-heads", std::to_string(heads)},
                         {"enc-depth", std::to_string(encoder_layers)},
                         {"dec-depth", std::to_string(decoder_layers)},
                         {"dim-vocabs", "[" + pieces + ", " + pieces + "]"}});
  tensors.push_back(
      {"special:model.yml", 0x101, {static_cast<int32_t>(options.size()) + 1}, options + '\0'});
  return BinFile(tensors);
}

struct ZipEntry {
  std::string name;
  std::string data;
  uint16_t method = 0;  // stored; 8: `data` is deflated
  int64_t size = -1;    // that the archive announces; -1: of `data`
  bool right_checksum = true;
};

// A ZIP archive.
inline std::string ZipFile(const std::vector<ZipEntry>& entries) {
  std::string bytes;
  std::string directory;
  for (const ZipEntry& entry : entries) {
    const auto size = static_cast<uint32_t>(entry.size < 0 ? entry.data.size() : entry.size);
    std::string fields;
    AppendNumber<uint16_t>(20, &fields);  // version, flags, method, time and date
    AppendNumber<uint16_t>(0, &fields);
    AppendNumber(entry.method, &fields);
    AppendNumber<uint32_t>(0, &fields);
    const auto* const data = reinterpret_cast<const Bytef*>(entry.data.data());
    const auto checksum =
        static_cast<uint32_t>(crc32(0, data, static_cast<uInt>(entry.data.size())));
    AppendNumber(checksum ^ (entry.right_checksum ? 0 : 1), &fields);
    AppendNumber(static_cast<uint32_t>(entry.data.size()), &fields);
    AppendNumber(size, &fields);
    AppendNumber(static_cast<uint16_t>(entry.name.size()), &fields);
    AppendNumber<uint16_t>(0, &fields);
    directory += std::string("PK\x01\x02\x14\x00", 6) + fields + std::string(10, '\0');
    AppendNumber(static_cast<uint32_t>(bytes.size()), &directory);
    directory += entry.name;
    bytes += "PK\x03\x04" + fields + entry.name + entry.data;
  }
  const auto begin = static_cast<uint32_t>(bytes.size());
  bytes += directory + std::string("PK\x05\x06\x00\x00\x00\x00", 8);
  AppendNumber(static_cast<uint16_t>(entries.size()), &bytes);
  AppendNumber(static_cast<uint16_t>(entries.size()), &bytes);
  AppendNumber(static_cast<uint32_t>(directory.size()), &bytes);
  AppendNumber(begin, &bytes);
  return bytes + std::string(2, '\0');
}

// An .npy file, whose header is `descr`, `shape` and, by default, the order of C.
inline std::string NpyFile(const std::string& descr, const std::string& shape,
                           const std::string& data, const std::string& order = "False") {
  std::string header =
      "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  AppendNumber(static_cast<uint16_t>(header.size()), &bytes);
  return bytes + header + data;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_MARIAN_FILES_H_
