// The files of Marian's students.
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "models/decoding/shortlist.h"
#include "models/files/gzip.h"
#include "models/marian/options.h"
#include "models/marian/tensor_file.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"

namespace sru::fuzz {
namespace {

constexpr int kWords = 40;

void RequireGoodMessage(const absl::Status& status) {
  const std::string_view message(status.message().data(), status.message().size());
  Require(!message.empty() && message.size() < 4096 && FindInvalidUtf8(message) == message.size(),
          "an error has a message, which is valid UTF-8 of a bounded length");
}

// A file with these bytes, in a folder that is removed at exit.
std::string FileOf(const std::string& name, std::string_view bytes) {
  struct Folder {
    Folder() {
      std::string name = (std::filesystem::temp_directory_path() / "sru-fuzz-XXXXXX").string();
      Require(mkdtemp(name.data()) != nullptr, "there is room for files");
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::filesystem::path path;
  };
  static const Folder folder;
  const std::filesystem::path path = folder.path / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

void FuzzTensorFile(const std::string& name, std::string_view bytes) {
  const auto file = models::TensorFile::Open(FileOf(name, bytes));
  if (!file.ok()) return RequireGoodMessage(file.status());
  uint64_t total = 0;
  for (size_t i = 0; i < (*file)->tensors().size(); ++i) {
    const uint64_t size = (*file)->tensors()[i].bytes();
    total += size;
    Require(total <= models::MostExpandedBytes(bytes.size()),
            "tensors are no larger than the file allows");
    const std::unique_ptr<char[]> values(new char[size]);
    const absl::Status status = (*file)->Read(i, values.get());
    if (!status.ok()) RequireGoodMessage(status);
  }
}

void FuzzShortlist(std::string_view bytes) {
  const auto list =
      models::Shortlist::Parse(bytes, {kWords, kWords, /*shared=*/true, 0}, "lex.bin");
  if (!list.ok()) return RequireGoodMessage(list.status());
  int32_t last = -1;
  for (const int32_t word : list->For({1, kWords - 1})) {
    Require(word > last && word < kWords, "words are ascending ids");
    last = word;
  }
}

}  // namespace

void FuzzMarian(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::string_view rest = bytes.substr(1);
  models::MarianSearch search;
  absl::Status status;
  switch (static_cast<unsigned char>(bytes[0]) % 6) {
    case 0:
      status = models::ParseMarianOptions(rest, "fuzz").status();
      break;
    case 1:
      status = models::ReadMarianSearch(rest, "fuzz", &search);
      break;
    case 2:
      return FuzzShortlist(rest);
    case 3:
      return FuzzTensorFile("model.bin", rest);
    case 4:
      return FuzzTensorFile("model.npz", rest);
    case 5:
      status = models::ReadPerhapsGzipped(FileOf("f.gz", rest), uint64_t{1} << 24).status();
      break;
  }
  if (!status.ok()) RequireGoodMessage(status);
}

}  // namespace sru::fuzz
