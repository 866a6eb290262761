// Several arrays in one allocation: where each of them is. Freeing device memory may wait for all
// that runs on the device, so the weights of a model and the memory of a worker are one each.
#ifndef SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_
#define SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_

#include <cstddef>
#include <utility>
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
  // Of every array, as of an allocation of its own: libraries rely on it.
  static constexpr size_t kAlignment = 256;

  // Returns the array's number.
  size_t Add(size_t bytes) {
    arrays_.push_back({end_, bytes});
    // One that is empty takes no room, and between others there is always some, which nobody may
    // touch.
    if (bytes > 0) end_ += (bytes / kAlignment + 1) * kAlignment;
    return arrays_.size() - 1;
  }
  // The same for an array that Place() is to set.
  void Add(ArrayView* view, size_t bytes) { views_.push_back({view, Add(bytes)}); }
  template <typename Views, typename Bytes>
  void AddEach(const Views& views, const Bytes& bytes) {
    for (size_t i = 0; i < views.size(); ++i) Add(views[i], bytes[i]);
  }

  // Of all arrays together.
  size_t bytes() const { return end_; }

  // An array, when all have been added and `memory` has bytes(). Without data if it is empty.
  ArrayView At(size_t array, void* memory) const {
    const Array& at = arrays_[array];
    return at.bytes == 0 ? ArrayView()
                         : ArrayView(static_cast<char*>(memory) + at.offset, at.bytes);
  }

  // Sets the views of the arrays that have one.
  void Place(void* memory) const {
    for (const auto& [view, array] : views_) *view = At(array, memory);
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
    size_t offset;
    size_t bytes;
  };

  std::vector<Array> arrays_;
  std::vector<std::pair<ArrayView*, size_t>> views_;
  size_t end_ = 0;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_ARRAY_PLAN_H_
