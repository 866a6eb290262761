#include "server/base/inflater.h"

#include <zlib.h>

#include <array>

namespace sru::server {
namespace {

constexpr int kWindowBits = 15;
constexpr int kWithGzipHeader = 16;
constexpr size_t kBlockBytes = 64 << 10;

}  // namespace

Inflater::Inflater(bool gzip) : stream_(std::make_unique<z_stream>()) {
  failed_ = inflateInit2(stream_.get(), kWindowBits + (gzip ? kWithGzipHeader : 0)) != Z_OK;
}

Inflater::~Inflater() { inflateEnd(stream_.get()); }

absl::Status Inflater::Add(absl::string_view* bytes, absl::Cord* unpacked) {
  if (failed_) return absl::ResourceExhaustedError("there is no memory to decompress the message");
  if (ended_) return absl::InternalError("a compressed message goes on after its end");
  std::array<char, kBlockBytes> block;
  stream_->next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes->data()));
  stream_->avail_in = static_cast<uInt>(bytes->size());
  stream_->next_out = reinterpret_cast<Bytef*>(block.data());
  stream_->avail_out = static_cast<uInt>(block.size());
  const int result = inflate(stream_.get(), Z_NO_FLUSH);
  if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
    return absl::InternalError("a message is not compressed as its grpc-encoding says");
  }
  ended_ = result == Z_STREAM_END;
  bytes->remove_prefix(bytes->size() - stream_->avail_in);
  has_more_ = stream_->avail_out == 0 && !ended_;
  unpacked->Append(absl::string_view(block.data(), block.size() - stream_->avail_out));
  return absl::OkStatus();
}

}  // namespace sru::server
