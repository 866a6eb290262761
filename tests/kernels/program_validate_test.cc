// What Validate() and ValidateBatch() say of programs, limits and batches that are wrong: each case
// changes one thing of a program that is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/program_executable.h"
#include "tests/kernels/status_matchers.h"

namespace sru::kernels {
namespace {

using ::testing::ElementsAre;

// How a row of a table breaks the example `e` of a program, or `b` of a batch.
#define E(...) [=]([[maybe_unused]] auto& e) { __VA_ARGS__; }
#define B(...) [=]([[maybe_unused]] auto& b) { __VA_ARGS__; }

// The value of an operation whose kind is known.
template <typename Op>
struct ValueOf {
  ValueId id = kNone;
  operator ValueId() const { return id; }
};

// A program whose operations can be changed. What is tested here reads no weights.
struct Changeable {
  Program program;

  // A program that is refused has no shape.
  Status Check() const {
    ProgramShape shape;
    const Status status = Validate(program, &shape);
    EXPECT_EQ(shape.values.size(), status.ok() ? program.operations.size() : 0);
    return status;
  }

  template <typename Op>
  ValueOf<Op> Apply(Op op) {
    return {program.Apply(std::move(op))};
  }
  template <typename Op>
  Op& operator[](ValueOf<Op> value) {
    return std::get<Op>(program.operations[value.id]);
  }
};

// With every operation but Last.
struct Example : Changeable {
  AxisId tokens, questions, sequences, asked;
  InputId ids, features, question, rows, targets, counts, question_features, sequence_ids;
  FieldId c, keys, values, last;
  ValueOf<ops::Features> features_of_tokens, encoded;
  ValueOf<ops::Embed> embed;
  ValueOf<ops::Stack> stack, stack_of_ids;
  ValueOf<ops::Shift> shift;
  ValueOf<ops::Normalize> norm;
  ValueOf<ops::Linear> q, weights;
  ValueOf<ops::Append> k, v;
  ValueOf<ops::Attend> attend, attend_questions;
  ValueOf<ops::Concat> concat;
  ValueOf<ops::Add> sum;
  ValueOf<ops::Pool> pool, mean;
  ValueOf<ops::RowDot> dot, own_dot;
  ValueOf<ops::Select> select;
  ValueOf<ops::Predict> predict;

  static FloatView View(size_t size) {
    static const std::vector<float> zeros(1 << 16);
    return {zeros.data(), size};
  }

  static StackSpec Spec(int layers, int input, int width, int directions, int vocabulary) {
    StackSpec spec;
    spec.input_size = input;
    spec.vocabulary_size = vocabulary;
    spec.embedding = View(static_cast<size_t>(vocabulary) * input);
    for (int i = 0; i < layers; ++i) {
      LayerSpec layer;
      layer.input_size = input;
      layer.hidden_size = width / directions;
      layer.directions = directions;
      layer.has_skip_term = false;
      layer.weight = View(static_cast<size_t>(input) * width * 3);
      layer.bias = View(2 * width);
      spec.layers.push_back(layer);
      input = width;
    }
    return spec;
  }

  Example() {
    Program& p = program;
    tokens = p.AddAxis("tokens");
    questions = p.AddAxis("questions");
    sequences = p.AddSequenceAxis("sequences", tokens);
    asked = p.AddSequenceAxis("asked", questions);
    ids = p.AddIds("ids", tokens, 0, 10);
    features = p.AddFeatures("features", tokens, 3);
    question = p.AddMap("question", tokens, questions);
    rows = p.AddRows("last_rows", sequences, tokens);
    targets = p.AddIds("targets", tokens, -1, 9);
    counts = p.AddIds("counts", tokens, 0, 4);
    question_features = p.AddFeatures("question_features", questions, 6);
    sequence_ids = p.AddIds("sequence_ids", sequences, 0, 10);
    c = p.AddField("c", 12);
    keys = p.AddField("keys", 6, true);
    values = p.AddField("values", 8, true);
    last = p.AddField("last", 6);
    features_of_tokens = Apply(ops::Features{features});  // 0
    ops::Embed embed_op;
    embed_op.ids = ids;
    embed_op.table = View(40);
    embed_op.vocabulary_size = 10;
    embed_op.width = 4;
    embed_op.positions = ops::Positions::kInterleaved;
    embed_op.position_field = keys;
    embed = Apply(embed_op);                                                            // 1
    stack = Apply(ops::Stack{kNone, embed, Spec(2, 4, 6, 1, 0), c});                    // 2
    shift = Apply(ops::Shift{stack, last});                                             // 3
    norm = Apply(ops::Normalize{shift, View(6), View(6)});                              // 4
    k = Apply(ops::Append{norm, keys});                                                 // 5
    q = Apply(ops::Linear{norm, 8, View(48), {}, View(8)});                             // 6
    v = Apply(ops::Append{q, values});                                                  // 7
    attend = Apply(ops::Attend{norm, kNone, kNone, keys, values, kNone, /*heads=*/2});  // 8
    (*this)[attend].causal = true;
    encoded = Apply(ops::Features{question_features});  // 9
    attend_questions =
        Apply(ops::Attend{norm, encoded, encoded, kNone, kNone, question, /*heads=*/3});  // 10
    concat = Apply(ops::Concat{{attend, norm}});                                          // 11
    sum = Apply(ops::Add{norm, attend_questions});                                        // 12
    weights = Apply(ops::Linear{encoded, 1, View(6), {}, {}});                            // 13
    pool = Apply(ops::Pool{encoded, asked, Pooling::kNone, 1, weights});                  // 14
    mean = Apply(ops::Pool{sum, sequences, Pooling::kMean, 2});                           // 15
    dot = Apply(ops::RowDot{sum, pool, question});                                        // 16
    own_dot = Apply(ops::RowDot{sum, mean});                                              // 17
    select = Apply(ops::Select{sum, rows});                                               // 18
    ops::Predict predict_op;
    predict_op.x = sum;
    predict_op.vocabulary_size = 9;
    predict_op.weight = View(54);
    predict_op.bias = View(9);
    predict_op.targets = targets;
    predict_op.counts = counts;
    predict_op.max_candidates = 3;
    predict = Apply(predict_op);  // 19
    p.AddOutput("log_prob", predict, OutputType::kLogProb);
    p.AddOutput("candidates", predict, OutputType::kCandidates);
    p.AddOutput("dot", dot);
    p.AddOutput("concat", concat);
    p.AddOutput("own_dot", own_dot);
    p.AddOutput("select", select);
    p.AddOutput("features", features_of_tokens);
    // Stands alone: a stack with an embedding on a sequence axis.
    stack_of_ids = Apply(ops::Stack{sequence_ids, kNone, Spec(1, 4, 6, 2, 10), kNone});  // 20
    p.AddOutput("stack_of_ids", stack_of_ids);
  }
};

// With what picks symbols for the last row of each sequence.
struct PickingExample : Example {
  AxisId adjusted;
  InputId sampling, adjustments;
  ValueOf<ops::Last> last_rows;
  ValueOf<ops::Predict> pick;

