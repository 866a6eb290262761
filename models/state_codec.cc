#include "models/state_codec.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "models/digest.h"

namespace sru::models {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "states are little-endian");

constexpr std::string_view kMagic = "SRUstate";
constexpr uint32_t kFormat = 1;
constexpr size_t kDigestBytes = 16;
constexpr size_t kFormatOffset = 8;
constexpr size_t kTypeOffset = 12;
constexpr size_t kVersionOffset = 16;
constexpr size_t kNameOffset = 24;
constexpr size_t kWeightsOffset = 40;
constexpr size_t kDigestOffset = 56;
constexpr size_t kHeaderBytes = kDigestOffset + kDigestBytes;

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
  return bytes.substr(offset, kDigestBytes);
}

// Of a state without the digest that it contains.
std::string DigestOfState(std::string_view bytes) {
  Digest digest;
  digest.Update(bytes.substr(0, kDigestOffset));
  digest.Update(bytes.substr(kHeaderBytes));
  return digest.Finish().substr(0, kDigestBytes);
}

template <typename... Args>
absl::Status NotAState(const Args&... what) {
  return absl::InvalidArgumentError(absl::StrCat(what...));
}

}  // namespace

StateCodec::StateCodec(const StateOwner& owner, std::vector<kernels::FieldSpec> fields)
    : owner_(owner), fields_(std::move(fields)) {
  name_digest_ = DigestOf(owner_.model).substr(0, kDigestBytes);
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
  header += owner_.weights_digest.substr(0, kDigestBytes);
  return header;
}

std::string StateCodec::Encode(const kernels::StateArena::State& state) const {
  std::string bytes = Header();
  bytes.reserve(kHeaderBytes + state.rows.size() * sizeof(int32_t) +
                state.values.size() * sizeof(float));
  bytes.append(kDigestBytes, '\0');
  for (const int32_t rows : state.rows) AppendValue(rows, &bytes);
  bytes.append(reinterpret_cast<const char*>(state.values.data()),
               state.values.size() * sizeof(float));
  bytes.replace(kDigestOffset, kDigestBytes, DigestOfState(bytes));
  return bytes;
}

absl::Status StateCodec::Decode(std::string_view bytes, kernels::StateArena::State* state) const {
  const size_t rows_bytes = fields_.size() * sizeof(int32_t);
  if (bytes.size() < kHeaderBytes + rows_bytes || bytes.substr(0, kMagic.size()) != kMagic) {
    return NotAState(bytes.size(), " bytes that are not a state, expected what Score returned, ",
                     bytes_, " bytes for this model");
  }
  if (const auto format = ReadValue<uint32_t>(bytes, kFormatOffset); format != kFormat) {
    return NotAState("a state of format ", format, ", expected ", kFormat);
  }
  if (DigestAt(bytes, kDigestOffset) != DigestOfState(bytes)) {
    return NotAState("the state was cut or changed: its digest does not agree with its ",
                     bytes.size(), " bytes");
  }
  if (DigestAt(bytes, kNameOffset) != name_digest_) {
    return NotAState("the state of another model, expected one of '", owner_.model, "'");
  }
  if (const auto version = ReadValue<int64_t>(bytes, kVersionOffset); version != owner_.version) {
    return NotAState("the state of version ", version, " of the model, expected one of version ",
                     owner_.version);
  }
  if (DigestAt(bytes, kWeightsOffset) != owner_.weights_digest.substr(0, kDigestBytes)) {
    return NotAState("the state of other weights of the same version of '", owner_.model, "'");
  }
  const auto type = ReadValue<uint32_t>(bytes, kTypeOffset);
  if (type != static_cast<uint32_t>(owner_.dtype)) {
    const char* const name = kernels::DataTypeName(static_cast<kernels::DataType>(type));
    return NotAState("a state in ", *name == '\0' ? "an unknown data type" : name, ", expected ",
                     kernels::DataTypeName(owner_.dtype));
  }

  state->rows.resize(fields_.size());
  std::memcpy(state->rows.data(), bytes.data() + kHeaderBytes, rows_bytes);
  // Counted down from what there is, so that no sum can overflow.
  size_t values = (bytes.size() - kHeaderBytes - rows_bytes) / sizeof(float);
  const size_t found = values;
  bool fits = (bytes.size() - kHeaderBytes - rows_bytes) % sizeof(float) == 0;
  for (size_t i = 0; i < fields_.size() && fits; ++i) {
    const int32_t rows = state->rows[i];
    const auto width = static_cast<size_t>(fields_[i].width);
    fits =
        rows >= 0 && (fields_[i].grows || rows <= 1) && static_cast<size_t>(rows) <= values / width;
    if (fits) values -= static_cast<size_t>(rows) * width;
  }
  if (!fits || values != 0) {
    return NotAState("the state has ", found, " values, which are not those of its fields");
  }
  state->values.resize(found);
  if (found > 0) {  // else there may be no memory to copy to
    std::memcpy(state->values.data(), bytes.data() + kHeaderBytes + rows_bytes,
                found * sizeof(float));
  }
  for (size_t i = 0; i < found; ++i) {
    if (!std::isfinite(state->values[i])) {
      return NotAState("value ", i, " of the state is ", state->values[i],
                       ", expected a finite number");
    }
  }
  return absl::OkStatus();
}

}  // namespace sru::models
