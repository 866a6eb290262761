// Marian's binary format, version 1, little-endian:
//
//   u64 version | u64 n
//   | n x {u64 bytes of the name with its NUL, u64 type, u64 dimensions, u64 bytes of the data}
//   | names, each with its NUL | shapes, an i32 for each dimension
//   | u64 gap | gap bytes | data of each tensor
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/marian/tensor_file.h"

namespace sru::models {
namespace {

constexpr uint64_t kBinVersion = 1;
constexpr uint64_t kMaxDimensionsInBin = 8;
// The part of a file before the data: a thousand tensors take 100 kB.
constexpr uint64_t kMaxBinHeadBytes = 16 << 20;

struct BinHeader {
  uint64_t name_bytes;
  uint64_t type;
  uint64_t dimensions;
  uint64_t data_bytes;
};

class BinFile final : public TensorFile {
 public:
  absl::Status Read(size_t index, char* to) override {
    return ReadBytes(offsets_[index], tensors_[index].bytes(), to);
  }

 private:
  absl::Status ReadHead() override {
    uint64_t head[2];
    SRU_RETURN_UNLESS_OK(Take(sizeof(head), "the number of tensors", head));
    if (head[0] != kBinVersion) {
      return InvalidArgument(source_, ": not a binary file of Marian: expected version ",
                             kBinVersion, ", found ", head[0]);
    }
    if (head[1] > (file_bytes() - at_) / sizeof(BinHeader) ||
        head[1] > kMaxBinHeadBytes / sizeof(BinHeader)) {
      return InvalidArgument(source_, ": ", head[1],
                             " tensors are more than the file has; it is damaged or truncated");
    }
    std::vector<BinHeader> headers(head[1]);
    SRU_RETURN_UNLESS_OK(
        Take(headers.size() * sizeof(BinHeader), "the tensors' sizes", headers.data()));
    tensors_.resize(headers.size());
    for (size_t i = 0; i < headers.size(); ++i) {
      SRU_RETURN_UNLESS_OK(TakeString(headers[i].name_bytes, &tensors_[i].name));
    }
    for (size_t i = 0; i < headers.size(); ++i) {
      SRU_RETURN_UNLESS_OK(TakeShape(headers[i].dimensions, &tensors_[i]));
    }
    uint64_t gap = 0;
    SRU_RETURN_UNLESS_OK(Take(sizeof(gap), "the gap before the data", &gap));
    if (gap > file_bytes() - at_) return Truncated("the gap before the data");
    at_ += gap;
    for (size_t i = 0; i < headers.size(); ++i) {
      SRU_RETURN_UNLESS_OK(PlaceData(headers[i], &tensors_[i]));
    }
    if (at_ == file_bytes()) return absl::OkStatus();
    return InvalidArgument(source_, ": the bytes from ", at_, " on belong to no tensor");
  }

  absl::Status Truncated(const std::string& what) const {
    return InvalidArgument(source_, ": ends within ", what, "; the file is damaged or truncated");
  }

  absl::Status Take(uint64_t size, const std::string& what, void* to) {
    if (size > file_bytes() - at_ || at_ + size > kMaxBinHeadBytes) return Truncated(what);
    SRU_RETURN_UNLESS_OK(ReadBytes(at_, size, static_cast<char*>(to)));
    at_ += size;
    return absl::OkStatus();
  }

  absl::Status TakeString(uint64_t size, std::string* to) {
    if (size > file_bytes() - at_ || at_ + size > kMaxBinHeadBytes) return Truncated("the names");
    to->resize(size);
    SRU_RETURN_UNLESS_OK(Take(size, "the names", to->data()));
    if (size == 0 || to->find('\0') != size - 1) {
      return TensorError(*to, "expected a name that ends with its only NUL");
    }
    to->pop_back();
    return absl::OkStatus();
  }

  absl::Status TakeShape(uint64_t dimensions, MarianTensor* tensor) {
    if (dimensions > kMaxDimensionsInBin) {
      return TensorError(tensor->name, absl::StrCat("expected at most ", kMaxDimensionsInBin,
                                                    " dimensions, found ", dimensions));
    }
    int32_t sizes[kMaxDimensionsInBin];
    SRU_RETURN_UNLESS_OK(Take(dimensions * sizeof(int32_t), "the shapes", sizes));
    tensor->shape.assign(sizes, sizes + dimensions);
    return SetElements(file_bytes(), tensor);
  }

  absl::Status PlaceData(const BinHeader& header, MarianTensor* tensor) {
    switch (header.type) {
      case 0x404:
        tensor->type = MarianTensor::Type::kFloat32;
        break;
      case 0x101:
        tensor->type = MarianTensor::Type::kBytes;
        break;
      case 0x4101:
        tensor->type = MarianTensor::Type::kIntgemm8;
        break;
      default:
        return TensorError(
            tensor->name,
            absl::StrCat(
                "expected the type float32 (0x404), int8 (0x101) or intgemm8 (0x4101), found 0x",
                absl::Hex(header.type)));
    }
    if (header.data_bytes < tensor->bytes() || header.data_bytes > file_bytes() - at_) {
      return TensorError(
          tensor->name, absl::StrCat("expected ", tensor->bytes(), " to ", file_bytes() - at_,
                                     " bytes for its shape in this file, found ", header.data_bytes,
                                     "; the file is damaged or truncated"));
    }
    offsets_.push_back(at_);
    at_ += header.data_bytes;
    return absl::OkStatus();
  }

  uint64_t at_ = 0;                // of the file, bytes that are read
  std::vector<uint64_t> offsets_;  // [tensor]
};

}  // namespace

std::unique_ptr<TensorFile> NewBinFile() { return std::make_unique<BinFile>(); }

}  // namespace sru::models