  PickingExample() {
    adjusted = program.AddAxis("adjusted");                            // 4
    sampling = program.AddSampling("sampling", sequences);             // 8
    adjustments = program.AddAdjustments("adjustments", adjusted, 9);  // 9
    last_rows = Apply(ops::Last{stack, sequences, last});              // 21
    ops::Predict predict_op = (*this)[predict];
    predict_op.x = last_rows;
    predict_op.targets = predict_op.counts = kNone;
    predict_op.max_candidates = 0;
    predict_op.sampling = sampling;
    predict_op.adjustments = adjustments;
    pick = Apply(predict_op);                                // 22
    program.AddOutput("picked", pick, OutputType::kPicked);  // 8
  }
};

// How an example of a program or of a batch is broken, and the error that it then gives.
template <typename E>
struct Broken {
  std::string message;
  std::function<void(E&)> breaks;
};

template <typename E>
void ExpectRefused(const std::vector<Broken<E>>& cases) {
  for (const Broken<E>& broken : cases) {
    E e;
    broken.breaks(e);
    EXPECT_THAT(e.Check(), IsInvalid(broken.message));
  }
}

template <typename E>
void ExpectTaken(const std::vector<std::function<void(E&)>>& cases) {
  for (size_t i = 0; i < cases.size(); ++i) {
    E e;
    cases[i](e);
    EXPECT_THAT(e.Check(), IsOk()) << i;
  }
}

TEST(ValidateProgramTest, TellsTheShape) {
  const Example e;
  ProgramShape shape;
  ASSERT_THAT(Validate(e.program, &shape), IsOk());
  ASSERT_EQ(shape.values.size(), e.program.operations.size());
  const auto expect = [&](ValueId value, AxisId axis, int width) {
    EXPECT_EQ(shape.values[value].axis, axis) << value;
    EXPECT_EQ(shape.values[value].width, width) << value;
  };
  expect(e.features_of_tokens, e.tokens, 3);
  expect(e.embed, e.tokens, 4);
  expect(e.stack, e.tokens, 6);
  expect(e.q, e.tokens, 8);
  expect(e.attend, e.tokens, 8);
  expect(e.attend_questions, e.tokens, 6);
  expect(e.concat, e.tokens, 14);
  expect(e.weights, e.questions, 1);
  expect(e.pool, e.asked, 6);
  expect(e.mean, e.sequences, 6);
  expect(e.dot, e.tokens, 1);
  expect(e.select, e.sequences, 6);
  expect(e.predict, e.tokens, 0);
  EXPECT_THAT(shape.field_axes, ElementsAre(e.tokens, e.tokens, e.tokens, e.tokens));
  EXPECT_THAT(shape.field_writers, ElementsAre(e.stack, e.k, e.v, e.shift));

  constexpr uint64_t kLogProb = 1, kCandidates = 2, kDot = 4, kConcat = 8, kOwnDot = 16,
                     kSelect = 32, kFeatures = 64, kStackOfIds = 128;
  const uint64_t state = ProgramShape::StateBit(e.tokens);
  const uint64_t of_sum = kLogProb | kCandidates | kDot | kOwnDot | kSelect;
  EXPECT_EQ(shape.users[e.predict], kLogProb | kCandidates);
  EXPECT_EQ(shape.users[e.sum], of_sum);
  EXPECT_EQ(shape.users[e.pool], kDot);
  EXPECT_EQ(shape.users[e.weights], kDot);
  EXPECT_EQ(shape.users[e.attend], kConcat);
  EXPECT_EQ(shape.users[e.v], state);  // Attend reads the field
  EXPECT_EQ(shape.users[e.norm], of_sum | kConcat | state);
  EXPECT_EQ(shape.users[e.embed], of_sum | kConcat | state);
  EXPECT_EQ(shape.users[e.features_of_tokens], kFeatures);
  EXPECT_EQ(shape.users.back(), kStackOfIds);
}

TEST(ValidateProgramTest, NamesWhatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Broken<Example>> cases = {
      // Lists.
      {"program: axes: expected at most 16, found 20",
       E(for (int i = 0; i < 16; ++i) e.program.AddAxis("axis" + std::to_string(i));)},
      {"axes[1] (tokens): name: expected a name of its own, found 'tokens'",
       E(e.program.axes[1].name = "tokens")},
      {"axes[0] (): name: expected a name, found none", E(e.program.axes[0].name.clear())},
      {"axes[2] (sequences): sequences_of: expected an axis, 0 to 3, found 4",
       E(e.program.axes[2].sequences_of = 4)},
      {"axes[3] (asked): sequences_of: expected an axis that is not a sequence axis, found axes[2] "
       "(sequences)",
       E(e.program.axes[3].sequences_of = e.sequences)},
      {"inputs[1] (ids): name: expected a name of its own, found 'ids'",
       E(e.program.inputs[1].name = "ids")},
      {"inputs[0] (ids): axis: expected an axis, 0 to 3, found none",
       E(e.program.inputs[0].axis = kNone)},
      {"inputs[0] (ids): limit: expected more than least, which is 0, found 0",
       E(e.program.inputs[0].limit = 0)},
      {"inputs[1] (features): width: expected 1 to 1048576, found 0",
       E(e.program.inputs[1].width = 0)},
      {"inputs[2] (question): target: expected an axis, 0 to 3, found -2",
       E(e.program.inputs[2].target = -2)},
      {"inputs[3] (last_rows): target: expected an axis, 0 to 3, found none",
       E(e.program.inputs[3].target = kNone)},
      {"inputs[4] (targets): type: expected ids, features, a map, rows, sampling or adjustments, "
       "found 9",
       E(e.program.inputs[4].type = static_cast<InputType>(9))},
      {"fields[2] (c): name: expected a name of its own, found 'c'",
       E(e.program.fields[2].name = "c")},
      {"fields[0] (c): width: expected 1 to 1048576, found 0", E(e.program.fields[0].width = 0)},
      {"fields[4] (spare): expected an operation that writes it, found none",
       E(e.program.AddField("spare", 1))},
      // Operands.
      {"operations[0] (features): input: expected an input of features, found none",
       E(e[e.features_of_tokens].input = kNone)},
      {"operations[0] (features): input: expected an input of features, found inputs[0] (ids) of "
       "ids",
       E(e[e.features_of_tokens].input = e.ids)},
      {"operations[2] (stack): x: expected a value of an operation before it, 0 to 1, found 2",
       E(e[e.stack].x = 2)},
      {"operations[0] (linear): x: expected a value of an operation before it, of which there is "
       "none, found none",
       E(e.program.operations[0] = ops::Linear())},
      {"operations[20] (add): a: expected a value with rows, found operations[19] (predict)",
       E(e.program.operations[20] = ops::Add{e.predict, e.predict})},
      // Embed.
      {"operations[1] (embed): vocabulary_size: expected 1 to 1073741824, found 0",
       E(e[e.embed].vocabulary_size = 0)},
      {"operations[1] (embed): width: expected 1 to 1048576, found 0", E(e[e.embed].width = 0)},
      {"operations[1] (embed): table: expected 10 x 4 = 40 values, found 39",
       E(e[e.embed].table.size = 39)},
      {"operations[1] (embed): table: expected 40 values, found a null pointer",
       E(e[e.embed].table.data = nullptr)},
      {"operations[1] (embed): ids: expected ids from 0 to 9, found inputs[4] (targets) of -1 to 8",
       E(e[e.embed].ids = e.targets)},
      {"operations[1] (embed): scale: expected a finite number, found nan",
       E(e[e.embed].scale = nan)},
      {"operations[1] (embed): position_field: expected none, since positions is none, found 1",
       E(e[e.embed].positions = ops::Positions::kNone)},
      {"operations[1] (embed): position_field: expected a growing field, found fields[0] (c)",
       E(e[e.embed].position_field = e.c)},
      {"operations[1] (embed): position_field: expected a growing field, found 4",
       E(e[e.embed].position_field = 4)},
      // Linear.
      {"operations[6] (linear): width: expected 1 to 1048576, found 0", E(e[e.q].width = 0)},
      {"operations[6] (linear): weight: expected 8 x 6 = 48 values, found 12",
       E(e[e.q].weight.size = 12)},
      {"operations[6] (linear): bias: expected 8 values, found 6", E(e[e.q].bias.size = 6)},
      // Normalize.
      {"operations[4] (normalize): weight: expected 6 values, found 0", E(e[e.norm].weight = {})},
      {"operations[4] (normalize): bias: expected 6 values, found 7", E(e[e.norm].bias.size = 7)},
      {"operations[4] (normalize): epsilon: expected a positive number, found 0.000000",
       E(e[e.norm].epsilon = 0)},
      {"operations[4] (normalize): epsilon: expected a positive number, found nan",
       E(e[e.norm].epsilon = nan)},
      // Stack.
      {"operations[2] (stack): spec.layers[1].bias: expected 12 values, found 11",
       E(e[e.stack].spec.layers[1].bias.size = 11)},
      {"operations[2] (stack): spec.pooling: expected none, found max",
       E(e[e.stack].spec.pooling = Pooling::kMax)},
      {"operations[2] (stack): ids, x: expected exactly one of them, found both",
       E(e[e.stack].ids = e.ids)},
      {"operations[2] (stack): ids, x: expected exactly one of them, found none",
       E(e[e.stack].x = kNone)},
      {"operations[2] (stack): spec.vocabulary_size: expected an embedding, since ids is set, "
       "found 0",
       E(e[e.stack].ids = e.ids; e[e.stack].x = kNone;)},
      {"operations[2] (stack): spec.vocabulary_size: expected 0, found 10",
       E(e[e.stack].spec = Example::Spec(2, 4, 6, 1, 10))},
      {"operations[2] (stack): x: expected width 4, found 3",
       E(e[e.stack].x = e.features_of_tokens)},
      {"operations[2] (stack): spec.layers[0].directions: expected 1, since state is set, found 2",
       E(e[e.stack].spec = Example::Spec(2, 4, 6, 2, 0))},
      {"operations[2] (stack): state: expected width 12, found fields[0] (c) of width 11",
       E(e.program.fields[e.c].width = 11)},
      {"operations[2] (stack): state: expected a field that does not grow, found fields[1] (keys)",
       E(e[e.stack].state = e.keys)},
      {"operations[20] (stack): ids: expected ids from 0 to 9, found inputs[7] (sequence_ids) of 0 "
       "to 10",
       E(e.program.inputs[e.sequence_ids].limit = 11)},
      {"operations[20] (stack): state: expected an axis with slots, found axes[2] (sequences), a "
       "sequence axis",
       E(auto& op = e[e.stack_of_ids]; op.spec = Example::Spec(1, 4, 6, 1, 10);
         op.state = e.program.AddField("state", 6);)},
      // Attend.
      {"operations[8] (attend): heads: expected a divisor of q's width, 6, found 4",
       E(e[e.attend].heads = 4)},
      {"operations[8] (attend): heads: expected a divisor of the values' width, 8, found 3",
       E(e[e.attend].heads = 3)},
      {"operations[8] (attend): heads: expected 1 to 1048576, found 0", E(e[e.attend].heads = 0)},
      {"operations[8] (attend): scale: expected a finite number, found nan",
       E(e[e.attend].scale = nan)},
      {"operations[8] (attend): keys: expected none, since there are fields, found 4",
       E(e[e.attend].keys = e.norm)},
      {"operations[8] (attend): values: expected none, since there are fields, found 4",
       E(e[e.attend].values = e.norm)},
      {"operations[8] (attend): map: expected none, since there are fields, found 2",
       E(e[e.attend].map = e.question)},
      {"operations[8] (attend): key_field: expected width 6, found fields[2] (values) of width 8",
       E(e[e.attend].key_field = e.values)},
      {"operations[8] (attend): value_field: expected a growing field, found none",
       E(e[e.attend].value_field = kNone)},
      {"operations[7] (attend): value_field: expected a field that an operation before it appends "
       "to, found operations[8] (append)",
       E(std::swap(e.program.operations[7], e.program.operations[8]))},
      {"operations[8] (attend): value_field: expected the axis axes[0] (tokens), found axes[1] "
       "(questions)",
       E(  // Another axis fills the values; the operation that did so becomes one without a field.
           e.program.operations[e.v] = ops::Add{e.q, e.q};
           const ValueId x = e.program.Apply(ops::Linear{e.encoded, 8, Example::View(48), {}, {}});
           e.program.Apply(ops::Append{x, e.values});)},
      {"operations[10] (attend): keys: expected width 6, found 4",
       E(e[e.attend_questions].keys = e.embed; e[e.attend_questions].values = e.embed;)},
      {"operations[10] (attend): values: expected the axis axes[1] (questions), found axes[0] "
       "(tokens)",
       E(e[e.attend_questions].values = e.norm)},
      {"operations[10] (attend): keys: expected the axis axes[0] (tokens), found axes[1] "
       "(questions)",
       E(e[e.attend_questions].map = kNone)},
      {"operations[10] (attend): map: expected an input of a map, found inputs[3] (last_rows) of "
       "rows",
       E(e[e.attend_questions].map = e.rows)},
      {"operations[10] (attend): map: expected the axis axes[0] (tokens), found axes[2] "
       "(sequences)",
       E(e.program.inputs[e.question].axis = e.sequences)},
      {"operations[10] (attend): map: expected the axis axes[1] (questions), found axes[3] (asked)",
       E(e.program.inputs[e.question].target = e.asked)},
      // Concat and Add.
      {"operations[11] (concat): xs: expected a value, found none", E(e[e.concat].xs.clear())},
      {"operations[11] (concat): xs[1]: expected the axis axes[0] (tokens), found axes[1] "
       "(questions)",
       E(e[e.concat].xs[1] = e.encoded)},
      {"operations[11] (concat): width of all xs: expected 1 to 1048576, found 1048580",
       E(e[e.concat].xs.assign((1 << 20) / 4 + 1, e.embed))},
      {"operations[12] (add): b: expected the axis axes[0] (tokens), found axes[1] (questions)",
       E(e[e.sum].b = e.encoded)},
      {"operations[12] (add): b: expected width 6, found 4", E(e[e.sum].b = e.embed)},
      // Pool.
      {"operations[14] (pool): axis: expected a sequence axis of axes[1] (questions), found "
       "axes[2] (sequences)",
       E(e[e.pool].axis = e.sequences)},
      {"operations[14] (pool): axis: expected an axis, 0 to 3, found none",
       E(e[e.pool].axis = kNone)},
      {"operations[14] (pool): weights: expected width 1, found 6",
       E(e[e.pool].weights = e.encoded)},
      {"operations[14] (pool): weights: expected the axis axes[1] (questions), found axes[0] "
       "(tokens)",
       E(e[e.pool].weights = e.norm)},
      {"operations[14] (pool): pooling: expected none, since there are weights, found max",
       E(e[e.pool].pooling = Pooling::kMax)},
      {"operations[15] (pool): pooling: expected first, last, max or mean or weights, found none",
       E(e[e.mean].pooling = Pooling::kNone)},
      {"operations[15] (pool): pooling: expected first, last, max or mean, found 99",
       E(e[e.mean].pooling = static_cast<Pooling>(99))},
      {"operations[15] (pool): directions: expected 1 to 2, found 3", E(e[e.mean].directions = 3)},
      {"operations[15] (pool): directions: expected a divisor of x's width, 3, found 2",
       E(e[e.mean].x = e.features_of_tokens)},
      // RowDot.
      {"operations[16] (row_dot): v: expected width 6, found 4", E(e[e.dot].v = e.embed)},
      {"operations[16] (row_dot): v: expected a value of a sequence axis, found axes[1] "
       "(questions)",
       E(e[e.dot].v = e.encoded)},
      {"operations[16] (row_dot): map: expected an input of a map, found 12", E(e[e.dot].map = 12)},
      {"operations[16] (row_dot): map: expected the axis axes[2] (sequences), found axes[1] "
       "(questions)",
       E(e[e.dot].v = e.mean)},
      {"operations[16] (row_dot): v: expected a sequence axis of axes[0] (tokens), since there is "
       "no map, found axes[3] (asked)",
       E(e[e.dot].map = kNone)},
      // Shift, Select and Append.
      {"operations[3] (shift): last: expected width 6, found fields[0] (c) of width 12",
       E(e[e.shift].last = e.c)},
      {"operations[3] (shift): last: expected a field that no other operation writes, found "
       "fields[0] (c), which operations[2] (stack) writes",
       E(e[e.stack].spec = Example::Spec(1, 4, 6, 1, 0); e.program.fields[e.c].width = 6;
         e[e.shift].last = e.c;)},
      {"operations[18] (select): rows: expected an input of rows, found inputs[2] (question) of a "
       "map",
       E(e[e.select].rows = e.question)},
      {"operations[18] (select): rows: expected the axis axes[1] (questions), found axes[0] "
       "(tokens)",
       E(e[e.select].x = e.encoded)},
      {"operations[5] (append): field: expected width 6, found fields[2] (values) of width 8",
       E(e[e.k].field = e.values)},
      {"operations[5] (append): field: expected a growing field, found fields[3] (last)",
       E(e[e.k].field = e.last)},
      // Predict.
      {"operations[19] (predict): vocabulary_size: expected 1 to 1073741824, found 0",
       E(e[e.predict].vocabulary_size = 0)},
      {"operations[19] (predict): weight: expected 9 x 6 = 54 values, found 53",
       E(e[e.predict].weight.size = 53)},
      {"operations[19] (predict): bias: expected 9 values, found 8", E(e[e.predict].bias.size = 8)},
      {"operations[19] (predict): targets, counts, sampling: expected at least one of them, found "
       "none",
       E(e[e.predict].targets = kNone; e[e.predict].counts = kNone;)},
      {"operations[19] (predict): targets: expected ids from -1 to 8, found inputs[0] (ids) of 0 "
       "to 9",
       E(e[e.predict].targets = e.ids)},
      {"operations[19] (predict): targets: expected the axis axes[0] (tokens), found axes[1] "
       "(questions)",
       E(e.program.inputs[e.targets].axis = e.questions)},
      {"operations[19] (predict): counts: expected the axis axes[0] (tokens), found axes[2] "
       "(sequences)",
       E(e.program.inputs[e.counts].axis = e.sequences)},
      {"operations[19] (predict): counts: expected ids from 0 to 2, found inputs[5] (counts) of 0 "
       "to 3",
       E(e[e.predict].max_candidates = 2)},
      {"operations[19] (predict): max_candidates: expected 1 to 9, found 10",
       E(e[e.predict].max_candidates = 10)},
      {"operations[19] (predict): max_candidates: expected 0, found 3",
       E(e[e.predict].counts = kNone)},
      // Outputs.
      {"program: outputs: expected at most 48, found 49", E(while (e.program.outputs.size() <= 48) {
         e.program.AddOutput("more" + std::to_string(e.program.outputs.size()), 0);
       })},
      {"outputs[1] (log_prob): name: expected a name of its own, found 'log_prob'",
       E(e.program.outputs[1].name = "log_prob")},
      {"outputs[2] (dot): value: expected a value, 0 to 20, found 21",
       E(e.program.outputs[2].value = 21)},
      {"outputs[2] (dot): type: expected log_prob, candidates or picked, found rows",
       E(e.program.outputs[2].value = e.predict)},
      {"outputs[2] (dot): type: expected rows, log_prob, candidates, picked or attention, found 7",
       E(e.program.outputs[2].type = static_cast<OutputType>(7))},
      {"outputs[0] (log_prob): value: expected a predict with targets, found operations[16] "
       "(row_dot)",
       E(e.program.outputs[0].value = e.dot)},
      {"outputs[1] (candidates): value: expected a predict with counts, found operations[16] "
       "(row_dot)",
       E(e.program.outputs[1].value = e.dot)},
      {"outputs[0] (log_prob): value: expected an attend, found operations[19] (predict)",
       E(e.program.outputs[0].type = OutputType::kAttention)},
      {"outputs[2] (dot): value: expected an attend, found operations[16] (row_dot)",
       E(e.program.outputs[2].type = OutputType::kAttention)},
      {"outputs[0] (log_prob): value: expected a predict with targets, found operations[19] "
       "(predict) without",
       E(e[e.predict].targets = kNone)},
      {"outputs[1] (candidates): value: expected a predict with counts, found operations[19] "
       "(predict) without",
       E(e[e.predict].counts = kNone; e[e.predict].max_candidates = 0;)},
  };
  ExpectRefused(cases);
}

// What a last row needs is what its value needs; a field that it reads makes nothing run.
TEST(ValidateProgramTest, TellsTheShapeOfPicks) {
  const PickingExample e;
  ProgramShape shape;
  ASSERT_THAT(Validate(e.program, &shape), IsOk());
  EXPECT_EQ(shape.values[e.last_rows].axis, e.sequences);
  EXPECT_EQ(shape.values[e.last_rows].width, 6);
  EXPECT_EQ(shape.values[e.pick].axis, e.sequences);
  EXPECT_EQ(shape.values[e.pick].width, 0);
  EXPECT_EQ(shape.field_writers[e.last], e.shift);
  constexpr uint64_t kPicked = 256;
  EXPECT_EQ(shape.users[e.pick], kPicked);
  EXPECT_EQ(shape.users[e.last_rows], kPicked);
  EXPECT_NE(shape.users[e.stack] & kPicked, 0);
  EXPECT_EQ(shape.users[e.shift] & kPicked, 0);
}

TEST(ValidateProgramTest, NamesWhatIsWrongWithPicks) {
  const std::vector<Broken<PickingExample>> cases = {
      {"inputs[9] (adjustments): limit: expected 1 to 1073741824, found 0",
       E(e.program.inputs[9].limit = 0)},
      {"inputs[9] (adjustments): axis: expected an axis that is not a sequence axis, found axes[2] "
       "(sequences)",
       E(e.program.inputs[9].axis = e.sequences)},
      // Last.
      {"operations[21] (last): x: expected a value of an operation before it, 0 to 20, found none",
       E(e[e.last_rows].x = kNone)},
      {"operations[21] (last): axis: expected an axis, 0 to 4, found none",
       E(e[e.last_rows].axis = kNone)},
      {"operations[21] (last): axis: expected a sequence axis of axes[0] (tokens), found axes[3] "
       "(asked)",
       E(e[e.last_rows].axis = e.asked)},
      {"operations[21] (last): last: expected a field that does not grow, found fields[1] (keys)",
       E(e[e.last_rows].last = e.keys)},
      {"operations[21] (last): last: expected a field that does not grow, found 4",
       E(e[e.last_rows].last = 4)},
      {"operations[21] (last): last: expected width 6, found fields[0] (c) of width 12",
       E(e[e.last_rows].last = e.c)},
      {"operations[21] (last): last: expected a field that a shift of operations[4] (normalize) "
       "writes, found fields[3] (last), which operations[3] (shift) writes",
       E(e[e.last_rows].x = e.norm)},
      {"operations[21] (last): last: expected a field that a shift of operations[20] (stack) "
       "writes, found fields[4] (own), which operations[20] (stack) writes",
       E(auto& stack = e[e.stack_of_ids]; stack.ids = e.ids;
         stack.spec = Example::Spec(1, 4, 6, 1, 10); stack.state = e.program.AddField("own", 6);
         e[e.last_rows].x = 20; e[e.last_rows].last = stack.state;)},
      // Predict.
      {"operations[22] (predict): targets, counts, sampling: expected at least one of them, found "
       "none",
       E(e[e.pick].sampling = kNone)},
      {"operations[22] (predict): sampling: expected an input of sampling, found inputs[0] (ids) "
       "of ids",
       E(e[e.pick].sampling = e.ids)},
      {"operations[22] (predict): sampling: expected an input of sampling, found inputs[9] "
       "(adjustments) of adjustments",
       E(e[e.pick].sampling = e.adjustments)},
      {"operations[22] (predict): sampling: expected the axis axes[2] (sequences), found axes[0] "
       "(tokens)",
       E(e.program.inputs[e.sampling].axis = e.tokens)},
      {"operations[22] (predict): adjustments: expected none, since there is no sampling, found 9",
       E(auto& op = e[e.pick]; op.sampling = kNone;
         op.targets = e.program.AddIds("last_targets", e.sequences, -1, 9);)},
      {"operations[22] (predict): adjustments: expected an input of adjustments, found inputs[8] "
       "(sampling) of sampling",
       E(e[e.pick].adjustments = e.sampling)},
      {"operations[22] (predict): adjustments: expected limit 9, found inputs[9] (adjustments) of "
       "limit 8",
       E(e.program.inputs[9].limit = 8)},
      {"operations[19] (predict): adjustments: expected an axis other than x's, found axes[0] "
       "(tokens)",
       E(auto& op = e[e.predict]; op.sampling = e.program.AddSampling("token_sampling", e.tokens);
         op.adjustments = e.program.AddAdjustments("token_adjustments", e.tokens, 9);)},
      // Outputs.
      {"outputs[8] (picked): value: expected a predict with sampling, found operations[21] (last)",
       E(e.program.outputs[8].value = e.last_rows)},
      {"outputs[8] (picked): value: expected a predict with sampling, found operations[19] "
       "(predict) without",
       E(e.program.outputs[8].value = e.predict)},
  };
  ExpectRefused(cases);
}

TEST(ValidateProgramTest, TakesPicksThatAreRight) {
  const std::vector<std::function<void(PickingExample&)>> cases = {
      [](PickingExample& e) { e[e.pick].adjustments = kNone; },
      [](PickingExample& e) { e[e.last_rows].last = kNone; },
      // The shift of what a last row reads may come later.
      [](PickingExample& e) {
        const ops::Shift shift{e.norm, e.program.AddField("later", 6)};
        e[e.last_rows].x = e.norm;
        e[e.last_rows].last = shift.last;
        e.program.Apply(shift);
      },
      // Everything of one predict.
      [](PickingExample& e) {
        auto& op = e[e.predict];
        op.sampling = e.program.AddSampling("token_sampling", e.tokens);
        op.adjustments = e.adjustments;
        e.program.AddOutput("token_picked", e.predict, OutputType::kPicked);
      },
  };
  ExpectTaken(cases);
}

// Marian's positions, rounded weights, the cell of SSRU, choices.
struct StudentExample : Changeable {
  std::vector<int8_t> whole = std::vector<int8_t>(80);
  AxisId tokens, choices;
  InputId ids, positions, chosen, map, counts;
  ValueOf<ops::Embed> embed;
  ValueOf<ops::Linear> linear;
  ValueOf<ops::Ssru> ssru;
  ValueOf<ops::Predict> predict;

