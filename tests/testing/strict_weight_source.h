// A WeightSource that catches a backend that reads a weight outside of the scope in which it may:
// the value is NaN there, and once the source is destroyed the memory is gone.
#ifndef SRU_TESTS_TESTING_STRICT_WEIGHT_SOURCE_H_
#define SRU_TESTS_TESTING_STRICT_WEIGHT_SOURCE_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/weight_source.h"

namespace sru::testing {

class StrictWeightSource : public kernels::WeightSource {
 public:
  // A copy of a StackSpec or a Program whose values come from here. Tied views stay tied.
  template <typename Specification>
  Specification Take(Specification specification) {
    kernels::ForEachWeight(&specification, [&](kernels::FloatView* view) {
      if (!view->empty()) view->data = AddTensor(*view);
    });
    return specification;
  }

  void Read(const kernels::FloatView& view) override {
    Tensor& tensor = Find(view);
    const size_t first = view.data - tensor.visible.data();
    for (size_t i = first; i < first + view.size; ++i) {
      if (tensor.readable[i]) error_ = "two scopes have the same value";
      tensor.readable[i] = true;
      tensor.was_read[i] = true;
      tensor.visible[i] = tensor.values[i];
    }
  }

  void Release(const kernels::FloatView& view) override {
    Tensor& tensor = Find(view);
    const size_t first = view.data - tensor.visible.data();
    for (size_t i = first; i < first + view.size; ++i) {
      if (!tensor.readable[i]) error_ = "a value is released that was not read";
      tensor.readable[i] = false;
      tensor.visible[i] = std::numeric_limits<float>::quiet_NaN();
    }
  }

  // Empty when every value was read, and all were released.
  std::string Error() const {
    for (const auto& [original, tensor] : tensors_) {
      if (std::count(tensor.was_read.begin(), tensor.was_read.end(), false) > 0) {
        return "values were not read";
      }
      if (std::count(tensor.readable.begin(), tensor.readable.end(), true) > 0) {
        return "values were not released";
      }
    }
    return error_;
  }

 private:
  struct Tensor {
    std::vector<float> values;
    std::vector<float> visible;
    std::vector<bool> readable;
    std::vector<bool> was_read;
  };

  const float* AddTensor(const kernels::FloatView& view) {
    Tensor& tensor = tensors_[view.data];
    if (tensor.values.empty()) {
      tensor.values.assign(view.data, view.data + view.size);
      tensor.visible.assign(view.size, std::numeric_limits<float>::quiet_NaN());
      tensor.readable.assign(view.size, false);
      tensor.was_read.assign(view.size, false);
    }
    return tensor.visible.data();
  }

  // Throws std::out_of_range for a view that is not a part of any tensor.
  Tensor& Find(const kernels::FloatView& view) {
    for (auto& [original, tensor] : tensors_) {
      const float* const begin = tensor.visible.data();
      if (view.data >= begin && view.data + view.size <= begin + tensor.visible.size()) {
        return tensor;
      }
    }
    return tensors_.at(view.data);
  }

  std::map<const float*, Tensor> tensors_;  // by the original
  std::string error_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_STRICT_WEIGHT_SOURCE_H_
