// The files of Marian's students.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "models/decoding/shortlist.h"
#include "models/files/gzip.h"
#include "models/marian/options.h"
#include "models/marian/tensor_file.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"
#include "tests/testing/test_files.h"

namespace sru::fuzz {
namespace {

constexpr int kWords = 40;

// A file with these bytes, in a folder that is removed at exit.
std::string FileOf(const std::string& name, std::string_view bytes) {
  static const models::TempDirectory folder;
  return folder.Write(name, std::string(bytes));
}

void FuzzTensorFile(const std::string& name, std::string_view bytes) {
  const auto file = models::TensorFile::Open(FileOf(name, bytes));
  if (!file.ok()) return RequireMessage(file.status());
  uint64_t total = 0;
  for (size_t i = 0; i < (*file)->tensors().size(); ++i) {
    const uint64_t size = (*file)->tensors()[i].bytes();
    total += size;
    Require(total <= models::MostExpandedBytes(bytes.size()),
            "tensors are no larger than the file allows");
    const std::unique_ptr<char[]> values(new char[size]);
    const absl::Status status = (*file)->Read(i, values.get());
    if (!status.ok()) RequireMessage(status);
  }
}

void FuzzShortlist(std::string_view bytes) {
  const auto list =
      models::Shortlist::Parse(bytes, {kWords, kWords, /*shared=*/true, 0}, "lex.bin");
  if (!list.ok()) return RequireMessage(list.status());
  int32_t last = -1;
  for (const int32_t word : list->For({1, kWords - 1})) {
    Require(word > last && word < kWords, "words are ascending ids");
    last = word;
  }
}

}  // namespace

void FuzzMarian(std::string_view bytes) {
  const auto [name, rest] = SplitName(bytes);
  models::MarianSearch search;
  absl::Status status;
  if (name == "options") status = models::ParseMarianOptions(rest, "fuzz").status();
  if (name == "search") status = models::ReadMarianSearch(rest, "fuzz", &search);
  if (name == "shortlist") FuzzShortlist(rest);
  if (name == "model.bin" || name == "model.npz") FuzzTensorFile(std::string(name), rest);
  if (name == "gzip") {
    status = models::ReadPerhapsGzipped(FileOf("f.gz", rest), uint64_t{1} << 24).status();
  }
  if (!status.ok()) RequireMessage(status);
}

}  // namespace sru::fuzz
