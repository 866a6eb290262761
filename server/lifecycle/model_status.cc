#include "server/lifecycle/model_status.h"

namespace sru::server {

const char* ModelStateName(ModelState state) {
  switch (state) {
    case ModelState::kLoading:
      return "loading";
    case ModelState::kReady:
      return "ready";
    case ModelState::kUnloading:
      return "unloading";
    case ModelState::kFailed:
      return "failed";
  }
  return "";
}

}  // namespace sru::server
