#include "server/open_inference/tensors/tensor_values.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/wire_reader.h"
#include "inference/open_inference.pb.h"

namespace sru::server::open_inference {
namespace {

using Contents = inference::InferTensorContents;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "raw contents are little-endian");

template <typename... Args>
absl::Status Wrong(const TensorValues& values, const Args&... what) {
  return InvalidArgument("input ", values.name, ": ", what...);
}

absl::Status CheckDatatype(const TensorValues& values, absl::string_view expected) {
  if (values.input->datatype == expected) return absl::OkStatus();
  return Wrong(values, "datatype ", Quoted(values.input->datatype), ", expected ", expected);
}

std::string RawName(const TensorValues& values) {
  return absl::StrCat("raw_input_contents[", values.index, "]");
}

absl::Status WrongSize(const TensorValues& values, int64_t expected) {
  return Wrong(values, values.raw.size(), " bytes in ", RawName(values), ", expected ", expected,
               " for shape ", ShapeText(*values.input), " of ", values.input->datatype);
}

absl::Status WrongCount(const TensorValues& values, absl::string_view field, int64_t expected) {
  return Wrong(values, "contents.", field, " has another number of values than shape ",
               ShapeText(*values.input), " has elements, expected ", expected);
}

absl::Status BrokenContents(const TensorValues& values) {
  return Wrong(values, "the bytes of its contents are not a valid InferTensorContents");
}

// Calls take(reader) for each value of `field`, whose values are of the kind `element`, packed or
// not, until it is false. False if the contents are no message. Values of other fields are passed
// over.
template <typename TakeValue>
bool ForEachNumber(absl::string_view contents, int field, WireKind element, const TakeValue& take) {
  WireReader reader(contents);
  while (reader.Next()) {
    if (reader.tag() == WireTag(field, element)) {
      if (!take(reader)) return true;
    } else if (reader.tag() == WireTag(field, kWireBytes)) {
      WireReader packed(reader.Bytes());
      while (packed.ok() && !packed.at_end()) {
        if (!take(packed)) return true;
      }
      if (!packed.ok()) return false;
    } else {
      reader.Skip();
    }
  }
  return reader.ok();
}

absl::StatusOr<std::vector<absl::string_view>> ReadRawStrings(const TensorValues& values,
                                                              int64_t count) {
  std::vector<absl::string_view> strings;
  // Each has at least its length.
  if (static_cast<uint64_t>(count) > values.raw.size() / sizeof(uint32_t)) {
    return Wrong(values, values.raw.size(), " bytes in ", RawName(values), " are too few for the ",
                 count, " elements of shape ", ShapeText(*values.input));
  }
  strings.reserve(count);
  size_t offset = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t length = 0;
    const size_t left = values.raw.size() - offset;
    if (left < sizeof(length)) {
      return Wrong(values, RawName(values), " ends before element ", i, ", expected ", count,
                   " elements for shape ", ShapeText(*values.input));
    }
    std::memcpy(&length, values.raw.data() + offset, sizeof(length));
    offset += sizeof(length);
    if (length > left - sizeof(length)) {
      return Wrong(values, "element ", i, " of ", RawName(values), " has ", length,
                   " bytes by its length, found ", left - sizeof(length));
    }
    strings.push_back(values.raw.substr(offset, length));
    offset += length;
  }
  if (offset != values.raw.size()) {
    return Wrong(values, values.raw.size() - offset, " bytes in ", RawName(values), " after the ",
                 count, " elements of shape ", ShapeText(*values.input), ", expected none");
  }
  return strings;
}

absl::StatusOr<std::vector<absl::string_view>> ReadTypedStrings(const TensorValues& values,
                                                                int64_t count) {
  std::vector<absl::string_view> strings;
  const absl::string_view contents = values.input->contents;
  // Each takes two bytes at least.
  if (static_cast<uint64_t>(count) <= contents.size() / 2) strings.reserve(count);
  WireReader reader(contents);
  while (reader.Next()) {
    if (reader.tag() != WireTag(Contents::kBytesContentsFieldNumber, kWireBytes)) {
      reader.Skip();
      continue;
    }
    if (static_cast<int64_t>(strings.size()) == count) {
      return WrongCount(values, "bytes_contents", count);
    }
    strings.push_back(reader.Bytes());
  }
  if (!reader.ok()) return BrokenContents(values);
  if (static_cast<int64_t>(strings.size()) != count) {
    return WrongCount(values, "bytes_contents", count);
  }
  return strings;
}

template <typename Integer>
absl::StatusOr<std::vector<int64_t>> ReadRawIntegers(const TensorValues& values, int64_t count) {
  if (values.raw.size() != static_cast<uint64_t>(count) * sizeof(Integer)) {
    return WrongSize(values, count * static_cast<int64_t>(sizeof(Integer)));
  }
  std::vector<int64_t> integers(count);
  for (int64_t i = 0; i < count; ++i) {
    Integer value = 0;
    std::memcpy(&value, values.raw.data() + i * sizeof(value), sizeof(value));
    integers[i] = value;
  }
  return integers;
}

