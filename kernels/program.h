// Program: a model that is more than one SRU stack, described in a small vocabulary of operations
// over ragged rows. models/ writes the description, one file per architecture; a backend compiles
// it once and runs it with one call per batch (backend.h).
//
// Axes. An axis is a ragged list of rows: B sequences, one after the other, with offsets[B + 1]
// that each Run() gives. x_t is row t of a value, b(t) the sequence of row t, and L_b the number of
// rows of sequence b, which may be 0 where an operation's description does not say otherwise. A
// program may have several axes, such as the tokens of passages and those of questions; an axis
// that a batch leaves empty costs nothing. A sequence axis has one row for each sequence of another
// axis, which is not a sequence axis itself: as many sequences, of one row each.
//
// Values. An operation makes one value: rows of one axis, float32, row-major without padding. The
// operation's index is the value's name; it may use the values of operations before it only.
//
// State. A field is what an operation remembers of a sequence from one Run() to the next, kept in a
// slot of a StateArena (state_arena.h): one row that each run replaces (a recurrent state), or rows
// that each run adds to (keys and values of attention). In a fresh slot a fixed field is zero and a
// growing one empty. An operation uses the fields of the slots of its own axis, which is not a
// sequence axis. One operation writes a field (Stack, Shift or Append); operations of other axes
// may read a growing one that a run before has filled, since a slot is on one axis of a batch at
// most. A sequence without a slot begins fresh and is forgotten; it cannot be on an axis where an
// operation with a growing field runs.
//
// Data types. Values are float32. With DataType::kBFloat16 the weights of Linear and Predict, the
// rows that they multiply, and Embed's table are rounded to bfloat16; their sums are float32. With
// DataType::kInt8 the weights are rounded to int8, and Embed's table to bfloat16. Stack
// rounds as it does alone (stack_spec.h). Everything else is float32 in all of them.
//
// Rounded weights. Linear, Predict and Embed may take whole numbers q (Int8View), which a quantizer
// made of weights w: q = w m, rounded. Whatever the data type, a product with them is in the
// arithmetic of Marian's int8 models, with exact sums and every other operation rounded to float32:
//   r_j = x_j a, rounded to the nearest whole number, halves to even, within -127 and 127
//   y_i = (sum_j (r_j + 127) q_ij) * (1 / (a m))
//         + (b_i + (sum_j q_ij) * -((127 / a) * (127 / m) / 127))
//                                                      with `activation`, which is a then
//   y_i = (sum_j r_j q_ij) * (1 / (a m)) + b_i         without: a = 127 / max_j |x_j|, and
//                                                      y = b if all |x_j| are below 1e-30
// A row of a table is q * (1 / m).
//
// Weights. What the views of a program point to is read until Backend::Compile() returns, which
// copies what it needs, and not after that. Compile() reads it in the scopes of
// CompileOptions::weights (weight_source.h), except for rounded weights, which must be in memory.
// Two Linear, or two Predict, whose views point to the same values share what is packed of them,
// and on the processor two Embed of one table that differ in position_field only.
//
// Promise: a sequence's results have the same bits whatever else is in the batch, and however its
// rows are cut into runs where a state is carried (same backend, data type and machine).
#ifndef SRU_KERNELS_PROGRAM_H_
#define SRU_KERNELS_PROGRAM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/operands.h"
#include "kernels/stack_spec.h"
#include "kernels/status.h"

namespace sru::kernels {

struct AxisSpec {
  std::string name;             // for messages
  AxisId sequences_of = kNone;  // a sequence axis: one row per sequence of that axis
};

struct InputSpec {
  std::string name;  // for messages
  InputType type = InputType::kIds;
  AxisId axis = kNone;
  AxisId target = kNone;  // kMap, kRows
  int width = 0;          // kFeatures
  int least = 0;          // kIds
  int limit = 0;          // kIds, kAdjustments

