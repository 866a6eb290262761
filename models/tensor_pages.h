// The tensors of a file, read into memory while a backend compiles a model and asks for them
// (kernels/weight_source.h), and given back to the system as soon as it has packed them. So the
// memory that loading takes beside the packed weights is that of one tensor, and not of the file.
#ifndef SRU_MODELS_TENSOR_PAGES_H_
#define SRU_MODELS_TENSOR_PAGES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/stack_spec.h"
#include "kernels/weight_source.h"
#include "models/files/file.h"

namespace sru::models {

// kInvalidArgument for values that are not finite; `first` is the first value's element number.
absl::Status CheckFinite(const std::string& source, const std::string& tensor,
                         const kernels::FloatView& values, size_t first);

// Not thread-safe.
class TensorPages final : public kernels::WeightSource {
 public:
  // Where the bytes of a tensor of float32 values are in the file.
  struct Place {
    std::string name;
    uint64_t offset = 0;
    size_t bytes = 0;
  };

  // Takes addresses for all tensors, but no memory. kResourceExhausted when there are none.
  static absl::StatusOr<std::unique_ptr<TensorPages>> Create(OpenFile file,
                                                             std::vector<Place> places);

  const OpenFile& file() const { return file_; }

  // Where the values of tensor `index` of `places` will be; on a page boundary of its own.
  const float* data(size_t index) const;

  // Reads from the file and checks that the values are finite. An error makes them zeros and is
  // kept for status(); after it nothing is read any more. Values that are not in the file, such as
  // a table that a model computes, are in memory: they stay as they are.
  void Read(const kernels::FloatView& view) override;
  void Release(const kernels::FloatView& view) override;

  // The first error of Read().
  const absl::Status& status() const { return status_; }
  // The same, or kAborted when the file was written to meanwhile, or kInternal, with the name of
  // the tensor, when the backend has not read every value: unread values are not checked.
  absl::Status CheckAllRead() const;

 private:
  struct Tensor {
    Place place;
    char* memory = nullptr;
    size_t bytes_read = 0;  // again and again, where a value was read more than once
  };

  TensorPages(OpenFile file, std::vector<Tensor> tensors, MappedMemory memory)
      : file_(std::move(file)), tensors_(std::move(tensors)), memory_(std::move(memory)) {}

  // Null for values that are not in the file.
  Tensor* Find(const kernels::FloatView& view);

  const OpenFile file_;
  std::vector<Tensor> tensors_;  // in the order of their addresses
  const MappedMemory memory_;    // null when there are no values
  absl::Status status_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TENSOR_PAGES_H_
