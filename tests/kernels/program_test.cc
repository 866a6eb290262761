// Programs on every backend against the reference backend: each operation by itself over widths and
// ragged batches, then whole models; and the promises of program.h and program_executable.h about
// bits, slots and errors. Which backend is tested comes from the environment (SRU_BACKEND), so that
// each has a CTest entry of its own.
#include "kernels/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/testing/system_programs.h"
#include "tests/kernels/compiled_program.h"
#include "tests/kernels/status_matchers.h"
#include "tests/testing/strict_weight_source.h"

namespace sru::kernels {
namespace {

using ::sru::testing::StrictWeightSource;
using ::testing::HasSubstr;

// A program of a few operations, and the batches that it is tested with.
struct Case {
  std::string name;
  std::function<void(RandomProgram*)> build;
  std::vector<Lengths> batches;
  Rounding rounding = Rounding::kNone;
  // Axes whose sequences may be cut into runs anywhere, with the same bits.
  std::vector<AxisId> cut_axes;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

// Rows 0, 1 and many; sequences without rows.
const std::vector<Lengths> kRagged = {{{}}, {{1}}, {{0}}, {{3, 0, 40, 1, 0, 17, 128}}};
// Long enough for several pages and blocks of keys.
const std::vector<Lengths> kLong = {{{}}, {{1}}, {{0}}, {{3, 0, 40, 1, 0, 17, 300}}};
const std::vector<Lengths> kLongEmulated = {{{}}, {{1}}, {{0}}, {{3, 0, 17, 1, 40}}};
// Of two axes that a map joins.
const std::vector<Lengths> kPairs = {
    {{}, {}}, {{1}, {1}}, {{}, {3}}, {{2}, {0}}, {{3, 0, 40, 1, 5, 17, 100}, {0, 9, 1, 33}}};

void AddFeatures(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  p->Output(p->Features("x", tokens, width), "features");
}

void AddEmbed(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const InputId ids = p->program.AddIds("ids", tokens, 0, 37);
  p->Output(p->Embed(ids, 37, width, false, kNone, 1.7f), "plain");
  p->Output(p->Embed(ids, 37, width, true), "with_positions");
}

void AddEmbedAfter(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const InputId ids = p->program.AddIds("ids", tokens, 0, 37);
  const FieldId field = p->program.AddField("embedded", width, true);
  const ValueId x = p->Embed(ids, 37, width, true, field, 0.5f);
  p->Output(p->Append(x, field), "appended");
}

void AddLinear(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Linear(x, width), "same_width");
  p->Output(p->Linear(x, 2 * width + 3, true, true), "relu");
  p->Output(p->Linear(x, 1, false), "one_without_bias");
  p->Output(p->Linear(x, 128, false, true), "relu_without_bias");
}

void AddNormalize(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Normalize(x), "usual");
  p->Output(p->Normalize(x, 0.1f), "large_epsilon");
}

void AddStack(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  StackOptions options;
  options.input_size = options.hidden_size = width;
  p->Output(p->Stack(p->Features("x", tokens, width), options), "bidirectional");
  options.layer_norm = LayerNorm::kBefore;
  options.num_layers = 3;
  p->Output(p->StackOfIds(p->program.AddIds("ids", tokens, 0, 30), options), "of_ids");
}

// A stack on a sequence axis: sequences of one row.
void AddStackOfSequences(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", tokens);
  StackOptions options;
  options.hidden_size = width;
  p->Output(p->Stack(p->Features("x", sequences, width), options), "stack");
}

void AddStackWithState(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  StackOptions options;
  options.input_size = options.hidden_size = width;
  options.directions = 1;
  options.num_layers = 3;
  options.projection_size = width / 3;
  p->Output(p->Stack(p->Features("x", tokens, width), options, "c"), "of_rows");
  options.num_layers = 1;
  p->Output(p->StackOfIds(p->program.AddIds("ids", tokens, 0, 30), options, "c_of_ids"), "of_ids");
}

// The weights of some Attends are outputs, too, and those of others twice.
void AddAttend(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  for (const auto& [heads, causal] : {std::pair{1, false}, {1, true}, {2, true}, {3, false}}) {
    const std::string name = std::to_string(heads) + (causal ? "_causal" : "_all");
    const ValueId q = p->Features("q" + name, tokens, heads * width);
    const ValueId k = p->Features("k" + name, tokens, heads * width);
    const ValueId v = p->Features("v" + name, tokens, heads * (width + 1));
    const ValueId y = p->Attend(q, k, v, heads, causal);
    if (heads > 1 || causal) p->Output(y, "attend" + name);
    p->program.AddOutput("attention" + name, y, OutputType::kAttention);
    if (heads > 1) p->program.AddOutput("again" + name, y, OutputType::kAttention);
  }
}

// Attends from passages to the questions that a map names, and to one row of each question.
void AddAttendMap(RandomProgram* p, int width) {
  const AxisId passages = p->program.AddAxis("passages");
  const AxisId questions = p->program.AddAxis("questions");
  const AxisId asked = p->program.AddSequenceAxis("asked", questions);
  const InputId map = p->program.AddMap("question_of", passages, questions);
  const auto add = [&](const std::string& name, AxisId axis, InputId to, int heads, bool causal) {
    const ValueId q = p->Features("q" + name, passages, heads * width);
    const ValueId k = p->Features("k" + name, axis, heads * width);
    const ValueId v = p->Features("v" + name, axis, heads * 5);
    const ValueId y = p->Attend(q, k, v, heads, causal, to);
    p->program.AddOutput("attention" + name, y, OutputType::kAttention);
    p->Output(y, "attend" + name);
  };
  add("1_all", questions, map, 1, false);
  add("2_all", questions, map, 2, false);
  add("1_causal", questions, map, 1, true);
  add("_asked", asked, p->program.AddMap("asked_of", passages, asked), 1, false);
}

void AddAttendFields(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const FieldId keys = p->program.AddField("keys", 2 * width, true);
  const FieldId values = p->program.AddField("values", 2 * (width + 2), true);
  const ValueId q = p->Features("q", tokens, 2 * width);
  p->Append(p->Features("k", tokens, 2 * width), keys);
  p->Append(p->Features("v", tokens, 2 * (width + 2)), values);
  const ValueId y = p->AttendFields(q, keys, values, 2, /*causal=*/true);
  p->program.AddOutput("attention", y, OutputType::kAttention);
  p->Output(y, "attend");
}

// As AddAttendFields(), but rows see those of their run that come after them.
void AddAttendAllFields(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId q = p->Features("q", tokens, width);
  const FieldId field = p->program.AddField("keys", width, true);
  p->Output(p->Append(p->Features("k", tokens, width), field), "appended");
  const ValueId y = p->AttendFields(q, field, field);
  p->Output(y, "attend");
  p->program.AddOutput("attention", y, OutputType::kAttention);
}

// A source's run appends what its sentence is remembered by; the target's runs say which of its
// rows they look at.
void AddAlignment(RandomProgram* p, int width) {
  const AxisId source = p->program.AddAxis("source");
  const AxisId target = p->program.AddAxis("target");
  const FieldId keys = p->program.AddField("memory_keys", 2 * width, true);
  const FieldId values = p->program.AddField("memory_values", 2 * width, true);
  p->Append(p->Features("k", source, 2 * width), keys);
  p->Append(p->Features("v", source, 2 * width), values);
  const ValueId y = p->AttendFields(p->Features("q", target, 2 * width), keys, values, 2);
  p->Output(y, "attend");
  p->program.AddOutput("alignment", y, OutputType::kAttention);
}

void AddConcat(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId a = p->Features("a", tokens, width);
  const ValueId b = p->Features("b", tokens, 1);
  const ValueId c = p->Features("c", tokens, 2 * width);
  p->Output(p->Concat({a, b, c, a}), "four");
  p->Output(p->Concat({c}), "one");
}

void AddAdd(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId a = p->Features("a", tokens, width);
  const ValueId b = p->Features("b", tokens, width);
  const ValueId sum = p->Add(a, b);
  p->Output(sum, "sum");
  p->Output(p->Add(sum, sum), "twice");
}

void AddPool(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", tokens);
  const ValueId x = p->Features("x", tokens, 2 * width);
  for (Pooling pooling : kAllPoolings) {
    if (pooling == Pooling::kNone) continue;
    for (int directions : {1, 2}) {
      p->Output(p->Pool(x, sequences, pooling, directions),
                PoolingName(pooling) + std::to_string(directions));
    }
  }
  p->Output(p->WeightedPool(x, sequences, p->Features("w", tokens, 1)), "weighted");
}

void AddRowDot(RandomProgram* p, int width) {
  const AxisId passages = p->program.AddAxis("passages");
  const AxisId questions = p->program.AddAxis("questions");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", passages);
  const AxisId asked = p->program.AddSequenceAxis("asked", questions);
  const ValueId x = p->Features("x", passages, width);
  const ValueId own = p->Features("own", sequences, width);
  const ValueId other = p->Features("other", asked, width);
  p->Output(p->RowDot(x, own), "own");
  p->Output(p->RowDot(x, other, p->program.AddMap("question", passages, questions)), "question");
  p->Output(p->RowDot(x, other, p->program.AddMap("asked_of", passages, asked)), "asked");
}

void AddShift(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  p->Output(p->Shift(p->Features("x", tokens, width), "last"), "shifted");
}

void AddLast(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", tokens);
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Last(x, sequences), "of_this_run");
  const ValueId shifted = p->Shift(x, "last");
  p->Output(p->Last(x, sequences, p->LastOf(shifted)), "of_any_run");
}

