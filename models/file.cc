#include "models/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace sru::models {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<FileContents> FileContents::Read(const std::string& path, uint64_t max_bytes) {
  // Non-blocking, so that a pipe in place of a file is refused below rather than waited for.
  FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  struct stat info;
  if (fstat(fd.get(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be examined"));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a regular file"));
  }
  const auto size = static_cast<uint64_t>(info.st_size);
  if (size > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", max_bytes, " bytes, found ", size));
  }
  if (size == 0) return FileContents();  // mmap refuses length 0
  // Not malloc(): what is freed there may stay with the process.
  void* data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory for its ", size, " bytes"));
  }
  FileContents contents(static_cast<char*>(data), size);
  for (size_t done = 0; done < size;) {
    constexpr size_t kMaxRead = 1 << 30;
    const ssize_t count =
        read(fd.get(), contents.data_ + done, std::min<size_t>(size - done, kMaxRead));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be read"));
    if (count == 0) {
      return absl::AbortedError(absl::StrCat(path, ": was cut to ", done, " bytes, from ", size,
                                             ", while it was read; replace files by renaming"));
    }
    done += static_cast<size_t>(count);
  }
  mprotect(data, size, PROT_READ);
  return contents;
}

FileContents::FileContents(FileContents&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

FileContents& FileContents::operator=(FileContents&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

FileContents::~FileContents() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace sru::models
