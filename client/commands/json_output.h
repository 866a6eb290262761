// How sru_client prints JSON.
#ifndef SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_
#define SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_

#include <string>

#include "client/messages_fwd.h"
#include "nlohmann/json.hpp"

namespace sru::client {

using Json = nlohmann::ordered_json;

// One line. Text that is not UTF-8 gets replacement characters.
std::string Dump(const Json& json);

// A number whose JSON reads back as the same float.
double Exact(float value);

Json TimesJson(const v1::StageTimes& times);

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_JSON_OUTPUT_H_
