#include "client/service_config.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace sru::client {

// Generated from service_config.json by CMake: names and contents.
const std::vector<std::pair<std::string, std::string>>& ServiceConfigFiles();

const std::string& ServiceConfigJson() { return ServiceConfigFiles().front().second; }

std::string ServiceConfigJson(int max_attempts, absl::Duration initial_backoff,
                              absl::Duration max_backoff) {
  // protobuf's JSON form of a duration.
  const auto to_json = [](absl::Duration duration) {
    return absl::StrFormat("%.6fs", absl::ToDoubleSeconds(duration));
  };
  nlohmann::json config = nlohmann::json::parse(ServiceConfigJson());
  for (nlohmann::json& method : config["methodConfig"]) {
    if (max_attempts == 1) {
      method.erase("retryPolicy");
      continue;
    }
    nlohmann::json& policy = method["retryPolicy"];
    policy["maxAttempts"] = max_attempts;
    policy["initialBackoff"] = to_json(initial_backoff);
    policy["maxBackoff"] = to_json(max_backoff);
  }
  return config.dump();
}

}  // namespace sru::client
