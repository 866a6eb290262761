#include "server/calls/bounds/request_outline.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/wire_reader.h"
#include "server/calls/bounds/request_limits.h"

namespace sru::server::calls {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

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

enum class CountedAs : uint8_t {
  kUnknown,  // the type has no such field
  kNothing,
  kModel,
  kVersion,
  kPriority,
  kSequence,
  kQuery,
  kWord,
  kEntry,
  kState,
  kIds,
  kMessage,  // only what is inside
};

struct MessageRules;

struct FieldRule {
  CountedAs count = CountedAs::kUnknown;
  WireKind kind = kWireVarint;
  bool repeated = false;
  bool in_oneof = false;
  bool merged = false;  // a message without lists that protobuf merges into an earlier one
  const MessageRules* message = nullptr;  // how the fields of the value count
};

struct MessageRules {
  std::vector<FieldRule> fields;  // by number

  const FieldRule* Find(const WireReader& reader) const {
    const auto number = static_cast<size_t>(reader.field());
    if (number >= fields.size()) return nullptr;
    const FieldRule& rule = fields[number];
    const bool packed = rule.count == CountedAs::kIds && reader.kind() == kWireBytes;
    const bool known = rule.count != CountedAs::kUnknown && (rule.kind == reader.kind() || packed);
    return known ? &rule : nullptr;  // a value of another kind is an unknown field for protobuf
  }
};

WireKind KindOf(const FieldDescriptor& field) {
  switch (field.type()) {
    case FieldDescriptor::TYPE_FIXED64:
    case FieldDescriptor::TYPE_SFIXED64:
    case FieldDescriptor::TYPE_DOUBLE:
      return kWireFixed64;
    case FieldDescriptor::TYPE_FIXED32:
    case FieldDescriptor::TYPE_SFIXED32:
    case FieldDescriptor::TYPE_FLOAT:
      return kWireFixed32;
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
    case FieldDescriptor::TYPE_MESSAGE:
      return kWireBytes;
    default:
      return kWireVarint;
  }
}

// `in_request`: a field of the request itself.
CountedAs CountOf(const FieldDescriptor& field, bool in_request) {
  const bool repeated = field.is_repeated();
  switch (field.type()) {
    case FieldDescriptor::TYPE_MESSAGE:
      if (field.message_type() == v1::Sequence::descriptor()) return CountedAs::kSequence;
      if (field.message_type() == v1::Query::descriptor()) return CountedAs::kQuery;
      return repeated ? CountedAs::kEntry : CountedAs::kMessage;
    case FieldDescriptor::TYPE_STRING:
      if (in_request && field.name() == "model") return CountedAs::kModel;
      if (field.containing_type() == v1::Query::descriptor() && field.name() == "passages") {
        return CountedAs::kSequence;
      }
      return !repeated ? CountedAs::kNothing : in_request ? CountedAs::kEntry : CountedAs::kWord;
    case FieldDescriptor::TYPE_BYTES:
      return in_request ? CountedAs::kState : CountedAs::kNothing;
    default:
      if (in_request && field.name() == "version") return CountedAs::kVersion;
      if (in_request && field.name() == "priority") return CountedAs::kPriority;
      return repeated ? CountedAs::kIds : CountedAs::kNothing;
  }
}

bool HasLists(const Descriptor& type) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->is_repeated()) return true;
  }
  return false;
}

class CordPieces final : public WirePieces {
 public:
  explicit CordPieces(const absl::Cord& bytes) : chunks_(bytes.Chunks()), next_(chunks_.begin()) {}

  absl::string_view Next() override {
    return next_ == chunks_.end() ? absl::string_view() : *next_++;
  }

 private:
  const absl::Cord::ChunkRange chunks_;
  absl::Cord::ChunkIterator next_;
};

}  // namespace

struct OutlineRules {
  const MessageRules* request = nullptr;
  int64_t merged_fields = 0;  // how many fields the messages have that are merged
  std::map<const Descriptor*, std::unique_ptr<MessageRules>> messages;

