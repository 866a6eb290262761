// The tensors of a model by its task: what metadata, configs and errors say of them. Pure functions, thread-safe.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_MODEL_TENSORS_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_MODEL_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "inference/open_inference.pb.h"
#include "models/model.h"
#include "server/open_inference/tensors/sequence_input.h"

namespace sru::server::open_inference {

// The datatypes that tensors have here. The protocol writes them as names in requests, and as an enum in configs.
enum class Datatype { kBytes, kInt32, kInt64, kFp32, kFp64 };
const char* DatatypeName(Datatype datatype);
inference::DataType DatatypeToProto(Datatype datatype);
// Of an element; 0 for BYTES, whose elements differ.
int64_t ElementBytes(Datatype datatype);

enum class OutputTensor {
  kProbabilities,
  kLogits,
  kLabel,
  kEncoding,
  kLengths,
  kLogProb,
  kAnswer,
  kScore,
  kProbability,
  kStart,
  kEnd,
  kTranslation
};

struct OutputInfo {
  const char* name = nullptr;
  Datatype datatype = Datatype::kFp32;
  bool is_default = true;  // whether it comes back when no output is requested
};
// The compiler warns when one is missing.
constexpr OutputInfo Describe(OutputTensor output) {
  switch (output) {
    case OutputTensor::kProbabilities:
      return {"probabilities", Datatype::kFp32};
    case OutputTensor::kLogits:
      return {"logits", Datatype::kFp32};
    case OutputTensor::kLabel:
      return {"label", Datatype::kBytes};
    case OutputTensor::kEncoding:
      return {"encoding", Datatype::kFp32};
    case OutputTensor::kLengths:
      return {"lengths", Datatype::kInt32, false};
    case OutputTensor::kLogProb:
      return {"log_prob", Datatype::kFp64};
    case OutputTensor::kAnswer:
      return {"answer", Datatype::kBytes};
    case OutputTensor::kScore:
      return {"score", Datatype::kFp32};
    case OutputTensor::kProbability:
      return {"probability", Datatype::kFp32, false};
    case OutputTensor::kStart:
      return {"start", Datatype::kInt32};
    case OutputTensor::kEnd:
      return {"end", Datatype::kInt32};
    case OutputTensor::kTranslation:
      return {"translation", Datatype::kBytes};
  }
  return {};
}

// The calls that answer requests, each with its outputs.
enum class InferKind { kClassify, kEncode, kScore, kAnswer, kTranslate };

// The outputs of a call, in the order in which they come back by default.
absl::Span<const OutputTensor> OutputsOf(InferKind kind);

using Outputs = absl::InlinedVector<OutputTensor, 4>;

// The call that gives the requested outputs, and the outputs that come back. kInvalidArgument for a name that the model does not
// have, a name that occurs twice, and outputs that no one call gives.
absl::Status ChooseOutputs(const models::Model& model,
                           absl::Span<const absl::string_view> requested, InferKind* kind,
                           Outputs* outputs);

struct TensorInfo {
  std::string name;
  Datatype datatype = Datatype::kFp32;
  std::vector<int64_t> shape;  // -1: any number; the first is the batch
  bool is_optional = false;    // of an input: another one may be given instead
};

std::vector<TensorInfo> InputInfos(const models::Model& model);
std::vector<TensorInfo> OutputInfos(const models::Model& model);

// Of a model that takes sequences.
SequenceModel SequenceModelOf(const models::Model& model);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_MODEL_TENSORS_H_