  // Of a row of the axis, or of a sequence where the type has one item for it.
  size_t item_bytes() const {
    return RowOf(type).bytes * (type == InputType::kFeatures ? width : 1);
  }
};

struct FieldSpec {
  std::string name;    // for messages
  int width = 0;       // values of a row
  bool grows = false;  // rows are added; else there is one row, which is replaced
};

// The operations. Each has its name, for messages, its equation, and in Visit() the typed list of
// what it takes: what a program must be, what a batch must bring, which weights there are and which
// values and fields it uses all follow from this list (operands.h has its vocabulary).
namespace ops {

// The item of a weight that may be rounded: of its two views exactly one is there.
template <class List>
void MatrixOrInt8(List& list, const char* name, const FloatView& view, const char* int8_name,
                  const Int8View& int8_view, int64_t rows, int64_t columns) {
  if (int8_view.empty()) return list.Matrix(name, view, rows, columns);
  list.Rule(view.empty(), name, "none, since there are rounded weights", "values");
  list.Int8Matrix(int8_name, int8_view, rows, columns);
}

// y_t = x_t of the input.
struct Features {
  static constexpr const char* kName = "features";
  InputId input = kNone;  // kFeatures

  template <class List>
  void Visit(List& list) const {
    list.Input("input", input, AnInput(InputType::kFeatures));
    list.Makes(list.InputAxis(input), list.InputWidth(input));
  }
};

// The sinusoids of positions, P[p]. They are computed in float64 and rounded to float32.
enum class Positions {
  kNone,         // 0
  kInterleaved,  // P[p][2i] = sin(p / 10000^(2i / width)),  P[p][2i + 1] = cos(of the same);
                 // an odd width ends with a sine
  kHalves,       // Marian's, with h = width / 2, at least 2, and an even width:
                 // P[p][i] = sin(p / 10000^(i / (h - 1))),  P[p][h + i] = cos(of the same)
};

// y_t = scale * E[id_t] + P[p_t]. E[-1] is a row of zeros. p_t is the place of t in its sequence,
// from 0, plus the rows that `position_field` had before this run; or what `position_ids` says.
struct Embed {
  static constexpr const char* kName = "embed";
  InputId ids = kNone;  // kIds with least = 0, or -1 with `zero_row`, and limit = vocabulary_size
  FloatView table;      // E: [vocabulary_size][width], or
  Int8View int8_table;  // the same
  bool zero_row = false;
  int vocabulary_size = 0;
  int width = 0;
  float scale = 1.0f;
  Positions positions = Positions::kNone;
  // At most one of them, with `positions` only:
  FieldId position_field = kNone;  // a growing field
  InputId position_ids =
      kNone;  // kIds on the axis of `ids` with least = 0 and limit = kMaxPosition

  template <class List>
  void Visit(List& list) const {
    list.Range("vocabulary_size", vocabulary_size, 1, kMaxVocabulary);
    list.Range("width", width, 1, kMaxSize);
    MatrixOrInt8(list, "table", table, "int8_table", int8_table, vocabulary_size, width);
    list.Input("ids", ids, IdsIn(zero_row ? -1 : 0, vocabulary_size));
    list.Finite("scale", scale);
    if (positions == Positions::kNone) {
      list.None("position_field", position_field, "since positions is none");
      list.None("position_ids", position_ids, "since positions is none");
    }
    list.Rule(positions != Positions::kHalves || (width >= 4 && width % 2 == 0), "width",
              "an even number of at least 4, since positions is halves", "another");
    if (position_field != kNone) {
      list.None("position_ids", position_ids, "since there is a position_field");
      list.Field("position_field", position_field, RowsBefore(list.InputAxis(ids)));
    }
    if (position_ids != kNone)
      list.Input("position_ids", position_ids, IdsIn(0, kMaxPosition, list.InputAxis(ids)));
    list.Makes(list.InputAxis(ids), width);
  }
};

// y_t = W x_t + b, or max(0, W x_t + b) with relu.
struct Linear {
  static constexpr const char* kName = "linear";
  ValueId x = kNone;
  int width = 0;         // of y
  FloatView weight;      // W: [width][width of x], or
  Int8View int8_weight;  // the same
  FloatView bias;        // [width]; empty = zeros
  bool relu = false;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Range("width", width, 1, kMaxSize);
    MatrixOrInt8(list, "weight", weight, "int8_weight", int8_weight, width, list.WidthOf(x));
    list.Vector("bias", bias, width, Presence::kOptional);
    list.Makes(list.AxisOf(x), width);
  }
};

// y_t = (x_t - mean(x_t)) / sqrt(variance(x_t) + epsilon) * weight + bias, the variance divided by
// the width.
struct Normalize {
  static constexpr const char* kName = "normalize";
  ValueId x = kNone;
  FloatView weight;  // [width of x]
  FloatView bias;    // [width of x]
  float epsilon = kLayerNormEpsilon;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Vector("weight", weight, list.WidthOf(x));
    list.Vector("bias", bias, list.WidthOf(x));
    list.Positive("epsilon", epsilon);
    list.Makes(list.AxisOf(x), list.WidthOf(x));
  }
};

