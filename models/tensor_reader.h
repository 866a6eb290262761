// TensorReader: takes the tensors of a model by name, and remembers the first error and which
// tensors were taken. Not thread-safe.
#ifndef SRU_MODELS_TENSOR_READER_H_
#define SRU_MODELS_TENSOR_READER_H_

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/stack_spec.h"
#include "models/files/json.h"
#include "models/safetensors.h"

namespace sru::models {

class TensorReader {
 public:
  explicit TensorReader(const SafetensorsFile& tensors) : tensors_(tensors) {}

  // Empty after an error.
  kernels::FloatView Take(const std::string& name, const std::vector<int64_t>& shape) {
    taken_.insert(name);
    absl::StatusOr<kernels::FloatView> view = tensors_.Floats(name, shape);
    if (view.ok()) return *view;
    status_.Update(view.status());
    return kernels::FloatView();
  }

  kernels::FloatView TakeIfPresent(const std::string& name, const std::vector<int64_t>& shape) {
    return tensors_.Find(name) == nullptr ? kernels::FloatView() : Take(name, shape);
  }

  const absl::Status& status() const { return status_; }

  // Call last: returns the first error, or kInvalidArgument for a tensor that no part of the model
  // has taken.
  absl::Status Finish() const {
    SRU_RETURN_UNLESS_OK(status_);
    for (const auto& [name, view] : tensors_.tensors()) {
      if (taken_.count(name) != 0) continue;
      return InvalidArgument(tensors_.source(), ": tensor ", Quoted(name), " of shape ",
                             ShapeString(view.shape),
                             " is not part of a model with this config.json");
    }
    return absl::OkStatus();
  }

 private:
  const SafetensorsFile& tensors_;
  std::set<std::string, std::less<>> taken_;
  absl::Status status_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TENSOR_READER_H_