  StudentExample() {
    tokens = program.AddAxis("tokens");
    choices = program.AddAxis("choices");
    ids = program.AddIds("ids", tokens, -1, 10);                       // 0
    positions = program.AddIds("positions", tokens, 0, kMaxPosition);  // 1
    chosen = program.AddIds("chosen", choices, 0, 10);                 // 2
    map = program.AddMap("choices_of", tokens, choices);               // 3
    counts = program.AddIds("counts", tokens, 0, 4);                   // 4
    ops::Embed embed_op;
    embed_op.ids = ids;
    embed_op.int8_table = {whole.data(), 40, 3.0f};
    embed_op.zero_row = true;
    embed_op.vocabulary_size = 10;
    embed_op.width = 4;
    embed_op.positions = ops::Positions::kHalves;
    embed_op.position_ids = positions;
    embed = Apply(embed_op);
    linear = Apply(ops::Linear{embed, 4, {}, {whole.data(), 16, 3.0f, 2.0f}, {}});
    ssru = Apply(ops::Ssru{embed, linear, program.AddField("c", 4)});
    ops::Predict predict_op;
    predict_op.x = ssru;
    predict_op.vocabulary_size = 10;
    predict_op.int8_weight = {whole.data(), 40, 3.0f, 2.0f};
    predict_op.choices = chosen;
    predict_op.choices_map = map;
    predict_op.never = {1, 9};
    predict_op.counts = counts;
    predict_op.max_candidates = 3;
    predict = Apply(predict_op);
    program.AddOutput("candidates", predict, OutputType::kCandidates);
  }
};

TEST(ValidateProgramTest, NamesWhatIsWrongWithAStudent) {
  static const float kWeights[40] = {};
  using E = StudentExample;
  const std::vector<Broken<E>> cases = {
      {"operations[0] (embed): table: expected none, since there are rounded weights, found values",
       E(e[e.embed].table = {kWeights, 40})},
      {"operations[0] (embed): int8_table: expected 10 x 4 = 40 values, found 39",
       E(e[e.embed].int8_table.size = 39)},
      {"operations[0] (embed): int8_table: expected 40 values, found a null pointer",
       E(e[e.embed].int8_table.data = nullptr)},
      {"operations[0] (embed): int8_table.multiplier: expected a positive number, found 0.000000",
       E(e[e.embed].int8_table.multiplier = 0)},
      {"operations[0] (embed): ids: expected ids from 0 to 9, found inputs[0] (ids) of -1 to 9",
       E(e[e.embed].zero_row = false)},
      {"operations[0] (embed): position_ids: expected none, since positions is none, found 1",
       E(e[e.embed].positions = ops::Positions::kNone)},
      {"operations[0] (embed): position_ids: expected ids from 0 to 1073741823, found inputs[4] "
       "(counts) of 0 to 3",
       E(e[e.embed].position_ids = e.counts)},
      {"operations[0] (embed): width: expected an even number of at least 4, since positions is "
       "halves, found another",
       E(e[e.embed].width = 2; e[e.embed].int8_table.size = 20;)},
      {"operations[1] (linear): int8_weight.activation: expected a positive number or 0, found "
       "-1.000000",
       E(e[e.linear].int8_weight.activation = -1)},
      {"operations[2] (ssru): forget: expected a value of an operation before it, 0 to 1, found "
       "none",
       E(e[e.ssru].forget = kNone)},
      {"operations[2] (ssru): state: expected width 4, found fields[0] (c) of width 5",
       E(e.program.fields[0].width = 5)},
      {"operations[2] (ssru): state: expected a field that does not grow, found fields[0] (c)",
       E(e.program.fields[0].grows = true)},
      {"operations[3] (predict): choices: expected an axis other than x's, found axes[0] (tokens)",
       E(e.program.inputs[e.chosen].axis = e.tokens)},
      {"operations[3] (predict): choices_map: expected an input of a map, found none",
       E(e[e.predict].choices_map = kNone)},
      {"operations[3] (predict): choices_map: expected none, since there are no choices, found 3",
       E(e[e.predict].choices = kNone)},
      {"operations[3] (predict): choices_map: expected the axis axes[1] (choices), found axes[0] "
       "(tokens)",
       E(e.program.inputs[e.map].target = e.tokens)},
      {"operations[3] (predict): never: expected 2 to 9, found 1", E(e[e.predict].never = {1, 1})},
      {"operations[3] (predict): never: expected 0 to 9, found 10", E(e[e.predict].never = {10})},
      {"operations[3] (predict): sampling: expected none, since there are choices or symbols that "
       "are never chosen, found 5",
       E(e[e.predict].sampling = e.program.AddSampling("sampling", e.tokens))},
  };
  EXPECT_THAT(StudentExample().Check(), IsOk());
  ExpectRefused(cases);
}

TEST(ValidateBatchTest, NamesWhatIsWrongWithChoices) {
  StudentExample e;
  ProgramShape shape;
  ASSERT_TRUE(Validate(e.program, &shape).ok());
  ProgramLimits limits;
  limits.axes = {{4, 4}, {4, 4}};
  const auto check = [&](std::vector<int32_t> chosen, std::vector<int32_t> offsets, int32_t map) {
    const std::vector<int32_t> token_offsets = {0, 1};
    const std::vector<int32_t> ids = {-1};
    const std::vector<int32_t> positions = {7};
    const std::vector<int32_t> counts = {3};
    const AxisBatch axes[] = {
        {1, token_offsets.data(), nullptr},
        {static_cast<int>(offsets.size()) - 1, offsets.data(), nullptr},
    };
    const InputBatch inputs[] = {
        {ids.data()}, {positions.data()}, {chosen.data()}, {&map}, {counts.data()}};
    Candidate candidates[3];
    const OutputBatch outputs[] = {{nullptr, candidates}};
    ProgramBatch batch;
    batch.axes = axes;
    batch.inputs = inputs;
    return ValidateBatch(e.program, shape, limits, batch, outputs).message();
  };
  EXPECT_EQ(check({0, 9}, {0, 2}, 0), "");
  EXPECT_EQ(check({5, 0, 9}, {0, 1, 3}, 1), "");
  EXPECT_EQ(check({2, 2}, {0, 2}, 0),
            "inputs[2] (chosen)[1]: expected more than that before it in sequence 0, 2, found 2");
  EXPECT_EQ(check({2, 1}, {0, 2}, 0),
            "inputs[2] (chosen)[1]: expected more than that before it in sequence 0, 2, found 1");
  EXPECT_EQ(check({2, 10}, {0, 2}, 0), "inputs[2] (chosen)[1]: expected 0 to 9, found 10");
  EXPECT_EQ(
      check({2}, {0, 1, 1}, 0),
      "axes[1] (choices): expected an id or more in sequence 1, since operations[3] (predict) "
      "runs, found none");
  EXPECT_EQ(
      check({2}, {0, 1}, 1),
      "inputs[3] (choices_of)[0]: expected one of the 1 sequences of axes[1] (choices), found "
      "1");
}

// A map may also name the axis whose sequences v's rows are, and that of v itself; a field that
// another axis fills may be read before that axis' operation.
TEST(ValidateProgramTest, TakesWhatIsRight) {
  const std::vector<std::function<void(Example&)>> cases = {
      [](Example& e) { e[e.dot].map = e.program.AddMap("asked_of", e.tokens, e.asked); },
      [](Example& e) {
        const FieldId keys = e.program.AddField("memory_keys", 6, true);
        const FieldId values = e.program.AddField("memory_values", 6, true);
        const ops::Attend attend{e.norm, kNone, kNone, keys, values};
        e.program.AddOutput("attend", e.program.Apply(attend));
        e.program.Apply(ops::Append{e.encoded, keys});
        e.program.Apply(ops::Append{e.encoded, values});
      },
      [](Example& e) { e[e.q].bias = {}; },
      [](Example& e) { e[e.predict].bias = {}; },
      [](Example& e) { e.program = Program(); },
  };
  ExpectTaken(cases);
}

// A batch of the example that is right, with every input, output and slot.
struct ExampleBatch {
  Example e;
  ProgramShape shape;
  ProgramLimits limits;
  std::vector<int32_t> token_offsets = {0, 2, 3, 5}, question_offsets = {0, 0, 2};
  std::vector<StateArena::Slot> slots = {3, 1, 2};
  std::vector<int32_t> ids = {0, 9, 3, 4, 5}, question = {1, 0, 1}, rows = {1, 2, 4},
                       targets = {-1, 8, 0, 1, 2}, counts = {0, 3, 1, 1, 0},
                       sequence_ids = {1, 2, 3};
  std::vector<float> features = std::vector<float>(15), question_features = std::vector<float>(12);
  std::vector<AxisBatch> axes;
  std::vector<InputBatch> inputs;
  std::vector<float> values = std::vector<float>(100);
  std::vector<Candidate> candidates = std::vector<Candidate>(15);
  std::vector<OutputBatch> outputs;
  StateArena arena{{}, {}, ArenaOptions(), HostArenaMemory()};
  ProgramBatch batch;

