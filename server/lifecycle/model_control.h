// What decides which models are served after the start.
#ifndef SRU_SERVER_LIFECYCLE_MODEL_CONTROL_H_
#define SRU_SERVER_LIFECYCLE_MODEL_CONTROL_H_

namespace sru::server::lifecycle {

enum class ModelControl {
  kStatic,    // nothing: the models that the repository holds at the start
  kPoll,      // the repository, which is polled
  kExplicit,  // the callers of AdminService
};

}  // namespace sru::server::lifecycle

#endif  // SRU_SERVER_LIFECYCLE_MODEL_CONTROL_H_