void AddSelect(RandomProgram* p, int width) {
  const AxisId picks = p->program.AddAxis("picks");
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", picks);
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Select(x, p->program.AddRows("rows", picks, tokens)), "picked");
  p->Output(p->Select(x, p->program.AddRows("rows_of", sequences, tokens)), "one_of_each");
}

void AddPredict(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Predict("one", x, tokens, 1, 1);
  p->Predict("two", x, tokens, 2, 2);
  p->Predict("many", x, tokens, 205, 9);
  p->Predict("all", x, tokens, 17, 17);
  p->Predict("best", x, tokens, 1000, 1);
  // A block of columns of the CPU backend, and one more.
  p->Predict("block", x, tokens, 512, 7);
  p->Predict("past_block", x, tokens, 513, 7);
}

void AddEmbedOptions(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  ops::Embed op;
  op.ids = p->program.AddIds("ids", tokens, -1, 4);
  op.zero_row = true;
  op.vocabulary_size = 4;
  op.width = width;
  op.scale = 1.7f;
  op.positions = ops::Positions::kHalves;
  op.table = p->Values(4 * width);
  p->Output(p->Apply(op, width), "halves");
  op.position_ids = p->program.AddIds("positions", tokens, 0, kMaxPosition);
  p->Output(p->Apply(op, width), "positions_given");
  op.positions = ops::Positions::kInterleaved;
  p->Output(p->Apply(op, width), "interleaved");
}

void AddSsru(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Ssru(x, p->Features("forget", tokens, width), "c"), "y");
  p->Output(p->Ssru(x, x, "d"), "of_itself");
}

// The axis of the choices is the second one.
void AddChoices(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId choices = p->program.AddAxis("choices");
  const ValueId x = p->Features("x", tokens, width);
  p->Choose("few", x, tokens, choices, 1700, 9);
  p->Choose("never", x, tokens, choices, 1700, 9, {0, 1, 850, 1699});
  p->op<ops::Predict>(p->Predict("all", x, tokens, 700, 5)).never = {0, 3, 511, 512, 699};
  p->op<ops::Predict>(p->Predict("none", x, tokens, 2, 2)).never = {0, 1};
}

void AddRounded(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Output(p->Int8Linear(x, width), "given");
  p->Output(p->Int8Linear(x, 2 * width + 3, 0.0f, true, true), "own");
  p->Output(p->Int8Linear(x, 130, 50.0f, false), "without_bias");
  ops::Embed op;
  op.ids = p->program.AddIds("ids", tokens, 0, 700);
  op.vocabulary_size = 700;
  op.width = width;
  op.int8_table = p->Int8Values(700, width, 20.0f);
  p->Output(p->Apply(op, width), "rows");
  const auto tie = [&](const std::string& name) -> ops::Predict& {
    auto& predict = p->op<ops::Predict>(p->Predict(name, x, tokens, 700, 5));
    predict.weight = {};
    predict.int8_weight = op.int8_table;
    return predict;
  };
  tie("tied").never = {600};
  // Tables of the same integers.
  op.int8_table.multiplier = 35.0f;
  p->Output(p->Apply(op, width), "rows_scaled_otherwise");
  for (const float activation : {0.0f, 25.0f}) {
    tie("tied_" + std::to_string(activation)).int8_weight.activation = activation;
  }
}

void AddRoundedChoices(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId choices = p->program.AddAxis("choices");
  const ValueId x = p->Features("x", tokens, width);
  for (const float activation : {0.0f, 25.0f}) {
    auto& predict = p->op<ops::Predict>(
        p->Choose(activation > 0 ? "given" : "own", x, tokens, choices, 1700, 9, {850}));
    predict.weight = {};
    predict.int8_weight = p->Int8Values(1700, width, activation);
  }
}

void AddStudent(RandomProgram* p, int width) {
  testing::StudentShape shape;
  shape.width = 4 * width;
  shape.feed_forward = 9 * width;
  shape.encoder_layers = shape.decoder_layers = 2;
  testing::AddStudentSystem(p, shape);
}

// Axes 1 and 2 are those of adjustments.
void AddPicks(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Features("x", tokens, width);
  p->Pick("few", x, tokens, 17, 17);
  p->Pick("many", x, tokens, 256, 3);
  p->Pick("one", x, tokens, 1, 1);
  p->Pick("two", x, tokens, 2, 1);
  p->Pick("most", x, tokens, 1000, 1);
}

// A language model: a stack of ids, whose last h scores the first token of the next run. Returns h,
// and what it is shifted to.
std::pair<ValueId, ValueId> AddScores(RandomProgram* p, AxisId tokens, int width) {
  StackOptions options;
  options.input_size = 24;
  options.hidden_size = width;
  options.directions = 1;
  options.num_layers = 3;
  options.projection_size = 8;
  const ValueId h = p->StackOfIds(p->program.AddIds("ids", tokens, 0, 61), options, "c");
  const ValueId shifted = p->Shift(h, "h");
  p->Predict("token", shifted, tokens, 61, 5);
  return {h, shifted};
}

void AddLanguageModel(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId h = AddScores(p, tokens, width).first;
  p->Predict("next", h, tokens, 61, 61);
}

// One that also picks the token after the last of each sequence, with the same weights.
void AddGenerator(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const AxisId sequences = p->program.AddSequenceAxis("sequences", tokens);
  const auto [h, shifted] = AddScores(p, tokens, width);
  const auto score = std::get<ops::Predict>(p->program.operations.back());
  auto& pick = p->op<ops::Predict>(
      p->Pick("next", p->Last(h, sequences, p->LastOf(shifted)), sequences, 61, 5));
  pick.weight = score.weight;
  pick.bias = score.bias;
}

void AddReader(RandomProgram* p, int width) {
  testing::ReaderShape shape;
  shape.embedding = shape.hidden = width;
  AddReaderSystem(p, shape);
}

// A reader of every option but one, and one of none.
void AddFullReader(RandomProgram* p, int width) {
  testing::ReaderShape shape;
  shape.embedding = shape.hidden = width;
  shape.layers = 2;
  shape.tags = 7;
  shape.concat_layers = true;
  AddReaderSystem(p, shape);
}

void AddPlainReader(RandomProgram* p, int width) {
  testing::ReaderShape shape;
  shape.embedding = shape.hidden = width;
  shape.layers = 3;
  shape.features = 0;
  shape.aligned = shape.self_attention = false;
  AddReaderSystem(p, shape);
}

// `width` is that of a head.
void AddTranslator(RandomProgram* p, int width) {
  testing::TranslatorShape shape;
  shape.heads = 4;
  shape.width = shape.hidden = 4 * width;
  AddTranslatorSystem(p, shape);
}

