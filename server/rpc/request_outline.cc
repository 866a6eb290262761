#include "server/rpc/request_outline.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace sru::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using Classify = v1::ClassifyRequest;
using Encode = v1::EncodeRequest;

static_assert(int{Classify::kModelFieldNumber} == int{Encode::kModelFieldNumber});
static_assert(int{Classify::kVersionFieldNumber} == int{Encode::kVersionFieldNumber});
static_assert(int{Classify::kSequencesFieldNumber} == int{Encode::kSequencesFieldNumber});

constexpr uint32_t Tag(int field, WireFormatLite::WireType type) {
  return WireFormatLite::MakeTag(field, type);
}

bool ReadName(google::protobuf::io::CodedInputStream& input, std::string* name) {
  uint32_t size = 0;
  return input.ReadVarint32(&size) && size <= kMaxOutlineModelName &&
         input.ReadString(name, static_cast<int>(size));
}

bool SkipBytes(google::protobuf::io::CodedInputStream& input) {
  uint32_t size = 0;
  return input.ReadVarint32(&size) && input.Skip(static_cast<int>(size));
}

}  // namespace

bool ReadOutline(const grpc::ByteBuffer& bytes, int priority_field, RequestOutline* outline) {
  *outline = RequestOutline();
  if (bytes.Length() == 0) return true;
  // The reader takes the buffer by a pointer to non-const but does not change it.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&bytes));
  if (!reader.status().ok()) return false;
  constexpr uint32_t kModel =
      Tag(Classify::kModelFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  constexpr uint32_t kVersion = Tag(Classify::kVersionFieldNumber, WireFormatLite::WIRETYPE_VARINT);
  constexpr uint32_t kSequences =
      Tag(Classify::kSequencesFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  const uint32_t priority = Tag(priority_field, WireFormatLite::WIRETYPE_VARINT);
  google::protobuf::io::CodedInputStream input(&reader);
  while (const uint32_t tag = input.ReadTag()) {
    uint64_t value = 0;
    bool good = true;
    if (tag == kSequences) {
      good = SkipBytes(input);
      ++outline->num_sequences;
    } else if (tag == kModel) {
      good = ReadName(input, &outline->model);
    } else if (tag == kVersion) {
      good = input.ReadVarint64(&value);
      outline->version = static_cast<int64_t>(value);
    } else if (tag == priority) {
      good = input.ReadVarint64(&value);
      outline->priority = static_cast<v1::Priority>(static_cast<int>(value));
    } else {
      good = WireFormatLite::SkipField(&input, tag);
    }
    if (!good) return false;
  }
  return input.ConsumedEntireMessage();
}

}  // namespace sru::server
