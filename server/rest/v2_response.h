// Writes an inference.ModelInferResponse as the answer to POST /v2/models/NAME/infer:
//
//   {"model_name": "trec", "model_version": "1", "id": "...", "parameters": {...},
//    "outputs": [{"name": "label", "shape": [2], "datatype": "BYTES",
//                 "data": ["...", "..."]}, ...]}
//
// The values of an output are a flat array in row-major order. Those that are wanted in binary form
// have the parameter binary_data_size instead of "data"; their bytes follow the JSON in the order
// of the outputs, and the header Inference-Header-Content-Length has the length of the JSON.
//
// Thread-safe.
#ifndef SRU_SERVER_REST_V2_RESPONSE_H_
#define SRU_SERVER_REST_V2_RESPONSE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "inference/open_inference.pb.h"
#include "server/http/page_message.h"
#include "server/rest/memory_hold.h"
#include "server/rest/route.h"
#include "server/rest/v2_request.h"

namespace sru::server::rest {

// Reserves what the body takes. kResourceExhausted if there is not so much; kInternal for an answer
// that contradicts itself.
absl::StatusOr<http::PageResponse> WriteHttpInferResponse(
    const inference::ModelInferResponse& response, const OutputForms& forms, MemoryHold* memory);

// Answers the call with it. JSON that may be longer than 256 KiB is sent in parts, as the client
// takes them, so that it is never whole in memory and holds up no thread; for anything else memory
// is reserved as above.
void ReplyHttpInferResponse(std::shared_ptr<RestCall> call, inference::ModelInferResponse response,
                            OutputForms forms);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_RESPONSE_H_
