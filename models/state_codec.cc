#include "models/state_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "base/status.h"
#include "models/digest.h"
#include "openssl/crypto.h"

namespace sru::models {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are little-endian");

constexpr std::string_view kMagic = "SRUstate";
constexpr uint32_t kFormat = 2;
constexpr size_t kShortDigestBytes = 16;
constexpr size_t kFormatOffset = 8;
constexpr size_t kTypeOffset = 12;
constexpr size_t kVersionOffset = 16;
constexpr size_t kNameOffset = 24;
constexpr size_t kWeightsOffset = 40;
constexpr size_t kDigestOffset = 56;
constexpr size_t kPositionOffset = kDigestOffset + kShortDigestBytes;
constexpr size_t kTextStartOffset = kPositionOffset + 8;
constexpr size_t kNumCountsOffset = kTextStartOffset + 4;
constexpr size_t kNumPromptIdsOffset = kNumCountsOffset + 4;
constexpr size_t kPendingBytesOffset = kNumPromptIdsOffset + 4;
constexpr size_t kHeaderBytes = kPendingBytesOffset + 4;
// A token and its count.
constexpr size_t kCountBytes = 2 * sizeof(int32_t);

template <typename T>
void AppendValue(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T ReadValue(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::string_view DigestAt(std::string_view bytes, size_t offset) {
  return bytes.substr(offset, kShortDigestBytes);
}

// Returns the digest of a state without the one that it contains. An empty key gives the plain one.
std::string DigestOfState(std::string_view bytes, std::string_view key) {
  std::string rest(bytes.substr(0, kDigestOffset));
  rest += bytes.substr(kDigestOffset + kShortDigestBytes);
  const std::optional<std::string> digest = key.empty() ? DigestOf(rest) : KeyedDigest(key, rest);
  // OpenSSL could do it when the keys were read, so what fails is an allocation.
  if (!digest.has_value()) throw std::bad_alloc();
  return digest->substr(0, kShortDigestBytes);
}

}  // namespace

StateCodec::StateCodec(const StateOwner& owner, std::vector<kernels::FieldSpec> fields,
                       int vocabulary_size, std::shared_ptr<const StateKeys> keys)
    : owner_(owner),
      fields_(std::move(fields)),
      vocabulary_size_(vocabulary_size),
      keys_(std::move(keys)) {
  name_digest_ = DigestOf(owner_.model).substr(0, kShortDigestBytes);
  bytes_ = kHeaderBytes;
  for (const kernels::FieldSpec& field : fields_) {
    bytes_ += sizeof(int32_t) + (field.grows ? 0 : field.width * sizeof(float));
  }
}

std::string StateCodec::Header() const {
  std::string header(kMagic);
  AppendValue(kFormat, &header);
  AppendValue(static_cast<uint32_t>(owner_.dtype), &header);
  AppendValue(owner_.version, &header);
  header += name_digest_;
  header += owner_.weights_digest.substr(0, kShortDigestBytes);
  return header;
}

size_t StateCodec::MemoBytes(const DecodingMemo& memo) {
  return memo.counts.size() * kCountBytes + memo.prompt_ids.size() * sizeof(int32_t) +
         memo.pending_text.size();
}

std::string StateCodec::Encode(const kernels::StateArena::State& state,
                               const DecodingMemo& memo) const {
  std::string bytes = Header();
  bytes.reserve(kHeaderBytes + state.rows.size() * sizeof(int32_t) +
                state.values.size() * sizeof(float) + MemoBytes(memo));
  bytes.append(kShortDigestBytes, '\0');
  AppendValue(memo.position, &bytes);
  AppendValue(uint32_t{memo.text_position.at_start ? 1u : 0u}, &bytes);
  AppendValue(static_cast<uint32_t>(memo.counts.size()), &bytes);
  AppendValue(static_cast<uint32_t>(memo.prompt_ids.size()), &bytes);
  AppendValue(static_cast<uint32_t>(memo.pending_text.size()), &bytes);
  for (const int32_t rows : state.rows) AppendValue(rows, &bytes);
  bytes.append(reinterpret_cast<const char*>(state.values.data()),
               state.values.size() * sizeof(float));
  for (const auto& [id, count] : memo.counts) {
    AppendValue(id, &bytes);
    AppendValue(count, &bytes);
  }
  for (const int32_t id : memo.prompt_ids) AppendValue(id, &bytes);
  bytes += memo.pending_text;
  bytes.replace(kDigestOffset, kShortDigestBytes,
                DigestOfState(bytes, keys_ == nullptr ? "" : keys_->Get()->front()));
  return bytes;
}

absl::Status StateCodec::Decode(std::string_view bytes, SequenceState* state) const {
  SRU_RETURN_UNLESS_OK(CheckOwner(bytes));
  // Subtracted one by one from what there is, so that no sum can overflow.
  size_t left = bytes.size() - kHeaderBytes;
  const std::pair<size_t, size_t> parts[] = {
      {ReadValue<uint32_t>(bytes, kNumCountsOffset), kCountBytes},
      {ReadValue<uint32_t>(bytes, kNumPromptIdsOffset), sizeof(int32_t)},
      {ReadValue<uint32_t>(bytes, kPendingBytesOffset), 1}};
  for (const auto& [number, size] : parts) {
    if (number > left / size) {
      return InvalidArgument("the state has ", bytes.size(),
                             " bytes, fewer than its text needs to go on");
    }
    left -= number * size;
  }
  SRU_RETURN_UNLESS_OK(DecodeFields(bytes.substr(kHeaderBytes, left), &state->state));
  return DecodeMemo(bytes, &state->memo);
}

bool StateCodec::HasDigest(std::string_view bytes) const {
  const std::string_view found = DigestAt(bytes, kDigestOffset);
  if (keys_ == nullptr) return found == DigestOfState(bytes, "");
  const std::shared_ptr<const StateKeys::List> keys = keys_->Get();
  return std::any_of(keys->begin(), keys->end(), [&](const std::string& key) {
    return CRYPTO_memcmp(found.data(), DigestOfState(bytes, key).data(), kShortDigestBytes) == 0;
  });
}

absl::Status StateCodec::CheckOwner(std::string_view bytes) const {
  const size_t rows_bytes = fields_.size() * sizeof(int32_t);
  // The format first: states of another one may be shorter.
  if (bytes.size() < kTypeOffset || bytes.substr(0, kMagic.size()) != kMagic) {
    return InvalidArgument(
        bytes.size(),
        " bytes that are not a state, expected what an earlier call returned, at least ", bytes_,
        " bytes for this model");
  }
  if (const auto format = ReadValue<uint32_t>(bytes, kFormatOffset); format != kFormat) {
    return InvalidArgument("a state of format ", format, ", expected ", kFormat);
  }
  if (bytes.size() < kHeaderBytes + rows_bytes || !HasDigest(bytes)) {
    return InvalidArgument("the state was cut or changed",
                           keys_ == nullptr ? "" : ", or made without a key of --state_key_file",
                           ": its digest does not agree with its ", bytes.size(), " bytes");
  }
  if (DigestAt(bytes, kNameOffset) != name_digest_) {
    return InvalidArgument("the state of another model, expected one of '", owner_.model, "'");
  }
  if (const auto version = ReadValue<int64_t>(bytes, kVersionOffset); version != owner_.version) {
    return InvalidArgument("the state of version ", version,
                           " of the model, expected one of version ", owner_.version);
  }
  if (DigestAt(bytes, kWeightsOffset) != owner_.weights_digest.substr(0, kShortDigestBytes)) {
    return InvalidArgument("the state of other weights of the same version of '", owner_.model,
                           "'");
  }
  const auto type = ReadValue<uint32_t>(bytes, kTypeOffset);
  if (type != static_cast<uint32_t>(owner_.dtype)) {
    const char* const name = kernels::DataTypeName(static_cast<kernels::DataType>(type));
    return InvalidArgument("a state in ", *name == '\0' ? "an unknown data type" : name,
                           ", expected ", kernels::DataTypeName(owner_.dtype));
  }
  return absl::OkStatus();
}

absl::Status StateCodec::DecodeFields(std::string_view bytes,
                                      kernels::StateArena::State* state) const {
  const size_t rows_bytes = fields_.size() * sizeof(int32_t);
  if (bytes.size() < rows_bytes) {
    return InvalidArgument("the state has ", bytes.size(), " bytes of fields, expected at least ",
                           rows_bytes);
  }
  state->rows.resize(fields_.size());
  std::memcpy(state->rows.data(), bytes.data(), rows_bytes);
  // Counted down from what there is, so that no sum can overflow.
  size_t values = (bytes.size() - rows_bytes) / sizeof(float);
  const size_t found = values;
  bool fits = (bytes.size() - rows_bytes) % sizeof(float) == 0;
  for (size_t i = 0; i < fields_.size() && fits; ++i) {
    const int32_t rows = state->rows[i];
    const auto width = static_cast<size_t>(fields_[i].width);
    // All fields are of one axis, so they have got rows together.
    const auto alike = std::find_if(fields_.begin(), fields_.end(), [&](const auto& field) {
      return field.grows == fields_[i].grows;
    });
    fits = rows >= 0 && (fields_[i].grows || rows <= 1) &&
           static_cast<size_t>(rows) <= values / width &&
           rows == state->rows[alike - fields_.begin()];
    if (fits) values -= static_cast<size_t>(rows) * width;
  }
  if (!fits || values != 0) {
    return InvalidArgument("the state has ", found, " values, which are not those of its fields");
  }
  state->values.resize(found);
  if (found > 0) {  // else there may be no memory to copy to
    std::memcpy(state->values.data(), bytes.data() + rows_bytes, found * sizeof(float));
  }
  for (size_t i = 0; i < found; ++i) {
    if (!std::isfinite(state->values[i])) {
      return InvalidArgument("value ", i, " of the state is ", state->values[i],
                             ", expected a finite number");
    }
  }
  return absl::OkStatus();
}

// `bytes` are all of the state, whose sizes have been checked.
absl::Status StateCodec::DecodeMemo(std::string_view bytes, DecodingMemo* memo) const {
  memo->position = ReadValue<int64_t>(bytes, kPositionOffset);
  const auto at_start = ReadValue<uint32_t>(bytes, kTextStartOffset);
  const size_t num_counts = ReadValue<uint32_t>(bytes, kNumCountsOffset);
  const size_t num_prompt_ids = ReadValue<uint32_t>(bytes, kNumPromptIdsOffset);
  const size_t pending_bytes = ReadValue<uint32_t>(bytes, kPendingBytesOffset);
  if (memo->position < 0 || memo->position > kMaxPosition || at_start > 1) {
    return InvalidArgument("the state's position in the text is ", memo->position, " (", at_start,
                           "), expected 0 to ", kMaxPosition, " (0 or 1)");
  }
  if (pending_bytes > kMaxPendingTextBytes) {
    return InvalidArgument("the state has ", pending_bytes,
                           " bytes of pending text, expected at most ", kMaxPendingTextBytes);
  }
  memo->text_position.at_start = at_start == 1;
  size_t offset =
      bytes.size() - pending_bytes - num_prompt_ids * sizeof(int32_t) - num_counts * kCountBytes;
  // Ascending, so there are not more of them than tokens of the vocabulary.
  const auto read_id = [&](int32_t above, const char* what, int32_t* id) {
    *id = ReadValue<int32_t>(bytes, offset);
    offset += sizeof(int32_t);
    if (*id > above && *id < vocabulary_size_) return absl::OkStatus();
    return InvalidArgument("the state's ", what, " have token id ", *id, " after ", above,
                           ", expected ascending ids below ", vocabulary_size_);
  };
  memo->counts.clear();
  memo->counts.reserve(num_counts);
  int32_t last = -1;
  for (size_t i = 0; i < num_counts; ++i) {
    SRU_RETURN_UNLESS_OK(read_id(last, "generated tokens", &last));
    const auto count = ReadValue<int32_t>(bytes, offset);
    offset += sizeof(int32_t);
    if (count < 1) {
      return InvalidArgument("the state counts token id ", last, " ", count,
                             " times, expected 1 or more");
    }
    memo->counts.emplace_back(last, count);
  }
  memo->prompt_ids.clear();
  memo->prompt_ids.reserve(num_prompt_ids);
  last = -1;
  for (size_t i = 0; i < num_prompt_ids; ++i) {
    SRU_RETURN_UNLESS_OK(read_id(last, "prompt tokens", &last));
    memo->prompt_ids.push_back(last);
  }
  memo->pending_text = std::string(bytes.substr(offset));
  return absl::OkStatus();
}

}  // namespace sru::models