absl::StatusOr<std::vector<int64_t>> ReadTypedIntegers(const TensorValues& values, int64_t count,
                                                       int field, absl::string_view field_name) {
  const absl::string_view contents = values.input->contents;
  if (static_cast<uint64_t>(count) > contents.size()) return WrongCount(values, field_name, count);
  std::vector<int64_t> integers;
  integers.reserve(count);
  bool too_many = false;
  const bool good = ForEachNumber(contents, field, kWireVarint, [&](WireReader& reader) {
    too_many = static_cast<int64_t>(integers.size()) == count;
    if (!too_many) integers.push_back(static_cast<int64_t>(reader.Varint()));
    return !too_many;
  });
  if (!good) return BrokenContents(values);
  if (too_many || static_cast<int64_t>(integers.size()) != count) {
    return WrongCount(values, field_name, count);
  }
  return integers;
}

}  // namespace

TensorValues ValuesOf(const InferRequest& request, int index, absl::string_view name) {
  TensorValues values;
  values.input = &request.inputs[index];
  values.index = index;
  values.name = name;
  values.is_raw = !request.raw_inputs.empty();
  if (values.is_raw) values.raw = request.raw_inputs[index];
  return values;
}

bool IsColumn(const InferInput& input) {
  return input.shape.size() == 1 || (input.shape.size() == 2 && input.shape[1] == 1);
}

absl::Status CheckColumn(const InferInput& input, absl::string_view name) {
  if (IsColumn(input)) return absl::OkStatus();
  return InvalidArgument("input ", name, ": shape ", ShapeText(input),
                         ", expected [batch] or [batch, 1]");
}

std::string ShapeText(const InferInput& input) {
  return absl::StrCat("[", absl::StrJoin(input.shape, ", "), "]");
}

absl::StatusOr<int64_t> NumElements(const TensorValues& values) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t count = 1;
  bool too_many = false;
  for (const int64_t size : values.input->shape) {
    if (size < 0) {
      return Wrong(values, "shape ", ShapeText(*values.input), ", expected sizes of at least 0");
    }
    too_many |= size > 0 && count > kMost / size;
    count = too_many ? 1 : count * size;
  }
  if (too_many) {
    return Wrong(values, "shape ", ShapeText(*values.input), ", expected at most ", kMost,
                 " elements");
  }
  return count;
}

absl::StatusOr<std::vector<absl::string_view>> ReadStrings(const TensorValues& values) {
  SRU_RETURN_UNLESS_OK(CheckDatatype(values, "BYTES"));
  SRU_ASSIGN_OR_RETURN(const int64_t count, NumElements(values));
  return values.is_raw ? ReadRawStrings(values, count) : ReadTypedStrings(values, count);
}

absl::StatusOr<std::vector<absl::string_view>> ReadTexts(const TensorValues& values) {
  auto texts = ReadStrings(values);
  for (size_t i = 0; texts.ok() && i < texts->size(); ++i) {
    const absl::string_view text = (*texts)[i];
    const size_t invalid = FindInvalidUtf8({text.data(), text.size()});
    if (invalid == text.size()) continue;
    return InvalidArgument("input ", values.name, "[", i, "]: invalid UTF-8 at byte ", invalid);
  }
  return texts;
}

absl::StatusOr<std::vector<int64_t>> ReadIntegers(const TensorValues& values) {
  const bool is_long = values.input->datatype == "INT64";
  if (!is_long && values.input->datatype != "INT32") {
    return Wrong(values, "datatype ", Quoted(values.input->datatype), ", expected INT64 or INT32");
  }
  SRU_ASSIGN_OR_RETURN(const int64_t count, NumElements(values));
  if (values.is_raw) {
    return is_long ? ReadRawIntegers<int64_t>(values, count)
                   : ReadRawIntegers<int32_t>(values, count);
  }
  return is_long
             ? ReadTypedIntegers(values, count, Contents::kInt64ContentsFieldNumber,
                                 "int64_contents")
             : ReadTypedIntegers(values, count, Contents::kIntContentsFieldNumber, "int_contents");
}

absl::StatusOr<absl::string_view> ReadFloats(const TensorValues& values, std::string* storage) {
  SRU_RETURN_UNLESS_OK(CheckDatatype(values, "FP32"));
  SRU_ASSIGN_OR_RETURN(const int64_t count, NumElements(values));
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (values.is_raw) {
    if (static_cast<int64_t>(values.raw.size()) != bytes) return WrongSize(values, bytes);
    return values.raw;
  }
  const absl::string_view contents = values.input->contents;
  if (static_cast<uint64_t>(bytes) > contents.size()) {
    return WrongCount(values, "fp32_contents", count);
  }
  storage->clear();
  storage->reserve(bytes);
  bool too_many = false;
  const bool good = ForEachNumber(contents, Contents::kFp32ContentsFieldNumber, kWireFixed32,
                                  [&](WireReader& reader) {
                                    too_many = static_cast<int64_t>(storage->size()) == bytes;
                                    if (too_many) return false;
                                    const absl::string_view value = reader.Fixed32();
                                    storage->append(value.data(), value.size());
                                    return true;
                                  });
  if (!good) return BrokenContents(values);
  if (too_many || static_cast<int64_t>(storage->size()) != bytes) {
    return WrongCount(values, "fp32_contents", count);
  }
  return absl::string_view(*storage);
}

}  // namespace sru::server::open_inference
