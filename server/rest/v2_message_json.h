// A protobuf message as JSON with the names of the contract and with 64-bit integers as numbers, which is what clients of
// the Open Inference Protocol read. (The JSON form of proto3 has other names, and strings for these integers.) Fields
// that are not set are written with their defaults, except messages. Enumerators are written by name. Bytes fields must be UTF-8.
// Pure function.
#ifndef SRU_SERVER_REST_V2_MESSAGE_JSON_H_
#define SRU_SERVER_REST_V2_MESSAGE_JSON_H_

#include "google/protobuf/message.h"
#include "nlohmann/json_fwd.hpp"

namespace sru::server::rest {

nlohmann::ordered_json MessageToJson(const google::protobuf::Message& message);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_MESSAGE_JSON_H_
