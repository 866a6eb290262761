#include "server/open_inference/tensors/tensor_values.h"

#include <algorithm>
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

// Calls take(reader) for each of the `count` values of the typed contents, which are of the kind
// `element`, packed or not, and take at least `least` bytes each. Values of other fields are passed
// over.
template <typename TakeValue>
absl::Status ReadTyped(const TensorValues& values, int field, WireKind element, int64_t count,
                       size_t least, const TakeValue& take) {
  const absl::string_view contents = values.input->contents;
  const auto wrong_count = [&] {
    return Wrong(values, "contents.", Contents::descriptor()->FindFieldByNumber(field)->name(),
                 " has another number of values than shape ", ShapeText(*values.input),
                 " has elements, expected ", count);
  };
  if (static_cast<uint64_t>(count) > contents.size() / least) return wrong_count();
  int64_t found = 0;
  const auto take_one = [&](WireReader& reader) {
    if (++found <= count) take(reader);
    return found <= count;
  };
  WireReader reader(contents);
  bool is_good = true;
  while (is_good && reader.Next()) {
    if (reader.tag() == WireTag(field, element)) {
      if (!take_one(reader)) return wrong_count();
    } else if (reader.tag() == WireTag(field, kWireBytes)) {
      WireReader packed(reader.Bytes());
      while (packed.ok() && !packed.at_end()) {
        if (!take_one(packed)) return wrong_count();
      }
      is_good = packed.ok();
    } else {
      reader.Skip();
    }
  }
  if (!is_good || !reader.ok()) {
    return Wrong(values, "the bytes of its contents are not a valid InferTensorContents");
  }
  return found == count ? absl::OkStatus() : wrong_count();
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
  if (values.is_raw) return ReadRawStrings(values, count);
  std::vector<absl::string_view> strings;
  SRU_RETURN_UNLESS_OK(
      ReadTyped(values, Contents::kBytesContentsFieldNumber, kWireBytes, count, /*least=*/2,
                [&strings](WireReader& reader) { strings.push_back(reader.Bytes()); }));
  return strings;
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
  std::vector<int64_t> integers;
  integers.reserve(std::min<size_t>(count, values.input->contents.size()));
  SRU_RETURN_UNLESS_OK(ReadTyped(
      values, is_long ? Contents::kInt64ContentsFieldNumber : Contents::kIntContentsFieldNumber,
      kWireVarint, count, /*least=*/1, [&integers](WireReader& reader) {
        integers.push_back(static_cast<int64_t>(reader.Varint()));
      }));
  return integers;
}

absl::StatusOr<absl::string_view> ReadFloats(const TensorValues& values, std::string* storage) {
  SRU_RETURN_UNLESS_OK(CheckDatatype(values, "FP32"));
  SRU_ASSIGN_OR_RETURN(const int64_t count, NumElements(values));
  const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
  if (values.is_raw) {
    if (static_cast<int64_t>(values.raw.size()) != bytes) return WrongSize(values, bytes);
    return values.raw;
  }
  storage->clear();
  storage->reserve(std::min<size_t>(bytes, values.input->contents.size()));
  SRU_RETURN_UNLESS_OK(ReadTyped(values, Contents::kFp32ContentsFieldNumber, kWireFixed32, count,
                                 sizeof(float), [storage](WireReader& reader) {
                                   const absl::string_view value = reader.Fixed32();
                                   storage->append(value.data(), value.size());
                                 }));
  return absl::string_view(*storage);
}

}  // namespace sru::server::open_inference
