// SRU layers by their equations (stack_spec.h).
#ifndef SRU_KERNELS_REFERENCE_LAYER_H_
#define SRU_KERNELS_REFERENCE_LAYER_H_

#include <vector>

#include "kernels/reference/matrix.h"
#include "kernels/reference/storage.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::reference {

// How a state is kept from one row to the next: as it is, or as a slot keeps it, so that a sequence
// may be cut into runs anywhere.
enum class StateStorage { kExact, kFloat32 };

// One layer over one sequence. `c` holds the initial state [output_size] and receives the final
// one.
Matrix RunLayer(const LayerSpec& layer, const Matrix& x, const Storage& storage,
                StateStorage state_storage, std::vector<double>* c);

// All layers of a stack over one sequence of its input, [rows][input_size]. `states` has an initial
// state of each layer and receives the final ones.
Matrix RunLayers(const StackSpec& spec, const Matrix& x, const Storage& storage,
                 StateStorage state_storage, std::vector<std::vector<double>>* states);

}  // namespace sru::kernels::reference

#endif  // SRU_KERNELS_REFERENCE_LAYER_H_
