#include "server/rpc/request_outline.h"

#include <algorithm>
#include <array>

#include "google/protobuf/io/coded_stream.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "server/rpc/request_errors.h"

namespace sru::server {
namespace {

using google::protobuf::io::CodedInputStream;
using Classify = v1::ClassifyRequest;

// Whether a request has the fields that all have under the same numbers.
template <typename Request>
constexpr bool kHasCommonFields =
    int{Request::kModelFieldNumber} == int{Classify::kModelFieldNumber} &&
    int{Request::kVersionFieldNumber} == int{Classify::kVersionFieldNumber};
static_assert(kHasCommonFields<v1::EncodeRequest> && kHasCommonFields<v1::ScoreRequest> &&
              kHasCommonFields<v1::AnswerRequest> && kHasCommonFields<v1::GenerateRequest> &&
              kHasCommonFields<v1::TranslateRequest>);
static_assert(int{Classify::kSequencesFieldNumber} ==
              int{v1::EncodeRequest::kSequencesFieldNumber});
static_assert(int{Classify::kSequencesFieldNumber} == int{v1::ScoreRequest::kSequencesFieldNumber});

enum WireType : uint32_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5
};

constexpr uint32_t Tag(int field, WireType type) {
  return static_cast<uint32_t>(field) << 3 | type;
}

// The bound of protobuf itself.
constexpr int kMaxGroupDepth = 100;

// The memory of a call besides its messages, as measured on a 64-bit machine; memory_test compares
// these values with the memory that is really taken.
constexpr int64_t kCallBytes = 4096;     // the call, gRPC's part of it, the batcher's
constexpr int64_t kSequenceBytes = 256;  // its message, its task, its result
constexpr int64_t kQueryBytes = 512;     // the same of a query, and what is kept of its tokens
constexpr int64_t kWordBytes = 80;       // a std::string in an arena, and a pointer to it
constexpr int64_t kEntryWords = 2;       // what an entry of a map or a message takes, in words
constexpr int64_t kIdBytes = 16;         // an array that was doubled, and a copy
constexpr int64_t kExtraFieldBytes = 128;
// The message, its strings, the features or ids of the tasks, and copies of a text while it is
// split.
constexpr int64_t kCopiesOfMessage = 4;

// Reads the fields of one level; `fields` counts those that are skipped, including those in groups.
bool SkipField(CodedInputStream& input, uint32_t tag, int64_t* fields) {
  std::array<uint32_t, kMaxGroupDepth> groups;  // field numbers of those that are open
  int depth = 0;
  do {
    if (tag >> 3 == 0) return false;
    uint64_t value = 0;
    uint32_t size = 0;
    switch (tag & 7) {
      case kVarint:
        if (!input.ReadVarint64(&value)) return false;
        break;
      case kFixed64:
        if (!input.Skip(8)) return false;
        break;
      case kBytes:
        if (!input.ReadVarint32(&size) || !input.Skip(static_cast<int>(size))) return false;
        break;
      case kGroup:
        if (depth == kMaxGroupDepth) return false;
        groups[depth++] = tag >> 3;
        break;
      case kEndGroup:
        if (depth == 0 || groups[--depth] != tag >> 3) return false;
        break;
      case kFixed32:
        if (!input.Skip(4)) return false;
        break;
      default:
        return false;
    }
    if ((tag & 7) != kEndGroup) ++*fields;
  } while (depth > 0 && (tag = input.ReadTag()) != 0);
  return depth == 0;
}

bool SkipBytes(CodedInputStream& input) {
  uint32_t size = 0;
  return input.ReadVarint32(&size) && input.Skip(static_cast<int>(size));
}

// Calls read(tag) for each field of the sub-message that begins with its length.
template <typename Read>
bool ReadMessage(CodedInputStream& input, const Read& read) {
  uint32_t size = 0;
  if (!input.ReadVarint32(&size) || int64_t{size} > input.BytesUntilLimit()) return false;
  const CodedInputStream::Limit outer = input.PushLimit(static_cast<int>(size));
  while (const uint32_t tag = input.ReadTag()) {
    if (!read(tag)) return false;
  }
  if (!input.ConsumedEntireMessage() || input.BytesUntilLimit() != 0) return false;
  input.PopLimit(outer);
  return true;
}

bool ReadSequence(CodedInputStream& input, RequestOutline* outline) {
  constexpr uint32_t kText = Tag(v1::Sequence::kTextFieldNumber, kBytes);
  constexpr uint32_t kTokens = Tag(v1::Sequence::kTokensFieldNumber, kBytes);
  constexpr uint32_t kTokenIds = Tag(v1::Sequence::kTokenIdsFieldNumber, kBytes);
  constexpr uint32_t kFeatures = Tag(v1::Sequence::kFeaturesFieldNumber, kBytes);
  constexpr uint32_t kWord = Tag(v1::Tokens::kValuesFieldNumber, kBytes);
  constexpr uint32_t kPackedIds = Tag(v1::TokenIds::kValuesFieldNumber, kBytes);
  constexpr uint32_t kId = Tag(v1::TokenIds::kValuesFieldNumber, kVarint);
  constexpr uint32_t kData = Tag(v1::Features::kDataFieldNumber, kBytes);
  constexpr uint32_t kFeatureSize = Tag(v1::Features::kFeatureSizeFieldNumber, kVarint);
  uint64_t varint = 0;
  uint32_t size = 0;
  int inputs = 0;
  const auto read_word = [&](uint32_t tag) {
    if (tag != kWord) return SkipField(input, tag, &outline->extra_fields);
    ++outline->num_words;
    return SkipBytes(input);
  };
  const auto read_id = [&](uint32_t tag) {
    if (tag == kPackedIds) {
      if (!input.ReadVarint32(&size) || !input.Skip(static_cast<int>(size))) return false;
      outline->packed_id_bytes += size;
      return true;
    }
    if (tag != kId) return SkipField(input, tag, &outline->extra_fields);
    ++outline->num_unpacked_ids;
    return input.ReadVarint64(&varint);
  };
  const auto read_features = [&](uint32_t tag) {
    if (tag == kData) {
      if (!input.ReadVarint32(&size) || !input.Skip(static_cast<int>(size))) return false;
      outline->feature_bytes += size;
      return true;
    }
    if (tag != kFeatureSize) return SkipField(input, tag, &outline->extra_fields);
    return input.ReadVarint64(&varint);
  };
  const bool good = ReadMessage(input, [&](uint32_t tag) {
    switch (tag) {
      case kText:
        ++inputs;
        return SkipBytes(input);
      case kTokens:
        ++inputs;
        return ReadMessage(input, read_word);
      case kTokenIds:
        ++inputs;
        return ReadMessage(input, read_id);
      case kFeatures:
        ++inputs;
        return ReadMessage(input, read_features);
      default:
        return SkipField(input, tag, &outline->extra_fields);
    }
  });
  if (inputs > 1) outline->extra_fields += inputs - 1;
  return good;
}

// Whether it is the tag of a list of ids, packed or not.
constexpr bool IsIdList(uint32_t tag, int field) {
  return tag == Tag(field, kBytes) || tag == Tag(field, kVarint);
}
bool ReadIds(CodedInputStream& input, uint32_t tag, RequestOutline* outline) {
  if ((tag & 7) == kVarint) {
    uint64_t id = 0;
    ++outline->num_unpacked_ids;
    return input.ReadVarint64(&id);
  }
  uint32_t size = 0;
  if (!input.ReadVarint32(&size) || !input.Skip(static_cast<int>(size))) return false;
  outline->packed_id_bytes += size;
  return true;
}

bool ReadQuery(CodedInputStream& input, RequestOutline* outline) {
  using Tags = v1::PassageTags;
  const auto read_tags = [&](uint32_t tag) {
    if (tag == Tag(Tags::kLemmasFieldNumber, kBytes)) {
      ++outline->num_words;
      return SkipBytes(input);
    }
    if (IsIdList(tag, Tags::kPosIdsFieldNumber) || IsIdList(tag, Tags::kNerIdsFieldNumber)) {
      return ReadIds(input, tag, outline);
    }
    return SkipField(input, tag, &outline->extra_fields);
  };
  return ReadMessage(input, [&](uint32_t tag) {
    switch (tag) {
      case Tag(v1::Query::kQuestionFieldNumber, kBytes):
        return SkipBytes(input);
      case Tag(v1::Query::kPassagesFieldNumber, kBytes):
        ++outline->num_sequences;
        return SkipBytes(input);
      case Tag(v1::Query::kPassageTagsFieldNumber, kBytes):
        ++outline->num_entries;
        return ReadMessage(input, read_tags);
      case Tag(v1::Query::kQuestionLemmasFieldNumber, kBytes):
        ++outline->num_words;
        return SkipBytes(input);
      default:
        return SkipField(input, tag, &outline->extra_fields);
    }
  });
}

bool ReadModelName(CodedInputStream& input, RequestOutline* outline) {
  uint32_t size = 0;
  if (!input.ReadVarint32(&size)) return false;
  outline->long_model_name = size > kMaxOutlineModelName;
  if (!outline->long_model_name) return input.ReadString(&outline->model, static_cast<int>(size));
  outline->model.clear();
  return input.Skip(static_cast<int>(size));
}

bool SkipNumber(CodedInputStream& input) {
  uint64_t value = 0;
  return input.ReadVarint64(&value);
}

// Reads a field that every request has, of which only the number of the priority differs, or skips one
// that no request has.
bool ReadCommonField(CodedInputStream& input, uint32_t tag, int priority_field,
                     RequestOutline* outline) {
  constexpr uint32_t kModel = Tag(Classify::kModelFieldNumber, kBytes);
  constexpr uint32_t kVersion = Tag(Classify::kVersionFieldNumber, kVarint);
  uint64_t value = 0;
  if (tag == kModel) return ReadModelName(input, outline);
  if (tag == kVersion) {
    if (!input.ReadVarint64(&value)) return false;
    outline->version = static_cast<int64_t>(value);
    return true;
  }
  if (tag == Tag(priority_field, kVarint)) {
    if (!input.ReadVarint64(&value)) return false;
    outline->priority = static_cast<v1::Priority>(static_cast<int>(value));
    return true;
  }
  return SkipField(input, tag, &outline->extra_fields);
}

// Calls read(input, tag) for each field of a whole message.
template <typename Read>
bool ReadRequest(const grpc::ByteBuffer& bytes, RequestOutline* outline, const Read& read) {
  *outline = RequestOutline();
  outline->message_bytes = static_cast<int64_t>(bytes.Length());
  if (bytes.Length() == 0) return true;
  // The reader takes the buffer by a pointer to non-const but does not change it.
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&bytes));
  if (!reader.status().ok()) return false;
  CodedInputStream input(&reader);
  static_cast<void>(input.PushLimit(static_cast<int>(bytes.Length())));  // never popped
  while (const uint32_t tag = input.ReadTag()) {
    if (!read(input, tag)) return false;
  }
  return input.ConsumedEntireMessage() && input.BytesUntilLimit() == 0;
}

