// An SRU layer by its equations (stack_spec.h).
#ifndef SRU_KERNELS_REFERENCE_LAYER_H_
#define SRU_KERNELS_REFERENCE_LAYER_H_

#include <vector>

#include "kernels/reference/matrix.h"
#include "kernels/reference/storage.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::reference {

// One layer over one sequence. `c` holds the initial state [output_size] and receives the final
// one.
Matrix RunLayer(const LayerSpec& layer, const Matrix& x, const Storage& storage,
                std::vector<double>* c);

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_LAYER_H_
