#include "tests/gpu/program_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <variant>
#include <vector>

#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_systems.h"
#include "kernels/testing/system_programs.h"

namespace sru::testing {
namespace {

using kernels::AxisId;
using kernels::Backend;
using kernels::Candidate;
using kernels::DataType;
using kernels::FieldId;
using kernels::InputId;
using kernels::OutputType;
using kernels::Pooling;
using kernels::Program;
using kernels::StateArena;
using kernels::Status;
using kernels::ValueId;
namespace ops = kernels::ops;

// On the axis 0, with a slot for each sequence.
void LanguageModel(RandomProgram* p, int width) {
  const AxisId tokens = p->program.AddAxis("tokens");
  StackOptions options;
  options.input_size = width / 2;
  options.hidden_size = width;
  options.num_layers = 3;
  options.directions = 1;
  options.vocabulary_size = 300;
  const ValueId h = p->StackOfIds(p->program.AddIds("ids", tokens, 0, 300), options, "state");
  p->Predict("next", p->Shift(h, "last"), tokens, 300, 5);
  p->Output(p->Last(h, p->program.AddSequenceAxis("texts", tokens)), "end");
  p->Output(p->Linear(h, width + 3, true, true), "hidden");
}

// Two ragged axes that meet by a map.
void Reader(RandomProgram* p, int width) {
  const AxisId passages = p->program.AddAxis("passages");
  const AxisId questions = p->program.AddAxis("questions");
  const AxisId question = p->program.AddSequenceAxis("question", questions);
  const InputId map = p->program.AddMap("map", passages, questions);
  const ValueId x = p->Features("x", passages, width);
  const ValueId q = p->Embed(p->program.AddIds("ids", questions, 0, 50), 50, width, true);
  ops::Attend align;
  align.q = p->Linear(x, width, true, true);
  align.keys = p->Linear(q, width, true, true);
  align.values = q;
  align.map = map;
  const ValueId both = p->Concat({x, p->Attend(align, width)});
  StackOptions options;
  options.input_size = 2 * width;
  options.hidden_size = width;
  options.vocabulary_size = 0;
  const ValueId h = p->Normalize(p->Stack(both, options));
  const ValueId pooled = p->WeightedPool(q, question, p->Linear(q, 1));
  p->Output(p->RowDot(h, p->Linear(pooled, 2 * width), map), "start");
  p->Output(p->Pool(q, question, Pooling::kMax, 2), "most");
  p->Output(p->Select(h, p->program.AddRows("rows", question, passages)), "selected");
}

// Attention to all that a slot has seen, and an average of it, on the axis 0.
void Decoder(RandomProgram* p, int width) {
  const AxisId target = p->program.AddAxis("target");
  const FieldId keys = p->program.AddField("keys", width, true);
  const FieldId values = p->program.AddField("values", width, true);
  const ValueId x = p->Embed(p->program.AddIds("ids", target, 0, 70), 70, width, true, keys, 2.0f);
  const ValueId n = p->Normalize(x);
  p->Append(p->Linear(n, width), keys);
  p->Append(p->Linear(n, width), values);
  ops::Attend op;
  op.q = p->Linear(n, width);
  op.key_field = keys;
  op.value_field = values;
  op.heads = 2;
  op.causal = true;
  const ValueId y = p->Add(x, p->Linear(p->Attend(op, width), width));
  p->Output(y, "y");
  p->Output(p->Ssru(p->Linear(n, width), p->Linear(n, width), "averaged"), "averaged");
  p->Predict("token", y, target, 70, 3);
}

// Picks whose logits are the bias alone, the same in every data type.
void Picker(RandomProgram* p, int vocabulary) {
  const AxisId rows = p->program.AddAxis("rows");
  p->Pick("next", p->Features("x", rows, 8), rows, vocabulary, 5);
}

using Slots = std::vector<std::vector<StateArena::Slot>>;  // [axis]; empty = none

// A program on a backend, with `sequences` slots if it has fields.
class Running {
 public:
  Status Prepare(Backend& backend, DataType dtype, const Program& program, int rows,
                 int sequences) {
    program_ = &program;
    kernels::CompileOptions options;
    options.dtype = dtype;
    Status status = backend.Compile(program, options, &executable_);
    kernels::ProgramLimits limits;
    limits.axes.assign(program.axes.size(), {rows, sequences});
    limits.max_attention_values = kMaxAttention;
    if (status.ok()) status = executable_->CreateWorkspace(limits, &workspace_);
    if (!status.ok() || program.fields.empty()) return status;
    kernels::ArenaOptions arena_options;
    arena_options.budget_bytes = size_t{1} << 26;
    status = executable_->CreateArena(arena_options, &arena_);
    slots_.resize(sequences);
    for (StateArena::Slot& slot : slots_) {
      if (status.ok()) status = arena_->Allocate(&slot);
    }
    return status;
  }

