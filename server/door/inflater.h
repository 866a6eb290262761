// Inflater: unpacks a message while it arrives, up to a bound: what a bomb takes is the bound.
#ifndef SRU_SERVER_DOOR_INFLATER_H_
#define SRU_SERVER_DOOR_INFLATER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

struct z_stream_s;  // zlib's z_stream

namespace sru::server::door {

// Used by one thread.
class Inflater {
 public:
  // zlib takes so much for its state and its window.
  static constexpr int64_t kStateBytes = 40 << 10;

  // gzip, or else deflate with zlib's header.
  Inflater(bool gzip, uint32_t max_bytes);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Takes some of the bytes, and appends at most 64 KiB to `unpacked`. To be called until all bytes
  // are taken and has_more() is false. kResourceExhausted beyond the bound; kInternal for bytes
  // that are not packed as they should be.
  absl::Status Add(absl::string_view* bytes, absl::Cord* unpacked);
  // Whether bytes that were taken may give more.
  bool has_more() const { return has_more_; }
  // kInternal unless what was packed has ended.
  absl::Status End() const;

 private:
  const uint32_t max_bytes_;
  const std::unique_ptr<z_stream_s> stream_;
  bool failed_ = false;
  bool has_more_ = false;
  bool ended_ = false;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_INFLATER_H_
