// MessageBytes: the bytes of a message in one piece. Those of a small message are not copied; a
// larger one, which comes in several pieces, is copied into memory from the budget of calls.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_MESSAGE_BYTES_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_MESSAGE_BYTES_H_

#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "server/calls/byte_budget.h"

namespace sru::server::open_inference {

// Not thread-safe.
class MessageBytes {
 public:
  explicit MessageBytes(calls::ByteBudget* budget) : held_(budget) {}

  // False if the budget has no room for a copy.
  bool Read(const absl::Cord& message) {
    Release();
    const bool is_copied = !message.TryFlat().has_value();
    if (is_copied && !held_.Grow(static_cast<int64_t>(message.size()))) return false;
    message_ = message;
    view_ = message_.Flatten();
    return true;
  }

  // Until Release().
  absl::string_view view() const { return view_; }
  void Release() {
    view_ = {};
    message_.Clear();
    held_.ShrinkTo(0);
  }

 private:
  absl::Cord message_;
  calls::ByteReservation held_;  // for the copy
  absl::string_view view_;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_MESSAGE_BYTES_H_
