// Inflater: unpacks a message or a body piece by piece, so that its caller can stop at a bound: a
// bomb then takes what the bound allows.
#ifndef SRU_SERVER_BASE_INFLATER_H_
#define SRU_SERVER_BASE_INFLATER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

struct z_stream_s;  // zlib's z_stream

namespace sru::server {

// Used by one thread.
class Inflater {
 public:
  // zlib takes so much for its state and its window.
  static constexpr int64_t kStateBytes = 40 << 10;

  // gzip, or else deflate with zlib's header.
  explicit Inflater(bool gzip);
  ~Inflater();
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Takes some of the bytes, and appends at most 64 KiB to `unpacked`. To be called until all bytes
  // are taken and has_more() is false. kInternal for bytes that are not packed as they should be,
  // and for bytes behind the end; kResourceExhausted without memory.
  absl::Status Add(absl::string_view* bytes, absl::Cord* unpacked);
  // Whether bytes that were taken may give more.
  bool has_more() const { return has_more_; }
  // Whether what was packed has ended: one member of gzip.
  bool ended() const { return ended_; }

 private:
  const std::unique_ptr<z_stream_s> stream_;
  bool failed_ = false;
  bool has_more_ = false;
  bool ended_ = false;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_INFLATER_H_
