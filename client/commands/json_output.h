// How sru_client prints JSON.
#ifndef SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_
#define SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace sru::client {

using Json = nlohmann::ordered_json;

// One line. Text that is not UTF-8 gets replacement characters.
std::string Dump(const Json& json);

// A number whose JSON reads back as the same float.
double Exact(float value);

// The fields of a message, in their order and under their names. Leaves out bytes and what is not set.
Json MessageJson(const google::protobuf::Message& message);

// A line with the `result` for one text of those that a call has answered.
template <typename Response>
Json ResultJson(int64_t line, const std::string& text, const Response& response,
                const google::protobuf::Message& result, absl::Duration latency) {
  Json json = {
      {"line", line}, {"text", text}, {"model", response.model()}, {"version", response.version()}};
  json.update(MessageJson(result));
  json["latency_us"] = absl::ToDoubleMicroseconds(latency);
  json["times"] = MessageJson(response.times());
  return json;
}

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_
