#include "models/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "models/files/json.h"
#include "nlohmann/json.hpp"

namespace sru::models {
namespace {

using nlohmann::json;

// A header of 2,000 tensors, which is more than any model of ours has (kMaxLayers), takes 300 kB.
// The format's own reference implementation takes 100 MB.
constexpr uint64_t kMaxHeaderBytes = 16 << 20;
constexpr uint64_t kLengthBytes = 8;
// {"name": {"shape": [..]}} has three levels.
constexpr int kMaxHeaderDepth = 3;
constexpr size_t kMaxDimensions = 32;
// Elements of an array in the header: more than a shape may have, so that a longer shape is an
// error with the tensor's name.
constexpr int64_t kMaxElements = 256;
// The largest dimension, so that it fits the signed types of the rest of the code.
constexpr uint64_t kMaxDimension = std::numeric_limits<int64_t>::max();

uint64_t ReadLittleEndian64(const char* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

struct Extent {
  uint64_t begin;
  uint64_t end;
  const std::string* name;
};

// Reads the entry of one tensor. On success `extent` is inside of [0, data_bytes] and as long as
// dtype x shape says; on failure the message lacks source and name.
absl::Status ParseEntry(const json& entry, uint64_t data_bytes, TensorView& view, Extent& extent) {
  if (!entry.is_object()) {
    return InvalidArgument("expected an object with dtype, shape and data_offsets, found ",
                           JsonExcerpt(entry));
  }
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) {
      return InvalidArgument("key '", key, "' is missing");
    }
  }
  if (entry.size() != 3) {
    return InvalidArgument("expected the keys dtype, shape and data_offsets only, found ",
                           entry.size(), " keys");
  }

  const json& dtype = entry["dtype"];
  const auto* type =
      std::find_if(std::begin(kTensorTypes), std::end(kTensorTypes), [&](const TensorType& known) {
        return dtype.is_string() && dtype.get_ref<const std::string&>() == known.name;
      });
  if (type == std::end(kTensorTypes)) {
    return InvalidArgument(
        "dtype: expected one of ",
        absl::StrJoin(kTensorTypes, ", ",
                      [](std::string* out, const TensorType& known) { out->append(known.name); }),
        "; found ", JsonExcerpt(dtype));
  }
  view.dtype = *type;

  const json& shape = entry["shape"];
  if (!shape.is_array() || shape.size() > kMaxDimensions) {
    return InvalidArgument("shape: expected an array of at most ", kMaxDimensions,
                           " integers, found ", JsonExcerpt(shape));
  }
  uint64_t bytes = type->bytes;
  bool has_zero = false;
  for (const json& dimension : shape) {
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > kMaxDimension) {
      return InvalidArgument("shape: expected integers that are not negative, found ",
                             JsonExcerpt(dimension));
    }
    const auto value = dimension.get<uint64_t>();
    view.shape.push_back(static_cast<int64_t>(value));
    if (value == 0) {
      has_zero = true;
    } else if (bytes > kMaxDimension / value) {
      return InvalidArgument("shape: the product of ", ShapeString(view.shape), " overflows");
    } else {
      bytes *= value;
    }
  }
  if (has_zero) bytes = 0;

  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned()) {
    return InvalidArgument(
        "data_offsets: expected [begin, end] with integers that are not negative, found ",
        JsonExcerpt(offsets));
  }
  extent.begin = offsets[0].get<uint64_t>();
  extent.end = offsets[1].get<uint64_t>();
  if (extent.begin > extent.end || extent.end > data_bytes) {
    return InvalidArgument("data_offsets: expected 0 <= begin <= end <= ", data_bytes,
                           " (the bytes after the header), found [", extent.begin, ", ", extent.end,
                           "]; the file may be truncated");
  }
  if (extent.end - extent.begin != bytes) {
    return InvalidArgument("data_offsets: expected ", bytes, " bytes for dtype ",
                           std::string(type->name), " and shape ", ShapeString(view.shape),
                           ", found ", extent.end - extent.begin);
  }
  view.bytes = bytes;
  return absl::OkStatus();
}

