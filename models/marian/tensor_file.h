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
  uint64_t bytes() const {
    const uint64_t multiplier = type == Type::kIntgemm8 ? sizeof(float) : 0;
    return elements * (type == Type::kFloat32 ? sizeof(float) : 1) + multiplier;
  }

  std::string name;
  Type type = Type::kFloat32;
  std::vector<int64_t> shape;  // none negative; the product is `elements`
  uint64_t elements = 0;
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
    return file_.has_value() ? file_->CheckUnchanged() : absl::OkStatus();
  }

 protected:
  TensorFile() = default;

  // The bytes of the file, decompressed.
  uint64_t file_bytes() const {
    return file_.has_value() ? file_->size() : contents_.bytes().size();
  }
  // Reads bytes that lie within file_bytes().
  absl::Status ReadBytes(uint64_t offset, size_t size, char* to) const;

  // kInvalidArgument with the file's and the tensor's name.
  absl::Status TensorError(const std::string& name, const std::string& what) const;
  // Sets `elements`. An error if the product of the shape's sizes is more than `most`.
  absl::Status SetElements(uint64_t most, MarianTensor* tensor) const;

  std::string source_;
  std::optional<OpenFile> file_;  // nullopt: the bytes are in `contents_`
  FileContents contents_;
  std::vector<MarianTensor> tensors_;

 private:
  virtual absl::Status ReadHead() = 0;
};

std::unique_ptr<TensorFile> NewNpzFile();
std::unique_ptr<TensorFile> NewBinFile();

}  // namespace sru::models

#endif  // SRU_MODELS_MARIAN_TENSOR_FILE_H_