// y_t: the token vectors of a stack of SRU layers (stack_spec.h), without a pooling and a
// classifier. Exactly one of `ids`, for a stack with an embedding, and `x`, for one without, is
// set. `state` is c after the last row, of all layers: [layers][output_size]; for unidirectional
// stacks only. A sequence without rows leaves it as it was.
struct Stack {
  static constexpr const char* kName = "stack";
  InputId ids = kNone;  // kIds with least = 0 and limit = vocabulary_size
  ValueId x = kNone;
  StackSpec spec;
  FieldId state = kNone;  // fixed, of layers * output_size values

  template <class List>
  void Visit(List& list) const {
    const int width = list.Layers("spec", spec, /*one_direction=*/state != kNone);
    list.Rule((ids == kNone) != (x == kNone), "ids, x", "exactly one of them",
              x == kNone ? "none" : "both");
    if (x == kNone) {
      list.Rule(spec.vocabulary_size != 0, "spec.vocabulary_size", "an embedding, since ids is set",
                "0");
      list.Input("ids", ids, IdsIn(0, spec.vocabulary_size));
    } else {
      list.Range("spec.vocabulary_size", spec.vocabulary_size, 0, 0);
      list.Value("x", x, kAny, spec.input_size);
    }
    const AxisId axis = x == kNone ? list.InputAxis(ids) : list.AxisOf(x);
    const int64_t state_width = static_cast<int64_t>(spec.layers.size()) * width;
    if (state != kNone) list.Field("state", state, ReplacedRow(axis, state_width));
    list.Makes(axis, width);
  }
};

// The cell of SSRU ("From Research to Production and Back", Kim et al., WNGT 2019), in the rows'
// order:
//   f_t = sigmoid(forget_t),  c_t = f_t * c_{t-1} + (1 - f_t) * x_t,  y_t = max(0, c_t)
// `state` is c after the last row. A sequence without rows leaves it as it was.
struct Ssru {
  static constexpr const char* kName = "ssru";
  ValueId x = kNone;
  ValueId forget = kNone;  // of x's axis and width
  FieldId state = kNone;   // fixed, of x's width

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Value("forget", forget, list.AxisOf(x), list.WidthOf(x));
    list.Field("state", state, ReplacedRow(list.AxisOf(x), list.WidthOf(x)));
    list.Makes(list.AxisOf(x), list.WidthOf(x));
  }
};

// Multi-head attention. Head j has the j-th of `heads` equal parts of the columns of q, k and v:
//   y_tj = sum_s a_tjs v_sj,   a_tj = softmax_s(scale * q_tj . k_sj)
// s runs over the rows of one sequence: of `map`'s sequence for b(t) if there is a map, else of the
// sequence b(t) itself (keys and values are on q's axis then), or over the rows that the fields of
// b(t)'s slot have after this run's Append, which comes before if it is of the same axis. With
// `causal`, row i of the L_b rows of b(t) sees all s but the last L_b - 1 - i. A row that sees no s
// gets zeros. Its weights are a result of their own:
//   attention   the a_t0s of head 0, row after row without padding: of row t one value for every s
//               of the sequence or of the fields, 0 for those that it does not see
struct Attend {
  static constexpr const char* kName = "attend";
  ValueId q = kNone;
  ValueId keys = kNone;    // k: width of q
  ValueId values = kNone;  // v: any width, which is y's
  // In place of keys and values; `map` is kNone then. Operations of one axis append to both. Run()
  // refuses a slot, which can only have been put in, with more rows of one than of the other.
  FieldId key_field = kNone;
  FieldId value_field = kNone;
  InputId map = kNone;  // kMap from q's axis to that of keys and values
  int heads = 1;        // divides both widths
  float scale = 1.0f;
  bool causal = false;

