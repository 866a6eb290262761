// Programs on a backend against the reference backend, for gpu_check: every operation, in the forms
// that a language model, a reader and a decoder have.
#ifndef SRU_TESTS_GPU_PROGRAM_CHECKS_H_
#define SRU_TESTS_GPU_PROGRAM_CHECKS_H_

#include <functional>
#include <string>

#include "kernels/backend.h"

namespace sru::testing {

// Calls report(name, ok, detail) once for each check. `small` leaves out what takes long, `brief`
// all but one program of each kind.
void CheckPrograms(kernels::Backend& tested, kernels::Backend& reference, kernels::DataType dtype,
                   bool small, bool brief,
                   const std::function<void(const std::string&, bool, const std::string&)>& report);

}  // namespace sru::testing

#endif  // SRU_TESTS_GPU_PROGRAM_CHECKS_H_
