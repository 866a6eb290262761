#include "models/tensor_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/files/json.h"

namespace sru::models {
namespace {

uintptr_t PageSize() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

uintptr_t RoundUpToPage(uintptr_t value) {
  return (value + PageSize() - 1) / PageSize() * PageSize();
}

}  // namespace

absl::Status CheckFinite(const std::string& source, const std::string& tensor,
                         const kernels::FloatView& values, size_t first) {
  // All-ones exponents, counted without a branch so that the compiler vectorises the pass over
  // every weight.
  uint32_t non_finite = 0;
  for (size_t i = 0; i < values.size; ++i) {
    uint32_t bits;
    std::memcpy(&bits, &values.data[i], sizeof(bits));
    non_finite |= (bits & 0x7f800000u) == 0x7f800000u;
  }
  if (non_finite == 0) return absl::OkStatus();
  const auto* bad = std::find_if(values.data, values.data + values.size,
                                 [](float v) { return !std::isfinite(v); });
  return InvalidArgument(source, ": tensor ", Quoted(tensor), ": expected finite values, found ",
                         *bad, " at element ", first + (bad - values.data));
}

absl::StatusOr<std::unique_ptr<TensorPages>> TensorPages::Create(OpenFile file,
                                                                 std::vector<Place> places) {
  size_t bytes = 0;
  for (const Place& place : places) bytes += RoundUpToPage(place.bytes);
  MappedMemory memory;
  if (bytes > 0) {
    memory = MapMemory(bytes, MAP_NORESERVE);  // pages that were never touched take no memory
    if (memory == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat(file.path(), ": no memory for its ", file.size(), " bytes"));
    }
  }
  std::vector<Tensor> tensors;
  size_t used = 0;
  for (Place& place : places) {
    Tensor tensor;
    tensor.memory = memory.get() + used;
    used += RoundUpToPage(place.bytes);
    tensor.place = std::move(place);
    tensors.push_back(std::move(tensor));
  }
  return std::unique_ptr<TensorPages>(
      new TensorPages(std::move(file), std::move(tensors), std::move(memory)));
}

const float* TensorPages::data(size_t index) const {
  return reinterpret_cast<const float*>(tensors_[index].memory);
}

TensorPages::Tensor* TensorPages::Find(const kernels::FloatView& view) {
  const auto* const begin = reinterpret_cast<const char*>(view.data);
  const std::less<const char*> before;
  const char* const end = memory_.get() + memory_.get_deleter().size;
  if (before(begin, memory_.get()) || !before(begin, end)) return nullptr;
  // Tensors without values have the address of the next one.
  auto it = std::upper_bound(tensors_.begin(), tensors_.end(), begin,
                             [](const char* p, const Tensor& t) { return p < t.memory; });
  return &*--it;
}

void TensorPages::Read(const kernels::FloatView& view) {
  Tensor* const found = Find(view);
  if (found == nullptr) return;
  Tensor& tensor = *found;
  char* const to = tensor.memory + (reinterpret_cast<const char*>(view.data) - tensor.memory);
  const size_t bytes = view.size * sizeof(float);
  const size_t begin = to - tensor.memory;
  if (status_.ok()) {
    status_ = file_.Read(tensor.place.offset + begin, bytes, to);
    if (status_.ok()) {
      status_ = CheckFinite(file_.path(), tensor.place.name, view, begin / sizeof(float));
    }
    tensor.bytes_read += bytes;
  }
  if (!status_.ok()) std::memset(to, 0, bytes);
}

void TensorPages::Release(const kernels::FloatView& view) {
  const Tensor* const found = Find(view);
  if (found == nullptr) return;
  const Tensor& tensor = *found;
  const auto base = reinterpret_cast<uintptr_t>(tensor.memory);
  const auto data = reinterpret_cast<uintptr_t>(view.data);
  // Pages at the ends of a part hold values of its neighbors as well.
  const uintptr_t begin = RoundUpToPage(data);
  uintptr_t end = data + view.size * sizeof(float);
  end = end == base + tensor.place.bytes ? RoundUpToPage(end) : end / PageSize() * PageSize();
  if (begin < end) madvise(tensor.memory + (begin - base), end - begin, MADV_DONTNEED);
}

absl::Status TensorPages::CheckAllRead() const {
  if (!status_.ok()) return status_;
  for (const Tensor& tensor : tensors_) {
    if (tensor.bytes_read < tensor.place.bytes) {
      return absl::InternalError(absl::StrCat(file_.path(), ": tensor ", Quoted(tensor.place.name),
                                              ": the backend has read ", tensor.bytes_read,
                                              " bytes of ", tensor.place.bytes));
    }
  }
  return file_.CheckUnchanged();
}

}  // namespace sru::models
