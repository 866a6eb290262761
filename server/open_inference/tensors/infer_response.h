// InferResponse: writes a ModelInferResponse as bytes, into which the values of its tensors are
// then copied. Their memory is taken once.
//
//   InferResponse response("trec", 3, id);
//   response.Add("logits", Datatype::kFp32, {batch, labels}, bytes);
//   status = response.Allocate();
//   std::memcpy(response.values(0), ...);
//   response.MoveTo(buffer);
//
// Not thread-safe.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_RESPONSE_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "inference/open_inference.pb.h"
#include "server/open_inference/tensors/task_tensors.h"

namespace sru::server::open_inference {

class InferResponse {
 public:
  InferResponse(absl::string_view model, int64_t version, absl::string_view id);
  InferResponse(const InferResponse&) = delete;
  InferResponse& operator=(const InferResponse&) = delete;

  // A tensor whose values take `bytes` in raw_output_contents.
  void Add(absl::string_view name, Datatype datatype, const Shape& shape, size_t bytes);
  // A tensor of BYTES with elements of these sizes takes this much.
  static size_t BytesOfString(size_t size) { return sizeof(uint32_t) + size; }

  // Once all are added. kInvalidArgument if the answer would be larger than a message can be.
  absl::Status Allocate();
  // Where the values of a tensor go, unaligned.
  uint8_t* values(size_t tensor) { return tensors_[tensor].values; }
  // Writes an element of BYTES and returns where the next one goes.
  static uint8_t* WriteString(absl::string_view text, uint8_t* to);

  // Once all values are there.
  void MoveTo(absl::Cord* bytes);

 private:
  struct Values {
    size_t bytes = 0;
    uint8_t* values = nullptr;
  };

  inference::ModelInferResponse head_;  // without the values, whose field is the last one
  absl::InlinedVector<Values, 4> tensors_;
  size_t size_ = 0;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_RESPONSE_H_
