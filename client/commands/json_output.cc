#include "client/commands/json_output.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double Exact(float value) { return std::strtod(absl::StrFormat("%.9g", value).c_str(), nullptr); }

Json TimesJson(const v1::StageTimes& times) {
  return {{"tokenize_us", times.tokenize_us()},
          {"queue_us", times.queue_us()},
          {"compute_us", times.compute_us()},
          {"total_us", times.total_us()}};
}

}  // namespace sru::client
