// The operands, fields and weights of an operation of a program (program.h), as a typed list. Each
// operation goes through its list in Visit(), beside its equation, and calls one function of a
// visitor for each item. A visitor derives from OperationVisitor and hides the functions of the
// items that it wants.
#ifndef SRU_KERNELS_OPERANDS_H_
#define SRU_KERNELS_OPERANDS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/stack_spec.h"

namespace sru::kernels {

using AxisId = int;               // index into Program::axes
using InputId = int;              // into Program::inputs
using ValueId = int;              // into Program::operations
using FieldId = int;              // into Program::fields
inline constexpr int kNone = -1;  // of any of these: there is none
inline constexpr int kAny = -2;   // in a rule: any axis, any width

inline constexpr int kMaxVocabulary = 1 << 30;
inline constexpr int kMaxPosition = 1 << 30;
// The longest rows that are multiplied by rounded weights: sums of their products are int32.
inline constexpr int kMaxInt8Size = 1 << 16;

// Weights that were rounded to whole numbers before they came here; program.h has their arithmetic.
struct Int8View {
  const int8_t* data = nullptr;  // each from -127 to 127
  size_t size = 0;
  float multiplier = 0;  // m: a weight is data / m
  float activation =
      0;  // a, for all rows that they multiply; 0: each row has its own. Not of a table

  bool empty() const { return size == 0; }
};

// How one symbol is picked; ops::Predict has the equations. A member that is 0 does nothing.
struct Sampling {
  float temperature = 0;  // 0: the most probable symbol, and no other member is read
  int32_t top_k = 0;      // at least 0
  float top_p = 0;        // in [0, 1]
  float min_p = 0;        // in [0, 1]
  uint64_t random = 0;    // uniform over all values
};

// Changes the logit z of one symbol before a symbol is picked:
//   z' = (z > 0 ? z / scale : z * scale) + add,  bounded to float32's finite numbers unless add is
// -infinity.
struct Adjustment {
  int32_t id = kNone;
  float scale = 1;  // greater than 0, finite
  float add = 0;    // finite, or -infinity: the symbol is never picked
};

// A symbol and its log-probability.
struct Candidate {
  int32_t id = kNone;
  float log_prob = 0;
};

// The inputs that a batch brings beside the offsets.
enum class InputType {
  kIds,       // int32 [rows of axis], each in [least, limit)
  kFeatures,  // float32 [rows of axis][width]
  kMap,       // int32 [sequences of axis]: a sequence of `target`, which must have one then
  kRows,      // int32 [rows of axis]: a row of `target`
  kSampling,  // Sampling [rows of axis]
  // Adjustment [rows of axis], which is not a sequence axis; each id in [0, limit), ascending
  // within a sequence and each once
  kAdjustments,
};

// A name for messages, the bytes of an item, a value of kFeatures being one, and whether a sequence
// has one item and not a row.
struct InputTypeRow {
  const char* name;
  size_t bytes;
  bool of_sequences;
};
inline constexpr InputTypeRow kInputTypeRows[] = {
    // in the enum's order
    {"ids", sizeof(int32_t), false},       {"features", sizeof(float), false},
    {"a map", sizeof(int32_t), true},      {"rows", sizeof(int32_t), false},
    {"sampling", sizeof(Sampling), false}, {"adjustments", sizeof(Adjustment), false},
};
constexpr const InputTypeRow& RowOf(InputType type) {
  return kInputTypeRows[static_cast<size_t>(type)];
}

// The outputs that a batch may ask for.
enum class OutputType { kRows, kLogProb, kCandidates, kPicked, kAttention };

// The rule that an input must keep.
struct InputRule {
  InputType type = InputType::kIds;
  AxisId axis = kAny;
  AxisId target = kAny;       // kMap, kRows
  bool or_sequences = false;  // kMap: the axis whose sequences `target` has will do as well
  int least = 0;              // kIds
  int limit = 0;              // kIds, kAdjustments
  // kAdjustments: another axis, each row of which they have a sequence for; kIds: one that it isn't
  // on
  AxisId rows_of = kAny;
  bool ascending = false;  // kIds: within a sequence, each of which has some
};
constexpr InputRule AnInput(InputType type, AxisId axis = kAny) { return {type, axis}; }
constexpr InputRule IdsIn(int least, int limit, AxisId axis = kAny) {
  return {InputType::kIds, axis, kAny, false, least, limit};
}
constexpr InputRule ChoicesFor(AxisId rows_of, int limit) {
  return {InputType::kIds, kAny, kAny, false, 0, limit, rows_of, true};
}
constexpr InputRule MapTo(AxisId axis, AxisId target, bool or_sequences = false) {
  return {InputType::kMap, axis, target, or_sequences};
}
constexpr InputRule RowsOf(AxisId target) { return {InputType::kRows, kAny, target}; }
constexpr InputRule AdjustmentsFor(AxisId rows_of, int limit) {
  return {InputType::kAdjustments, kAny, kAny, false, 0, limit, rows_of};
}

// The rule that a field must keep. It is one of the slots of `axis`, which the operation reads or,
// alone, writes.
struct FieldRule {
  enum class Access { kWrites, kReads, kReadsAppended, kReadsShifted };

