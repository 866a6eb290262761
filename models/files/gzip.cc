#include "models/files/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "base/status.h"

namespace sru::models {
namespace {

constexpr size_t kLeastGzipBytes = 18;
constexpr std::string_view kGzipMagic = "\x1f\x8b";
constexpr int kGzipWindow = 15 + 16;  // the largest window, and gzip's header only

absl::Status Inflate(const std::string& source, std::string_view bytes, size_t size, char* to) {
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(source, ": no memory to decompress it"));
  }
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.next_out = reinterpret_cast<Bytef*>(to);
  size_t unread = bytes.size();
  size_t unwritten = size;
  int result = Z_OK;
  // zlib counts in 32 bits.
  constexpr size_t kMost = std::numeric_limits<uInt>::max();
  while (result == Z_OK) {
    const auto in = static_cast<uInt>(std::min(unread, kMost));
    const auto out = static_cast<uInt>(std::min(unwritten, kMost));
    stream.avail_in = in;
    stream.avail_out = out;
    result = inflate(&stream, Z_NO_FLUSH);
    unread -= in - stream.avail_in;
    unwritten -= out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (result == Z_STREAM_END && unread == 0 && unwritten == 0) return absl::OkStatus();
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
  const auto file = OpenFile::Open(path, std::numeric_limits<int64_t>::max());
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
