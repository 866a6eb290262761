// Several arrays in one allocation: where each of them is. Freeing device memory may wait for all
// that runs on the device, so the weights of a model and the memory of a worker are one each.
#ifndef SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_
#define SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_

#include <cstddef>
#include <vector>

namespace sru::kernels::cuda {

// An array in memory that somebody else owns.
class ArrayView {
 public:
  ArrayView() = default;
  ArrayView(void* data, size_t bytes) : data_(data), bytes_(bytes) {}

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Where an array may begin in memory that is copied to a device as a whole.
constexpr size_t AlignStaged(size_t bytes) { return (bytes + 15) / 16 * 16; }

class ArrayPlan {
 public:
  // Every array is aligned like a separate allocation; libraries rely on that.
  static constexpr size_t kAlignment = 256;

  // An array that Place() is to set.
  void Add(ArrayView* view, size_t bytes) {
    arrays_.push_back({view, end_, bytes});
    // An empty array takes no space. A gap, which nobody may touch, separates any two others.
    if (bytes > 0) end_ += (bytes / kAlignment + 1) * kAlignment;
  }
  template <typename Views, typename Bytes>
  void AddEach(const Views& views, const Bytes& bytes) {
    for (size_t i = 0; i < views.size(); ++i) Add(views[i], bytes[i]);
  }

  // Of all arrays together.
  size_t bytes() const { return end_; }

  // Sets the arrays when all have been added, and `memory` has bytes(). An empty one has no data.
  void Place(void* memory) const {
    for (const Array& array : arrays_) {
      *array.view = array.bytes == 0
                        ? ArrayView()
                        : ArrayView(static_cast<char*>(memory) + array.offset, array.bytes);
    }
  }

  // Calls use(begin, bytes) for what is behind each array.
  template <typename Use>
  void ForEachGap(void* memory, const Use& use) const {
    for (const Array& array : arrays_) {
      if (array.bytes == 0) continue;
      use(static_cast<char*>(memory) + array.offset + array.bytes,
          kAlignment - array.bytes % kAlignment);
    }
  }

 private:
  struct Array {
    ArrayView* view;
    size_t offset;
    size_t bytes;
  };

  std::vector<Array> arrays_;
  size_t end_ = 0;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_
