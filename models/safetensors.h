// Reads safetensors files: 8 bytes little-endian length N, N bytes of JSON header, then the data.
//
// Every offset is checked before it is used, so that a view never leaves the file, whatever the
// header says. Refused: truncated files, a header over 16 MiB or over the file, a header that is
// not a JSON object or repeats a key, unknown data types, shapes whose product overflows, offsets
// that do not match dtype x shape, tensors that overlap, and bytes that belong to no tensor.
#ifndef SRU_MODELS_SAFETENSORS_H_
#define SRU_MODELS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/stack_spec.h"
#include "models/digest.h"
#include "models/files/file.h"
#include "models/tensor_pages.h"
#include "nlohmann/json_fwd.hpp"

namespace sru::models {

struct TensorType {
  std::string_view name;  // in the file
  size_t bytes = 0;       // of a value
};
inline constexpr TensorType kTensorTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"I16", 2}, {"U16", 2}, {"F16", 2}, {"BF16", 2},
    {"I32", 4},  {"U32", 4}, {"F32", 4}, {"F64", 8}, {"I64", 8}, {"U64", 8}};

// One tensor: little-endian, row-major. Borrowed from the SafetensorsFile. In a file that is read
// on demand `data` is the place of values that may not have been read yet.
struct TensorView {
  TensorType dtype;
  std::vector<int64_t> shape;  // none negative; empty for a scalar
  // Aligned for its dtype; `bytes` long; not null unless bytes = 0.
  const void* data = nullptr;
  size_t bytes = 0;

  size_t num_elements() const { return bytes / dtype.bytes; }
};

// "[6, 128]", for messages.
std::string ShapeString(const std::vector<int64_t>& shape);

// Views stay valid as long as the object. Thread-safe but for files that are read on demand.
class SafetensorsFile {
 public:
  // Reads `path` whole. kNotFound when there is none, else kInvalidArgument with the path, the
  // tensor, what was expected and what was found.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  // Reads the header and leaves the values in the file until weights() is asked for them. The file
  // must have float32 tensors only; it stays open as long as the object.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> OpenOnDemand(const FilePath& path);

  // Reads `bytes`, which must outlive the result. `source` names them in errors.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Parse(std::string_view bytes,
                                                                std::string source);

  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  // All tensors by name.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // The "__metadata__" strings; empty when there are none.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  // Path, for messages.
  const std::string& source() const { return source_; }

  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;

  // For CompileOptions::weights: where the values of views come from if they are read on demand;
  // null if they are in memory.
  kernels::WeightSource* weights() const { return pages_.get(); }
  // SHA-256 of the file, which must be one that is read on demand: of the very file whose values
  // these are, whatever has its name by now.
  absl::StatusOr<std::string> Digest() const { return DigestOfFile(pages_->file()); }
  // The first error of reading on demand.
  absl::Status read_status() const;
  // Whether all values were read on demand and are good (TensorPages::CheckAllRead()).
  absl::Status CheckAllRead() const;

  // A tensor that must exist, be F32, have exactly `shape` and hold finite values only. On demand,
  // vectors are read and checked here, since some of them decide what a model is, and all others
  // when they are asked for. kInvalidArgument (kNotFound when it is missing) names the file and the
  // tensor, what was expected and what was found.
  absl::StatusOr<kernels::FloatView> Floats(const std::string& name,
                                            const std::vector<int64_t>& shape) const;

 private:
  SafetensorsFile() = default;

  // Fills tensors_ but for the data. `head` is the file's beginning, with the whole header if the
  // file has it; `data_begin` is where the data begins, and `begins` where each tensor does there.
  absl::Status ParseHeader(std::string_view head, uint64_t file_bytes, uint64_t* data_begin,
                           std::map<std::string_view, uint64_t>* begins);
  absl::Status ParseBytes(std::string_view bytes);
  absl::Status ReadMetadata(const nlohmann::json& entry);

  std::string source_;
  FileContents file_;                   // read whole
  std::unique_ptr<TensorPages> pages_;  // read on demand
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  // Copies of tensors that the file does not align; 8-byte units keep them aligned for any dtype.
  std::vector<std::unique_ptr<uint64_t[]>> aligned_copies_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_SAFETENSORS_H_
