// Writes an inference.ModelInferResponse as the answer to POST /v2/models/NAME/infer:
//
//   {"model_name": "trec", "model_version": "1", "id": "...", "parameters": {...},
//    "outputs": [{"name": "label", "shape": [2], "datatype": "BYTES", "data": ["...", "..."]}, ...]}
//
// The values of an output are a flat array in row-major order. Those that are wanted in binary form have the parameter
// binary_data_size instead of "data"; their bytes follow the JSON in the order of the outputs, and the header
// Inference-Header-Content-Length has the length of the JSON.
//
// Pure function.
#ifndef SRU_SERVER_REST_V2_RESPONSE_H_
#define SRU_SERVER_REST_V2_RESPONSE_H_

#include "absl/status/statusor.h"
#include "inference/open_inference.pb.h"
#include "server/http/page_message.h"
#include "server/rest/memory_hold.h"
#include "server/rest/v2_request.h"

namespace sru::server::rest {

// Reserves what the body takes. kResourceExhausted if there is not so much; kInternal for an answer that contradicts itself.
absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_RESPONSE_H_
