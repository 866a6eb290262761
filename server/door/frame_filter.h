// FrameFilter: looks at the frames of a connection before nghttp2 does.
//
// It leaves a frame out that gRPC's clients send and HTTP/2 forbids: a RST_STREAM for a stream that
// they gave up before they had opened it. nghttp2 would end the connection for it, with all of its
// calls; gRPC's servers ignore it. A connection of which nothing else comes is for its owner to
// end.
//
// It finds errors that nghttp2 lets pass: PRIORITY of stream 0, a CONTINUATION that is too large,
// and frames for streams that the client has ended or passed over. Such streams are remembered as
// long as there are few of them since.
//
// Used by one thread.
#ifndef SRU_SERVER_DOOR_FRAME_FILTER_H_
#define SRU_SERVER_DOOR_FRAME_FILTER_H_

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/string_view.h"

namespace sru::server::door {

class FrameFilter {
 public:
  // Passes bytes of a connection, from its preface on, to `take(bytes)`, maybe in several parts.
  // Before, each frame is shown to `see(type, flags, length)`. A false of either ends it, and so
  // does an error.
  template <typename See, typename Take>
  bool Pass(absl::string_view bytes, const See& see, const Take& take) {
    size_t begin = 0;  // of what is to be passed on
    size_t at = 0;
    while (at < bytes.size()) {
      if (to_body_end_ > 0) {
        const size_t part = std::min(to_body_end_, bytes.size() - at);
        at += part;
        to_body_end_ -= part;
        if (drops_) begin = at;
        continue;
      }
      const size_t held = head_bytes_;
      const size_t head_begin = at;
      const size_t part = std::min(head_.size() - held, bytes.size() - at);
      std::memcpy(head_.data() + held, bytes.data() + at, part);
      at += part;
      head_bytes_ += part;
      if (head_bytes_ == head_.size()) {
        ReadHead();
        if (error_ != NGHTTP2_NO_ERROR) {
          if (head_begin > begin) take(bytes.substr(begin, head_begin - begin));
          return false;
        }
        if (!see(Byte(3), Byte(4), to_body_end_)) return false;
        if (!drops_ && held > 0 && !take(absl::string_view(head_.data(), held))) return false;
        if (!drops_) continue;
      }
      // What came before; the head is left out, or held until it is complete.
      if (head_begin > begin && !take(bytes.substr(begin, head_begin - begin))) return false;
      begin = at;
    }
    return begin == at || take(bytes.substr(begin, at - begin));
  }

  // The code that the connection has to be ended with; NGHTTP2_NO_ERROR if nothing was wrong.
  uint32_t error() const { return error_; }

  // A header block has begun and not ended: nothing but its rest may come.
  bool in_header_block() const { return is_block_ && (!ends_block_ || to_body_end_ > 0); }

  // True if a RST_STREAM was left out and no stream has been opened.
  bool has_only_reset() const { return has_left_out_ && last_stream_ == 0; }

 private:
  static constexpr size_t kPrefaceBytes = 24;
  static constexpr size_t kMostFrameBytes = 16384;  // the default of SETTINGS_MAX_FRAME_SIZE

  uint32_t Byte(size_t i) const { return static_cast<unsigned char>(head_[i]); }
  void ReadHead() {
    const bool in_block = in_header_block();  // nghttp2 takes nothing but a CONTINUATION
    head_bytes_ = 0;
    to_body_end_ = Byte(0) << 16 | Byte(1) << 8 | Byte(2);
    const uint32_t id = (Byte(5) & 0x7F) << 24 | Byte(6) << 16 | Byte(7) << 8 | Byte(8);
    const uint32_t type = Byte(3);
    const bool is_content = type == NGHTTP2_HEADERS || type == NGHTTP2_DATA;
    is_block_ = type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION;
    ends_block_ = (Byte(4) & NGHTTP2_FLAG_END_HEADERS) != 0;
    if (in_block) {
      if (type == NGHTTP2_CONTINUATION && to_body_end_ > kMostFrameBytes) {
        error_ = NGHTTP2_FRAME_SIZE_ERROR;
      }
    } else if (is_content && std::find(ended_.begin(), ended_.end(), id) != ended_.end() &&
               id != 0) {
      error_ = NGHTTP2_STREAM_CLOSED;
    } else if (type == NGHTTP2_PRIORITY && id == 0) {
      error_ = NGHTTP2_PROTOCOL_ERROR;
    } else if (type == NGHTTP2_HEADERS && id > last_stream_) {
      if (id > last_stream_ + 2) passed_over_ = {last_stream_ + 1, id - 1};
      last_stream_ = id;
    } else if (is_content && id >= passed_over_.first && id <= passed_over_.second) {
      error_ = type == NGHTTP2_HEADERS ? NGHTTP2_PROTOCOL_ERROR : NGHTTP2_STREAM_CLOSED;
    }
    drops_ = type == NGHTTP2_RST_STREAM && !in_block && to_body_end_ == 4 && id % 2 == 1 &&
             id > last_stream_;
    has_left_out_ |= drops_;
    const bool ends = is_content && (Byte(4) & NGHTTP2_FLAG_END_STREAM) != 0;
    if ((ends || type == NGHTTP2_RST_STREAM) && id <= last_stream_) {
      ended_[next_ended_++ % ended_.size()] = id;
    }
  }

  size_t to_body_end_ = kPrefaceBytes;  // of the frame
  bool drops_ = false;                  // the frame
  bool is_block_ = false;               // the frame is part of a header block
  bool ends_block_ = false;             // it is the last part
  bool has_left_out_ = false;           // a frame
  std::array<char, 9> head_{};
  size_t head_bytes_ = 0;
  uint32_t error_ = NGHTTP2_NO_ERROR;
  uint32_t last_stream_ = 0;
  std::pair<uint32_t, uint32_t> passed_over_{
      1, 0};                         // the last range of streams that were never opened
  std::array<uint32_t, 8> ended_{};  // by the client
  uint32_t next_ended_ = 0;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_FRAME_FILTER_H_
