// Loaded into a program with LD_PRELOAD, lets a test set the program's wall clock at any time: the
// clock is off by the number of nanoseconds in the file $CLOCK_SHIFT_FILE, an int64. Other clocks
// are not changed.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

const std::atomic<int64_t>* MapShift() {
  static const std::atomic<int64_t> kNone{0};
  const char* const path = getenv("CLOCK_SHIFT_FILE");
  const int fd = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &kNone;
  void* const data = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return data == MAP_FAILED ? &kNone : static_cast<const std::atomic<int64_t>*>(data);
}

int64_t Shift() {
  static const std::atomic<int64_t>* const shift = MapShift();
  return shift->load(std::memory_order_relaxed);
}

constexpr int64_t kSecond = 1000000000;

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, time);
  if (result != 0 || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) {
    return static_cast<int>(result);
  }
  const int64_t shifted = time->tv_sec * kSecond + time->tv_nsec + Shift();
  time->tv_sec = shifted / kSecond;
  time->tv_nsec = shifted % kSecond;
  return 0;
}

int gettimeofday(timeval* time, void* /*zone*/) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* result) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (result != nullptr) *result = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