// Of a message that may come several times, whose parts are merged then: those that take memory beyond
// what it has fields.
int64_t FieldsBeyond(int64_t found, int64_t fields) { return std::max<int64_t>(found - fields, 0); }

}  // namespace

bool ReadOutline(const grpc::ByteBuffer& bytes, const OutlineFields& fields,
                 RequestOutline* outline) {
  constexpr uint32_t kSequences = Tag(Classify::kSequencesFieldNumber, kBytes);
  const uint32_t priority = Tag(fields.priority, kVarint);
  const uint32_t skip_empty = Tag(fields.skip_empty, kVarint);
  const uint32_t states = fields.states == 0 ? 0 : Tag(fields.states, kBytes);
  return ReadRequest(bytes, outline, [&](CodedInputStream& input, uint32_t tag) {
    if (tag == kSequences) {
      ++outline->num_sequences;
      return ReadSequence(input, outline);
    }
    if (tag == states) {
      ++outline->num_states;
      return SkipBytes(input);
    }
    if (tag == skip_empty) return SkipNumber(input);
    // A field of only some of the requests.
    if ((tag & 7) == kVarint && tag > kSequences && tag < priority) return SkipNumber(input);
    return ReadCommonField(input, tag, fields.priority, outline);
  });
}

bool ReadAnswerOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  using Answer = v1::AnswerRequest;
  return ReadRequest(bytes, outline, [&](CodedInputStream& input, uint32_t tag) {
    switch (tag) {
      case Tag(Answer::kQueriesFieldNumber, kBytes):
        ++outline->num_queries;
        return ReadQuery(input, outline);
      case Tag(Answer::kTopNFieldNumber, kVarint):
      case Tag(Answer::kMaxAnswerTokensFieldNumber, kVarint):
      case Tag(Answer::kOnePerPassageFieldNumber, kVarint):
      case Tag(Answer::kNoOverlapFieldNumber, kVarint):
        return SkipNumber(input);
      default:
        return ReadCommonField(input, tag, Answer::kPriorityFieldNumber, outline);
    }
  });
}

