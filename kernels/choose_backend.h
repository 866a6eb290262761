// Which backend a program takes when it is told "auto": the first that this machine can run, the
// GPU's before the processor's. What was passed over on the way is reported, for the log.
#ifndef SRU_KERNELS_CHOOSE_BACKEND_H_
#define SRU_KERNELS_CHOOSE_BACKEND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/status.h"

namespace sru::kernels {

struct BackendCandidate {
  std::string name;
  // May be passed over when it cannot be created. An error of any other is final, since it is what
  // the options ask for that is missing, such as an instruction set.
  bool optional = false;
  // `warnings` gets what works in part only, such as a device that is left out.
  std::function<Status(std::unique_ptr<Backend>* backend, std::vector<std::string>* warnings)>
      create;
};

// Creates the first of `candidates` (not empty) that can be created. `warnings` gets the error of
// each that was passed over, with the name of the one that is used instead, and the warnings of
// that one. The last candidate's error if there is none.
Status CreateFirst(const std::vector<BackendCandidate>& candidates,
                   std::unique_ptr<Backend>* backend, std::vector<std::string>* warnings);

// Like CreateBackend(), where `name` may also be "auto": the backends of this build, in the order
// of AvailableBackends(). With options.cuda_devices, "auto" passes over nothing.
Status ChooseBackend(const std::string& name, const BackendOptions& options,
                     std::unique_ptr<Backend>* backend, std::vector<std::string>* warnings);

// The backends that this build has, whatever the machine; asks no driver. The preferred one first.
std::vector<std::string> BuiltBackends();

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CHOOSE_BACKEND_H_
