#include "models/files/file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace sru::models {
namespace {

bool IsSame(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

// A `..` on the way is refused with EAGAIN while somebody renames folders.
constexpr int kMaxTries = 100;

void Close(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
}

// Opens `path`, which is relative to the folder `root`, without following any link.
int OpenWithoutLinks(int root, const std::string& path, int flags) {
  int at = dup(root);
  const std::vector<std::string> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  for (size_t i = 0; i < parts.size() && at >= 0; ++i) {
    const bool last = i + 1 == parts.size();
    struct stat info;
    const int next = parts[i] == ".."
                         ? (errno = EXDEV, -1)
                         : openat(at, parts[i].c_str(),
                                  (last ? flags : O_PATH | O_DIRECTORY) | O_CLOEXEC | O_NOFOLLOW);
    if (next < 0 && fstatat(at, parts[i].c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISLNK(info.st_mode)) {
      errno = EXDEV;
    }
    Close(at);
    at = next;
  }
  return at;
}

int OpenBeneath(int root, const std::string& path, int flags) {
  open_how how = {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  int fd = -1;
  for (int i = 0; i < kMaxTries && fd < 0; ++i) {
    fd = static_cast<int>(syscall(SYS_openat2, root, path.c_str(), &how, sizeof(how)));
    if (fd < 0 && errno != EAGAIN && errno != EINTR) break;
  }
  // Before Linux 5.6, or in a sandbox that hides the call.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) return OpenWithoutLinks(root, path, flags);
  return fd;
}

// A pointer of Git LFS stands in place of a large file in a clone that has not fetched it.
absl::Status RefusePointer(const OpenFile& file) {
  constexpr std::string_view kBegin = "version https://git-lfs";
  constexpr uint64_t kMostBytes = 1024;  // a pointer is shorter
  if (file.size() < kBegin.size() || file.size() > kMostBytes) return absl::OkStatus();
  std::string begin(kBegin.size(), '\0');
  SRU_RETURN_UNLESS_OK(file.Read(0, begin.size(), begin.data()));
  if (begin != kBegin) return absl::OkStatus();
  return InvalidArgument(file.path(),
                         ": is a pointer of Git LFS; fetch the file with `git lfs pull`");
}

}  // namespace

int FilePath::Open(int flags) const {
  if (root_.empty()) return open(path_.c_str(), flags | O_CLOEXEC);
  const int root = open(root_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return -1;
  const size_t begin = path_.find_first_not_of('/', root_.size());
  const int fd = OpenBeneath(root, begin == std::string::npos ? "." : path_.substr(begin), flags);
  Close(root);
  return fd;
}

absl::Status OpenError(const FilePath& path, int error) {
  if (error != EXDEV) {
    return absl::ErrnoToStatus(error, absl::StrCat(path.path(), ": cannot be opened"));
  }
  return InvalidArgument(
      path.path(),
      ": expected links that stay in the repository, found one that leads out of "
      "it, is absolute, or cannot be checked by this system (no openat2)");
}

absl::StatusOr<OpenFile> OpenFile::Open(const FilePath& from, uint64_t max_bytes) {
  const std::string& path = from.path();
  // Non-blocking, so that a pipe in place of a file is refused below rather than waited for.
  OpenFile file(path, from.Open(O_RDONLY | O_NONBLOCK));
  if (file.fd_ < 0) return OpenError(from, errno);
  if (fstat(file.fd_, &file.info_) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be examined"));
  }
  if (!S_ISREG(file.info_.st_mode)) {
    return InvalidArgument(path, ": expected a regular file");
  }
  if (file.size() > max_bytes) {
    return InvalidArgument(path, ": expected at most ", max_bytes, " bytes, found ", file.size());
  }
  SRU_RETURN_UNLESS_OK(RefusePointer(file));
  return file;
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), info_(other.info_) {}

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
                                             info_.st_size,
                                             ", while it was read; replace files by renaming"));
    }
    done += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

std::FILE* OpenFile::OpenStream() const {
  // Not dup(), whose position would be that of the other streams as well.
  const int fd = open(absl::StrCat("/proc/self/fd/", fd_).c_str(), O_RDONLY | O_CLOEXEC);
  std::FILE* const stream = fd < 0 ? nullptr : fdopen(fd, "rb");
  if (stream == nullptr && fd >= 0) Close(fd);
  return stream;
}

absl::Status OpenFile::CheckUnchanged() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path_, ": cannot be examined"));
  }
  // A time of modification can be set back. A time of change cannot, but it is also that of the
  // last link: a file that another one has replaced is as it was.
  if (info.st_size == info_.st_size && IsSame(info.st_mtim, info_.st_mtim) &&
      (IsSame(info.st_ctim, info_.st_ctim) || info.st_nlink != info_.st_nlink)) {
    return absl::OkStatus();
  }
  return absl::AbortedError(
      absl::StrCat(path_, ": was changed while it was read; replace files by renaming"));
}

void Unmap::operator()(char* memory) const { munmap(memory, size); }

MappedMemory MapMemory(size_t size, int flags) {
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | flags, /*fd=*/-1, 0);
  return MappedMemory(memory == MAP_FAILED ? nullptr : static_cast<char*>(memory), Unmap{size});
}

absl::StatusOr<FileContents> FileContents::Read(const FilePath& path, uint64_t max_bytes) {
  SRU_ASSIGN_OR_RETURN(OpenFile file, OpenFile::Open(path, max_bytes));
  return Make(path.path(), file.size(),
              [&file](char* to) { return file.Read(0, file.size(), to); });
}

absl::StatusOr<FileContents> FileContents::Make(const std::string& source, size_t size,
                                                absl::FunctionRef<absl::Status(char*)> fill) {
  if (size == 0) return FileContents();  // mmap refuses length 0
  FileContents contents;
  contents.memory_ = MapMemory(size);
  if (contents.memory_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat(source, ": no memory for its ", size, " bytes"));
  }
  SRU_RETURN_UNLESS_OK(fill(contents.memory_.get()));
  mprotect(contents.memory_.get(), size, PROT_READ);
  return contents;
}

}  // namespace sru::models
