// Where the values of a specification's weights come from while a backend compiles it.
//
// The views of a StackSpec or a Program name the weights. Their values need to be in memory only
// while they are packed, so a large model is loaded without a second copy of it: a backend asks for
// one tensor after the other, or for parts of a large one, and hands each back when it has packed
// it.
//
//   for (const LayerSpec& layer : spec.layers) {
//     const ReadWeights weight(options.weights, layer.weight);  // readable in this scope
//     Pack(layer.weight.data, ..);
//   }
//
// After Compile() no view may be read: WithoutWeights() makes the specification that a compiled
// model may keep, and WeightCopies keeps values as they are.
#ifndef SRU_KERNELS_WEIGHT_SOURCE_H_
#define SRU_KERNELS_WEIGHT_SOURCE_H_

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <memory>
#include <utility>

#include "kernels/stack_spec.h"

namespace sru::kernels {

// Not thread-safe. A value may be read any number of times, but is in one scope of Read() and
// Release() at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Makes the values of `view` readable: a view of the specification, or a part of one. Values that
  // cannot be read are zeros then. The source remembers the error, and its owner, who asks it after
  // Compile(), throws away what was compiled.
  virtual void Read(const FloatView& view) = 0;
  // The values may not be read any more.
  virtual void Release(const FloatView& view) = 0;
};

// The scope in which the values of `view` are readable.
class ReadWeights {
 public:
  // `source` may be null: all values are in memory then. Borrows it.
  ReadWeights(WeightSource* source, const FloatView& view) : source_(source), view_(view) {
    if (source_ != nullptr && !view_.empty()) source_->Read(view_);
  }
  ReadWeights(const ReadWeights&) = delete;
  ReadWeights& operator=(const ReadWeights&) = delete;
  ~ReadWeights() {
    if (source_ != nullptr && !view_.empty()) source_->Release(view_);
  }

 private:
  WeightSource* const source_;
  const FloatView view_;
};

// The scope in which the vectors of a layer are readable: all its weights but the two matrices.
class ReadLayerVectors {
 public:
  ReadLayerVectors(WeightSource* weights, const LayerSpec& layer)
      : weight_c_(weights, layer.weight_c),
        bias_(weights, layer.bias),
        norm_weight_(weights, layer.norm_weight),
        norm_bias_(weights, layer.norm_bias) {}

 private:
  const ReadWeights weight_c_;
  const ReadWeights bias_;
  const ReadWeights norm_weight_;
  const ReadWeights norm_bias_;
};

// Calls body(first row, rows, values of the first row) for all rows of a tensor [rows][width], some
// rows at a time, at most `most_rows`, so that little of a large tensor is in memory.
template <typename Body>
void ReadRows(WeightSource* source, const FloatView& tensor, size_t width, Body body,
              size_t most_rows = std::numeric_limits<size_t>::max()) {
  constexpr size_t kValues = size_t{1} << 18;  // 1 MiB
  const size_t rows = width == 0 ? 0 : tensor.size / width;
  const size_t step = width == 0 ? 1 : std::clamp(kValues / width, size_t{1}, most_rows);
  for (size_t row = 0; row < rows; row += step) {
    const size_t count = std::min(step, rows - row);
    const FloatView part = tensor.Part(row * width, count * width);
    const ReadWeights readable(source, part);
    body(row, count, part.data);
  }
}

// The sizes and variants of a StackSpec or a Program: views keep their sizes and point nowhere.
template <typename Specification>
Specification WithoutWeights(Specification specification) {
  ForEachWeight(&specification, [](FloatView* view) { view->data = nullptr; });
  return specification;
}

// Copies of weights, for a backend that computes with the values as they are. Views of the same
// values share a copy.
class WeightCopies {
 public:
  // Makes the views of a StackSpec or a Program point to copies that live as long as this object.
  // Throws std::bad_alloc.
  template <typename Specification>
  void Take(WeightSource* source, Specification* specification) {
    ForEachWeight(specification, [&](FloatView* view) { *view = Copy(source, *view); });
  }

  size_t bytes() const { return bytes_; }

 private:
  FloatView Copy(WeightSource* source, const FloatView& view) {
    if (view.empty()) return view;
    std::unique_ptr<float[]>& copy = copies_[{view.data, view.size}];
    if (copy == nullptr) {
      copy.reset(new float[view.size]);
      ReadRows(source, view, 1, [&](size_t first, size_t count, const float* values) {
        std::copy_n(values, count, copy.get() + first);
      });
      bytes_ += view.size * sizeof(float);
    }
    return {copy.get(), view.size};
  }

  std::map<std::pair<const float*, size_t>, std::unique_ptr<float[]>> copies_;  // by the original
  size_t bytes_ = 0;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_WEIGHT_SOURCE_H_
