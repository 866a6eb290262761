#include "server/door/deflate.h"

#include <zlib.h>

#include <array>
#include <utility>

#include "absl/strings/string_view.h"

namespace sru::server::door {
namespace {

constexpr int kGzipWindowBits = 15 + 16;  // the largest window, and gzip's header
constexpr int kMemoryLevel = 8;           // zlib's default
constexpr size_t kOutputBytes = 16 << 10;

// Appends what `stream` makes of its input; false once that is `most` bytes or more.
bool Deflate(z_stream* stream, int flush, size_t most, absl::Cord* to) {
  std::array<char, kOutputBytes> block;
  do {
    stream->next_out = reinterpret_cast<Bytef*>(block.data());
    stream->avail_out = static_cast<uInt>(block.size());
    if (deflate(stream, flush) == Z_STREAM_ERROR) return false;
    to->Append(absl::string_view(block.data(), block.size() - stream->avail_out));
    if (to->size() >= most) return false;
  } while (stream->avail_out == 0);
  return true;
}

}  // namespace

bool Gzip(absl::Cord* message) {
  z_stream stream{};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return false;
  }
  absl::Cord compressed;
  bool smaller = true;
  for (const absl::string_view chunk : message->Chunks()) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(chunk.data()));
    stream.avail_in = static_cast<uInt>(chunk.size());
    smaller = smaller && Deflate(&stream, Z_NO_FLUSH, message->size(), &compressed);
  }
  smaller = smaller && Deflate(&stream, Z_FINISH, message->size(), &compressed);
  deflateEnd(&stream);
  if (smaller) *message = std::move(compressed);
  return smaller;
}

}  // namespace sru::server::door