  const std::vector<StateArena::Slot>& slots() const { return slots_; }
  // The symbols that Run() has picked so far.
  const std::vector<int32_t>& picked() const { return picked_; }
  StateArena& arena() { return *arena_; }

  // `results` is [output]: rows, log-probabilities, attention, or the log-probabilities of candidates.
  Status Run(const ProgramData& data, const Slots& slots,
             std::vector<std::vector<float>>* results) {
    const Program& program = *program_;
    std::vector<kernels::AxisBatch> axes(program.axes.size());
    std::vector<std::vector<int32_t>> offsets(axes.size());
    for (size_t a = 0; a < axes.size(); ++a) {
      offsets[a] = data.Offsets(program, static_cast<AxisId>(a));
      axes[a].num_sequences = static_cast<int>(offsets[a].size()) - 1;
      axes[a].offsets = offsets[a].data();
    }
    for (size_t a = 0; a < slots.size(); ++a) {
      if (!slots[a].empty()) axes[a].slots = slots[a].data();
    }
    std::vector<kernels::InputBatch> inputs(program.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].ids = data.ids[i].empty() ? nullptr : data.ids[i].data();
      inputs[i].values = data.features[i].empty() ? nullptr : data.features[i].data();
      inputs[i].sampling = data.sampling[i].empty() ? nullptr : data.sampling[i].data();
      inputs[i].adjustments = data.adjustments[i].empty() ? nullptr : data.adjustments[i].data();
    }
    kernels::ProgramShape shape;
    Status status = kernels::Validate(program, &shape);
    if (!status.ok()) return status;
    results->assign(program.outputs.size(), {});
    std::vector<std::vector<Candidate>> candidates(program.outputs.size());
    std::vector<kernels::OutputBatch> outputs(program.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const kernels::OutputSpec& output = program.outputs[i];
      const size_t rows = data.num_rows(program, shape.values[output.value].axis);
      if (output.type == OutputType::kCandidates) {
        const auto& predict = std::get<ops::Predict>(program.operations[output.value]);
        candidates[i].resize(rows * predict.max_candidates);
        outputs[i].candidates = candidates[i].data();
      } else if (output.type == OutputType::kPicked) {
        candidates[i].resize(rows);
        outputs[i].candidates = candidates[i].data();
      } else if (output.type == OutputType::kAttention) {
        (*results)[i].resize(kMaxAttention);
        outputs[i].values = (*results)[i].data();
      } else {
        (*results)[i].resize(rows * std::max(1, shape.values[output.value].width));
        outputs[i].values = (*results)[i].data();
      }
    }
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    batch.arena = arena_.get();
    status = executable_->Run(batch, outputs.data(), *workspace_);
    // Which of two candidates is the better one may depend on rounding; how good they are does not.
    for (size_t i = 0; i < outputs.size(); ++i) {
      for (const Candidate& candidate : candidates[i]) {
        (*results)[i].push_back(candidate.log_prob);
        if (program.outputs[i].type == OutputType::kPicked) picked_.push_back(candidate.id);
      }
    }
    return status;
  }

 private:
  static constexpr size_t kMaxAttention = 1 << 16;

  const Program* program_ = nullptr;
  std::unique_ptr<kernels::ProgramExecutable> executable_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  std::unique_ptr<StateArena> arena_;
  std::vector<StateArena::Slot> slots_;
  std::vector<int32_t> picked_;
};

// The largest |expected - found| over the largest |expected| or 1; infinite for what is not a number.
double LargestError(const std::vector<std::vector<float>>& expected,
                    const std::vector<std::vector<float>>& found) {
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double scale = 1;
    for (const float value : expected[i]) {
      if (std::isfinite(value)) scale = std::max(scale, std::abs(double{value}));
    }
    for (size_t k = 0; k < expected[i].size(); ++k) {
      if (expected[i][k] == found[i][k]) continue;  // what was not among the choices is -infinity
      const double error = std::abs(double{expected[i][k]} - double{found[i][k]}) / scale;
      largest = error >= 0 ? std::max(largest, error) : INFINITY;
    }
  }
  return largest;
}