void AddDeepTranslator(RandomProgram* p, int width) {
  testing::TranslatorShape shape;
  shape.heads = 3;
  shape.width = 3 * width;
  shape.hidden = 4 * width;
  shape.encoder_layers = shape.decoder_layers = 2;
  shape.bidirectional = false;
  AddTranslatorSystem(p, shape);
}

// A product, an attention and a prediction, which are split where they have many rows.
void AddLargeOperations(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  const ValueId x = p->Linear(p->Features("x", tokens, width), width, true, true);
  const ValueId y = p->Attend(x, x, x, 4, /*causal=*/true);
  p->Output(y, "y");
  p->Predict("next", y, tokens, 600, 3);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, void (*build)(RandomProgram*, int),
                       const std::vector<int>& widths, const std::vector<Lengths>& batches,
                       Rounding rounding, const std::vector<AxisId>& cut_axes = {}) {
    for (int width : widths) {
      cases.push_back({name + "_" + std::to_string(width),
                       [build, width](RandomProgram* p) { build(p, width); }, batches, rounding,
                       cut_axes});
    }
  };
  const bool emulated = IsEmulated();
  const std::vector<int> widths =
      emulated ? std::vector<int>{1, 17, 100} : std::vector<int>{1, 3, 16, 17, 64, 100, 130};
  const std::vector<int> few =
      emulated ? std::vector<int>{3, 17} : std::vector<int>{1, 3, 16, 17, 64};
  const std::vector<Lengths>& longer = emulated ? kLongEmulated : kLong;
  add("Features", AddFeatures, widths, kRagged, Rounding::kNone);
  add("Embed", AddEmbed, widths, kRagged, Rounding::kSameRows);
  add("EmbedAfter", AddEmbedAfter, widths, kRagged, Rounding::kSameRows, {0});
  add("Linear", AddLinear, widths, kRagged, Rounding::kSameRows);
  add("Normalize", AddNormalize,
      emulated ? std::vector<int>{2, 17} : std::vector<int>{2, 3, 16, 17, 64, 100, 130}, kRagged,
      Rounding::kNone);
  add("Stack", AddStack, emulated ? few : std::vector<int>{1, 3, 16, 17, 40}, kRagged,
      Rounding::kChained);
  add("StackOfSequences", AddStackOfSequences, {1, 17}, kRagged, Rounding::kChained);
  add("StackWithState", AddStackWithState, emulated ? few : std::vector<int>{1, 3, 16, 17, 40, 160},
      kRagged, Rounding::kChained, {0});
  add("Attend", AddAttend, few, longer, Rounding::kNone);
  add("AttendMap", AddAttendMap, few, kPairs, Rounding::kNone);
  add("AttendFields", AddAttendFields, few, longer, Rounding::kNone, {0});
  add("AttendAllFields", AddAttendAllFields, few, longer, Rounding::kNone);
  add("Concat", AddConcat, widths, kRagged, Rounding::kNone);
  add("Add", AddAdd, widths, kRagged, Rounding::kNone);
  add("Pool", AddPool, widths, kRagged, Rounding::kNone);
  add("RowDot", AddRowDot, widths, kPairs, Rounding::kNone);
  add("Shift", AddShift, widths, kRagged, Rounding::kNone, {0});
  add("Last", AddLast, widths, kRagged, Rounding::kNone);
  add("Select", AddSelect, widths, {{{}, {}}, {{1}, {1}}, {{}, {4}}, {{3, 0, 40}, {1, 0, 17, 5}}},
      Rounding::kNone);
  add("Predict", AddPredict, widths, kRagged, Rounding::kSameRows);
  add("EmbedOptions", AddEmbedOptions, {4, 6, 100}, kRagged, Rounding::kSameRows);
  add("Ssru", AddSsru, widths, kRagged, Rounding::kNone, {0});
  const std::vector<Lengths> chosen = {
      {{}, {}}, {{1}, {1}}, {{0}, {7}}, {{3, 0, 40, 1, 17, 5}, {5, 600, 1, 1700, 16}}};
  add("Choices", AddChoices, widths, chosen, Rounding::kSameRows);
  add("Rounded", AddRounded, widths, kRagged, Rounding::kNone);
  add("RoundedChoices", AddRoundedChoices, widths, chosen, Rounding::kNone);
  add("Student", AddStudent, {2, 5},
      {{{}, {}, {}}, {{5, 1, 30}, {}, {}}, {{}, {3, 1, 21}, {40, 9}}, {{7, 2}, {4, 11}, {20}}},
      Rounding::kChained);
  add("LanguageModel", AddLanguageModel, {24, 40}, kRagged, Rounding::kChained, {0});
  const std::vector<Lengths> questions = {{{}, {}}, {{1}, {1}}, {{30, 1, 77, 12}, {9, 2, 13}}};
  add("Reader", AddReader, {16, 25}, questions, Rounding::kChained);
  add("FullReader", AddFullReader, {9, 16}, questions, Rounding::kChained);
  add("PlainReader", AddPlainReader, {16}, questions, Rounding::kChained);
  const std::vector<Lengths> sentences = {
      {{}, {}}, {{5, 1, 30}, {}}, {{}, {3, 1, 21}}, {{7, 2}, {4, 11}}};
  add("Translator", AddTranslator, {4, 9}, sentences, Rounding::kChained, {1});
  add("DeepTranslator", AddDeepTranslator, {3, 8}, sentences, Rounding::kChained, {1});
  add("Picks", AddPicks, few,
      {{{}},
       {{1}},
       {{3, 0, 40, 1}},
       {{2, 0, 4}, {0, 3, 17, 1, 0, 2}, {1, 0, 0, 200, 8, 0}},
       {{1, 1}, {}, {}, {0, 1}, {2, 1}, {0, 700}}},
      Rounding::kSameRows);
  add("Generator", AddGenerator, {24},
      {{{}}, {{1}}, {{0}}, {{3, 0, 40, 1, 17}}, {{2, 0, 1}, {}, {5, 0, 3}}}, Rounding::kChained);
  return cases;
}

std::vector<Case> CutCases() {
  std::vector<Case> cases;
  for (const Case& c : Cases()) {
    if (!c.cut_axes.empty()) cases.push_back(c);
  }
  return cases;
}

// Rounded weights run on the processor alone.
bool LacksRounded(Program program) {
  bool has = false;
  ForEachInt8Weight(&program, [&](Int8View*) { has = true; });
  return has && TestedBackend::FromEnvironment().is_cuda();
}

class ProgramTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    RandomProgram p(7);
    GetParam().build(&p);
    if (LacksRounded(p.program)) GTEST_SKIP() << "the cuda backend does not have rounded weights";
  }
};

class CutProgramTest : public ProgramTest {};

TEST_P(ProgramTest, EqualsReference) {
  RandomProgram p(7);
  GetParam().build(&p);
  Compiled reference = CompileReference(p.program, GetParam().rounding);
  Compiled tested = CompileTested(p.program);
  for (size_t i = 0; i < GetParam().batches.size(); ++i) {
    const ProgramData data = RandomData(p.program, GetParam().batches[i], 8 + i);
    const Slots reference_slots = reference.NewSlots(data);
    const Slots slots = tested.NewSlots(data);
    // The second run goes on from what the first has left in the slots.
    for (const char* run : {"first", "second"}) {
      const Results expected = reference.Run(data, reference_slots);
      const Results found = tested.Run(data, slots);
      ExpectNear(p.program, expected, found, Tolerance(GetParam().rounding),
                 "batch " + std::to_string(i) + ", " + run + " run");
    }
  }
}

// Each value is read in a scope of CompileOptions::weights, and none outside of one.
TEST_P(ProgramTest, ReadsWeightsInTheirScopes) {
  RandomProgram p(7);
  GetParam().build(&p);
  const ProgramData data = RandomData(p.program, GetParam().batches.back(), 8);
  Compiled direct = CompileTested(p.program);
  StrictWeightSource source;
  const Program strict = source.Take(p.program);
  Compiled scoped = CompileTested(strict, &source);
  EXPECT_EQ(source.Error(), "");
  ExpectSameBits(p.program, direct.Run(data, direct.NewSlots(data)),
                 scoped.Run(data, scoped.NewSlots(data)), "scoped");
  EXPECT_EQ(scoped.executable().weight_bytes(), direct.executable().weight_bytes());
}

