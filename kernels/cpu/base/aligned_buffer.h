// A zero-filled array on a cache-line boundary, allocated once.
#ifndef SRU_KERNELS_CPU_BASE_ALIGNED_BUFFER_H_
#define SRU_KERNELS_CPU_BASE_ALIGNED_BUFFER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>

namespace sru::kernels::cpu {

template <typename T>
class AlignedArray {
 public:
  AlignedArray() = default;
  // Throws std::bad_alloc, as any container does.
  explicit AlignedArray(size_t size)
      : size_(size), data_(static_cast<T*>(::operator new(size * sizeof(T), kAlignment))) {
    std::fill_n(data_.get(), size, T());
  }

  // `size` zeros, in the same memory where the size is the same: large arrays that are made and
  // freed between others that stay leave holes in the heap that no aligned array fits into.
  void Reset(size_t size) {
    if (size != size_) {
      *this = AlignedArray();  // before the next is there
      *this = AlignedArray(size);
    } else {
      std::fill_n(data_.get(), size, T());
    }
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Deleter {
    void operator()(T* p) const { ::operator delete(p, kAlignment); }
  };

  size_t size_ = 0;
  std::unique_ptr<T, Deleter> data_;
};

using AlignedBuffer = AlignedArray<float>;

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_ALIGNED_BUFFER_H_
