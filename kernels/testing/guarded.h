// An array that notices what is written beside it, for tests.
#ifndef SRU_KERNELS_TESTING_GUARDED_H_
#define SRU_KERNELS_TESTING_GUARDED_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace sru::testing {

// Values with poison on both sides, which must neither reach a result nor be overwritten.
template <typename T>
class Guarded {
 public:
  Guarded(size_t size, T poison) : size_(size), poison_(poison) {
    values_.assign(size + 2 * kMargin, poison);
  }
  Guarded(const std::vector<T>& values, T poison) : Guarded(values.size(), poison) {
    std::copy(values.begin(), values.end(), data());
  }
  T* data() { return values_.data() + kMargin; }
  std::vector<T> values() const {
    return {values_.begin() + kMargin, values_.end() - static_cast<std::ptrdiff_t>(kMargin)};
  }
  bool IsIntact() const {
    const auto intact = [&](size_t i) {
      return std::memcmp(&values_[i], &poison_, sizeof(T)) == 0;
    };
    for (size_t i = 0; i < kMargin; ++i) {
      if (!intact(i) || !intact(kMargin + size_ + i)) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kMargin = 64;
  size_t size_;
  T poison_;
  std::vector<T> values_;
};

}  // namespace sru::testing

#endif  // SRU_KERNELS_TESTING_GUARDED_H_
