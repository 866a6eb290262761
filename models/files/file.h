// Reading files, whole or in parts, into memory of one's own.
//
// Files are read rather than mapped: a model that is replaced in place (`cp` truncates the file
// that it writes over) would change the weights of a model that is being served, or kill the
// process with SIGBUS. The memory is page-aligned and goes back to the system with the object.
#ifndef SRU_MODELS_FILES_FILE_H_
#define SRU_MODELS_FILES_FILE_H_

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sru::models {

// Names a file or a folder, and where links on the way to it may lead.
class FilePath {
 public:
  // Links lead anywhere.
  template <typename Path,
            typename = std::enable_if_t<std::is_convertible_v<const Path&, std::string>>>
  FilePath(const Path& path) : path_(path) {}  // NOLINT: implicit, as a path is no more than this
  // Links stay in the folder `root`, with which `path` begins. Empty: they lead anywhere.
  FilePath(std::string path, std::string root) : path_(std::move(path)), root_(std::move(root)) {}

  const std::string& path() const { return path_; }

  FilePath operator/(std::string_view name) const {
    return {path_ + "/" + std::string(name), root_};
  }

  // Calls open(2) with `flags` and O_CLOEXEC, or openat2(2), so that the check of the links and the
  // opening are one. EXDEV: a link leads out of the root, is absolute or, if the system has no
  // openat2, is a link at all.
  int Open(int flags) const;

 private:
  std::string path_;
  std::string root_;
};

inline constexpr uint64_t kAnySize = std::numeric_limits<int64_t>::max();

// The error of a FilePath::Open() that set `error`.
absl::Status OpenError(const FilePath& path, int error);

// A file that is open for reading. Movable; thread-safe but for that.
class OpenFile {
 public:
  // kNotFound when there is no such file, kInvalidArgument when it is not a regular file or is
  // larger than `max_bytes` or is a pointer of Git LFS or a link leads out of the root,
  // kPermissionDenied or kUnavailable when the system refuses.
  static absl::StatusOr<OpenFile> Open(const FilePath& path, uint64_t max_bytes = kAnySize);

  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();

  const std::string& path() const { return path_; }
  // When it was opened.
  uint64_t size() const { return static_cast<uint64_t>(info_.st_size); }

  // Reads `size` bytes from `offset` on, which were in the file when it was opened. kAborted when
  // they are not there any more.
  absl::Status Read(uint64_t offset, size_t size, char* to) const;

  // A stream of its own over the file, for a library that reads one; null if the system refuses.
  std::FILE* OpenStream() const;

  // kAborted when somebody has written to the file since it was opened.
  absl::Status CheckUnchanged() const;

 private:
  OpenFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;
  struct stat info_ = {};  // when it was opened
};

// Memory of its own pages, at first zeros, that goes back to the system with the object. Not
// malloc(): what is freed there may stay with the process.
struct Unmap {
  size_t size = 0;
  void operator()(char* memory) const;
};
using MappedMemory = std::unique_ptr<char[], Unmap>;
// Null when there is none. `size` is not 0; `flags` are further ones of mmap().
MappedMemory MapMemory(size_t size, int flags = 0);

// Immutable and thread-safe; movable.
class FileContents {
 public:
  // As OpenFile::Open(), and kAborted when it changes while it is read, kResourceExhausted when
  // there is not enough memory.
  static absl::StatusOr<FileContents> Read(const FilePath& path, uint64_t max_bytes = kAnySize);

  // Memory of `size` bytes that fill(memory) has written. `source` names it in errors:
  // kResourceExhausted, or that of `fill`.
  static absl::StatusOr<FileContents> Make(const std::string& source, size_t size,
                                           absl::FunctionRef<absl::Status(char*)> fill);

  // The contents; page-aligned; valid as long as this object, also after a move.
  std::string_view bytes() const { return {memory_.get(), memory_.get_deleter().size}; }

 private:
  MappedMemory memory_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_FILES_FILE_H_
