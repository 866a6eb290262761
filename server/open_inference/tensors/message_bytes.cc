#include "server/open_inference/tensors/message_bytes.h"

#include <cstring>
#include <optional>

namespace sru::server::open_inference {

bool MessageBytes::Read(const absl::Cord& message) {
  Release();
  if (message.TryFlat().has_value()) {
    message_ = message;
    view_ = *message_.TryFlat();
    return true;
  }
  if (!held_.Grow(static_cast<int64_t>(message.size()))) return false;
  copy_.reset(new char[message.size()]);
  char* to = copy_.get();
  for (const absl::string_view chunk : message.Chunks()) {
    std::memcpy(to, chunk.data(), chunk.size());
    to += chunk.size();
  }
  view_ = {copy_.get(), message.size()};
  return true;
}

void MessageBytes::Release() {
  view_ = {};
  copy_.reset();
  message_.Clear();
  held_.ShrinkTo(0);
}

}  // namespace sru::server::open_inference