bool ReadGenerateOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  using Generate = v1::GenerateRequest;
  return ReadRequest(bytes, outline, [&](CodedInputStream& input, uint32_t tag) {
    if (IsIdList(tag, Generate::kStopTokenIdsFieldNumber)) return ReadIds(input, tag, outline);
    switch (tag) {
      case Tag(Generate::kPromptFieldNumber, kBytes):
        // A later one is merged into the first, whose memory stays.
        if (++outline->num_sequences > 1) ++outline->extra_fields;
        return ReadSequence(input, outline);
      case Tag(Generate::kStateFieldNumber, kBytes):
        ++outline->num_states;
        return SkipBytes(input);
      case Tag(Generate::kSamplingFieldNumber, kBytes):
        // Nearly all fields that it can have many of are entries of logit_bias.
        return ReadMessage(
            input, [&](uint32_t field) { return SkipField(input, field, &outline->num_entries); });
      case Tag(Generate::kStopFieldNumber, kBytes):
        ++outline->num_entries;
        return SkipBytes(input);
      case Tag(Generate::kMaxNewTokensFieldNumber, kVarint):
      case Tag(Generate::kMinNewTokensFieldNumber, kVarint):
      case Tag(Generate::kNumSamplesFieldNumber, kVarint):
      case Tag(Generate::kTokenLogProbsFieldNumber, kVarint):
      case Tag(Generate::kTopCandidatesFieldNumber, kVarint):
      case Tag(Generate::kReturnStateFieldNumber, kVarint):
      case Tag(Generate::kEchoFieldNumber, kVarint):
      case Tag(Generate::kTokenTextsFieldNumber, kVarint):
        return SkipNumber(input);
      default:
        return ReadCommonField(input, tag, Generate::kPriorityFieldNumber, outline);
    }
  });
}

