#include "bench/answers_alone.h"

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "google/protobuf/empty.pb.h"

namespace sru::bench {
namespace {

constexpr int kTimesField = 4;

}  // namespace

std::string WithoutTimes(absl::string_view answer) {
  // To a message without fields all of them are unknown, and it keeps them in their order.
  google::protobuf::Empty fields;
  if (!fields.ParseFromString(std::string(answer))) return std::string(answer);
  fields.GetReflection()->MutableUnknownFields(&fields)->DeleteByNumber(kTimesField);
  return fields.SerializeAsString();
}

absl::StatusOr<std::vector<std::string>> AnswersAlone(const LoadOptions& load,
                                                      const std::vector<std::string>& requests) {
  std::vector<std::string> answers(requests.size());
  LoadOptions alone;
  alone.address = load.address;
  alone.method = load.method;
  alone.token = load.token;
  alone.deadline = load.deadline;
  alone.stop = load.stop;
  alone.in_flight = 1;
  alone.connections = 1;
  alone.threads = 1;
  alone.warmup = absl::ZeroDuration();
  alone.duration = absl::Hours(24);
  alone.calls = static_cast<int64_t>(requests.size());
  alone.check = [&answers](size_t request, absl::string_view answer) {
    answers[request] = WithoutTimes(answer);
    return true;
  };
  SRU_ASSIGN_OR_RETURN(auto result, RunLoad(alone, requests));
  for (const auto& [code, message] : result.first_error) return absl::Status(code, message);
  if (result.ok < alone.calls) return absl::CancelledError("ended before the check had begun");
  return answers;
}

}  // namespace sru::bench
