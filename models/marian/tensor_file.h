// Files of tensors as Marian writes them: .npz, a ZIP archive of NumPy arrays, and its own .bin,
// version 1 (FORMAT.md, "Marian's files"). Either may be gzip'd, which the name's end ".gz" says.
//
// Every size that a file announces is held against the file's own size before memory is allocated:
// stored and binary tensors are as long as their part of the file, compressed ones together at most
// MostExpandedBytes() (models/files/gzip.h).
#ifndef SRU_MODELS_MARIAN_TENSOR_FILE_H_
#define SRU_MODELS_MARIAN_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/files/file.h"

namespace sru::models {

struct MarianTensor {
  enum class Type {
    kFloat32,
    kBytes,     // text, such as the options
    kIntgemm8,  // int8 values, then their multiplier, a float32
  };

  // Bytes of the values, a multiplier counted.
  uint64_t bytes() const;

  std::string name;
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;  // none negative; the product is `elements`
  uint64_t elements = 0;
};

// The bytes of a file: on disk, or in memory if they had to be decompressed.
class TensorBytes {
 public:
  static absl::StatusOr<TensorBytes> Open(const FilePath& path);

  uint64_t size() const { return file_.has_value() ? file_->size() : contents_.bytes().size(); }
  // Null if they are in memory.
  const OpenFile* file() const { return file_.has_value() ? &*file_ : nullptr; }
  std::string_view contents() const { return contents_.bytes(); }
  // Reads bytes that lie within size().
  absl::Status Read(uint64_t offset, size_t size, char* to) const;

 private:
  std::optional<OpenFile> file_;
  FileContents contents_;
};

// Not thread-safe.
class TensorFile {
 public:
  // Reads the list of tensors. The format follows from the name's end, ".npz" or ".bin". kNotFound
  // when there is no such file, else kInvalidArgument with the path, the tensor, what was expected
  // and what was found.
  static absl::StatusOr<std::unique_ptr<TensorFile>> Open(const FilePath& path);

  TensorFile(const TensorFile&) = delete;
  TensorFile& operator=(const TensorFile&) = delete;
  virtual ~TensorFile() = default;

  const std::string& source() const { return source_; }
  // No two have one name.
  const std::vector<MarianTensor>& tensors() const { return tensors_; }

  // Reads tensors()[index].bytes() bytes: values in row-major order, little-endian. An archive's
  // checksum is verified.
  virtual absl::Status Read(size_t index, char* to) = 0;

  // kAborted when somebody has written to the file since it was opened.
  absl::Status CheckUnchanged() const {
    return bytes_.file() == nullptr ? absl::OkStatus() : bytes_.file()->CheckUnchanged();
  }

 protected:
  TensorFile(std::string source, TensorBytes bytes)
      : source_(std::move(source)), bytes_(std::move(bytes)) {}

  // kInvalidArgument with the file's and the tensor's name.
  absl::Status TensorError(const std::string& name, const std::string& what) const;
  // Sets `elements`. An error if the product of the shape's sizes is more than `most`.
  absl::Status SetElements(uint64_t most, MarianTensor* tensor) const;

  const std::string source_;
  const TensorBytes bytes_;
  std::vector<MarianTensor> tensors_;

 private:
  virtual absl::Status ReadHead() = 0;
};

std::unique_ptr<TensorFile> NewNpzFile(std::string source, TensorBytes bytes);
std::unique_ptr<TensorFile> NewBinFile(std::string source, TensorBytes bytes);

}  // namespace sru::models

#endif  // SRU_MODELS_MARIAN_TENSOR_FILE_H_
