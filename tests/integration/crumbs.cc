// Loaded into a server with LD_PRELOAD, lets it see its connections as the worst network would show
// them: each read gives one byte, each write takes at most seven, and every other call of either
// finds nothing to be done (EAGAIN).
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>

namespace {

constexpr size_t kMostFiles = 1 << 16;
constexpr size_t kMostWritten = 7;

// Counts the calls on an accepted socket, from 1 on; 0 for others.
std::array<std::atomic<uint32_t>, kMostFiles> g_calls{};

// Returns whether a call on the socket finds nothing to be done.
bool Fails(int fd) {
  if (g_calls[fd].fetch_add(1) % 2 == 0) return false;
  errno = EAGAIN;
  return true;
}

bool IsAccepted(int fd) {
  return fd >= 0 && static_cast<size_t>(fd) < kMostFiles && g_calls[fd].load() != 0;
}

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int accept4(int socket, sockaddr* address, socklen_t* size, int flags) {
  static const auto real = Real<int (*)(int, sockaddr*, socklen_t*, int)>("accept4");
  const int fd = real(socket, address, size, flags);
  if (fd >= 0 && static_cast<size_t>(fd) < kMostFiles) g_calls[fd].store(1);
  return fd;
}

int close(int fd) {
  static const auto real = Real<int (*)(int)>("close");
  if (IsAccepted(fd)) g_calls[fd].store(0);
  return real(fd);
}

ssize_t recv(int fd, void* data, size_t size, int flags) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t, int)>("recv");
  if (!IsAccepted(fd)) return real(fd, data, size, flags);
  return Fails(fd) ? -1 : real(fd, data, std::min<size_t>(size, 1), flags);
}

ssize_t send(int fd, const void* data, size_t size, int flags) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t, int)>("send");
  if (!IsAccepted(fd)) return real(fd, data, size, flags);
  return Fails(fd) ? -1 : real(fd, data, std::min(size, kMostWritten), flags);
}

// OpenSSL's.
ssize_t read(int fd, void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, void*, size_t)>("read");
  if (!IsAccepted(fd)) return real(fd, data, size);
  return Fails(fd) ? -1 : real(fd, data, std::min<size_t>(size, 1));
}

ssize_t write(int fd, const void* data, size_t size) {
  static const auto real = Real<ssize_t (*)(int, const void*, size_t)>("write");
  if (!IsAccepted(fd)) return real(fd, data, size);
  return Fails(fd) ? -1 : real(fd, data, std::min(size, kMostWritten));
}

}  // extern "C"
