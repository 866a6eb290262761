#include "server/open_inference/tensors/infer_response.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"

namespace sru::server::open_inference {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();  // of protobuf
// Of a field with values.
constexpr uint8_t kTag = inference::ModelInferResponse::kRawOutputContentsFieldNumber << 3 | 2;

}  // namespace

InferResponse::InferResponse(absl::string_view model, int64_t version, absl::string_view id) {
  head_.set_model_name(std::string(model));
  head_.set_model_version(absl::StrCat(version));
  head_.set_id(std::string(id));
}

void InferResponse::Add(absl::string_view name, Datatype datatype, const Shape& shape,
                        size_t bytes) {
  inference::ModelInferResponse::InferOutputTensor& tensor = *head_.add_outputs();
  tensor.set_name(std::string(name));
  tensor.set_datatype(Describe(datatype).name);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  tensors_.push_back({bytes, nullptr});
}

absl::Status InferResponse::Allocate() {
  size_ = head_.ByteSizeLong();
  for (const Values& tensor : tensors_) {
    size_ += sizeof(kTag) + CodedOutputStream::VarintSize64(tensor.bytes) + tensor.bytes;
  }
  if (size_ > kMostBytes) {
    return InvalidArgument("outputs: the answer would have ", size_, " bytes, expected at most ",
                           kMostBytes, "; send fewer sequences at a time");
  }
  bytes_.reset(new uint8_t[size_]);  // not initialized: all of it is written
  uint8_t* to = head_.SerializeWithCachedSizesToArray(bytes_.get());
  for (Values& tensor : tensors_) {
    *to++ = kTag;
    tensor.values = CodedOutputStream::WriteVarint64ToArray(tensor.bytes, to);
    to = tensor.values + tensor.bytes;
  }
  return absl::OkStatus();
}

uint8_t* InferResponse::WriteString(absl::string_view text, uint8_t* to) {
  const auto size = static_cast<uint32_t>(text.size());
  std::memcpy(to, &size, sizeof(size));
  if (!text.empty()) std::memcpy(to + sizeof(size), text.data(), text.size());
  return to + sizeof(size) + text.size();
}

void InferResponse::MoveTo(absl::Cord* bytes) {
  const absl::string_view view(reinterpret_cast<const char*>(bytes_.get()), size_);
  *bytes = absl::MakeCordFromExternal(view, [owned = std::move(bytes_)] {});
}

}  // namespace sru::server::open_inference
