#include "kernels/bench/memory_reading.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <numeric>

#include "kernels/bench/measure.h"

namespace sru::kernels {
namespace {

constexpr size_t kLineBytes = 64;
constexpr size_t kLineWords = kLineBytes / sizeof(uint64_t);
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr int kTrials = 5;

template <int kStreams, int kAhead>
uint64_t Read(const uint64_t* memory, size_t lines) {
  uint64_t sums[kLineWords] = {};
  const size_t stream_lines = lines / kStreams;
  for (size_t line = 0; line < stream_lines; ++line) {
    for (size_t s = 0; s < kStreams; ++s) {
      const uint64_t* words = memory + (s * stream_lines + line) * kLineWords;
      // Past the end of the memory it does nothing.
      if (kAhead > 0) __builtin_prefetch(words + kAhead * kLineWords);
      for (size_t k = 0; k < kLineWords; ++k) sums[k] += words[k];
    }
  }
  for (size_t line = stream_lines * kStreams; line < lines; ++line) {
    for (size_t k = 0; k < kLineWords; ++k) sums[k] += memory[line * kLineWords + k];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

// In so many streams that advance together, each asking for the line that is so many lines ahead.
constexpr uint64_t (*kWays[])(const uint64_t* memory, size_t lines) = {
    Read<1, 0>, Read<1, 16>, Read<2, 16>, Read<4, 16>, Read<8, 0>, Read<8, 16>, Read<16, 8>,
};
constexpr int kNumWays = sizeof(kWays) / sizeof(kWays[0]);

}  // namespace

MemoryReading::MemoryReading(size_t bytes)
    : lines_((std::max<size_t>(bytes, 1) + kLineBytes - 1) / kLineBytes) {
  const size_t whole = (lines_ * kLineBytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  memory_ = static_cast<uint64_t*>(std::aligned_alloc(kHugePageBytes, whole));
  if (memory_ == nullptr) throw std::bad_alloc();
  madvise(memory_, whole, MADV_HUGEPAGE);  // may fail: then the pages are small
  std::iota(memory_, memory_ + words(), uint64_t{0});
  double shortest = 0;
  for (int number = 0; number < kNumWays; ++number) {
    for (int trial = 0; trial < kTrials; ++trial) {
      volatile uint64_t sum = 0;  // so that the reading is not left out
      const double time = Microseconds([&] { sum = Run(number); });
      if ((number > 0 || trial > 0) && time >= shortest) continue;
      shortest = time;
      fastest_ = number;
    }
  }
}

MemoryReading::~MemoryReading() { std::free(memory_); }

uint64_t MemoryReading::Run() const { return Run(fastest_); }

uint64_t MemoryReading::Run(int number) const { return kWays[number](memory_, lines_); }

int MemoryReading::num_ways() { return kNumWays; }

}  // namespace sru::kernels
