// MessageReader: makes messages of the bytes of a call: five bytes in front of each say whether it
// is packed and how long it is.
//
// Memory. A message is gathered in one buffer of its announced size, however small the pieces are
// in which it comes. What has arrived of it is taken from a MemoryCount until the message is handed
// on; what was announced and does not come takes nothing. A packed message is unpacked while it
// arrives, under the same bounds.
//
// Used by one thread.
#ifndef SRU_SERVER_DOOR_MESSAGE_READER_H_
#define SRU_SERVER_DOOR_MESSAGE_READER_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "server/door/memory_count.h"
#include "server/door/request_head.h"

namespace sru::server {
class Inflater;
}

namespace sru::server::door {

// The refusal of bytes for which there is no memory now.
absl::Status NoMemoryToReceive();

class MessageReader {
 public:
  // `max_bytes` of a message, unpacked. `memory` must outlive the reader.
  MessageReader(uint32_t max_bytes, MemoryCount* memory);
  ~MessageReader();
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  // Before the first byte.
  void set_max_bytes(uint32_t max_bytes) { max_bytes_ = max_bytes; }
  void set_encoding(Encoding encoding) { encoding_ = encoding; }

  // Takes bytes up to the end of the message, and returns how many. After an error the call ends
  // with it: kResourceExhausted for a message that is too large, or for which there is no memory;
  // kInternal for what is no message.
  absl::Status Take(absl::string_view bytes, size_t* taken);

  // True if a message is complete; it then has to be taken before further bytes.
  bool has_message() const { return complete_; }
  absl::Cord TakeMessage();

  // Returns whether the message that has begun last came compressed.
  bool is_compressed() const { return prefix_[0] == 1; }
  // Whether a message has begun and is not complete.
  bool in_message() const { return prefix_bytes_ > 0 && !complete_; }
  // Bytes of it that are still to come; 0 between messages.
  uint32_t missing_bytes() const { return in_message() ? size_ - got_ : 0; }

 private:
  absl::Status BeginMessage();
  absl::Status TakeBody(absl::string_view bytes);
  absl::Status Charge(int64_t bytes);
  void Release();

  uint32_t max_bytes_;
  MemoryCount* const memory_;
  Encoding encoding_ = Encoding::kIdentity;

  std::array<unsigned char, 5> prefix_{};
  uint32_t prefix_bytes_ = 0;
  uint32_t size_ = 0;  // as announced
  uint32_t got_ = 0;   // of these
  bool complete_ = false;
  int64_t charged_ = 0;
  absl::Cord message_;                  // a small one that came at once, or a packed one
  std::unique_ptr<char[]> buffer_;      // of size_ bytes
  std::unique_ptr<Inflater> inflater_;  // while a packed message arrives
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_MESSAGE_READER_H_