// A translator's steps, with sentences that come while others go on and hypotheses that are forked and
// reordered. The first hypothesis of each step runs once more alone, in a slot of its own, and must have
// the same bits.
Status CheckTranslator(Backend& tested, Backend& reference, DataType dtype, bool small, int width,
                       double* largest, bool* same_bits) {
  TranslatorSizes sizes;
  sizes.vocabulary_size = small ? 70 : 9000;
  sizes.width = sizes.hidden_size = width;
  sizes.layers = small ? 1 : 3;
  const RandomTranslator model(sizes, 51);
  constexpr int kBeam = 5;
  constexpr int kSlots = 2 * kBeam;
  Running running[2];
  Status status = running[0].Prepare(reference, DataType::kFloat32, model.program, 200, kSlots);
  if (status.ok()) status = running[1].Prepare(tested, dtype, model.program, 200, kSlots);
  const auto axes = [&](std::vector<int> source, std::vector<int> target) {
    return RandomData(model.program, {std::move(source), std::move(target)}, 52);
  };
  *largest = 0;
  *same_bits = true;
  std::vector<std::vector<float>> results[2];
  const ProgramData first = axes({small ? 20 : 90}, {});
  for (int i = 0; i < 2 && status.ok(); ++i) {
    const std::vector<StateArena::Slot>& slots = running[i].slots();
    status = running[i].Run(first, {{slots[0]}, {}}, &results[i]);
    // The hypotheses, and one that goes on alone.
    std::vector<int> parents(kSlots, 0);
    if (status.ok()) status = running[i].arena().Reorder(slots.data(), parents.data(), kSlots);
  }
  if (status.ok()) *largest = LargestError(results[0], results[1]);
  for (int step = 0; step < (small ? 20 : 40) && status.ok(); ++step) {
    // Two sentences come at each fourth step, in turns of more rows than products make layer norms
    // for and of fewer.
    const bool comes = step % 4 == 1;
    const std::vector<int> lengths = {step % 8 == 1 ? 30 : 20, 7};
    ProgramData data = axes(comes ? lengths : std::vector<int>{}, std::vector<int>(kBeam, 1));
    data.ids[RandomTranslator::kTargetIds][0] = step % 70;
    std::fill(data.ids[RandomTranslator::kCounts].begin(),
              data.ids[RandomTranslator::kCounts].end(), sizes.max_candidates);
    const int parents[kBeam] = {0, 0, step % kBeam, 1, 4};
    for (int i = 0; i < 2 && status.ok(); ++i) {
      const std::vector<StateArena::Slot>& slots = running[i].slots();
      Slots given(2);
      given[model.target].assign(slots.begin(), slots.begin() + kBeam);
      StateArena::Slot sentences[2];
      for (StateArena::Slot& slot : sentences) {
        if (comes && status.ok()) status = running[i].arena().Allocate(&slot);
        if (comes) given[model.source].push_back(slot);
      }
      if (status.ok()) status = running[i].Run(data, given, &results[i]);
      for (const StateArena::Slot slot : given[model.source]) running[i].arena().Free(slot);
      if (status.ok()) status = running[i].arena().Reorder(slots.data(), parents, kBeam);
    }
    if (!status.ok()) return status;
    *largest = std::max(*largest, LargestError(results[0], results[1]));
    ProgramData alone = axes({}, {1});
    alone.ids[RandomTranslator::kTargetIds] = {step % 70};
    alone.ids[RandomTranslator::kTargets] = {data.ids[RandomTranslator::kTargets][0]};
    alone.ids[RandomTranslator::kCounts] = {sizes.max_candidates};
    std::vector<std::vector<float>> of_one;
    status = running[1].Run(alone, {{}, {running[1].slots()[kBeam]}}, &of_one);
    for (const int output : {RandomTranslator::kLogProb, RandomTranslator::kCandidates}) {
      for (size_t k = 0; k < of_one[output].size(); ++k) {
        *same_bits = *same_bits && of_one[output][k] == results[1][output][k];
      }
    }
  }
  return status;
}