// The same bits in a workspace that is just large enough, in one that other batches have used, and
// whichever other outputs are asked for.
TEST_P(ProgramTest, ResultsDoNotDependOnTheWorkspaceOrOtherOutputs) {
  RandomProgram p(17);
  GetParam().build(&p);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, GetParam().batches.back(), 18);
  const auto run = [&](uint64_t wanted) {
    const Slots slots = tested.NewSlots(data);
    const Results results = tested.Run(data, slots, wanted);
    tested.Free(slots);
    return results;
  };
  const Results all = run(kEverything);
  ExpectSameBits(p.program, all, run(kEverything), "again");
  const ProgramData other = RandomData(p.program, GetParam().batches[1], 19);
  tested.Run(other, tested.NewSlots(other));
  ExpectSameBits(p.program, all, run(kEverything), "after another batch");

  for (size_t i = 0; i < p.program.outputs.size(); ++i) {
    const Results alone = run(uint64_t{1} << i);
    EXPECT_TRUE(SameBits(all.values[i], alone.values[i])) << p.program.outputs[i].name;
    EXPECT_TRUE(SameBits(all.candidates[i], alone.candidates[i])) << p.program.outputs[i].name;
  }

  ProgramLimits exact;
  for (size_t i = 0; i < p.program.outputs.size(); ++i) {
    if (p.program.outputs[i].type != OutputType::kAttention) continue;
    const auto size = static_cast<int64_t>(all.values[i].size());
    exact.max_attention_values = std::max(exact.max_attention_values, size);
  }
  for (size_t a = 0; a < p.program.axes.size(); ++a) {
    const auto axis = static_cast<AxisId>(a);
    if (p.program.axes[a].sequences_of != kNone) {
      exact.axes.emplace_back();
    } else {
      exact.axes.push_back({data.num_rows(p.program, axis), data.num_sequences(p.program, axis)});
    }
  }
  tested.MakeWorkspace(exact);
  ExpectSameBits(p.program, all, run(kEverything), "in a workspace that is just large enough");
}

// Every sequence has the same bits alone, with what it points to, and in a batch.
TEST_P(ProgramTest, ResultsDoNotDependOnTheBatch) {
  RandomProgram p(27);
  GetParam().build(&p);
  Compiled tested = CompileTested(p.program);
  for (size_t i = 1; i < GetParam().batches.size(); ++i) {
    const ProgramData data = RandomData(p.program, GetParam().batches[i], 28 + i);
    const Results all = tested.Run(data, tested.NewSlots(data));
    for (size_t a = 0; a < p.program.axes.size(); ++a) {
      const auto axis = static_cast<AxisId>(a);
      for (size_t b = 0; b < data.lengths[a].size(); ++b) {
        const auto sequence = static_cast<int>(b);
        const ProgramData alone = SliceOf(p.program, data, Alone(p.program, data, axis, sequence));
        const Piece whole = Whole(data, axis, sequence);
        // A sequence comes first on its axis, as it is the only one unless an input points to its
        // own axis.
        const Results found = tested.Run(alone, tested.NewSlots(alone));
        const Piece first = {0, 0, data.lengths[a][b]};
        ExpectSameBits(p.program, RowsOf(tested, data, all, axis, {whole}),
                       RowsOf(tested, alone, found, axis, {first}),
                       "batch " + std::to_string(i) + ", sequence " + std::to_string(b) + " of " +
                           p.program.axes[a].name);
      }
    }
  }
}

