// The rows of inference.GRPCInferenceService, which is divided between two ports: models are served
// on that of --listen, and their repository is managed on that of --admin_listen, with the rules
// and errors of sru.v1.AdminService.
#ifndef SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_METHODS_H_
#define SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_METHODS_H_

#include <functional>
#include <vector>

#include "absl/time/time.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::open_inference {

// Must outlive the calls.
struct OpenInferenceContext {
  const calls::ServiceContext* service = nullptr;
  std::function<bool()> ready;  // whether the server serves
  absl::Duration max_queue_delay;
};

std::vector<calls::Method> OpenInferenceMethods(const OpenInferenceContext& context);
std::vector<calls::Method> RepositoryMethods(const calls::AdminContext& context);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_OPEN_INFERENCE_METHODS_H_
