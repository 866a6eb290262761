#include "server/open_inference/tensors/infer_response.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "google/protobuf/io/coded_stream.h"
#include "inference/open_inference.pb.h"

namespace sru::server::open_inference {
namespace {

using google::protobuf::io::CodedOutputStream;
using Response = inference::ModelInferResponse;
using InferOutput = Response::InferOutputTensor;

constexpr size_t kMostBytes = std::numeric_limits<int32_t>::max();  // of protobuf

// All fields have numbers up to 15.
constexpr size_t kTagBytes = 1;
constexpr uint8_t LengthTag(int field) { return static_cast<uint8_t>(field << 3 | 2); }

size_t FieldBytes(size_t size) { return kTagBytes + CodedOutputStream::VarintSize64(size) + size; }

uint8_t* WriteHead(int field, size_t size, uint8_t* to) {
  *to++ = LengthTag(field);
  return CodedOutputStream::WriteVarint64ToArray(size, to);
}

uint8_t* WriteField(int field, absl::string_view text, uint8_t* to) {
  to = WriteHead(field, text.size(), to);
  if (!text.empty()) std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

}  // namespace

void InferResponse::Add(absl::string_view name, Datatype datatype, Shape shape, size_t bytes) {
  tensors_.push_back({name, datatype, std::move(shape), bytes, nullptr});
}

size_t InferResponse::ShapeBytes(const Tensor& tensor) {
  size_t bytes = 0;
  for (const int64_t size : tensor.shape) bytes += CodedOutputStream::VarintSize64(size);
  return bytes;
}

size_t InferResponse::TensorBytes(const Tensor& tensor) {
  return FieldBytes(tensor.name.size()) +
         FieldBytes(absl::string_view(Describe(tensor.datatype).name).size()) +
         FieldBytes(ShapeBytes(tensor));
}

absl::Status InferResponse::Allocate() {
  const std::string version = absl::StrCat(version_);
  size_ = FieldBytes(model_.size()) + FieldBytes(version.size());
  if (!id_.empty()) size_ += FieldBytes(id_.size());
  for (const Tensor& tensor : tensors_) {
    size_ += FieldBytes(TensorBytes(tensor)) + FieldBytes(tensor.bytes);
  }
  if (size_ > kMostBytes) {
    return InvalidArgument("outputs: the answer would have ", size_, " bytes, expected at most ",
                           kMostBytes, "; send fewer sequences at a time");
  }
  bytes_.reset(new uint8_t[size_]);  // not initialized: all of it is written
  uint8_t* to = bytes_.get();
  to = WriteField(Response::kModelNameFieldNumber, model_, to);
  to = WriteField(Response::kModelVersionFieldNumber, version, to);
  if (!id_.empty()) to = WriteField(Response::kIdFieldNumber, id_, to);
  for (const Tensor& tensor : tensors_) {
    to = WriteHead(Response::kOutputsFieldNumber, TensorBytes(tensor), to);
    to = WriteField(InferOutput::kNameFieldNumber, tensor.name, to);
    to = WriteField(InferOutput::kDatatypeFieldNumber, Describe(tensor.datatype).name, to);
    to = WriteHead(InferOutput::kShapeFieldNumber, ShapeBytes(tensor), to);
    for (const int64_t size : tensor.shape) to = CodedOutputStream::WriteVarint64ToArray(size, to);
  }
  for (Tensor& tensor : tensors_) {
    to = WriteHead(Response::kRawOutputContentsFieldNumber, tensor.bytes, to);
    tensor.values = to;
    to += tensor.bytes;
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