  template <class List>
  void Visit(List& list) const {
    list.Value("q", q);
    list.Range("heads", heads, 1, kMaxSize);
    list.Finite("scale", scale);
    list.Divides("heads", heads, "q's width", list.WidthOf(q));
    int width = 0;
    if (key_field != kNone || value_field != kNone) {
      list.None("keys", keys, "since there are fields");
      list.None("values", values, "since there are fields");
      list.None("map", map, "since there are fields");
      list.Field("key_field", key_field, RowsAfter(list.AxisOf(q), list.WidthOf(q), key_field));
      list.Field("value_field", value_field, RowsAfter(list.AxisOf(q), kAny, key_field));
      width = list.FieldWidth(value_field);
    } else {
      list.Value("keys", keys, map == kNone ? list.AxisOf(q) : kAny, list.WidthOf(q));
      list.Value("values", values, list.AxisOf(keys));
      if (map != kNone) list.Input("map", map, MapTo(list.AxisOf(q), list.AxisOf(keys)));
      width = list.WidthOf(values);
    }
    list.Divides("heads", heads, "the values' width", width);
    list.Makes(list.AxisOf(q), width);
    list.Result(OutputType::kAttention, true);
  }
};

// y_t = [x1_t | x2_t | ...], all of one axis.
struct Concat {
  static constexpr const char* kName = "concat";
  std::vector<ValueId> xs;

  template <class List>
  void Visit(List& list) const {
    list.Rule(!xs.empty(), "xs", "a value", "none");
    int64_t width = 0;
    for (size_t i = 0; i < xs.size(); ++i) {
      list.Value("xs", xs[i], list.AxisOf(xs[0]), kAny, static_cast<int>(i));
      width += list.WidthOf(xs[i]);
    }
    list.Range("width of all xs", width, 1, kMaxSize);
    if (!xs.empty()) list.Makes(list.AxisOf(xs[0]), static_cast<int>(width));
  }
};

// y_t = a_t + b_t, of one axis and width.
struct Add {
  static constexpr const char* kName = "add";
  ValueId a = kNone;
  ValueId b = kNone;

  template <class List>
  void Visit(List& list) const {
    list.Value("a", a);
    list.Value("b", b, list.AxisOf(a), list.WidthOf(a));
    list.Makes(list.AxisOf(a), list.WidthOf(a));
  }
};

// One row per sequence of x's axis, on `axis`; a sequence without rows gives zeros.
//   weights = kNone:  Pooling of the rows (stack_spec.h), columns being `directions` equal parts
//   else              y_b = sum_t a_t x_t,  a = softmax_t(w_t), w of width 1 on x's axis; `pooling`
//                     is kNone then
struct Pool {
  static constexpr const char* kName = "pool";
  ValueId x = kNone;
  AxisId axis = kNone;  // the sequence axis of x's axis
  Pooling pooling = Pooling::kNone;
  int directions = 1;
  ValueId weights = kNone;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.SequenceAxis("axis", axis, list.AxisOf(x));
    list.PoolingOr("pooling", pooling, weights != kNone, "weights");
    if (weights == kNone) {
      list.Range("directions", directions, 1, 2);
      list.Divides("directions", directions, "x's width", list.WidthOf(x));
    } else {
      list.Value("weights", weights, list.AxisOf(x), 1);
    }
    list.Makes(axis, list.WidthOf(x));
  }
};

// y_t = x_t . v_{m(b(t))}: width 1. v is on a sequence axis; m is `map`, from x's axis to v's or to
// the axis whose sequences v's are, or the identity, v's axis being x's sequence axis then.
struct RowDot {
  static constexpr const char* kName = "row_dot";
  ValueId x = kNone;
  ValueId v = kNone;
  InputId map = kNone;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Value("v", v, kAny, list.WidthOf(x));
    list.SequenceAxis("v", list.AxisOf(v), kAny);
    if (map == kNone) {
      list.SequenceAxis("v", list.AxisOf(v), list.AxisOf(x), ", since there is no map");
    } else {
      list.Input("map", map, MapTo(list.AxisOf(x), list.AxisOf(v), /*or_sequences=*/true));
    }
    list.Makes(list.AxisOf(x), 1);
  }
};