  // `all_entries`: every field counts at least as an entry.
  const MessageRules* Make(const Descriptor& type, bool is_request, bool all_entries) {
    std::unique_ptr<MessageRules>& rules = messages[&type];
    if (rules != nullptr) return rules.get();
    rules = std::make_unique<MessageRules>();
    MessageRules* const made = rules.get();
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      FieldRule rule;
      rule.count = CountOf(field, is_request);
      if (all_entries && rule.count == CountedAs::kNothing) rule.count = CountedAs::kEntry;
      rule.kind = KindOf(field);
      rule.repeated = field.is_repeated();
      rule.in_oneof = field.real_containing_oneof() != nullptr;
      if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
        const Descriptor& inner = *field.message_type();
        const bool comes_once = rule.count == CountedAs::kMessage && !rule.in_oneof;
        rule.merged = comes_once && !HasLists(inner);
        if (rule.merged) merged_fields += inner.field_count();
        rule.message = Make(inner, false, comes_once && !rule.merged);
      }
      const auto number = static_cast<size_t>(field.number());
      if (made->fields.size() <= number) made->fields.resize(number + 1);
      made->fields[number] = rule;
    }
    return made;
  }
};

namespace {

// Our messages nest four deep; protobuf's parser refuses what nests deeper than this.
constexpr int kMaxDepth = 100;

class OutlineReader {
 public:
  OutlineReader(WireReader* reader, RequestOutline* outline)
      : reader_(*reader), outline_(*outline) {}

  // `merged`: as of the field whose message it is.
  void Read(const MessageRules& rules, bool merged) {
    int inputs = 0;
    if (++depth_ > kMaxDepth) reader_.Fail();
    while (reader_.Next()) {
      const FieldRule* const rule = rules.Find(reader_);
      if (rule == nullptr) {
        reader_.Skip();
        continue;
      }
      if (rule->in_oneof && ++inputs > 1) ++outline_.extra_fields;
      if (merged) ++merged_fields_;
      ReadField(*rule);
    }
    --depth_;
  }

  int64_t merged_fields() const { return merged_fields_; }

 private:
  void ReadField(const FieldRule& rule) {
    switch (rule.count) {
      case CountedAs::kModel:
        return ReadModel();
      case CountedAs::kVersion:
        outline_.version = static_cast<int64_t>(reader_.Varint());
        return;
      case CountedAs::kPriority:
        outline_.priority = static_cast<v1::Priority>(static_cast<int>(reader_.Varint()));
        return;
      case CountedAs::kIds:
        return ReadIds();
      case CountedAs::kSequence:
        // A second one is merged into the first, whose memory stays.
        if (++outline_.num_sequences > 1 && !rule.repeated) ++outline_.extra_fields;
        break;
      case CountedAs::kQuery:
        ++outline_.num_queries;
        break;
      case CountedAs::kWord:
        ++outline_.num_words;
        break;
      case CountedAs::kEntry:
        ++outline_.num_entries;
        break;
      case CountedAs::kState:
        ++outline_.num_states;
        break;
      default:
        break;
    }
    if (rule.message == nullptr) return reader_.PassValue();
    const size_t outer = reader_.Enter();
    Read(*rule.message, rule.merged);
    reader_.Leave(outer);
  }

  void ReadModel() {
    const uint64_t size = reader_.Varint();
    outline_.long_model_name = size > kMaxOutlineModelName;
    outline_.model.clear();
    reader_.Pass(size, outline_.long_model_name ? nullptr : &outline_.model);
  }

  void ReadIds() {
    if (reader_.kind() != kWireBytes) {
      ++outline_.num_unpacked_ids;
      return reader_.PassValue();
    }
    const uint64_t size = reader_.Varint();
    reader_.Pass(size);
    if (reader_.ok()) outline_.packed_id_bytes += static_cast<int64_t>(size);
  }

  WireReader& reader_;
  RequestOutline& outline_;
  int64_t merged_fields_ = 0;
  int depth_ = 0;
};

}  // namespace

const OutlineRules& MakeOutlineRules(const Descriptor& type) {
  auto rules = std::make_unique<OutlineRules>();
  rules->request = rules->Make(type, /*is_request=*/true, /*all_entries=*/false);
  return *rules.release();
}

bool ReadOutline(const absl::Cord& bytes, const OutlineRules& rules, RequestOutline* outline) {
  *outline = RequestOutline();
  outline->message_bytes = static_cast<int64_t>(bytes.size());
  if (bytes.empty()) return true;
  CordPieces pieces(bytes);
  WireReader reader(&pieces, bytes.size());
  OutlineReader fields(&reader, outline);
  fields.Read(*rules.request, /*merged=*/false);
  outline->extra_fields +=
      reader.skipped() + std::max<int64_t>(fields.merged_fields() - rules.merged_fields, 0);
  return reader.ok();
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

bool HasFewFields(const absl::Cord& bytes) {
  if (bytes.empty()) return true;
  CordPieces pieces(bytes);
  WireReader reader(&pieces, bytes.size());
  while (reader.Next()) reader.Skip();
  return reader.skipped() <= kMaxExtraFields;
}

}  // namespace sru::server::calls