// Clusters of blocks may answer few rows: 1 and 16 rows of many must have the bits that they have among all.
Status CheckFewRows(Backend& tested, DataType dtype, int vocabulary, bool picks, bool* same_bits) {
  constexpr int kRows = 64;
  constexpr int kCandidates = 5;
  RandomProgram p(45);
  const AxisId axis = p.program.AddAxis("rows");
  const ValueId x = p.Features("x", axis, 8);
  picks ? p.Pick("next", x, axis, vocabulary, kCandidates)
        : p.Predict("next", x, axis, vocabulary, kCandidates);
  std::vector<std::vector<int>> lengths = {{kRows}};
  if (picks) lengths.emplace_back(kRows, 30);
  const ProgramData data = RandomData(p.program, lengths, 46);
  Running running;
  Status status = running.Prepare(tested, dtype, p.program, 2000, kRows);
  std::vector<std::vector<float>> all, found;
  if (status.ok()) status = running.Run(data, {}, &all);
  const std::vector<int32_t> picked = running.picked();
  *same_bits = true;
  for (const int rows : {1, 16}) {
    std::vector<std::vector<Piece>> pieces(p.program.axes.size());
    pieces[axis] = {{0, 0, rows}};
    if (status.ok()) status = running.Run(SliceOf(p.program, data, pieces), {}, &found);
    if (!status.ok()) return status;
    for (size_t i = 0; i < found.size(); ++i) {
      *same_bits = *same_bits && std::equal(found[i].begin(), found[i].end(), all[i].begin());
    }
    const size_t end = running.picked().size();
    for (size_t row = 0; picks && row < static_cast<size_t>(rows); ++row) {
      *same_bits = *same_bits && running.picked()[end - rows + row] == picked[row];
    }
  }
  return status;
}

// A step of 1 and of 8 sessions of the paper's language model must have the bits that it has
// among 64. Two of its layers: the products are those of all twelve.
Status CheckLanguageModel(Backend& tested, DataType dtype, bool* same_bits) {
  constexpr int kSessions = 64;
  LanguageModelSizes sizes;
  sizes.layers = 2;
  const RandomLanguageModel model(sizes);
  Running running;
  Status status = running.Prepare(tested, dtype, model.program, kSessions, kSessions);
  const ProgramData data = RandomData(model.program, {std::vector<int>(kSessions, 1)}, 49);
  std::vector<std::vector<float>> all, found;
  if (status.ok()) status = running.Run(data, {}, &all);
  *same_bits = true;
  for (const int sessions : {1, 8}) {
    std::vector<std::vector<Piece>> pieces(model.program.axes.size());
    for (int i = 0; i < sessions; ++i) pieces[model.tokens].push_back({i, 0, 1});
    if (status.ok()) status = running.Run(SliceOf(model.program, data, pieces), {}, &found);
    if (!status.ok()) return status;
    for (size_t i = 0; i < found.size(); ++i) {
      *same_bits = *same_bits && std::equal(found[i].begin(), found[i].end(), all[i].begin());
    }
  }
  return status;
}

// A student's sentences, and a few of their next tokens, which are chosen from lists.
Status CheckStudent(Backend& tested, Backend& reference, DataType dtype, bool small, int width,
                    double* largest) {
  StudentShape shape;
  shape.vocabulary = small ? 70 : 9000;
  shape.width = 4 * width;
  shape.feed_forward = 9 * width;
  shape.encoder_layers = shape.decoder_layers = 2;
  RandomProgram p(45);
  AddStudentSystem(&p, shape);
  const std::vector<int> sources = {5, 1, small ? 9 : 40};
  const auto count = static_cast<int>(sources.size());
  Running running[2];
  Status status = running[0].Prepare(reference, DataType::kFloat32, p.program, 1000, count);
  if (status.ok()) status = running[1].Prepare(tested, dtype, p.program, 1000, count);
  *largest = 0;
  for (unsigned step = 0; step < 4 && status.ok(); ++step) {
    const bool first = step == 0;
    const std::vector<int> targets(first ? 0 : count, 1);
    const std::vector<int> choices =
        first ? std::vector<int>{} : std::vector<int>{20, 7, small ? 50 : 700};
    const ProgramData data =
        RandomData(p.program, {first ? sources : std::vector<int>{}, targets, choices}, 46 + step);
    std::vector<std::vector<float>> results[2];
    for (int i = 0; i < 2 && status.ok(); ++i) {
      Slots slots(2);
      slots[first ? 0 : 1] = running[i].slots();
      status = running[i].Run(data, slots, &results[i]);
    }
    if (status.ok()) *largest = std::max(*largest, LargestError(results[0], results[1]));
  }
  return status;
}

}  // namespace

