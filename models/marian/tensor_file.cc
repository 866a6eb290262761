#include "models/marian/tensor_file.h"

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

absl::Status TensorFile::ReadBytes(uint64_t offset, size_t size, char* to) const {
  if (file_.has_value()) return file_->Read(offset, size, to);
  contents_.bytes().copy(to, size, offset);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TensorFile>> TensorFile::Open(const FilePath& path) {
  const absl::string_view name = absl::StripSuffix(path.path(), kGzipSuffix);
  std::unique_ptr<TensorFile> file = absl::EndsWith(name, ".npz") ? NewNpzFile() : NewBinFile();
  file->source_ = path.path();
  if (name != path.path()) {
    SRU_ASSIGN_OR_RETURN(file->contents_, ReadPerhapsGzipped(path));
  } else {
    SRU_ASSIGN_OR_RETURN(OpenFile opened, OpenFile::Open(path));
    file->file_.emplace(std::move(opened));
  }
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
