// A zero-filled float array on a cache-line boundary, allocated once.
#ifndef SRU_KERNELS_CPU_ALIGNED_BUFFER_H_
#define SRU_KERNELS_CPU_ALIGNED_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace sru::kernels {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // Throws std::bad_alloc, as any container does.
  explicit AlignedBuffer(size_t size)
      : size_(size), data_(static_cast<float*>(::operator new(size * sizeof(float), kAlignment))) {
    std::fill_n(data_.get(), size, 0.0f);
  }

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(float); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Deleter {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };

  size_t size_ = 0;
  std::unique_ptr<float, Deleter> data_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CPU_ALIGNED_BUFFER_H_