  ExampleBatch() {
    EXPECT_TRUE(Validate(e.program, &shape).ok());
    limits.axes = {{5, 3}, {2, 2}, {0, 0}, {0, 0}};
    axes = {{3, token_offsets.data(), slots.data()}, {2, question_offsets.data(), nullptr}, {}, {}};
    inputs.resize(e.program.inputs.size());
    inputs[e.ids].ids = ids.data();
    inputs[e.features].values = features.data();
    inputs[e.question].ids = question.data();
    inputs[e.rows].ids = rows.data();
    inputs[e.targets].ids = targets.data();
    inputs[e.counts].ids = counts.data();
    inputs[e.question_features].values = question_features.data();
    inputs[e.sequence_ids].ids = sequence_ids.data();
    outputs.resize(e.program.outputs.size());
    for (OutputBatch& output : outputs) output.values = values.data();
    outputs[1].values = nullptr;
    outputs[1].candidates = candidates.data();
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = &arena;
  }

  Status Check() const { return ValidateBatch(e.program, shape, limits, batch, outputs.data()); }

  // Leaves these outputs and no slot.
  void Ask(const std::vector<int>& wanted) {
    std::vector<OutputBatch> some(outputs.size());
    for (int i : wanted) some[i] = outputs[i];
    outputs = some;
    axes[0].slots = nullptr;
    batch.arena = nullptr;
  }
};

TEST(ValidateBatchTest, NamesWhatIsWrong) {
  const std::vector<Broken<ExampleBatch>> cases = {
      {"axes: expected 4, found none", B(b.batch.axes = nullptr)},
      {"axes[0] (tokens): expected at most 2 sequences, found 3",
       B(b.limits.axes[0].max_sequences = 2)},
      {"axes[1] (questions): expected at most 2 sequences, found -1",
       B(b.axes[1].num_sequences = -1)},
      {"axes[0] (tokens): offsets: expected 4, found none", B(b.axes[0].offsets = nullptr)},
      {"axes[0] (tokens): offsets[0]: expected 0, found 1", B(b.token_offsets[0] = 1)},
      {"axes[0] (tokens): offsets[2]: expected at least 2, found 1", B(b.token_offsets[2] = 1)},
      {"axes[0] (tokens): expected at most 4 rows, found 5", B(b.limits.axes[0].max_rows = 4)},
      // Slots.
      {"axes[0] (tokens): slots[1]: expected a slot or kNoSlot, found -2", B(b.slots[1] = -2)},
      {"axes[0] (tokens): slots[2]: expected a slot of its own, found 3, which is that of axes[0] "
       "(tokens): slots[0]",
       B(b.slots[2] = 3)},
      {"axes[1] (questions): slots[1]: expected a slot of its own, found 1, which is that of "
       "axes[0] (tokens): slots[1]",
       B(static const StateArena::Slot kSlots[] = {StateArena::kNoSlot, 1};
         b.axes[1].slots = kSlots;)},
      {"arena: expected one, since axes[0] (tokens): slots[0] is set, found none",
       B(b.batch.arena = nullptr)},
      {"arena: expected one of device 1, found one of device 0", B(b.limits.device = 1)},
      {"axes[0] (tokens): slots[1]: expected a slot, since operations[1] (embed) uses fields[1] "
       "(keys), which grows, found none",
       B(b.slots[1] = StateArena::kNoSlot)},
      {"axes[0] (tokens): slots[0]: expected a slot, since operations[1] (embed) uses fields[1] "
       "(keys), which grows, found none",
       B(b.axes[0].slots = nullptr)},
      {"axes[0] (tokens): slots[0]: expected a slot, since operations[8] (attend) uses fields[1] "
       "(keys), which grows, found none",
       B(auto& embed = b.e[b.e.embed]; embed.position_field = kNone; b.Ask({3});)},
      {"axes[0] (tokens): slots[1]: expected a slot, since operations[5] (append) uses fields[1] "
       "(keys), which grows, found none",
       B(auto& embed = b.e[b.e.embed]; embed.position_field = kNone;
         b.slots[1] = StateArena::kNoSlot;)},
      // Inputs.
      {"inputs[0] (ids): expected 5 ids, since operations[1] (embed) runs, found none",
       B(b.inputs[b.e.ids].ids = nullptr)},
      {"inputs[1] (features): expected 5 rows, since operations[0] (features) runs, found none",
       B(b.inputs[b.e.features].values = nullptr; b.inputs[b.e.features].ids = b.ids.data();)},
      {"inputs[1] (features): expected 5 rows, since operations[0] (features) runs, found none",
       B(b.batch.inputs = nullptr)},
      {"inputs[2] (question): expected 3 ids, since operations[10] (attend) runs, found none",
       B(b.inputs[b.e.question].ids = nullptr)},
      {"inputs[2] (question): expected 3 ids, since operations[16] (row_dot) runs, found none",
       B(b.e[b.e.attend_questions].map = kNone;  // so that it is not the first
         b.inputs[b.e.question].ids = nullptr;)},
      {"inputs[3] (last_rows): expected 3 ids, since operations[18] (select) runs, found none",
       B(b.inputs[b.e.rows].ids = nullptr)},
      {"inputs[4] (targets): expected 5 ids, since operations[19] (predict) runs, found none",
       B(b.inputs[b.e.targets].ids = nullptr)},
      {"inputs[5] (counts): expected 5 ids, since operations[19] (predict) runs, found none",
       B(b.inputs[b.e.counts].ids = nullptr)},
      {"inputs[6] (question_features): expected 2 rows, since operations[9] (features) runs, found "
       "none",
       B(b.inputs[b.e.question_features].values = nullptr)},
      {"inputs[7] (sequence_ids): expected 3 ids, since operations[20] (stack) runs, found none",
       B(b.inputs[b.e.sequence_ids].ids = nullptr)},
      {"inputs[0] (ids)[1]: expected 0 to 9, found 10", B(b.ids[1] = 10)},
      {"inputs[0] (ids)[4]: expected 0 to 9, found -1", B(b.ids[4] = -1)},
      {"inputs[4] (targets)[0]: expected -1 to 8, found -2", B(b.targets[0] = -2)},
      {"inputs[5] (counts)[2]: expected 0 to 3, found 4", B(b.counts[2] = 4)},
      {"inputs[2] (question)[2]: expected one of the 2 sequences of axes[1] (questions), found 2",
       B(b.question[2] = 2)},
      {"inputs[2] (question)[0]: expected one of the 0 sequences of axes[1] (questions), found 1",
       B(b.axes[1].num_sequences = 0)},
      {"inputs[3] (last_rows)[1]: expected one of the 5 rows of axes[0] (tokens), found 5",
       B(b.rows[1] = 5)},
      // What nothing needs is checked all the same.
      {"inputs[5] (counts)[0]: expected 0 to 3, found 100", B(b.counts[0] = 100; b.Ask({6});)},
      // Outputs.
      {"outputs[0] (log_prob): expected values, found candidates",
       B(b.outputs[0].candidates = b.candidates.data())},
      {"outputs[1] (candidates): expected candidates, found values",
       B(b.outputs[1].values = b.values.data())},
  };
  {
    const ExampleBatch good;
    ASSERT_THAT(good.Check(), IsOk());
  }
  ExpectRefused(cases);
}

// Only what the outputs and slots of this batch need has to be there.
TEST(ValidateBatchTest, TakesWhatIsEnough) {
  const std::vector<std::function<void(ExampleBatch&)>> cases = {
      // The features alone.
      [](ExampleBatch& b) {
        b.Ask({6});
        for (size_t i = 0; i < b.inputs.size(); ++i) {
          if (static_cast<InputId>(i) != b.e.features) b.inputs[i] = {};
        }
      },
      // Sequences without rows.
      [](ExampleBatch& b) {
        b.Ask({6});
        b.token_offsets = {0, 0, 5, 5};
        b.axes[0].offsets = b.token_offsets.data();
      },
      [](ExampleBatch& b) {
        b.token_offsets = {0, 0, 5, 5};
        b.axes[0].offsets = b.token_offsets.data();
      },
      // Candidates without targets, and log-probabilities without counts.
      [](ExampleBatch& b) {
        b.outputs[0] = {};
        b.inputs[b.e.targets] = {};
      },
      [](ExampleBatch& b) {
        b.outputs[1] = {};
        b.inputs[b.e.counts] = {};
      },
      // Slots alone: what the questions bring is not needed for them.
      [](ExampleBatch& b) {
        b.outputs.assign(b.outputs.size(), {});
        b.axes[1] = {};
        for (size_t i = 0; i < b.inputs.size(); ++i) {
          if (static_cast<InputId>(i) != b.e.ids) b.inputs[i] = {};
        }
      },
      // Nothing.
      [](ExampleBatch& b) {
        b.axes.assign(b.axes.size(), {});
        b.inputs.assign(b.inputs.size(), {});
        b.batch.arena = nullptr;
      },
      [](ExampleBatch& b) {
        b.Ask({});
        b.batch.inputs = nullptr;
      },
      // A slot that does not exist is the arena's to refuse.
      [](ExampleBatch& b) { b.slots[0] = 1000; },
  };
  ExpectTaken(cases);
}

// A batch of picks for two sequences, the first of which has no rows.
struct PickingBatch {
  PickingExample e;
  ProgramShape shape;
  ProgramLimits limits;
  std::vector<int32_t> token_offsets = {0, 0, 2}, adjusted_offsets = {0, 1, 3};
  std::vector<int32_t> ids = {1, 2};
  std::vector<StateArena::Slot> slots = {0, 1};
  std::vector<Sampling> sampling = std::vector<Sampling>(2);
  std::vector<Adjustment> adjustments = {{8, 1.5f, 2.0f}, {0, 1.0f, 0.0f}, {3, 2.0f, -1.0f}};
  std::vector<Candidate> picked = std::vector<Candidate>(2);
  std::vector<AxisBatch> axes;
  std::vector<InputBatch> inputs;
  std::vector<OutputBatch> outputs;
  StateArena arena{{}, {}, ArenaOptions(), HostArenaMemory()};
  ProgramBatch batch;

