// TaskTensors: a task's part of ModelInfer, as a row: which inputs and parameters become its
// request, and which outputs its answer becomes. The form of its messages (infer_form.h), metadata,
// configs and errors follow from it.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_TASK_TENSORS_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_TASK_TENSORS_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"
#include "inference/open_inference.pb.h"
#include "models/model.h"
#include "server/calls/bounds/request_outline.h"

namespace sru::server::open_inference {

struct InferCall;

// The datatypes that tensors have here. The protocol writes them as names in requests, and as an
// enum in configs.
enum class Datatype { kBytes, kInt32, kInt64, kFp32, kFp64 };

struct DatatypeInfo {
  const char* name = "";
  inference::DataType in_config = inference::TYPE_INVALID;
  int64_t element_bytes = 0;  // 0: elements differ
};
// The compiler warns when one is missing.
constexpr DatatypeInfo Describe(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBytes:
      return {"BYTES", inference::TYPE_STRING, 0};
    case Datatype::kInt32:
      return {"INT32", inference::TYPE_INT32, 4};
    case Datatype::kInt64:
      return {"INT64", inference::TYPE_INT64, 8};
    case Datatype::kFp32:
      return {"FP32", inference::TYPE_FP32, 4};
    case Datatype::kFp64:
      return {"FP64", inference::TYPE_FP64, 8};
  }
  return {};
}

// That of a value: a text, or a number.
template <typename Value>
constexpr Datatype DatatypeOf() {
  if constexpr (std::is_same_v<Value, absl::string_view>) return Datatype::kBytes;
  if constexpr (std::is_same_v<Value, int32_t>) return Datatype::kInt32;
  if constexpr (std::is_same_v<Value, float>) return Datatype::kFp32;
  if constexpr (std::is_same_v<Value, double>) return Datatype::kFp64;
}

inline constexpr int64_t kAnySize = -1;
using Shape = absl::InlinedVector<int64_t, 3>;
// Of an input with one value for each item. It may come as [batch] as well, but Triton's tools want
// a dimension besides the batch.
inline Shape ColumnShape() { return {kAnySize, 1}; }

struct TensorInfo {
  std::string name;
  Datatype datatype = Datatype::kFp32;
  Shape shape;               // the first is the batch
  bool is_optional = false;  // of an input: a request may lack it
};

// How the inputs of one request become a request of sru.v1. One per call.
class TaskInputs {
 public:
  virtual ~TaskInputs() = default;
  // Those of a model.
  virtual std::vector<TensorInfo> Infos(const models::Model& model) const = 0;
  // Finds the inputs and adds to `outline` what they will take, without reading them, in terms of
  // the request of sru.v1.
  virtual absl::Status Outline(const InferCall& call, calls::RequestOutline* outline) = 0;
  // Requires Outline().
  virtual absl::Status Read(const InferCall& call, google::protobuf::Message* request) = 0;
  // The message of an error about what Read() wrote, "sequences[3].text: ...", in terms of the
  // inputs: "input text[3]: ...". Empty for a message about anything else.
  virtual std::string Explain(absl::string_view message) const = 0;
  // Whether Read() wrote something else in the place of a blank row, which the request's message
  // cannot have.
  virtual bool IsReplaced(int /*row*/) const { return false; }
};

// An output of a task: a value for each item of its answer, which has one repeated field, or a row
// of values.
struct Output {
  enum Default : uint8_t {
    kComes,           // comes back when no output is requested
    kOnRequest,       // does not
    kComesWithTokens  // comes back then if the items of the first output have a vector per token
  };

  const char* name = "";
  Datatype datatype = Datatype::kFp32;
  Default comes = kComes;
  // Whether a row without tokens has NaN or -1, so that nobody takes its values for computed ones.
  // False: it has what `values` writes. Texts of such a row are empty, vectors of tokens too.
  bool marks_blank = true;
  // One of them: the text of an item, or what writes its values and returns where they end. The
  // rest of a row is zero.
  std::function<absl::string_view(const google::protobuf::Message& item)> text = nullptr;
  std::function<uint8_t*(const google::protobuf::Message& item, uint8_t* to)> values = nullptr;
  // The sizes after the batch, of an answer or, if that is null, of a model; null: none.
  Shape (*sizes)(const models::Model& model, const google::protobuf::Message* answer) = nullptr;
};

// The output that get(item) gives: a text or a number of an `Item`.
template <typename Item, typename Get>
Output ValueOutput(const char* name, Get get, Output::Default comes = Output::kComes) {
  using Value = decltype(get(std::declval<const Item&>()));
  Output output;
  output.name = name;
  output.datatype = DatatypeOf<Value>();
  output.comes = comes;
  if constexpr (std::is_same_v<Value, absl::string_view>) {
    output.text = [get](const google::protobuf::Message& item) {
      return get(static_cast<const Item&>(item));
    };
  } else {
    output.values = [get](const google::protobuf::Message& item, uint8_t* to) {
      const Value value = get(static_cast<const Item&>(item));
      std::memcpy(to, &value, sizeof(value));
      return to + sizeof(value);
    };
  }
  return output;
}

// The number of tokens of an `Item`.
template <typename Item>
Output LengthsOutput(Output::Default comes = Output::kComes) {
  Output output = ValueOutput<Item>(
      "lengths", [](const Item& item) { return item.token_count(); }, comes);
  output.marks_blank = false;
  return output;
}

struct TaskTensors {
  std::vector<Output> outputs;
  // Besides those that every task has: fields of the request of the same names (ReadField()).
  std::vector<absl::string_view> parameters;
  std::unique_ptr<TaskInputs> (*make_inputs)() = nullptr;
  // Sets what the wanted outputs need, if the call does not always give it.
  void (*prepare)(const InferCall& call, google::protobuf::Message* request) = nullptr;
};

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_TASK_TENSORS_H_
