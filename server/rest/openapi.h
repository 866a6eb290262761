// The OpenAPI 3.1 description of the gateway's routes, at /openapi.json. The schemas of messages
// are made from protobuf's descriptors; the rest stands in the file openapi.json, as the
// description has it. Pure functions.
#ifndef SRU_SERVER_REST_OPENAPI_H_
#define SRU_SERVER_REST_OPENAPI_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "nlohmann/json_fwd.hpp"
#include "server/rest/route.h"

namespace sru::server::rest {

// The Operation Object that openapi.json has at this key, whose answer has the message's members
// besides its own.
nlohmann::json ModelsOperation(const char* part, const google::protobuf::Descriptor& response);

// What openapi.json has at this key.
nlohmann::json OpenApiPart(const char* key);

// Adds the schemas of a message and of those that it has, by name.
void AddSchemas(const google::protobuf::Descriptor& message, nlohmann::json* schemas);
// {"$ref": "#/components/schemas/NAME"}
nlohmann::json SchemaReference(const std::string& name);
// A Response Object with JSON of this schema.
nlohmann::json JsonAnswer(const std::string& description, nlohmann::json schema);
// A Request Body Object with JSON of this schema.
nlohmann::json JsonBody(nlohmann::json schema);

// The whole description. Every operation gets the headers, the errors and the parameters of its
// path, if it does not have them.
std::string OpenApiText(const std::vector<RouteGroup>& groups);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_OPENAPI_H_
