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
#include "base/status.h"

namespace sru::models {
namespace {

int64_t ModificationTime(const struct stat& info) {
  return int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec;
}

}  // namespace

absl::StatusOr<OpenFile> OpenFile::Open(const std::string& path, uint64_t max_bytes) {
  // Non-blocking, so that a pipe in place of a file is refused below rather than waited for.
  OpenFile file(path, open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.fd_ < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be opened"));
  struct stat info;
  if (fstat(file.fd_, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be examined"));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(path, ": expected a regular file");
  }
  file.size_ = static_cast<uint64_t>(info.st_size);
  file.modified_ns_ = ModificationTime(info);
  if (file.size_ > max_bytes) {
    return InvalidArgument(path, ": expected at most ", max_bytes, " bytes, found ", file.size_);
  }
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_(other.size_),
      modified_ns_(other.modified_ns_) {}

OpenFile::~OpenFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status OpenFile::Read(uint64_t offset, size_t size, char* to) const {
  for (size_t done = 0; done < size;) {
    constexpr size_t kMaxRead = 1 << 30;
    const ssize_t count = pread(fd_, to + done, std::min<size_t>(size - done, kMaxRead),
                                static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be read"));
    if (count == 0) {
      return absl::AbortedError(absl::StrCat(path_, ": was cut to ", offset + done, " bytes, from ",
                                             size_,
                                             ", while it was read; replace files by renaming"));
    }
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

absl::Status OpenFile::CheckUnchanged() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be examined"));
  }
  if (static_cast<uint64_t>(info.st_size) == size_ && ModificationTime(info) == modified_ns_) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat(path_, ": was changed while it was read; replace files by renaming"));
}

absl::StatusOr<FileContents> FileContents::Read(const std::string& path, uint64_t max_bytes) {
  SRU_ASSIGN_OR_RETURN(OpenFile file, OpenFile::Open(path, max_bytes));
  const uint64_t size = file.size();
  if (size == 0) return FileContents();  // mmap refuses length 0
  // Not malloc(): what is freed there may stay with the process.
  void* data =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(path, ": no memory for its ", size, " bytes"));
  }
  FileContents contents(static_cast<char*>(data), size);
  SRU_RETURN_UNLESS_OK(file.Read(0, size, contents.data_));
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