// Every byte must belong to exactly one tensor: a hole would hide data, an overlap would let two
// names mean one weight.
absl::Status CheckCoverage(std::vector<Extent> extents, uint64_t data_bytes) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  uint64_t end = 0;
  const std::string* previous = nullptr;
  for (const Extent& extent : extents) {
    if (extent.begin < end) {
      return InvalidArgument("tensors ", Quoted(*previous), " and ", Quoted(*extent.name),
                             " overlap at offset ", extent.begin);
    }
    if (extent.begin > end) {
      return InvalidArgument("bytes ", end, " to ", extent.begin,
                             " of the data belong to no tensor");
    }
    end = extent.end;
    previous = extent.name;
  }
  if (end != data_bytes) {
    return InvalidArgument("bytes ", end, " to ", data_bytes, " of the data belong to no tensor");
  }
  return absl::OkStatus();
}

absl::Status Annotate(const std::string& source, const std::string& what,
                      const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(source, ": ", what, status.message()));
}

}  // namespace

std::string ShapeString(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  SRU_ASSIGN_OR_RETURN(FileContents file, FileContents::Read(path));
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> result, Parse(file.bytes(), path));
  result->file_ = std::move(file);
  return result;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Parse(std::string_view bytes,
                                                                        std::string source) {
  std::unique_ptr<SafetensorsFile> result(new SafetensorsFile());
  result->source_ = std::move(source);
  SRU_RETURN_UNLESS_OK(result->ParseBytes(bytes));
  return result;
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::OpenOnDemand(
    const FilePath& path) {
  SRU_ASSIGN_OR_RETURN(OpenFile file, OpenFile::Open(path));
  // The length, and the header if it is no longer than it may be.
  std::string head(std::min(kLengthBytes, file.size()), '\0');
  SRU_RETURN_UNLESS_OK(file.Read(0, head.size(), head.data()));
  if (head.size() == kLengthBytes) {
    const uint64_t header_bytes = ReadLittleEndian64(head.data());
    if (header_bytes <= std::min(kMaxHeaderBytes, file.size() - kLengthBytes)) {
      head.resize(kLengthBytes + header_bytes);
      SRU_RETURN_UNLESS_OK(file.Read(kLengthBytes, header_bytes, head.data() + kLengthBytes));
    }
  }
  std::unique_ptr<SafetensorsFile> result(new SafetensorsFile());
  result->source_ = path.path();
  uint64_t data_begin = 0;
  std::map<std::string_view, uint64_t> begins;
  SRU_RETURN_UNLESS_OK(result->ParseHeader(head, file.size(), &data_begin, &begins));
  std::vector<TensorPages::Place> places;
  for (const auto& [name, view] : result->tensors_) {
    places.push_back({name, data_begin + begins[name], view.bytes});
  }
  SRU_ASSIGN_OR_RETURN(result->pages_, TensorPages::Create(std::move(file), std::move(places)));
  size_t index = 0;
  for (auto& [name, view] : result->tensors_) {
    if (view.bytes > 0) view.data = result->pages_->data(index);
    ++index;
  }
  return result;
}

absl::Status SafetensorsFile::ParseHeader(std::string_view head, uint64_t file_bytes,
                                          uint64_t* data_begin,
                                          std::map<std::string_view, uint64_t>* begins) {
  if (file_bytes < kLengthBytes) {
    return InvalidArgument(source_, ": not a safetensors file: expected at least ", kLengthBytes,
                           " bytes, found ", file_bytes);
  }
  const uint64_t header_bytes = ReadLittleEndian64(head.data());
  const uint64_t available = file_bytes - kLengthBytes;
  if (header_bytes > kMaxHeaderBytes || header_bytes > available) {
    return InvalidArgument(source_, ": expected a header of at most ",
                           std::min(kMaxHeaderBytes, available), " bytes, found the length ",
                           header_bytes, "; the file is truncated or not a safetensors file");
  }
  JsonLimits limits;
  limits.max_depth = kMaxHeaderDepth;
  limits.max_elements = kMaxElements;
  SRU_ASSIGN_OR_RETURN(json header, ParseJsonObject(head.substr(kLengthBytes, header_bytes), limits,
                                                    absl::StrCat(source_, ": header")));

  *data_begin = kLengthBytes + header_bytes;
  const uint64_t data_bytes = available - header_bytes;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      SRU_RETURN_UNLESS_OK(ReadMetadata(entry));
      continue;
    }
    TensorView view;
    Extent extent;
    if (absl::Status status = ParseEntry(entry, data_bytes, view, extent); !status.ok()) {
      return Annotate(source_, absl::StrCat("tensor ", Quoted(name), ": "), status);
    }
    const auto it = tensors_.emplace(name, std::move(view)).first;
    extent.name = &it->first;
    extents.push_back(extent);
    begins->emplace(it->first, extent.begin);
  }
  if (absl::Status status = CheckCoverage(std::move(extents), data_bytes); !status.ok()) {
    return Annotate(source_, "", status);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ParseBytes(std::string_view bytes) {
  uint64_t data_begin = 0;
  std::map<std::string_view, uint64_t> begins;
  SRU_RETURN_UNLESS_OK(ParseHeader(bytes, bytes.size(), &data_begin, &begins));
  for (auto& [name, view] : tensors_) {
    if (view.bytes > 0) view.data = bytes.data() + data_begin + begins[name];
  }
  // After the coverage check, so that the copies cannot add up to more than the file.
  for (auto& [name, view] : tensors_) {
    if (reinterpret_cast<uintptr_t>(view.data) % view.dtype.bytes == 0) continue;
    auto copy = std::make_unique<uint64_t[]>((view.bytes + 7) / 8);
    std::memcpy(copy.get(), view.data, view.bytes);
    view.data = copy.get();
    aligned_copies_.push_back(std::move(copy));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::ReadMetadata(const json& entry) {
  bool valid = entry.is_object();
  for (const auto& [key, value] : entry.items()) {
    valid = valid && value.is_string();
    if (valid) metadata_.emplace(key, value.get_ref<const std::string&>());
  }
  if (valid) return absl::OkStatus();
  return InvalidArgument(source_, ": __metadata__: expected an object of strings");
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

absl::StatusOr<kernels::FloatView> SafetensorsFile::Floats(
    const std::string& name, const std::vector<int64_t>& shape) const {
  const TensorView* view = Find(name);
  if (view == nullptr) {
    return absl::NotFoundError(absl::StrCat(source_, ": tensor ", Quoted(name),
                                            " is missing; expected F32 of shape ",
                                            ShapeString(shape)));
  }
  if (view->dtype.name != "F32") {
    return InvalidArgument(source_, ": tensor ", Quoted(name), ": expected dtype F32, found ",
                           std::string(view->dtype.name));
  }
  if (view->shape != shape) {
    return InvalidArgument(source_, ": tensor ", Quoted(name), ": expected shape ",
                           ShapeString(shape), ", found ", ShapeString(view->shape));
  }
  const kernels::FloatView values{static_cast<const float*>(view->data), view->num_elements()};
  absl::Status status;
  if (pages_ == nullptr) {
    status = CheckFinite(source_, name, values, 0);
  } else if (shape.size() == 1 && !values.empty()) {
    pages_->Read(values);
    status = pages_->status();
  }
  if (!status.ok()) return status;
  return values;
}

absl::Status SafetensorsFile::read_status() const {
  return pages_ == nullptr ? absl::OkStatus() : pages_->status();
}

absl::Status SafetensorsFile::CheckAllRead() const {
  return pages_ == nullptr ? absl::OkStatus() : pages_->CheckAllRead();
}

}  // namespace sru::models
