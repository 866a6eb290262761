#include "models/files/gzip.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "base/status.h"

namespace sru::models {
namespace {

constexpr size_t kLeastGzipBytes = 18;
constexpr std::string_view kGzipMagic = "\x1f\x8b";

absl::Status Inflate(const std::string& source, std::string_view bytes, size_t size, char* to) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      libdeflate_alloc_decompressor(), &libdeflate_free_decompressor);
  if (inflater == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(source, ": no memory to decompress it"));
  }
  size_t read = 0;
  // Without a place for the size, it expects to fill the buffer.
  if (libdeflate_gzip_decompress_ex(inflater.get(), bytes.data(), bytes.size(), to, size, &read,
                                    nullptr) == LIBDEFLATE_SUCCESS &&
      read == bytes.size()) {
    return absl::OkStatus();
  }
  return InvalidArgument(source, ": expected one gzip member of ", size,
                         " bytes decompressed; the file is damaged or truncated");
}

// How many bytes a file of which these are the last four announces.
uint32_t AnnouncedBytes(std::string_view end) {
  uint32_t size = 0;
  for (size_t i = 0; i < sizeof(size); ++i) {
    size |= uint32_t{static_cast<unsigned char>(end[i])} << 8 * i;
  }
  return size;
}

}  // namespace

uint64_t MostExpandedBytes(uint64_t compressed_bytes) {
  return std::max(compressed_bytes * kMaxExpansion, uint64_t{1} << 20);
}

int64_t DecompressedBytes(const FilePath& path) {
  const auto file = OpenFile::Open(path);
  if (!file.ok()) return 0;
  uint64_t bytes = file->size();
  char end[sizeof(uint32_t)];
  if (absl::EndsWith(path.path(), kGzipSuffix) && bytes >= sizeof(end) &&
      file->Read(bytes - sizeof(end), sizeof(end), end).ok()) {
    bytes = std::min<uint64_t>(AnnouncedBytes({end, sizeof(end)}), MostExpandedBytes(bytes));
  }
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<FileContents> ReadPerhapsGzipped(const FilePath& path, uint64_t max_bytes) {
  SRU_ASSIGN_OR_RETURN(FileContents file, FileContents::Read(path, max_bytes));
  if (!absl::EndsWith(path.path(), kGzipSuffix)) return file;
  const std::string_view bytes = file.bytes();
  if (bytes.size() < kLeastGzipBytes || bytes.substr(0, 2) != kGzipMagic) {
    return InvalidArgument(path.path(),
                           ": not a gzip file: expected its magic number and at least ",
                           kLeastGzipBytes, " bytes, found ", bytes.size(), " bytes");
  }
  const uint32_t size = AnnouncedBytes(bytes.substr(bytes.size() - sizeof(uint32_t)));
  const uint64_t most = std::min(MostExpandedBytes(bytes.size()), max_bytes);
  if (size > most) {
    return InvalidArgument(path.path(), ": expected at most ", most, " bytes decompressed, found ",
                           size, " announced");
  }
  return FileContents::Make(path.path(), size,
                            [&](char* to) { return Inflate(path.path(), bytes, size, to); });
}

}  // namespace sru::models