// Sequences that are cut into runs, which are batched in another way each time, have the same bits
// as in one run each; so has what their slots hold in the end.
TEST_P(CutProgramTest, ResultsDoNotDependOnTheCutIntoRuns) {
  RandomProgram p(37);
  GetParam().build(&p);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, GetParam().batches.back(), 38);
  const Slots whole_slots = tested.NewSlots(data);
  const Results whole = tested.Run(data, whole_slots);
  for (int chunk : {1, 7, 1000}) {
    const Slots slots = tested.NewSlots(data);
    for (AxisId axis : GetParam().cut_axes) {
      const auto a = static_cast<size_t>(axis);
      std::vector<int> done(data.lengths[a].size());
      for (int round = 0;; ++round) {
        std::vector<std::vector<Piece>> pieces(p.program.axes.size());
        Slots run_slots(p.program.axes.size());
        bool all_done = true;
        for (size_t b = 0; b < done.size(); ++b) {
          const int left = data.lengths[a][b] - done[b];
          if (left == 0) continue;
          all_done = false;
          if ((round + b) % 3 == 2) continue;  // this one waits
          const int rows = std::min<int>(left, 1 + (chunk - 1) * (round % 2 == 0 ? 1 : 2) / 2);
          pieces[a].push_back({static_cast<int>(b), done[b], done[b] + rows});
          run_slots[a].push_back(slots[a][b]);
        }
        if (all_done) break;
        const Results results = tested.Run(SliceOf(p.program, data, pieces), run_slots);
        const ProgramData slice = SliceOf(p.program, data, pieces);
        for (size_t k = 0; k < pieces[a].size(); ++k) {
          const Piece& piece = pieces[a][k];
          const Piece own = {static_cast<int>(k), 0, piece.end - piece.begin};
          ExpectSameBits(p.program, RowsOf(tested, data, whole, axis, {piece}),
                         RowsOf(tested, slice, results, axis, {own}),
                         "chunks of " + std::to_string(chunk) + ", sequence " +
                             std::to_string(piece.sequence) + " from " +
                             std::to_string(piece.begin));
          done[piece.sequence] = piece.end;
        }
      }
      for (size_t b = 0; b < done.size(); ++b) {
        const StateArena::State expected = tested.Take(whole_slots[a][b]);
        const StateArena::State found = tested.Take(slots[a][b]);
        // A sequence that has never run holds nothing, one without rows its zeros.
        if (data.lengths[a][b] == 0) continue;
        EXPECT_EQ(expected.rows, found.rows) << "sequence " << b;
        EXPECT_TRUE(SameBits(expected.values, found.values)) << "sequence " << b;
      }
    }
    tested.Free(slots);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CutProgramTest, ::testing::ValuesIn(CutCases()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Cases, ProgramTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

// A stack in a program is the stack that an Executable is: the same bits.
TEST(ProgramEdgeTest, StackEqualsExecutable) {
  for (const int directions : {1, 2}) {
    StackOptions options;
    options.directions = directions;
    options.layer_norm = LayerNorm::kBefore;
    options.pooling = Pooling::kNone;
    options.num_labels = 0;
    RandomProgram p(1);
    const AxisId tokens = p.program.AddAxis("tokens");
    p.Output(p.StackOfIds(p.program.AddIds("ids", tokens, 0, 50), options), "h");
    Compiled tested = CompileTested(p.program);
    const ProgramData data = RandomData(p.program, {{5, 300, 1, 17}}, 2);
    const Results found = tested.Run(data);

    CompileOptions compile;
    compile.dtype = TestedBackend::FromEnvironment().dtype;
    const StackSpec& spec = std::get<ops::Stack>(p.program.operations[0]).spec;
    std::unique_ptr<Executable> executable;
    ASSERT_TRUE(tested.backend().Compile(spec, compile, &executable).ok());
    std::unique_ptr<Workspace> workspace;
    ASSERT_TRUE(executable->CreateWorkspace({4096, 64}, &workspace).ok());
    const std::vector<int32_t> offsets = data.Offsets(p.program, tokens);
    RaggedBatch batch;
    batch.num_sequences = 4;
    batch.offsets = offsets.data();
    batch.token_ids = data.ids[0].data();
    std::vector<float> expected(found.values[0].size());
    std::vector<SequenceOutput> outputs(4);
    for (int b = 0; b < 4; ++b) {
      outputs[b].token_vectors = &expected[static_cast<size_t>(offsets[b]) * spec.output_size()];
    }
    ASSERT_TRUE(executable->Run(batch, outputs.data(), *workspace).ok());
    EXPECT_TRUE(SameBits(expected, found.values[0])) << directions << " directions";
  }
}

// A copy of a slot goes on without the original, in the middle of a page, too; reordered slots go
// on from their parents; a state that was taken out goes on where it is put.
TEST(ProgramEdgeTest, StatesGoOnWhereTheyAreCopiedTo) {
  for (const auto& build : {AddAttendFields, AddLanguageModel}) {
    RandomProgram p(3);
    build(&p, 16);
    Compiled tested = CompileTested(p.program);
    // Two sequences with the same first rows.
    const int prefix = kStatePageRows + 5;
    const int length = 3 * kStatePageRows;
    ProgramData data = RandomData(p.program, {{length, length}}, 4);
    for (size_t i = 0; i < p.program.inputs.size(); ++i) {
      const size_t width = std::max(1, p.program.inputs[i].width);
      const auto copy = [&](auto* values) {
        if (values->empty()) return;
        std::copy_n(values->begin(), prefix * width,
                    values->begin() + static_cast<std::ptrdiff_t>(length * width));
      };
      copy(&data.ids[i]);
      copy(&data.features[i]);
    }
    const Slots whole_slots = tested.NewSlots(data);
    const Results whole = tested.Run(data, whole_slots);

    const auto expect_rest = [&](const std::string& what, const std::vector<int>& sequences,
                                 const std::vector<Slot>& slots) {
      std::vector<Piece> pieces;
      std::vector<Piece> found_pieces;
      for (int b : sequences) {
        found_pieces.push_back({static_cast<int>(pieces.size()), 0, length - prefix});
        pieces.push_back({b, prefix, length});
      }
      const ProgramData rest = SliceOf(p.program, data, {pieces});
      const Results found = tested.Run(rest, {slots});
      ExpectSameBits(p.program, RowsOf(tested, data, whole, 0, pieces),
                     RowsOf(tested, rest, found, 0, found_pieces), what);
      for (size_t k = 0; k < sequences.size(); ++k) {
        EXPECT_TRUE(SameBits(tested.Take(whole_slots[0][sequences[k]]).values,
                             tested.Take(slots[k]).values))
            << what << ", the state of " << k;
      }
    };
    const auto new_prefix = [&] {
      const Slot slot = tested.NewSlot();
      tested.Run(SliceOf(p.program, data, {{{0, 0, prefix}}}), {{slot}});
      return slot;
    };

    const Slot original = new_prefix();
    Slot copies[2];
    for (Slot& copy : copies) ASSERT_TRUE(tested.arena().Copy(original, &copy).ok());
    expect_rest("the original", {1}, {original});
    expect_rest("copies", {0, 1}, {copies[0], copies[1]});

    // The first slot holds the prefix, the others something else.
    const std::vector<Slot> beams = {new_prefix(), tested.NewSlot(), tested.NewSlot()};
    tested.Run(SliceOf(p.program, data, {{{0, 3, 9}}}), {{beams[2]}});
    const std::vector<int> parents = {0, 0, 0};
    ASSERT_TRUE(tested.arena().Reorder(beams.data(), parents.data(), 3).ok());
    expect_rest("reordered", {1, 0, 1}, beams);

    const StateArena::State state = tested.Take(new_prefix());
    const Slot put = tested.NewSlot();
    ASSERT_TRUE(tested.arena().Put(put, state).ok());
    expect_rest("put in", {0}, {put});
  }
}

// The source of a translation fills the slot in one run; the target, in later ones, attends to it.
TEST(ProgramEdgeTest, OneAxisReadsWhatAnotherHasAppended) {
  RandomProgram p(5);
  AddTranslator(&p, 4);
  Compiled reference = CompileReference(p.program, Rounding::kChained);
  Compiled tested = CompileTested(p.program);
  ProgramData data = RandomData(p.program, {{20, 1, 7}, {18, 2, 33}}, 6);
  const std::vector<std::vector<Piece>> sources = {
      {Whole(data, 0, 0), Whole(data, 0, 1), Whole(data, 0, 2)}, {}};
  const std::vector<std::vector<Piece>> targets = {
      {}, {Whole(data, 1, 0), Whole(data, 1, 1), Whole(data, 1, 2)}};
  const auto translate = [&](Compiled* c, std::vector<Slot>* slots) {
    *slots = {c->NewSlot(), c->NewSlot(), c->NewSlot()};
    c->Run(SliceOf(p.program, data, sources), {*slots, {}});
    return c->Run(SliceOf(p.program, data, targets), {{}, *slots});
  };
  std::vector<Slot> reference_slots;
  std::vector<Slot> slots;
  const Results expected = translate(&reference, &reference_slots);
  const Results found = translate(&tested, &slots);
  ExpectNear(p.program, expected, found, Tolerance(Rounding::kChained), "translation");

  // Alone, row by row, from a copy of the slot that the source has filled.
  const ProgramData target = SliceOf(p.program, data, targets);
  for (int b = 0; b < 3; ++b) {
    const Slot slot = tested.NewSlot();
    tested.Run(SliceOf(p.program, data, {{Whole(data, 0, b)}, {}}), {{slot}, {}});
    Slot copy = StateArena::kNoSlot;
    ASSERT_TRUE(tested.arena().Copy(slot, &copy).ok());
    for (int t = 0; t < data.lengths[1][b]; ++t) {
      const ProgramData step = SliceOf(p.program, data, {{}, {{b, t, t + 1}}});
      ExpectSameBits(p.program, RowsOf(tested, target, found, 1, {{b, t, t + 1}}),
                     RowsOf(tested, step, tested.Run(step, {{}, {copy}}), 1, {{0, 0, 1}}),
                     "sequence " + std::to_string(b) + ", row " + std::to_string(t));
    }
    EXPECT_TRUE(SameBits(tested.Take(slots[b]).values, tested.Take(copy).values));
  }
}

// The weights with which a target's rows look at the source that their slot remembers: those of the
// definition, the same bits row by row from a copy of the slot, and none without a source.
TEST(ProgramEdgeTest, AlignmentOfWhatAnotherAxisHasAppended) {
  for (const int width : {1, 5, 16}) {
    RandomProgram p(5);
    AddAlignment(&p, width);
    Compiled tested = CompileTested(p.program);
    const ProgramData data = RandomData(p.program, {{20, 1, 300}, {4, 2, 3, 0}}, 6);
    const std::vector<Slot> slots = {tested.NewSlot(), tested.NewSlot(), tested.NewSlot()};
    std::vector<Piece> sources;
    for (int b = 0; b < 3; ++b) sources.push_back(Whole(data, 0, b));
    tested.Run(SliceOf(p.program, data, {sources, {}}), {slots, {}});
    std::vector<Slot> copies;
    for (const Slot slot : slots) {
      ASSERT_TRUE(tested.arena().Copy(slot, &copies.emplace_back()).ok());
    }
    std::vector<Piece> targets;
    for (int b = 0; b < 4; ++b) targets.push_back(Whole(data, 1, b));
    const ProgramData target = SliceOf(p.program, data, {{}, targets});
    const Results found =
        tested.Run(target, {{}, {slots[0], slots[1], slots[2], tested.NewSlot()}});
    const std::vector<float>& alignment = found.values[1];
    ASSERT_EQ(alignment.size(), 4u * 20 + 2 * 1 + 3 * 300);
    const float* row = alignment.data();
    for (int b = 0; b < 3; ++b) {
      const std::vector<int32_t> keys = data.Offsets(p.program, 0);
      for (int t = 0; t < data.lengths[1][b]; ++t) {
        const int at = data.Offsets(p.program, 1)[b] + t;
        std::vector<double> expected;
        double sum = 0;
        for (int s = keys[b]; s < keys[b + 1]; ++s) {
          double score = 0;
          for (int i = 0; i < width; ++i) {
            score += double{data.features[2][static_cast<size_t>(at) * 2 * width + i]} *
                     data.features[0][static_cast<size_t>(s) * 2 * width + i];
          }
          expected.push_back(std::exp(score / std::sqrt(width)));
          sum += expected.back();
        }
        for (const double e : expected) EXPECT_NEAR(*row++, e / sum, 1e-6);
        const ProgramData step = SliceOf(p.program, data, {{}, {{b, t, t + 1}}});
        ExpectSameBits(p.program, RowsOf(tested, target, found, 1, {{b, t, t + 1}}),
                       RowsOf(tested, step, tested.Run(step, {{}, {copies[b]}}), 1, {{0, 0, 1}}),
                       "sequence " + std::to_string(b) + ", row " + std::to_string(t));
      }
    }
  }
}

// One value more than the limit is refused, and then no slot has changed; so is any with a limit of
// 0. What is not asked for does not count.
TEST(ProgramEdgeTest, AttentionIsLimited) {
  RandomProgram p(6);
  AddAttendFields(&p, 3);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{20, 7}}, 7);
  const Slots slots = tested.NewSlots(data);
  tested.Run(data, slots);
  const StateArena::State before = tested.Take(slots[0][0]);
  const Results expected = tested.Run(data, tested.NewSlots(data));
  ProgramLimits limits;
  limits.axes = {kWideLimits};
  const int64_t values = 20 * 40 + 7 * 14;
  for (const int64_t limit : {values - 1, int64_t{0}}) {
    limits.max_attention_values = limit;
    tested.MakeWorkspace(limits);
    EXPECT_THAT(tested.TryRun(data, slots),
                IsInvalid("outputs[0] (attention): expected at most " + std::to_string(limit) +
                          " values of attention (limits.max_attention_values), found 898"));
    EXPECT_TRUE(SameBits(before.values, tested.Take(slots[0][0]).values));
    const Results others = tested.Run(data, tested.NewSlots(data), uint64_t{1} << 1);
    EXPECT_TRUE(SameBits(expected.values[1], others.values[1]));
  }
  limits.max_attention_values = values;
  tested.MakeWorkspace(limits);
  tested.Run(data, slots);

  limits.max_attention_values = -1;
  std::unique_ptr<ProgramWorkspace> workspace;
  EXPECT_THAT(tested.executable().CreateWorkspace(limits, &workspace),
              IsInvalid("limits.max_attention_values: expected at least 0, found -1"));
}