// y_t = x_{t-1} within a sequence; the first row is `last`, the last row of x of the run before. A
// sequence without rows leaves `last` as it was.
struct Shift {
  static constexpr const char* kName = "shift";
  ValueId x = kNone;
  FieldId last = kNone;  // fixed, of x's width

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Field("last", last, ReplacedRow(list.AxisOf(x), list.WidthOf(x)));
    list.Makes(list.AxisOf(x), list.WidthOf(x));
  }
};

// y_b = the last row of x of sequence b; of a sequence without rows, `last` as it was before this
// run, which is zero without a slot. One row per sequence of x's axis, on `axis`.
struct Last {
  static constexpr const char* kName = "last";
  ValueId x = kNone;
  AxisId axis = kNone;  // the sequence axis of x's axis
  FieldId last =
      kNone;  // fixed, of x's width, and written by a Shift of x; kNone: zeros in its place

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.SequenceAxis("axis", axis, list.AxisOf(x));
    if (last != kNone) list.Field("last", last, LastRow(list.AxisOf(x), list.WidthOf(x), x));
    list.Makes(axis, list.WidthOf(x));
  }
};

// y_t = x_{r_t} on the axis of `rows`, which point into x's axis.
struct Select {
  static constexpr const char* kName = "select";
  ValueId x = kNone;
  InputId rows = kNone;  // kRows

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Input("rows", rows, RowsOf(list.AxisOf(x)));
    list.Makes(list.InputAxis(rows), list.WidthOf(x));
  }
};

// Adds the rows of each sequence of x to a growing field of its slot. Its value is x.
struct Append {
  static constexpr const char* kName = "append";
  ValueId x = kNone;
  FieldId field = kNone;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Field("field", field, GrownRows(list.AxisOf(x), list.WidthOf(x)));
    list.Makes(list.AxisOf(x), list.WidthOf(x));
  }
};

// log p_t = z_t - log sum_v exp z_tv,  z_t = W x_t + b, of which only what is asked for leaves the
// backend. Its value has no rows that another operation may use; its results are:
//   log_prob    [rows]: log p_t[target_t]; 0 where target_t = -1, for which nothing is computed,
//               and -infinity of a target that is not among the choices
//   candidates  [rows][max_candidates]: the count_t most probable symbols, the best first, of
//               equals the smallest id first; the places after them are not written. Where there
//               are fewer than count_t symbols, kNone with -infinity follows
//   picked      [rows]: a symbol v that is picked as follows, with its log p_t[v], whose bits are
//               those of log_prob and of a candidate; kNone with 0 if the adjustments leave none
//
// With `choices`, the symbols v of row t are those of its sequence of choices alone, in the sum as
// well; W is kept then as Embed keeps its table. Symbols that `never` names count in the sum, but
// are never candidates.
//
// z' is z_t with the adjustments of row t, which are sequence t of their axis. The best symbol is
// that with the largest z', of equals the smallest id. With temperature T = 0 it is picked. Else,
// with m = max_v z'_v:
//
//   n_v = floor(2^32 e^((z'_v - m) / T))   whole numbers: their sums do not depend on an order
//   K   = all symbols whose adjustment does not forbid them, of which
//     top_k > 0:  only the best top_k stay
//     min_p > 0:  only those with n_v >= floor(2^32 min_p) stay, computed in float64
//     top_p > 0:  only the best ones stay, as few as have a sum of n >= top_p sum_K n, computed in
//                 float64, but at least one
//   v   = the smallest id of K with  sum over u in K, u <= v, of n_u > floor(random sum_K n / 2^64)
//
// The results for a row depend on nothing but x_t, its adjustments and its Sampling.
struct Predict {
  static constexpr const char* kName = "predict";
  ValueId x = kNone;
  int vocabulary_size = 0;  // rows of W
  FloatView weight;         // W: [vocabulary_size][width of x], or
  Int8View int8_weight;     // the same
  FloatView bias;           // [vocabulary_size]; empty = zeros
  // kIds on x's axis with least = -1 and limit = vocabulary_size; kNone: there is no log_prob.
  // Needed when log_prob is asked for, as `counts` when candidates are.
  InputId targets = kNone;
  // kIds with least = 0 and limit = vocabulary_size on an axis other than x's: of a sequence each
  // id once, ascending. kNone: all symbols. Not with `sampling`, as `never`.
  InputId choices = kNone;
  InputId choices_map =
      kNone;  // with `choices`: kMap from x's axis to theirs, to sequences with rows
  std::vector<int32_t> never;  // ascending
  // kIds on x's axis with least = 0 and limit = max_candidates + 1; kNone: there are no candidates.
  InputId counts = kNone;
  int max_candidates = 0;  // 1 to vocabulary_size with counts, else 0
  // kSampling on x's axis; kNone: nothing is picked. Needed when `picked` is asked for.
  InputId sampling = kNone;
  // kAdjustments with limit = vocabulary_size, on an axis other than x's, which has as many
  // sequences as x has rows, or none: nothing is adjusted then. With `sampling` only; kNone: there
  // are none.
  InputId adjustments = kNone;