  Access access = Access::kReads;
  bool grows = false;
  AxisId axis = kAny;
  int64_t width = kAny;
  FieldId as = kNone;    // kReadsAppended: operations of one axis append to both
  ValueId of_x = kNone;  // kReadsShifted: a Shift of this value writes the field
};
// The row that this run replaces.
constexpr FieldRule ReplacedRow(AxisId axis, int64_t width) {
  return {FieldRule::Access::kWrites, false, axis, width};
}
// The rows to which this run adds.
constexpr FieldRule GrownRows(AxisId axis, int64_t width) {
  return {FieldRule::Access::kWrites, true, axis, width};
}
// The rows before this run.
constexpr FieldRule RowsBefore(AxisId axis) { return {FieldRule::Access::kReads, true, axis}; }
// The rows with those that an operation before it adds in this run, if it is of the same axis.
constexpr FieldRule RowsAfter(AxisId axis, int64_t width, FieldId as) {
  return {FieldRule::Access::kReadsAppended, true, axis, width, as};
}
// The last row of x before this run, which a Shift keeps.
constexpr FieldRule LastRow(AxisId axis, int64_t width, ValueId of_x) {
  return {FieldRule::Access::kReadsShifted, false, axis, width, kNone, of_x};
}

enum class Presence { kNeeded, kOptional };

// Does nothing with any item. The comments say what an item means; Validate() checks that it holds.
// `name` is that of the operation's member.
struct OperationVisitor {
  // What is known of the program, for the arguments of items. Of what does not exist, and for
  // visitors that do not need to know: kNone and 0.
  AxisId AxisOf(ValueId /*value*/) const { return kNone; }
  int WidthOf(ValueId /*value*/) const { return 0; }
  AxisId InputAxis(InputId /*input*/) const { return kNone; }
  int InputWidth(InputId /*input*/) const { return 0; }
  int FieldWidth(FieldId /*field*/) const { return 0; }

  // Operands. Rows of a value of an operation before it; name[index] of a list.
  void Value(const char* /*name*/, ValueId /*id*/, AxisId /*axis*/ = kAny, int64_t /*width*/ = kAny,
             int /*index*/ = kNone) {}
  void Input(const char* /*name*/, InputId /*id*/, const InputRule& /*rule*/) {}
  void Field(const char* /*name*/, FieldId /*id*/, const FieldRule& /*rule*/) {}
  // A sequence axis of `of`, or of any axis. `why` ends the message.
  void SequenceAxis(const char* /*name*/, AxisId /*axis*/, AxisId /*of*/,
                    const char* /*why*/ = "") {}

  // Weights: [rows][columns]; the same, rounded; [size]; those of a stack without a pooling and a
  // classifier, in one direction or any. Returns the width of the stack's token vectors, or 0 if
  // that is not known.
  void Matrix(const char* /*name*/, const FloatView& /*view*/, int64_t /*rows*/,
              int64_t /*columns*/) {}
  void Int8Matrix(const char* /*name*/, const Int8View& /*view*/, int64_t /*rows*/,
                  int64_t /*columns*/) {}
  void Vector(const char* /*name*/, const FloatView& /*view*/, int64_t /*size*/,
              Presence /*presence*/ = Presence::kNeeded) {}
  int Layers(const char* /*name*/, const StackSpec& /*spec*/, bool /*one_direction*/) { return 0; }

  // Plain members: in [low, high]; finite; positive; a divisor of `size`, which is `what`; kNone;
  // a pooling or, with `instead`, kNone; whatever `holds` says.
  void Range(const char* /*name*/, int64_t /*value*/, int64_t /*low*/, int64_t /*high*/) {}
  void Finite(const char* /*name*/, float /*value*/) {}
  void Positive(const char* /*name*/, float /*value*/) {}
  void Divides(const char* /*name*/, int /*value*/, const char* /*what*/, int /*size*/) {}
  void None(const char* /*name*/, int /*id*/, const char* /*why*/) {}
  void PoolingOr(const char* /*name*/, Pooling /*pooling*/, bool /*has_instead*/,
                 const char* /*instead*/) {}
  void Rule(bool /*holds*/, const char* /*name*/, const char* /*expected*/, const char* /*found*/) {
  }

  // What it makes: rows of `axis`, of which other operations may use those that have a width.
  void Makes(AxisId /*axis*/, int /*width*/) {}
  // A result of its own, if it is there. A batch that asks for it must bring the inputs that follow
  // in the list; those before the first result are needed whenever the operation runs.
  void Result(OutputType /*type*/, bool /*is_there*/) {}
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_OPERANDS_H_