// Of keys that are on an axis, before anything runs.
TEST(ProgramEdgeTest, AttentionOfAnAxisIsLimited) {
  RandomProgram p(6);
  AddAttendMap(&p, 3);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{3, 2, 9}, {8}}, 7);
  ProgramLimits limits;
  limits.axes.assign(p.program.axes.size(), kWideLimits);
  limits.max_attention_values = 14 * 8;
  tested.MakeWorkspace(limits);
  tested.Run(data);
  limits.max_attention_values = 14 * 8 - 1;
  tested.MakeWorkspace(limits);
  EXPECT_THAT(tested.TryRun(data),
              IsInvalid("outputs[0] (attention1_all): expected at most 111 values of attention "
                        "(limits.max_attention_values), found 112"));
  tested.Run(data, {}, uint64_t{1} << 6);  // one value for each row
}

// What a run of no rows leaves as it was, and that a sequence without a slot begins fresh beside
// others.
TEST(ProgramEdgeTest, SequencesWithoutRowsOrSlots) {
  RandomProgram p(7);
  const AxisId tokens = p.program.AddAxis("tokens");
  const ValueId x = p.Features("x", tokens, 5);
  const ValueId shifted = p.Shift(x, "last");
  p.Output(shifted, "shifted");
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{3, 2}}, 8);
  const Slot slot = tested.NewSlot();
  tested.Run(SliceOf(p.program, data, {{{0, 0, 3}}}), {{slot}});
  const StateArena::State before = tested.Take(slot);
  EXPECT_EQ(before.rows, (std::vector<int32_t>{1}));
  tested.Run(SliceOf(p.program, data, {{{0, 0, 0}, {1, 0, 2}}}), {{slot, StateArena::kNoSlot}});
  EXPECT_TRUE(SameBits(before.values, tested.Take(slot).values));

  const Results found =
      tested.Run(SliceOf(p.program, data, {{{1, 0, 2}, {1, 0, 2}}}), {{StateArena::kNoSlot, slot}});
  const std::vector<float>& input = data.features[0];
  std::vector<float> expected(20);
  std::copy_n(input.begin() + 15, 5, expected.begin() + 5);   // x_0 of the one without
  std::copy_n(input.begin() + 10, 5, expected.begin() + 10);  // the last row of the run before
  std::copy_n(input.begin() + 15, 5, expected.begin() + 15);
  EXPECT_EQ(found.values[0], expected);
}

// After every error the slots are as they were and the workspace is as good as before.
TEST(ProgramEdgeTest, ErrorsLeaveSlotsAsTheyWere) {
  RandomProgram p(9);
  AddTranslator(&p, 4);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{}, {40}}, 10);
  const Slot slot = tested.NewSlot();
  const Slots slots = {{}, {slot}};
  tested.Run(SliceOf(p.program, data, {{}, {{0, 0, 20}}}), slots);
  const StateArena::State before = tested.Take(slot);
  const ProgramData next = SliceOf(p.program, data, {{}, {{0, 20, 40}}});
  const Slot reference_slot = tested.NewSlot();
  ASSERT_TRUE(tested.arena().Put(reference_slot, before).ok());
  const Results expected = tested.Run(next, {{}, {reference_slot}});

  const auto expect_refused = [&](const Status& status, StatusCode code, const std::string& text) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(text));
    const StateArena::State after = tested.Take(slot);
    EXPECT_EQ(before.rows, after.rows) << text;
    EXPECT_TRUE(SameBits(before.values, after.values)) << text;
  };
  ProgramData bad = next;
  bad.ids[1][19] = 45;
  Results unwritten;
  expect_refused(tested.TryRun(bad, slots, &unwritten), StatusCode::kInvalidArgument,
                 "inputs[1] (target_ids)[19]: expected 0 to 44, found 45");
  EXPECT_TRUE(std::isnan(unwritten.values[1][0])) << "a refused batch wrote results";
  bad = next;
  bad.ids[1].clear();
  expect_refused(tested.TryRun(bad, slots), StatusCode::kInvalidArgument,
                 "inputs[1] (target_ids): expected 20 ids");
  bad = next;
  bad.lengths[1] = {20, 0};
  expect_refused(tested.TryRun(bad, {{}, {slot, slot}}), StatusCode::kInvalidArgument,
                 "expected a slot of its own");
  expect_refused(tested.TryRun(next, {{}, {slot + 1000}}), StatusCode::kInvalidArgument,
                 std::to_string(slot + 1000));
  expect_refused(tested.TryRun(next, {{}, {StateArena::kNoSlot}}), StatusCode::kInvalidArgument,
                 "slots[0]: expected a slot");

  ProgramLimits limits;
  limits.axes = {{8, 2}, {19, 2}};
  limits.max_attention_values = kWideAttention;
  tested.MakeWorkspace(limits);
  expect_refused(tested.TryRun(next, slots), StatusCode::kInvalidArgument,
                 "axes[1] (target): expected at most 19 rows, found 20");
  limits.axes[1] = {40, 0};
  tested.MakeWorkspace(limits);
  expect_refused(tested.TryRun(next, slots), StatusCode::kInvalidArgument,
                 "axes[1] (target): expected at most 0 sequences, found 1");
  limits.axes[1] = {40, 2};
  tested.MakeWorkspace(limits);

  // More rows of one field of an attention than of the other.
  StateArena::State uneven = before;
  ASSERT_EQ(uneven.rows[2], 20);
  const auto width = static_cast<std::ptrdiff_t>(p.program.fields[2].width);
  uneven.rows[2] = 19;
  uneven.values.erase(uneven.values.begin(), uneven.values.begin() + width);
  expect_refused(tested.arena().Put(slot, uneven), StatusCode::kInvalidArgument,
                 "20 rows of the field self_values0, expected 19 as of the field self_keys0");

  ExpectSameBits(p.program, expected, tested.Run(next, slots), "after the errors");
}