  template <class List>
  void Visit(List& list) const {
    list.Value("x", x);
    list.Range("vocabulary_size", vocabulary_size, 1, kMaxVocabulary);
    MatrixOrInt8(list, "weight", weight, "int8_weight", int8_weight, vocabulary_size,
                 list.WidthOf(x));
    list.Vector("bias", bias, vocabulary_size, Presence::kOptional);
    if (choices == kNone) {
      list.None("choices_map", choices_map, "since there are no choices");
    } else {
      list.Input("choices", choices, ChoicesFor(list.AxisOf(x), vocabulary_size));
      list.Input("choices_map", choices_map, MapTo(list.AxisOf(x), list.InputAxis(choices)));
    }
    for (size_t i = 0; i < never.size(); ++i) {
      list.Range("never", never[i], i == 0 ? 0 : never[i - 1] + 1, vocabulary_size - 1);
    }
    list.Rule(targets != kNone || counts != kNone || sampling != kNone, "targets, counts, sampling",
              "at least one of them", "none");
    list.Makes(list.AxisOf(x), 0);
    list.Result(OutputType::kLogProb, targets != kNone);
    if (targets != kNone)
      list.Input("targets", targets, IdsIn(-1, vocabulary_size, list.AxisOf(x)));
    list.Result(OutputType::kCandidates, counts != kNone);
    if (counts == kNone) {
      list.Range("max_candidates", max_candidates, 0, 0);
    } else {
      list.Range("max_candidates", max_candidates, 1, vocabulary_size);
      list.Input("counts", counts, IdsIn(0, max_candidates + 1, list.AxisOf(x)));
    }
    list.Result(OutputType::kPicked, sampling != kNone);
    if (choices != kNone || !never.empty()) {
      list.None("sampling", sampling, "since there are choices or symbols that are never chosen");
    }
    if (sampling == kNone) {
      list.None("adjustments", adjustments, "since there is no sampling");
    } else {
      list.Input("sampling", sampling, AnInput(InputType::kSampling, list.AxisOf(x)));
    }
    if (adjustments != kNone) {
      list.Input("adjustments", adjustments, AdjustmentsFor(list.AxisOf(x), vocabulary_size));
    }
  }
};

}  // namespace ops

using Operation =
    std::variant<ops::Features, ops::Embed, ops::Linear, ops::Normalize, ops::Stack, ops::Ssru,
                 ops::Attend, ops::Concat, ops::Add, ops::Pool, ops::RowDot, ops::Shift, ops::Last,
                 ops::Select, ops::Append, ops::Predict>;

struct OutputSpec {
  std::string name;  // for messages
  ValueId value = kNone;
  // kAttention: of an Attend; kLogProb, kCandidates and kPicked: of a Predict.
  OutputType type = OutputType::kRows;
};

struct Program {
  std::vector<AxisSpec> axes;
  std::vector<InputSpec> inputs;
  std::vector<FieldSpec> fields;
  std::vector<Operation> operations;  // in the order in which they run
  std::vector<OutputSpec> outputs;

