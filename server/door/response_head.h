// HeaderList: header fields as nghttp2 takes them. What gRPC's protocol says of trailers is here.
#ifndef SRU_SERVER_DOOR_RESPONSE_HEAD_H_
#define SRU_SERVER_DOOR_RESPONSE_HEAD_H_

#include <nghttp2/nghttp2.h>

#include <list>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
#include "server/calls/exchange.h"

namespace sru::server::door {

// Texts of statuses are cut here, as no flow control bounds trailers.
inline constexpr size_t kMostMessageBytes = 2 << 10;
// Details beyond this are left out.
inline constexpr size_t kMostDetailBytes = 8 << 10;

class HeaderList {
 public:
  // Texts that live as long as the program.
  void AddConstant(absl::string_view name, absl::string_view value);
  // Texts that live until the list is submitted.
  void Add(absl::string_view name, absl::string_view value);
  // Values of names that end with "-bin" are encoded.
  void AddMetadata(const calls::Metadata& metadata);
  // ":status" and "content-type" of an answer to a call.
  void AddGrpcHead();
  // Adds the status and the headers of an answer over HTTP. `headers` must live until the list is
  // submitted.
  void AddHttpHead(int status, const calls::Metadata& headers);
  // grpc-status and what belongs to it, and the trailers.
  void AddEnd(const calls::CallEnd& end);

  const nghttp2_nv* data() const { return fields_.data(); }
  size_t size() const { return fields_.size(); }

 private:
  absl::string_view Keep(std::string text) { return kept_.emplace_back(std::move(text)); }

  absl::InlinedVector<nghttp2_nv, 8> fields_;
  std::list<std::string> kept_;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_RESPONSE_HEAD_H_