TEST(ProgramEdgeTest, AFullArenaRefusesTheRunAndLeavesSlotsAsTheyWere) {
  RandomProgram p(11);
  AddAttendFields(&p, 16);
  Compiled tested = CompileTested(p.program);
  // Room for the pages of about 100 rows.
  ArenaOptions options;
  options.budget_bytes = size_t{100} * (32 + 36) * sizeof(float);
  std::unique_ptr<StateArena> arena;
  ASSERT_TRUE(tested.executable().CreateArena(options, &arena).ok());
  const ProgramData data = RandomData(p.program, {{60, 60}}, 12);
  const Results expected = tested.Run(data, tested.NewSlots(data));
  Slot slots[2];
  for (Slot& slot : slots) ASSERT_TRUE(arena->Allocate(&slot).ok());
  const auto run = [&](int sequence, Slot slot, Results* results) {
    const ProgramData one = SliceOf(p.program, data, {{{sequence, 0, 60}}});
    GuardedRun guarded(p.program, tested.shape(), one, {{slot}}, arena.get(), kEverything);
    const Status status = guarded.On(tested.executable(), tested.workspace());
    *results = guarded.results();
    return status;
  };
  Results results;
  ASSERT_TRUE(run(0, slots[0], &results).ok());
  const Status refused = run(1, slots[1], &results);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.message();
  StateArena::State state;
  ASSERT_TRUE(arena->Take(slots[1], &state).ok());
  EXPECT_EQ(state.rows, (std::vector<int32_t>{0, 0}));
  ASSERT_TRUE(arena->Take(slots[0], &state).ok());
  EXPECT_EQ(state.rows, (std::vector<int32_t>{60, 60}));
  arena->Free(slots[0]);
  ASSERT_TRUE(run(1, slots[1], &results).ok());
  const Results alone = RowsOf(tested, data, expected, 0, {{1, 0, 60}});
  EXPECT_TRUE(SameBits(alone.values[1], results.values[1])) << "after another slot was freed";
}

TEST(ProgramEdgeTest, CompileRefusesWhatIsWrong) {
  RandomProgram p(13);
  AddLinear(&p, 4);
  std::unique_ptr<Backend> backend;
  ASSERT_TRUE(TestedBackend::FromEnvironment().Create(&backend).ok());
  std::unique_ptr<ProgramExecutable> executable;
  CompileOptions options;
  options.dtype = static_cast<DataType>(99);
  EXPECT_THAT(backend->Compile(p.program, options, &executable),
              IsError(StatusCode::kUnsupported,
                      "dtype: the " + std::string(backend->name()) + " backend does not have 99"));
  options.dtype = TestedBackend::FromEnvironment().dtype;
  std::get<ops::Linear>(p.program.operations[1]).weight.size = 15;
  EXPECT_THAT(backend->Compile(p.program, options, &executable),
              IsInvalid(HasSubstr("operations[1] (linear): weight: expected 4 x 4 = 16")));
  EXPECT_EQ(executable, nullptr);
}

TEST(ProgramEdgeTest, WorkspacesNeedLimitsOfEveryAxis) {
  RandomProgram p(13);
  AddAttendMap(&p, 4);
  Compiled tested = CompileTested(p.program);
  ProgramLimits limits;
  limits.axes = {{1, 1}};
  std::unique_ptr<ProgramWorkspace> workspace;
  EXPECT_THAT(tested.executable().CreateWorkspace(limits, &workspace),
              IsInvalid("limits.axes: expected 3, found 1"));
}

TEST(ProgramEdgeTest, WeightsAreNotReadAfterCompile) {
  for (const auto& build : {AddLanguageModel, AddReader, AddTranslator}) {
    RandomProgram p(15);
    build(&p, 16);
    Compiled tested = CompileTested(p.program);
    const ProgramData data = RandomData(p.program, {{9, 30}, {2, 4}}, 16);
    const Results expected = tested.Run(data, tested.NewSlots(data));
    p.PoisonWeights();
    ExpectSameBits(p.program, expected, tested.Run(data, tested.NewSlots(data)), "poisoned");
  }
}

// What no output and no slot of a batch needs may be missing, and an empty batch is one, too.
TEST(ProgramEdgeTest, OnlyWhatIsNeededHasToBeThere) {
  RandomProgram p(17);
  AddLanguageModel(&p, 24);
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{9, 30}}, 18);
  const Results all = tested.Run(data);
  for (size_t i = 0; i < p.program.outputs.size(); ++i) {
    ProgramData less = data;
    const auto& predict = std::get<ops::Predict>(p.program.operations[p.program.outputs[i].value]);
    const bool log_prob = p.program.outputs[i].type == OutputType::kLogProb;
    const InputId needed = log_prob ? predict.targets : predict.counts;
    for (InputId k = 1; k < static_cast<InputId>(less.ids.size()); ++k) {
      if (k != needed) less.ids[k].clear();
    }
    const Results found = tested.Run(less, {}, uint64_t{1} << i);
    EXPECT_TRUE(SameBits(all.values[i], found.values[i])) << i;
    EXPECT_TRUE(SameBits(all.candidates[i], found.candidates[i])) << i;
  }
  // The state alone.
  const Slots slots = tested.NewSlots(data);
  tested.Run(data, slots);
  ProgramData ids_only = data;
  for (size_t k = 1; k < ids_only.ids.size(); ++k) ids_only.ids[k].clear();
  const Slots other_slots = tested.NewSlots(data);
  tested.Run(ids_only, other_slots, 0);
  for (int b : {0, 1}) {
    EXPECT_TRUE(SameBits(tested.Take(slots[0][b]).values, tested.Take(other_slots[0][b]).values));
  }
  // Nothing at all.
  tested.Run(ids_only, {}, 0);
  tested.Run(RandomData(p.program, {{}}, 19));
}

// Rows far from zero, and rows that are all the same.
TEST(ProgramEdgeTest, NormalizeOfUnusualRows) {
  for (int width : {2, 16, 100, 513}) {
    RandomProgram p(19);
    AddNormalize(&p, width);
    Compiled reference = CompileReference(p.program, Rounding::kNone);
    Compiled tested = CompileTested(p.program);
    ProgramData data = RandomData(p.program, {{6}}, 20);
    for (int j = 0; j < width; ++j) {
      const auto at = [&](int row) -> float& { return data.features[0][row * width + j]; };
      at(0) = 3.0f;
      at(1) = 0.0f;
      at(2) += 100.0f;
      at(3) *= 1e15f;
      at(4) *= 1e-15f;
    }
    // A mean of 100 costs the digits that the values have less after the point.
    ExpectNear(p.program, reference.Run(data), tested.Run(data), 100 * kTolerance,
               "width " + std::to_string(width));
  }
}

// Far along a sequence, where an angle in float32 would be wrong in the third digit.
TEST(ProgramEdgeTest, PositionsFarAlong) {
  for (const int width : {1, 18, 75}) {
    RandomProgram p(21);
    const AxisId tokens = p.program.AddAxis("tokens");
    const InputId ids = p.program.AddIds("ids", tokens, 0, 2);
    p.Output(p.Embed(ids, 2, width, true, kNone, 0.0f), "positions");
    Compiled tested = CompileTested(p.program);
    const int length = 3500;
    const Results found = tested.Run(RandomData(p.program, {{length}}, 22));
    for (int t = 0; t < length; ++t) {
      for (int j = 0; j < width; ++j) {
        const double angle = t / std::pow(10000.0, (j - j % 2) / static_cast<double>(width));
        ASSERT_NEAR(found.values[0][static_cast<size_t>(t) * width + j],
                    j % 2 == 0 ? std::sin(angle) : std::cos(angle), 1e-6)
            << "row " << t << " column " << j << " of " << width;
      }
    }
  }
}

// Scores whose exponentials overflow, and others that are all the same.
TEST(ProgramEdgeTest, AttentionAndPoolingOfExtremeScores) {
  for (const float factor : {0.0f, 1024.0f, std::ldexp(1.0f, 50)}) {
    RandomProgram p(23);
    const AxisId tokens = p.program.AddAxis("tokens");
    const AxisId sequences = p.program.AddSequenceAxis("sequences", tokens);
    const ValueId q = p.Features("q", tokens, 20);
    const ValueId k = p.Features("k", tokens, 20);
    const ValueId v = p.Features("v", tokens, 7);
    p.Output(p.Attend(q, k, v, 1, /*causal=*/true), "attend");
    p.Output(p.WeightedPool(v, sequences, p.Features("w", tokens, 1)), "pool");
    ProgramData data = RandomData(p.program, {{30, 1, 100}}, 24);
    for (const size_t input : {0, 1, 3}) {
      for (float& value : data.features[input]) {
        // Multiples of a power of two, so that no rounding decides which key is the nearest.
        value = std::round(4 * value) * factor;
      }
    }
    Compiled reference = CompileReference(p.program, Rounding::kNone);
    ExpectNear(p.program, reference.Run(data), CompileTested(p.program).Run(data), kTolerance,
               "factor " + std::to_string(factor));
  }
}

