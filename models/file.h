// Reading files whole: a read-only memory mapping that unmaps itself.
#ifndef SRU_MODELS_FILE_H_
#define SRU_MODELS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sru::models {

// Immutable and thread-safe; movable. The file must not be changed in place while it is mapped
// (replace it by renaming): a file that shrinks under a mapping kills the process that reads it.
class MappedFile {
 public:
  // NotFound when there is no such file, InvalidArgument when it is not a regular file or is larger
  // than `max_bytes`, PermissionDenied or Unavailable when the system refuses.
  static absl::StatusOr<MappedFile> Open(const std::string& path, uint64_t max_bytes);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  // The contents; page-aligned; valid as long as this object, also after a move.
  std::string_view bytes() const { return {data_, size_}; }

 private:
  MappedFile(const char* data, size_t size) : data_(data), size_(size) {}

  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace sru::models

#endif  // SRU_MODELS_FILE_H_
