#include "server/open_inference/message_bytes.h"

#include <cstring>
#include <vector>

namespace sru::server::open_inference {

bool MessageBytes::Read(const grpc::ByteBuffer& buffer) {
  Release();
  if (buffer.Length() == 0) return true;
  if (buffer.TrySingleSlice(&slice_).ok()) {
    view_ = {reinterpret_cast<const char*>(slice_.begin()), slice_.size()};
    return true;
  }
  const size_t size = buffer.Length();
  if (!held_.Grow(static_cast<int64_t>(size))) return false;
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return true;  // never, of a message that was received
  copy_.reset(new char[size]);
  size_t offset = 0;
  for (const grpc::Slice& slice : slices) {
    std::memcpy(copy_.get() + offset, slice.begin(), slice.size());
    offset += slice.size();
  }
  view_ = {copy_.get(), offset};
  return true;
}

void MessageBytes::Release() {
  view_ = {};
  copy_.reset();
  slice_ = grpc::Slice();
  held_.ShrinkTo(0);
}

}  // namespace sru::server::open_inference