void CheckPrograms(
    Backend& tested, Backend& reference, DataType dtype, bool small, bool brief,
    const std::function<void(const std::string&, bool, const std::string&)>& report) {
  struct Kind {
    const char* name;
    void (*build)(RandomProgram*, int);
    std::vector<std::vector<int>> lengths;
  };
  const std::vector<Kind> kinds = {
      {"language model", LanguageModel, {{1, 40, 7, small ? 20 : 300}}},
      {"reader", Reader, {{30, 1, small ? 20 : 400}, {5, 12}}},
      {"decoder", Decoder, {{3, small ? 20 : 200, 1, 33}}},
  };
  const auto report_error = [&](const std::string& name, double largest) {
    const double most = dtype == DataType::kFloat32 ? 1e-5 : 5e-2;
    char detail[100];
    std::snprintf(detail, sizeof(detail), "largest error %.2e, expected at most %.0e", largest,
                  most);
    report(name, largest <= most, detail);
  };
  const auto sizes = [small, brief](int least, int usual, const std::vector<int>& all) {
    return small ? std::vector<int>{least} : brief ? std::vector<int>{usual} : all;
  };
  for (const Kind& kind : kinds) {
    for (const int width : sizes(12, 64, {12, 64, 256})) {
      const std::string name =
          std::string("program, ") + kind.name + " of width " + std::to_string(width);
      RandomProgram p(41);
      kind.build(&p, width);
      const int sequences = static_cast<int>(kind.lengths[0].size());
      Running expecting, running;
      // In float32: what is compared is how far a data type's results are from it.
      Status status = expecting.Prepare(reference, DataType::kFloat32, p.program, 1000, sequences);
      if (status.ok()) status = running.Prepare(tested, dtype, p.program, 1000, sequences);
      double largest = 0;
      // The second run goes on from the first, where there are slots.
      for (unsigned run = 0; run < 2 && status.ok(); ++run) {
        const ProgramData data = RandomData(p.program, kind.lengths, 42 + run);
        std::vector<std::vector<float>> expected, found;
        status = expecting.Run(data, {expecting.slots()}, &expected);
        if (status.ok()) status = running.Run(data, {running.slots()}, &found);
        if (status.ok()) largest = std::max(largest, LargestError(expected, found));
      }
      if (!status.ok()) {
        report(name, false, status.message());
        continue;
      }
      report_error(name, largest);
    }
  }
  // Rows of 60,000 logits fit into no GPU's shared memory.
  for (const int vocabulary : sizes(300, 32000, {300, 8193, 32000, 60000})) {
    const std::string name = "program, picks of " + std::to_string(vocabulary);
    RandomProgram p(43);
    Picker(&p, vocabulary);
    const int rows = small ? 8 : 64;
    ProgramData data = RandomData(p.program, {{rows}, std::vector<int>(rows, 30)}, 44);
    std::fill(data.features[0].begin(), data.features[0].end(), 0.0f);
    Running expecting, running;
    std::vector<std::vector<float>> expected, found;
    Status status = expecting.Prepare(reference, DataType::kFloat32, p.program, 2000, rows);
    if (status.ok()) status = running.Prepare(tested, dtype, p.program, 2000, rows);
    if (status.ok()) status = expecting.Run(data, {}, &expected);
    if (status.ok()) status = running.Run(data, {}, &found);
    if (!status.ok()) {
      report(name, false, status.message());
      continue;
    }
    report_error(name, LargestError(expected, found));
    report(name + ", symbols", expecting.picked() == running.picked(), "as the reference's");
  }
  for (const int vocabulary : sizes(8193, 8193, {8193, 32001, 60000})) {
    for (const bool picks : {false, true}) {
      bool same_bits = false;
      const Status status = CheckFewRows(tested, dtype, vocabulary, picks, &same_bits);
      report("program, few rows of " + std::to_string(vocabulary) + (picks ? ", picks" : ""),
             status.ok() && same_bits, status.ok() ? "as among many" : status.message());
    }
  }
  if (!small && !brief) {
    bool same_bits = false;
    const Status status = CheckLanguageModel(tested, dtype, &same_bits);
    report("program, language model of the paper's widths", status.ok() && same_bits,
           status.ok() ? "as among many" : status.message());
  }
  for (const int width : sizes(3, 16, {16, 64})) {
    double largest = 0;
    const std::string name = "program, student of width " + std::to_string(4 * width);
    const Status status = CheckStudent(tested, reference, dtype, small, width, &largest);
    if (status.ok()) {
      report_error(name, largest);
    } else {
      report(name, false, status.message());
    }
  }
  for (const int width : sizes(12, 64, {64, 256})) {
    const std::string name = "program, translator of width " + std::to_string(width);
    double largest = 0;
    bool same_bits = false;
    const Status status =
        CheckTranslator(tested, reference, dtype, small, width, &largest, &same_bits);
    if (!status.ok()) {
      report(name, false, status.message());
      continue;
    }
    report_error(name, largest);
    report(name + ", same bits", same_bits, same_bits ? "alone and in a beam" : "other bits alone");
  }
}

}  // namespace sru::testing
