#include "server/open_inference/tensors/message_bytes.h"

namespace sru::server::open_inference {

bool MessageBytes::Read(const absl::Cord& message) {
  Release();
  const bool is_copied = !message.TryFlat().has_value();
  if (is_copied && !held_.Grow(static_cast<int64_t>(message.size()))) return false;
  message_ = message;
  view_ = message_.Flatten();
  return true;
}

void MessageBytes::Release() {
  view_ = {};
  message_.Clear();
  held_.ShrinkTo(0);
}

}  // namespace sru::server::open_inference
