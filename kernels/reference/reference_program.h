// The oracle of programs: every operation by its equation in program.h, in float64, one row after
// the other.
#ifndef SRU_KERNELS_REFERENCE_REFERENCE_PROGRAM_H_
#define SRU_KERNELS_REFERENCE_REFERENCE_PROGRAM_H_

#include <memory>

#include "kernels/backend.h"
#include "kernels/reference/storage.h"

namespace sru::kernels::reference {

// A workspace without memory, for this backend allocates as it runs.
template <typename Interface, typename Limits>
class EmptyWorkspace : public Interface {
 public:
  explicit EmptyWorkspace(const Limits& limits) : limits_(limits) {}
  const Limits& limits() const override { return limits_; }
  size_t bytes() const override { return 0; }

 private:
  const Limits limits_;
};

// Backend::Compile(); `storage` is that of the weights and of the rows that they multiply.
Status CompileProgram(const Program& program, const CompileOptions& options, const Storage& storage,
                      std::unique_ptr<ProgramExecutable>* executable);

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_REFERENCE_PROGRAM_H_
