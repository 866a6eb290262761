// A program's weights as the CUDA backend multiplies and reads them, and what follows from the
// program for its workspaces: packed once on the host, like a stack (packed_stack.h). Immutable
// once made.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_PACK_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_PACK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/row_layout.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/program.h"
#include "kernels/state_arena.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cuda {

// Products that are tried for the same row counts: all of an axis, or one Predict's.
struct ProductGroup {
  AxisId axis = kNone;
  ValueId predict = kNone;  // kNone: the Linear operations of the axis
  std::vector<ProductShape> shapes;
  std::vector<TensorIndex> weights;  // [shape]: of one of its products
};

// The first product of a stack that takes rows; null where a layer norm of its own comes before, or
// where the first layer is fused.
const PackedProduct* FirstProduct(const PackedStack& stack);

// Of one operation; what it does not have is not set.
struct PackedOperation {
  int stack = -1;         // index into PackedProgram::stacks
  int group = -1;         // of the product
  PackedProduct product;  // its shape is one of the group's; y = x w is float32
  // Linear operations of the same x that attention alone reads, such as queries, keys and values,
  // are one product: the first of them has it, with its weights and biases, and their values are
  // columns of its rows. Of each of them, the first, and where its columns begin.
  ValueId first = kNone;  // kNone: it is not one of several
  int column = 0;
  int row_stride = 0;  // of the product's rows; 0 = as of any value
  // Whether what reads a Linear's value adds its bias: attention to its queries, Append to new
  // rows, an Add, which alone reads the value then, with its own sum. It saves a launch and a pass
  // over the rows.
  bool adds_bias_later = false;
  ValueId bias_of = kNone;  // of an Add: the Linear
  // Operations that a later one of the same part does in its own launch (program_join.cc), in
  // order: of that one which they are, and of each of them that it is one.
  std::vector<ValueId> joined;
  bool is_joined = false;
  // Of a product, or of a stack that begins with one: the layer norm right before it, whose rows
  // alone it multiplies, and the Append of its columns right behind it. Our kernel for few rows
  // does all of them in one launch. Of these two: whose they are.
  ValueId norm_before = kNone;
  ValueId append_after = kNone;
  ValueId done_by = kNone;
  // Stacks of one axis whose states are copied together: before the first of them from the slots,
  // which it lists, and behind the last one to them. Where a stack's are in memory, in values of a
  // sequence.
  std::vector<ValueId> states_before, states_after;
  int state_begin = 0;
  // In which forms the value's rows are in memory: float32, where something reads that or the
  // operation needs it, and the storage type of products, where that is another one, for these
  // users of the program.
  bool keeps_float = true;
  uint64_t rounded_users = 0;
  bool rounds = false;               // the operation's own launch makes the rounded rows
  TensorIndex table = kNoTensor;     // Embed: [vocabulary][stride] in the storage type
  TensorIndex divisors = kNoTensor;  // Embed: float64, of the sinusoids (operation_args.h)
  TensorIndex never = kNoTensor;     // Predict: int32
  // What its list names, in its order.
  std::vector<TensorIndex> vectors;  // float32, padded; kNoTensor where there is none
  std::vector<ValueId> arguments;    // the values that it reads
};

// Fields that share pages and of which operations of an axis read or write some. Growing ones may
// be used on several axes.
struct FieldUse {
  FieldId field = kNone;  // the first of them
  AxisId axis = kNone;
};

struct PackedProgram {
  // `shape` is that of the program. Reads the weights in the scopes of `source`, null = they are in
  // memory. Throws std::bad_alloc.
  PackedProgram(const Program& given, ProgramShape program_shape, const PackOptions& options,
                WeightSource* source);

  // Values are rows of this layout, whatever their width means.
  RowLayout layout(ValueId value) const { return {1, shape.values[value].width}; }
  int stride(ValueId value) const { return layout(value).stride(); }
  // Of the rows in memory, which several values may share, and the value's place in them.
  int row_stride(ValueId value) const;
  int column(ValueId value) const { return operations[OriginalOf(value)].column; }
  // Of an Append, whose value it is.
  ValueId OriginalOf(ValueId value) const;
  bool is_sequence_axis(AxisId axis) const { return program.axes[axis].sequences_of != kNone; }
  // The axis whose sequences an axis has: itself, or that of a sequence axis.
  AxisId sequences_of(AxisId axis) const {
    return is_sequence_axis(axis) ? program.axes[axis].sequences_of : axis;
  }
  // Whether rows are added to growing fields of the slots of this axis.
  bool appends(const FieldUse& use) const {
    return program.fields[use.field].grows && shape.field_axes[use.field] == use.axis;
  }
  // The index in field_uses of a field that operations of the axis use.
  int use_of(FieldId field, AxisId axis) const;
  const ProductShape& shape_of(const PackedOperation& operation) const {
    return groups[operation.group].shapes[operation.product.shape];
  }

  Program program;  // its views are empty or point nowhere
  ProgramShape shape;
  DataType dtype;
  std::vector<PackedOperation> operations;  // [operation]
  std::vector<std::unique_ptr<PackedStack>> stacks;
  std::vector<ProductGroup> groups;
  std::vector<FieldUse> field_uses;
  std::vector<FieldPlace> places;  // [field]
  // Axes whose operations read values of one another, or whose inputs point to one another, are a
  // part of the program. Parts meet in slots alone, of which each is on one axis of a batch.
  std::vector<int> parts;            // [axis]
  std::vector<uint64_t> part_users;  // [part]: those of its operations (ProgramShape::users)
  std::vector<bool> has_stack;       // [axis]: an operation needs its sequences by length
  std::vector<bool> has_operations;  // [axis]; else only inputs are on it
  std::vector<int> state_sizes;      // [axis]: of the states of its stacks, in values of a sequence
  HostTensors tensors;               // emptied by ReleaseHostCopy(), with those of the stacks

  void ReleaseHostCopy();
};

// Joins what can be one launch of the operations of a program whose products and parts are known:
// at decoding's few rows a launch takes longer than what it does. An operation rounds its own rows
// for the products that read them, where it can. Appends of values that are columns of one product,
// and an Add and the Normalize of its sum, are one launch, where nothing runs between them; what
// they read lives until the last one of them. The states of an axis' stacks are copied together.
// Throws std::bad_alloc.
void JoinOperations(PackedProgram* packed);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_PACK_H_
