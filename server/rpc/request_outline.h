// What the service must know of a request before it parses it: enough to refuse it, since under a
// flood a refusal has to cost much less than an answer, and how much memory it will take, since a
// few bytes of protobuf can become a hundred times as many.
#ifndef SRU_SERVER_RPC_REQUEST_OUTLINE_H_
#define SRU_SERVER_RPC_REQUEST_OUTLINE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/rpc/request_limits.h"
#include "sru/v1/inference.pb.h"

namespace sru::server {

// The fields that ClassifyRequest and EncodeRequest have in common, as far as admission needs them,
// and counts of what protobuf would make objects of.
struct RequestOutline {
  std::string model;
  bool long_model_name = false;  // over kMaxOutlineModelName bytes; `model` is empty then
  int64_t version = 0;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  int num_sequences = 0;

  int64_t num_words = 0;         // entries of tokens.values
  int64_t num_unpacked_ids = 0;  // entries of token_ids.values that are fields of their own,
  int64_t packed_id_bytes = 0;   // and the bytes of the others
  int64_t feature_bytes = 0;     // of features.data
  // Fields that the message has no place for, which protobuf keeps, and inputs of a sequence that
  // another one replaces, whose memory it keeps too.
  int64_t extra_fields = 0;
  int64_t message_bytes = 0;

  // The least and the most tokens that are not text.
  int64_t min_tokens() const { return num_words + num_unpacked_ids + packed_id_bytes / 10; }
  int64_t max_ids() const { return num_unpacked_ids + packed_id_bytes; }
};

// Walks the fields of a message without reading texts, words, ids and features: O(number of
// fields), and nothing is copied but the model's name. False when the bytes are no message. A field
// that is there twice counts as it does for protobuf: the last value.
//
// `priority_field` is the number of the field `priority`, which differs between the two requests.
// The other fields that are read here have the same numbers in both. The numbers between those of
// `sequences` and `priority` mean different fields, all of them varints, which are skipped.
bool ReadOutline(const grpc::ByteBuffer& bytes, int priority_field, RequestOutline* outline);

// Of bytes that are meant to be a `Request`, ClassifyRequest or EncodeRequest.
template <typename Request>
bool ReadOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  return ReadOutline(bytes, Request::kPriorityFieldNumber, outline);
}

// kInvalidArgument when the counts alone say that the request has too many sequences or tokens, or
// more than kMaxExtraFields (request_errors.h) extra fields.
absl::Status CheckOutline(const RequestOutline& outline, const RequestLimits& limits);

// No less than what the call will take of memory until it is queued: the message, its parsed form,
// the batcher's tasks, the call itself. Without outputs.
int64_t EstimateCallBytes(const RequestOutline& outline);

// Whether the bytes of a message without sub-messages hold at most kMaxExtraFields fields, known or
// not; also when they are no message, which is left to the parser.
bool HasFewFields(const grpc::ByteBuffer& bytes);

inline constexpr int kMaxOutlineModelName = 1024;

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_REQUEST_OUTLINE_H_