// Neither the threads that share a batch nor yields of the core change a bit.
TEST(ProgramEdgeTest, SplittingChangesNoBit) {
  TestedBackend tested = TestedBackend::FromEnvironment();
  if (tested.name != "cpu") GTEST_SKIP() << "of backend cpu";
  const Lengths lengths = {{150, 3, 40}, {30, 60}};
  const struct {
    void (*build)(RandomProgram*, int);
    int width;
    Lengths lengths;
  } kCases[] = {{AddLanguageModel, 40, lengths},
                {AddReader, 40, lengths},
                {AddTranslator, 40, lengths},
                {AddAttend, 40, lengths},
                {AddLargeOperations, 256, {{700, 0, 1, 350}}}};
  for (const auto& of : kCases) {
    RandomProgram p(25);
    of.build(&p, of.width);
    const ProgramData data = RandomData(p.program, of.lengths, 26);
    std::vector<Results> results;
    for (int threads : {1, 2, 5, 16}) {
      BackendOptions options;
      options.cpu_isa = tested.cpu_isa;
      options.cpu_threads = threads;
      std::unique_ptr<Backend> backend;
      ASSERT_TRUE(CreateBackend("cpu", options, &backend).ok());
      Compiled c(std::move(backend), tested.dtype, p.program);
      ProgramLimits limits;
      limits.axes.assign(p.program.axes.size(), kWideLimits);
      limits.max_attention_values = kWideAttention;
      limits.turn = std::chrono::microseconds(threads - 1);
      c.MakeWorkspace(limits);
      results.push_back(c.Run(data, c.NewSlots(data)));
      ExpectSameBits(p.program, results[0], results.back(), std::to_string(threads) + " threads");
    }
  }
}

// Predict by whole numbers, which no backend and data type rounds: many symbols are equally
// probable. Counts and targets take every value.
TEST(ProgramEdgeTest, EqualCandidatesComeInTheOrderOfTheirIds) {
  const std::vector<int> widths = IsEmulated() ? std::vector<int>{5} : std::vector<int>{1, 5, 16};
  for (int vocabulary : {1, 2, 17, 205, 1000, 5003}) {
    if (IsEmulated() && vocabulary > 1000) continue;
    for (int width : widths) {
      RandomProgram p(27);
      const AxisId tokens = p.program.AddAxis("tokens");
      const ValueId x = p.Features("x", tokens, width);
      const int most = vocabulary == 1000 ? 1000 : std::min(vocabulary, 40);
      p.Predict("token", x, tokens, vocabulary, most);
      auto& op = std::get<ops::Predict>(p.program.operations.back());
      // int8 has -1, 0 and 1 exactly, in columns that have no larger value.
      const int most_whole = TestedBackend::FromEnvironment().dtype == DataType::kInt8 ? 1 : 2;
      const auto whole = [&](size_t count) {
        std::vector<float> values(count);
        for (float& value : values)
          value = static_cast<float>(static_cast<int>(p.random()() % (2 * most_whole + 1)) -
                                     most_whole);
        return p.Keep(std::move(values));
      };
      op.weight = whole(op.weight.size);
      op.bias = whole(op.bias.size);
      ProgramData data = RandomData(p.program, {{50, 7}}, 28);
      const FloatView rows = whole(data.features[0].size());
      data.features[0].assign(rows.data, rows.data + rows.size);
      Compiled tested = CompileTested(p.program);
      const Results found = tested.Run(data);
      for (int t = 0; t < 57; ++t) {
        std::vector<std::pair<int, int>> order;  // minus the logit, and the id
        double sum = 0;
        for (int v = 0; v < vocabulary; ++v) {
          int logit = static_cast<int>(op.bias.data[v]);
          for (int i = 0; i < width; ++i) {
            logit += static_cast<int>(op.weight.data[v * width + i]) *
                     static_cast<int>(rows.data[t * width + i]);
          }
          order.emplace_back(-logit, v);
          sum += std::exp(logit);
        }
        const int32_t target = data.ids[op.targets][t];
        const double expected = target < 0 ? 0.0 : -order[target].first - std::log(sum);
        ASSERT_NEAR(found.values[0][t], expected, kTolerance * std::max(1.0, -expected));
        if (target < 0) {
          ASSERT_EQ(found.values[0][t], 0.0f);
        }
        std::sort(order.begin(), order.end());
        for (int k = 0; k < most; ++k) {
          const Candidate& candidate = found.candidates[1][static_cast<size_t>(t) * most + k];
          if (k >= data.ids[op.counts][t]) {
            ASSERT_EQ(candidate.id, kNoCandidate.id) << "one more than was asked for";
            continue;
          }
          ASSERT_EQ(candidate.id, order[k].second)
              << "row " << t << ", rank " << k << " of " << vocabulary;
          const double log_prob = -order[k].first - std::log(sum);
          ASSERT_NEAR(candidate.log_prob, log_prob, kTolerance * std::max(1.0, -log_prob));
        }
      }
    }
  }
}

// More logits than a backend keeps: 600 rows of 30,000. A row has the same bits alone.
TEST(ProgramEdgeTest, PredictOfALargeVocabulary) {
  constexpr int kVocabulary = 30'000;
  const int rows = IsEmulated() ? 20 : 600;
  RandomProgram p(29);
  const AxisId tokens = p.program.AddAxis("tokens");
  p.Predict("token", p.Features("x", tokens, 8), tokens, kVocabulary, 12);
  ProgramData data = RandomData(p.program, {{rows}}, 30);
  Compiled reference = CompileReference(p.program, Rounding::kSameRows);
  Compiled tested = CompileTested(p.program);
  const Results found = tested.Run(data);
  ExpectNear(p.program, reference.Run(data), found, Tolerance(Rounding::kSameRows), "all rows");
  for (const int t : {0, rows / 2, rows - 1}) {
    const ProgramData one = SliceOf(p.program, data, {{{0, t, t + 1}}});
    ExpectSameBits(p.program, RowsOf(tested, data, found, 0, {{0, t, t + 1}}),
                   RowsOf(tested, one, tested.Run(one), 0, {{0, 0, 1}}),
                   "row " + std::to_string(t));
  }
}

TEST(ProgramEdgeTest, PredictOfExtremeLogits) {
  for (const float factor : {0.0f, 100.0f, 1e4f, 1e30f}) {
    RandomProgram p(31);
    const AxisId tokens = p.program.AddAxis("tokens");
    p.Predict("token", p.Features("x", tokens, 8), tokens, 300, 300);
    auto& op = std::get<ops::Predict>(p.program.operations.back());
    std::vector<float> bias(op.bias.data, op.bias.data + op.bias.size);
    for (size_t v = 1; v < bias.size(); v += 3) bias[v] = -1e30f;  // as good as impossible
    op.bias = p.Keep(std::move(bias));
    ProgramData data = RandomData(p.program, {{20}}, 32);
    for (float& value : data.features[0]) value *= factor;
    Compiled reference = CompileReference(p.program, Rounding::kSameRows);
    const Results expected = reference.Run(data);
    const Results found = CompileTested(p.program).Run(data);
    double scale = std::max(1.0, double{factor});
    for (size_t t = 0; t < expected.values[0].size(); ++t) {
      // A log-probability is a difference of logits, each of which is rounded.
      const double magnitude = std::max(scale, std::abs(double{expected.values[0][t]}));
      ASSERT_NEAR(expected.values[0][t], found.values[0][t],
                  Tolerance(Rounding::kSameRows) * magnitude)
          << "factor " << factor << ", row " << t;
    }
    for (size_t k = 0; k < expected.candidates[1].size(); ++k) {
      const Candidate& candidate = expected.candidates[1][k];
      if (candidate.id == kNoCandidate.id) continue;
      const double magnitude = std::max(scale, std::abs(double{candidate.log_prob}));
      ASSERT_NEAR(candidate.log_prob, found.candidates[1][k].log_prob,
                  Tolerance(Rounding::kSameRows) * magnitude)
          << "factor " << factor << ", candidate " << k;
    }
  }
}

}  // namespace
}  // namespace sru::kernels
