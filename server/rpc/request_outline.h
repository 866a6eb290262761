// What the service must know of a request to refuse it, read from its bytes without parsing it:
// under a flood a refusal has to cost much less than an answer.
#ifndef SRU_SERVER_RPC_REQUEST_OUTLINE_H_
#define SRU_SERVER_RPC_REQUEST_OUTLINE_H_

#include <cstdint>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "sru/v1/inference.pb.h"

namespace sru::server {

// The fields that ClassifyRequest and EncodeRequest have in common, as far as admission needs them.
struct RequestOutline {
  std::string model;
  int64_t version = 0;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  int num_sequences = 0;
};

// Walks the top level of a message and skips what stands below it: O(number of fields), and nothing
// is copied but the model's name. False when the bytes are no message or name a model in more than
// kMaxOutlineModelName bytes; the full parser says what is wrong with them then. A field that is
// there twice counts as it does for protobuf: the last value.
//
// `priority_field` is the number of that field, the only one in which the two requests differ.
bool ReadOutline(const grpc::ByteBuffer& bytes, int priority_field, RequestOutline* outline);

// Of bytes that are meant to be a `Request`, ClassifyRequest or EncodeRequest.
template <typename Request>
bool ReadOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  return ReadOutline(bytes, Request::kPriorityFieldNumber, outline);
}

inline constexpr int kMaxOutlineModelName = 1024;

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_REQUEST_OUTLINE_H_