  PickingBatch() {
    EXPECT_TRUE(Validate(e.program, &shape).ok());
    limits.axes.assign(5, {4, 4});
    axes = {
        {2, token_offsets.data(), slots.data()}, {}, {}, {}, {2, adjusted_offsets.data(), nullptr}};
    inputs.resize(e.program.inputs.size());
    inputs[e.ids].ids = ids.data();
    inputs[e.sampling].sampling = sampling.data();
    inputs[e.adjustments].adjustments = adjustments.data();
    outputs.resize(e.program.outputs.size());
    outputs[8].candidates = picked.data();
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = &arena;
  }

  Status Check() const { return ValidateBatch(e.program, shape, limits, batch, outputs.data()); }
};

TEST(ValidateBatchTest, NamesWhatIsWrongWithPicks) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<Broken<PickingBatch>> cases = {
      {"inputs[8] (sampling): expected 2 rows, since operations[22] (predict) runs, found none",
       B(b.inputs[b.e.sampling].sampling = nullptr)},
      {"inputs[9] (adjustments): expected 3 rows, since operations[22] (predict) runs, found none",
       B(b.inputs[b.e.adjustments].adjustments = nullptr)},
      {"axes[4] (adjusted): expected 2 sequences, one for each row of operations[22] (predict), or "
       "none, found 1",
       B(b.axes[4].num_sequences = 1)},
      {"outputs[8] (picked): expected candidates, found values",
       B(static float value; b.outputs[8].values = &value;)},
      // Sampling.
      {"inputs[8] (sampling)[1].temperature: expected a number that is not negative, found nan",
       B(b.sampling[1].temperature = kNaN)},
      {"inputs[8] (sampling)[1].temperature: expected a number that is not negative, found inf",
       B(b.sampling[1].temperature = kInfinity)},
      {"inputs[8] (sampling)[0].temperature: expected a number that is not negative, found "
       "-1.000000",
       B(b.sampling[0].temperature = -1)},
      {"inputs[8] (sampling)[0].top_k: expected at least 0, found -3",
       B(b.sampling[0] = {1, -3, 0, 0, 0})},
      {"inputs[8] (sampling)[0].top_p: expected 0 to 1, found 1.500000",
       B(b.sampling[0] = {1, 0, 1.5f, 0, 0})},
      {"inputs[8] (sampling)[1].top_p: expected 0 to 1, found nan",
       B(b.sampling[1] = {1, 0, kNaN, 0, 0})},
      {"inputs[8] (sampling)[1].min_p: expected 0 to 1, found -0.500000",
       B(b.sampling[1] = {1, 0, 0, -0.5f, 0})},
      // What nothing needs is checked all the same.
      {"inputs[8] (sampling)[0].top_k: expected at least 0, found -1",
       B(b.sampling[0] = {1, -1, 0, 0, 0}; b.outputs[8] = {};)},
      // Adjustments.
      {"inputs[9] (adjustments)[0].id: expected 0 to 8, found 9", B(b.adjustments[0].id = 9)},
      {"inputs[9] (adjustments)[2].id: expected 0 to 8, found -1", B(b.adjustments[2].id = -1)},
      {"inputs[9] (adjustments)[2].id: expected more than that before it in sequence 1, 4, found 3",
       B(b.adjustments[1].id = 4)},
      {"inputs[9] (adjustments)[2].id: expected more than that before it in sequence 1, 3, found 3",
       B(b.adjustments[1].id = 3)},
      {"inputs[9] (adjustments)[1].scale: expected a positive number, found 0.000000",
       B(b.adjustments[1].scale = 0)},
      {"inputs[9] (adjustments)[1].scale: expected a positive number, found inf",
       B(b.adjustments[1].scale = kInfinity)},
      {"inputs[9] (adjustments)[1].scale: expected a positive number, found nan",
       B(b.adjustments[1].scale = kNaN)},
      {"inputs[9] (adjustments)[0].add: expected a number or -infinity, found inf",
       B(b.adjustments[0].add = kInfinity)},
      {"inputs[9] (adjustments)[0].add: expected a number or -infinity, found nan",
       B(b.adjustments[0].add = kNaN)},
  };
  ExpectRefused(cases);
}

TEST(ValidateBatchTest, TakesPicksThatAreRight) {
  const std::vector<std::function<void(PickingBatch&)>> cases = {
      [](PickingBatch& /*b*/) {},
      [](PickingBatch& b) {
        b.axes[4] = {};
        b.inputs[b.e.adjustments] = {};
      },
      // As many sequences as rows, all of them empty.
      [](PickingBatch& b) {
        b.adjusted_offsets = {0, 0, 0};
        b.axes[4].offsets = b.adjusted_offsets.data();
        b.inputs[b.e.adjustments] = {};
      },
      // Nothing else is read of a greedy one.
      [](PickingBatch& b) {
        b.sampling[0] = {0, -1, 2.0f, -3.0f, 0};
      },
      [](PickingBatch& b) {
        b.sampling[0] = {1e-30f, 1 << 30, 1.0f, 1.0f, ~uint64_t{0}};
      },
      [](PickingBatch& b) { b.adjustments[0].add = -std::numeric_limits<float>::infinity(); },
      // Adjustments of another number of rows, which nothing needs.
      [](PickingBatch& b) {
        b.axes[4].num_sequences = 1;
        b.outputs[8] = {};
      },
  };
  ExpectTaken(cases);
}

TEST(ValidateBatchTest, OutputsMayBeNull) {
  ExampleBatch b;
  b.Ask({});
  EXPECT_TRUE(ValidateBatch(b.e.program, b.shape, b.limits, b.batch, nullptr).ok());
}

TEST(BatchUsersTest, AreOutputsAndAxesWithSlots) {
  ExampleBatch b;
  const auto users = [&] { return BatchUsers(b.e.program, b.batch, b.outputs.data()); };
  const uint64_t state = ProgramShape::StateBit(b.e.tokens);
  EXPECT_EQ(users(), 255 | state);
  b.outputs[1] = {};
  EXPECT_EQ(users(), 253 | state);
  b.slots = {StateArena::kNoSlot, StateArena::kNoSlot, 7};
  EXPECT_EQ(users(), 253 | state);
  b.slots[2] = StateArena::kNoSlot;
  EXPECT_EQ(users(), 253);
  b.Ask({6});
  EXPECT_EQ(users(), 64);
  EXPECT_EQ(BatchUsers(b.e.program, b.batch, nullptr), 0);
}

TEST(ValidateLimitsTest, NamesWhatIsWrong) {
  const Example e;
  ProgramLimits limits;
  limits.axes = {{5, 3}, {2, 2}, {0, 0}};
  EXPECT_EQ(ValidateLimits(e.program, limits).message(), "limits.axes: expected 4, found 3");
  limits.axes.push_back({-1, -1});  // of a sequence axis, which is not read
  EXPECT_TRUE(ValidateLimits(e.program, limits).ok());
  limits.axes[1].max_rows = -1;
  EXPECT_EQ(ValidateLimits(e.program, limits).message(),
            "limits.axes[1] (questions).max_rows: expected at least 0, found -1");
  limits.axes[1] = {1, -2};
  EXPECT_EQ(ValidateLimits(e.program, limits).message(),
            "limits.axes[1] (questions).max_sequences: expected at least 0, found -2");
}

}  // namespace
}  // namespace sru::kernels
