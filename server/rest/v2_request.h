// Reads the body of POST /v2/models/NAME/infer, as the Open Inference Protocol and its extension
// for binary tensor data have it (docs/open_inference.md), and writes it as an
// inference.ModelInferRequest. Nothing of the body may be left over.
//
// Here is only what concerns the form. Whether the model has these inputs, and whether it wants
// these outputs and parameters, is for the service to say. Keys that the protocol does not have are
// refused, as they are probably spelled wrongly; a key whose value is null counts as absent.
//
// Pure functions. Errors are kInvalidArgument, or kResourceExhausted if there is no memory for the
// values.
#ifndef SRU_SERVER_REST_V2_REQUEST_H_
#define SRU_SERVER_REST_V2_REQUEST_H_

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "server/rest/memory_hold.h"

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

  absl::Cord message;
  OutputForms outputs;
};

// `json_length` is that header, "" = there is none. `memory` holds the bytes of the body, and what
// the message takes when this returns.
absl::StatusOr<HttpInferRequest> ParseHttpInferRequest(std::string body,
                                                       const std::string& json_length,
                                                       const std::string& model,
                                                       const std::string& version,
                                                       MemoryHold* memory);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_REQUEST_H_
