// How long reading memory takes at least, on one thread: a bound on everything that uses its data
// once.
#ifndef SRU_KERNELS_BENCH_MEMORY_READING_H_
#define SRU_KERNELS_BENCH_MEMORY_READING_H_

#include <cstddef>
#include <cstdint>

namespace sru::kernels {

// Memory of its own, on huge pages where the system has them, and the fastest of several ways to
// read it. A core that reads one stream waits for memory more than it must: it has room for more
// misses than the prefetcher of one stream keeps on their way. How many streams at a time are best,
// and whether asking for lines ahead helps, depends on the machine, so each is tried. Not
// thread-safe.
class MemoryReading {
 public:
  // Fills `bytes` of memory, rounded up to whole cache lines, and reads it a few times in every way
  // to find the fastest. Throws std::bad_alloc.
  explicit MemoryReading(size_t bytes);
  ~MemoryReading();

  MemoryReading(const MemoryReading&) = delete;
  MemoryReading& operator=(const MemoryReading&) = delete;

  // Reads all of it once in the fastest way. Returns the sum of its 64-bit words, which hold their
  // own positions: 0 + 1 + ... + (words() - 1).
  uint64_t Run() const;

  // The same in way `number`, from 0 to num_ways() - 1.
  uint64_t Run(int number) const;
  static int num_ways();

  uint64_t words() const { return lines_ * 8; }

 private:
  size_t lines_;
  uint64_t* memory_;
  int fastest_ = 0;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_BENCH_MEMORY_READING_H_
