#include "models/marian/tensor_file.h"

#include <cstring>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "models/files/gzip.h"
#include "models/files/json.h"

namespace sru::models {

uint64_t MarianTensor::bytes() const {
  switch (type) {
    case Type::kFloat32:
      return elements * sizeof(float);
    case Type::kBytes:
      return elements;
    case Type::kIntgemm8:
      return elements + sizeof(float);
  }
  return 0;
}

absl::Status TensorFile::TensorError(const std::string& name, const std::string& what) const {
  return InvalidArgument(source_, ": tensor ", Quoted(name), ": ", what);
}

absl::Status TensorFile::SetElements(uint64_t most, MarianTensor* tensor) const {
  uint64_t elements = 1;
  for (const int64_t size : tensor->shape) {
    if (size < 0 || (size > 0 && elements > most / static_cast<uint64_t>(size))) {
      return TensorError(tensor->name,
                         "the sizes of its shape are negative or more than the file has");
    }
    elements *= static_cast<uint64_t>(size);
  }
  tensor->elements = elements;
  return absl::OkStatus();
}

absl::StatusOr<TensorBytes> TensorBytes::Open(const FilePath& path) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  TensorBytes bytes;
  if (absl::EndsWith(path.path(), kGzipSuffix)) {
    SRU_ASSIGN_OR_RETURN(bytes.contents_, ReadPerhapsGzipped(path, kMost));
  } else {
    SRU_ASSIGN_OR_RETURN(OpenFile file, OpenFile::Open(path, kMost));
    bytes.file_.emplace(std::move(file));
  }
  return bytes;
}

absl::Status TensorBytes::Read(uint64_t offset, size_t size, char* to) const {
  if (file_.has_value()) return file_->Read(offset, size, to);
  if (size > 0) std::memcpy(to, contents_.bytes().data() + offset, size);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TensorFile>> TensorFile::Open(const FilePath& path) {
  SRU_ASSIGN_OR_RETURN(TensorBytes bytes, TensorBytes::Open(path));
  const absl::string_view name = absl::StripSuffix(path.path(), kGzipSuffix);
  std::unique_ptr<TensorFile> file = absl::EndsWith(name, ".npz")
                                         ? NewNpzFile(path.path(), std::move(bytes))
                                         : NewBinFile(path.path(), std::move(bytes));
  SRU_RETURN_UNLESS_OK(file->ReadHead());
  std::set<std::string_view> names;
  for (const MarianTensor& tensor : file->tensors_) {
    if (!names.insert(tensor.name).second) {
      return file->TensorError(tensor.name, "there are two of this name");
    }
  }
  return file;
}

}  // namespace sru::models