bool ReadTranslateOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  using Translate = v1::TranslateRequest;
  constexpr int64_t kFieldsOfPenalty = 2;
  int64_t penalty_fields = 0;
  const bool good = ReadRequest(bytes, outline, [&](CodedInputStream& input, uint32_t tag) {
    switch (tag) {
      case Tag(Translate::kSequencesFieldNumber, kBytes):
        ++outline->num_sequences;
        return ReadSequence(input, outline);
      case Tag(Translate::kLengthPenaltyFieldNumber, kBytes):
        return ReadMessage(
            input, [&](uint32_t field) { return SkipField(input, field, &penalty_fields); });
      case Tag(Translate::kTargetPrefixesFieldNumber, kBytes):
        ++outline->num_entries;
        return SkipBytes(input);
      case Tag(Translate::kBeamSizeFieldNumber, kVarint):
      case Tag(Translate::kNumHypothesesFieldNumber, kVarint):
      case Tag(Translate::kMaxNewTokensFieldNumber, kVarint):
      case Tag(Translate::kReturnAlignmentFieldNumber, kVarint):
      case Tag(Translate::kTruncateFieldNumber, kVarint):
        return SkipNumber(input);
      default:
        return ReadCommonField(input, tag, Translate::kPriorityFieldNumber, outline);
    }
  });
  outline->extra_fields += FieldsBeyond(penalty_fields, kFieldsOfPenalty);
  return good;
}

bool ReadStreamOutline(const grpc::ByteBuffer& bytes, RequestOutline* outline) {
  using Stream = v1::EncodeStreamRequest;
  constexpr int64_t kFieldsOfStart = 6;
  int64_t start_fields = 0;
  const bool good = ReadRequest(bytes, outline, [&](CodedInputStream& input, uint32_t tag) {
    switch (tag) {
      case Tag(Stream::kChunkFieldNumber, kBytes):
        // A later one is merged into the first, whose memory stays.
        if (++outline->num_sequences > 1) ++outline->extra_fields;
        return ReadSequence(input, outline);
      case Tag(Stream::kStartFieldNumber, kBytes):
        return ReadMessage(input,
                           [&](uint32_t field) { return SkipField(input, field, &start_fields); });
      case Tag(Stream::kReturnStateFieldNumber, kVarint):
        return SkipNumber(input);
      default:
        return SkipField(input, tag, &outline->extra_fields);
    }
  });
  outline->extra_fields += FieldsBeyond(start_fields, kFieldsOfStart);
  return good;
}

absl::Status CheckOutline(const RequestOutline& outline, const RequestLimits& limits) {
  const bool has_queries = outline.num_queries > 0;
  if (outline.num_queries > limits.max_sequences) {
    return TooManyQueries(outline.num_queries, "", limits);
  }
  if (outline.num_sequences > limits.max_sequences) {
    return has_queries ? TooManyQueries(outline.num_sequences, " passages", limits)
                       : TooManySequences(outline.num_sequences, limits);
  }
  if (outline.min_tokens() > limits.max_request_tokens) {
    return TooManyTokens(limits, has_queries ? "queries" : "sequences");
  }
  if (outline.extra_fields > kMaxExtraFields) return TooManyFields();
  return absl::OkStatus();
}

int64_t EstimateCallBytes(const RequestOutline& outline) {
  return kCallBytes + kCopiesOfMessage * outline.message_bytes +
         kWordBytes * (outline.num_states + kEntryWords * outline.num_entries) +
         kSequenceBytes * outline.num_sequences + kQueryBytes * outline.num_queries +
         kWordBytes * outline.num_words + kIdBytes * outline.max_ids() +
         kExtraFieldBytes * outline.extra_fields;
}

bool HasFewFields(const grpc::ByteBuffer& bytes) {
  if (bytes.Length() == 0) return true;
  grpc::ProtoBufferReader reader(const_cast<grpc::ByteBuffer*>(&bytes));
  if (!reader.status().ok()) return true;
  CodedInputStream input(&reader);
  int64_t fields = 0;
  while (const uint32_t tag = input.ReadTag()) {
    if (!SkipField(input, tag, &fields)) break;
  }
  return fields <= kMaxExtraFields;
}

}  // namespace sru::server