  // Append to the lists above and return the index.
  AxisId AddAxis(std::string name);
  AxisId AddSequenceAxis(std::string name, AxisId of);
  InputId AddIds(std::string name, AxisId axis, int least, int limit);
  InputId AddFeatures(std::string name, AxisId axis, int width);
  InputId AddMap(std::string name, AxisId axis, AxisId target);
  InputId AddRows(std::string name, AxisId axis, AxisId target);
  InputId AddSampling(std::string name, AxisId axis);
  InputId AddAdjustments(std::string name, AxisId axis, int limit);
  FieldId AddField(std::string name, int width, bool grows = false);
  ValueId Apply(Operation operation);
  int AddOutput(std::string name, ValueId value, OutputType type = OutputType::kRows);
};

// Calls `visit` for every float32 view of the program, absent ones included. Tied weights are
// several views of the same values.
void ForEachWeight(Program* program, const std::function<void(FloatView*)>& visit);
// The same for rounded weights, without absent ones.
void ForEachInt8Weight(Program* program, const std::function<void(Int8View*)>& visit);

// What follows from a valid program for each of its operations.
struct ValueSpec {
  AxisId axis = kNone;
  int width = 0;  // 0: of Predict
};

inline constexpr size_t kMaxOutputs = 48;
inline constexpr size_t kMaxAxes = 16;

// Sizes and uses of a program's values, the same for every backend.
struct ProgramShape {
  std::vector<ValueSpec> values;  // [operation]
  // [operation]: bit i = output i needs it; StateBit(a) = a field that is written on axis a needs
  // it. An operation runs in a batch that has one of its users (BatchUsers() in
  // program_executable.h).
  std::vector<uint64_t> users;
  static constexpr uint64_t StateBit(AxisId axis) { return uint64_t{1} << (kMaxOutputs + axis); }
  // [field]: the operation that writes it, and its axis.
  std::vector<ValueId> field_writers;
  std::vector<AxisId> field_axes;
};

// A visitor of operations that knows the program as far as `shape` does.
class ProgramVisitor : public OperationVisitor {
 public:
  ProgramVisitor(const Program& program, const ProgramShape& shape)
      : program_(program), shape_(shape) {}

  AxisId AxisOf(ValueId id) const { return ItemOf(shape_.values, id).axis; }
  int WidthOf(ValueId id) const { return ItemOf(shape_.values, id).width; }
  AxisId InputAxis(InputId id) const { return ItemOf(program_.inputs, id).axis; }
  int InputWidth(InputId id) const { return ItemOf(program_.inputs, id).width; }
  int FieldWidth(FieldId id) const { return ItemOf(program_.fields, id).width; }

 protected:
  const Program& program_;

 private:
  template <typename T>
  static T ItemOf(const std::vector<T>& list, int id) {
    return id >= 0 && static_cast<size_t>(id) < list.size() ? list[id] : T();
  }

  const ProgramShape& shape_;
};

// Shows `visitor` what operation `id` takes.
template <typename Visitor>
void VisitOperation(const Program& program, ValueId id, Visitor& visitor) {
  std::visit([&](const auto& op) { op.Visit(visitor); }, program.operations[id]);
}

// Calls use(value) for each value that an operation reads.
template <typename Use>
void ForEachValue(const Program& program, ValueId id, const Use& use) {
  struct Values : OperationVisitor {
    const Use& use;
    explicit Values(const Use& use) : use(use) {}
    void Value(const char* /*name*/, ValueId value, AxisId = kAny, int64_t = kAny, int = kNone) {
      use(value);
    }
  } values(use);
  VisitOperation(program, id, values);
}

// Checks that names, axes, widths and views of weights agree; the message names the operation, the
// field and what was expected. Every field must be written by an operation. `shape` is written only
// when all is well.
Status Validate(const Program& program, ProgramShape* shape);

// "embed", "linear" and so on, for messages and tests.
const char* OperationName(const Operation& operation);

// "axes[2] (source)", for messages.
std::string ItemName(const char* list, size_t index, const std::string& name);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_PROGRAM_H_
