#include "server/calls/message_cord.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "google/protobuf/io/zero_copy_stream.h"
#include "server/base/interruption.h"

namespace sru::server::calls {
namespace {

// Smaller messages are copied, which is cheaper than to share them.
constexpr size_t kSharedBytes = 512;

// Parsing asks after so many bytes whether it is still wanted: words of so many take 1.3 to 1.6 ms.
constexpr size_t kBytesUntilAsked = 64 << 10;

// The chunks of a cord, in parts. Ends early when it is interrupted.
class CordStream final : public google::protobuf::io::ZeroCopyInputStream {
 public:
  explicit CordStream(const absl::Cord& bytes) : chunks_(bytes.Chunks()), next_(chunks_.begin()) {}

  bool Next(const void** data, int* size) override {
    if (read_ > 0 && Interruption::Asked()) return false;
    if (unread_ == 0) {
      if (next_ == chunks_.end()) return false;
      chunk_ = *next_++;
      unread_ = chunk_.size();
    }
    *data = chunk_.data() + (chunk_.size() - unread_);
    *size = static_cast<int>(std::min(unread_, kBytesUntilAsked));
    unread_ -= *size;
    read_ += *size;
    return true;
  }
  void BackUp(int count) override {
    unread_ += count;
    read_ -= count;
  }
  bool Skip(int count) override {
    const void* data = nullptr;
    int size = 0;
    while (count > 0 && Next(&data, &size)) {
      if (size > count) BackUp(size - count);
      count -= std::min(size, count);
    }
    return count == 0;
  }
  int64_t ByteCount() const override { return read_; }

 private:
  const absl::Cord::ChunkRange chunks_;
  absl::Cord::ChunkIterator next_;
  absl::string_view chunk_;
  size_t unread_ = 0;  // of chunk_
  int64_t read_ = 0;
};

}  // namespace

bool ParseCord(const absl::Cord& bytes, google::protobuf::MessageLite* message) {
  const auto flat = bytes.TryFlat();
  if (flat.has_value() && flat->size() <= kBytesUntilAsked) {
    return message->ParseFromArray(flat->data(), static_cast<int>(flat->size()));
  }
  CordStream stream(bytes);
  return message->ParseFromZeroCopyStream(&stream);
}

bool SerializeToCord(const google::protobuf::MessageLite& message, absl::Cord* bytes) {
  const size_t size = message.ByteSizeLong();
  if (size > std::numeric_limits<int>::max()) return false;
  if (size <= kSharedBytes) {
    char small[kSharedBytes];
    message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(small));
    *bytes = absl::Cord(absl::string_view(small, size));
    return true;
  }
  std::unique_ptr<char[]> large(new char[size]);  // not initialized: all of it is written
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(large.get()));
  const absl::string_view view(large.get(), size);
  *bytes = absl::MakeCordFromExternal(view, [owned = std::move(large)] {});
  return true;
}

absl::Cord ToCord(const google::protobuf::MessageLite& message) {
  absl::Cord bytes;
  SerializeToCord(message, &bytes);
  return bytes;
}

}  // namespace sru::server::calls
