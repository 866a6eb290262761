// What /openapi.json says of the routes below /v2. Pure functions.
#ifndef SRU_SERVER_REST_V2_OPENAPI_H_
#define SRU_SERVER_REST_V2_OPENAPI_H_

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace sru::server::rest {

// The Operation Object of a GET whose answer has the schema of this name. `path` as Route has it, with its parameters.
nlohmann::json V2QueryOperation(const std::string& path, const std::string& summary,
                                const std::string& schema);
// That of a query whose answer is false with 503.
nlohmann::json V2ProbeOperation(const std::string& path, const std::string& summary,
                                const std::string& schema);
nlohmann::json V2InferOperation(const std::string& path);
// That of a route which only explains where to go instead.
nlohmann::json V2RefusedOperation(const std::string& path, const std::string& summary);

// By name: what the operations refer to.
nlohmann::json V2Schemas();

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_OPENAPI_H_
