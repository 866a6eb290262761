// Reading files whole, into memory of their own.
//
// Files are read rather than mapped: a model that is replaced in place (`cp` truncates the file
// that it writes over) would change the weights of a model that is being served, or kill the
// process with SIGBUS. The memory is page-aligned and goes back to the system with the object.
#ifndef SRU_MODELS_FILE_H_
#define SRU_MODELS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sru::models {

// Immutable and thread-safe; movable.
class FileContents {
 public:
  // kNotFound when there is no such file, kInvalidArgument when it is not a regular file or is
  // larger than `max_bytes`, kAborted when it changes while it is read, kResourceExhausted when
  // there is not enough memory, kPermissionDenied or kUnavailable when the system refuses.
  static absl::StatusOr<FileContents> Read(const std::string& path, uint64_t max_bytes);

  FileContents() = default;
  FileContents(FileContents&& other) noexcept;
  FileContents& operator=(FileContents&& other) noexcept;
  ~FileContents();

  // The contents; page-aligned; valid as long as this object, also after a move.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  FileContents(char* data, size_t size) : data_(data), size_(size) {}

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sru::models

#endif  // SRU_MODELS_FILE_H_
