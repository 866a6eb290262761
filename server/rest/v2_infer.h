// The body of POST /v2/models/NAME/infer and its answer, as the Open Inference Protocol and its
// extension for binary tensor data have them (docs/open_inference.md). Here is only what concerns
// the form: whether the model has these inputs, and whether it wants these outputs and parameters,
// is for the service to say. Thread-safe.
#ifndef SRU_SERVER_REST_V2_INFER_H_
#define SRU_SERVER_REST_V2_INFER_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "inference/open_inference.pb.h"
#include "server/http/page_message.h"
#include "server/rest/memory_hold.h"
#include "server/rest/route.h"

namespace sru::server::rest {

// The header that says how many bytes of a body are JSON, in requests and in answers.
inline constexpr char kJsonLengthHeader[] = "Inference-Header-Content-Length";

// In which form the caller wants the outputs. An output's own parameter goes first.
struct OutputForms {
  bool binary_by_default = false;      // binary_data_output
  std::map<std::string, bool> binary;  // binary_data of an output

  bool IsBinary(const std::string& output) const {
    const auto found = binary.find(output);
    return found == binary.end() ? binary_by_default : found->second;
  }
};

struct HttpInferRequest {
  // Of all inputs, of all outputs, of all parameters together, and of a shape.
  static constexpr size_t kMaxTensors = 64;
  static constexpr size_t kMaxParameters = 64;
  static constexpr size_t kMaxDimensions = 8;

  absl::Cord message;  // an inference.ModelInferRequest
  OutputForms outputs;
};

// Nothing of the body may be left over. Keys that the protocol does not have are refused, as they
// are probably spelled wrongly; a key whose value is null counts as absent. `json_length` is the
// header, "" = there is none. `memory` holds the bytes of the body, and what the message takes when
// this returns. Errors are kInvalidArgument, or kResourceExhausted if there is no memory for the
// values.
absl::StatusOr<HttpInferRequest> ParseHttpInferRequest(std::string body,
                                                       const std::string& json_length,
                                                       const std::string& model,
                                                       const std::string& version,
                                                       MemoryHold* memory);

// Writes the answer:
//
//   {"model_name": "trec", "model_version": "1", "id": "...", "parameters": {...},
//    "outputs": [{"name": "label", "shape": [2], "datatype": "BYTES",
//                 "data": ["...", "..."]}, ...]}
//
// The values of an output are a flat array in row-major order. Those that are wanted in binary form
// have the parameter binary_data_size instead of "data"; their bytes follow the JSON in the order
// of the outputs, and the header has the length of the JSON.
//
// Reserves what the body takes. kResourceExhausted if there is not so much; kInternal for an answer
// that contradicts itself.
absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory);

// Answers the call with it. JSON that may be longer than 256 KiB is sent in parts, as the client
// takes them, so that it is never whole in memory and holds up no thread; for anything else memory
// is reserved as above.
void ReplyHttpInferResponse(const SharedCall& call, inference::ModelInferResponse response,
                            const OutputForms& forms);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_INFER_H_
