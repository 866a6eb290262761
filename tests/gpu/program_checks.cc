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
  const ValueId query = p->Linear(x, width, true, true);
  const ValueId keys = p->Linear(q, width, true, true);
  const ValueId both = p->Concat({x, p->Attend(query, keys, q, 1, false, map)});
  StackOptions options;
  options.hidden_size = width;
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
  const ValueId attended = p->AttendFields(p->Linear(n, width), keys, values, 2, /*causal=*/true);
  const ValueId y = p->Add(x, p->Linear(attended, width));
  p->Output(y, "y");
  p->Output(p->Ssru(p->Linear(n, width), p->Linear(n, width), "averaged"), "averaged");
  p->Predict("token", y, target, 70, 3);
}

// Picks whose logits are the bias alone, the same in every data type.
void Picker(RandomProgram* p, int vocabulary) {
  const AxisId rows = p->program.AddAxis("rows");
  p->Pick("next", p->Features("x", rows, 8), rows, vocabulary, 5);
}

// A program on a backend, with `sequences` slots if it has fields.
class Running {
 public:
  Status Prepare(Backend& backend, DataType dtype, const Program& program, int rows,
                 int sequences) {
    program_ = &program;
    kernels::CompileOptions options;
    options.dtype = dtype;
    SRU_RETURN_IF_ERROR(backend.Compile(program, options, &executable_));
    kernels::ProgramLimits limits;
    limits.axes.assign(program.axes.size(), {rows, sequences});
    limits.max_attention_values = kMaxAttention;
    SRU_RETURN_IF_ERROR(executable_->CreateWorkspace(limits, &workspace_));
    if (program.fields.empty()) return kernels::OkStatus();
    kernels::ArenaOptions arena_options;
    arena_options.budget_bytes = size_t{1} << 26;
    SRU_RETURN_IF_ERROR(executable_->CreateArena(arena_options, &arena_));
    slots_.resize(sequences);
    for (StateArena::Slot& slot : slots_) SRU_RETURN_IF_ERROR(arena_->Allocate(&slot));
    return kernels::OkStatus();
  }

  const std::vector<StateArena::Slot>& slots() const { return slots_; }
  // The symbols that Run() has picked so far.
  const std::vector<int32_t>& picked() const { return picked_; }
  StateArena& arena() { return *arena_; }

  // `results` is [output]: rows, log-probabilities, attention, or the log-probabilities of
  // candidates.
  Status Run(const ProgramData& data, const Slots& slots,
             std::vector<std::vector<float>>* results) {
    const Program& program = *program_;
    kernels::ProgramShape shape;
    SRU_RETURN_IF_ERROR(kernels::Validate(program, &shape));
    results->assign(program.outputs.size(), {});
    std::vector<std::vector<Candidate>> candidates(program.outputs.size());
    std::vector<kernels::OutputBatch> outputs(program.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const kernels::OutputSpec& output = program.outputs[i];
      const size_t size = output.type == OutputType::kAttention
                              ? kMaxAttention
                              : OutputSize(program, shape, data, output);
      if (HasCandidates(output)) {
        candidates[i].resize(size);
        outputs[i].candidates = candidates[i].data();
      } else {
        (*results)[i].resize(size);
        outputs[i].values = (*results)[i].data();
      }
    }
    const BatchViews views(program, data, slots);
    Status status = executable_->Run(views.batch(arena_.get()), outputs.data(), *workspace_);
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

// The largest |expected - found| over the largest |expected| or 1; infinite for what is not a
// number.
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

// Whether what a batch of the first rows alone gives is what they have among all.
bool BeginsWith(const std::vector<std::vector<float>>& all,
                const std::vector<std::vector<float>>& found) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (!std::equal(found[i].begin(), found[i].end(), all[i].begin())) return false;
  }
  return true;
}

// A program on the reference, in float32, and on the tested backend: what is compared is how far a
// data type's results are from those.
struct Compared {
  Running expecting, running;
  std::vector<std::vector<float>> expected, found;
  double largest_error = 0;  // of all runs

  Status Prepare(Backend& tested, Backend& reference, DataType dtype, const Program& program,
                 int rows, int sequences) {
    SRU_RETURN_IF_ERROR(expecting.Prepare(reference, DataType::kFloat32, program, rows, sequences));
    return running.Prepare(tested, dtype, program, rows, sequences);
  }
  // With all slots on one axis.
  Status Run(const ProgramData& data, AxisId axis = 0) {
    Slots slots(axis + 1);
    slots[axis] = expecting.slots();
    SRU_RETURN_IF_ERROR(expecting.Run(data, slots, &expected));
    slots[axis] = running.slots();
    SRU_RETURN_IF_ERROR(running.Run(data, slots, &found));
    NoteError();
    return kernels::OkStatus();
  }
  void NoteError() { largest_error = std::max(largest_error, LargestError(expected, found)); }
};

// A translator's steps, with sentences that come while others go on and hypotheses that are forked
// and reordered. The first hypothesis of each step runs once more alone, in a slot of its own, and
// must have the same bits.
Status CheckTranslator(Backend& tested, Backend& reference, DataType dtype, bool small, int width,
                       double* largest, bool* same_bits) {
  TranslatorSizes sizes;
  sizes.vocabulary_size = small ? 70 : 9000;
  sizes.width = sizes.hidden_size = width;
  sizes.layers = small ? 1 : 3;
  const RandomTranslator model(sizes, 51);
  constexpr int kBeam = 5;
  constexpr int kSlots = 2 * kBeam;
  Compared both;
  SRU_RETURN_IF_ERROR(both.Prepare(tested, reference, dtype, model.program, 200, kSlots));
  const auto axes = [&](std::vector<int> source, std::vector<int> target) {
    return RandomData(model.program, {std::move(source), std::move(target)}, 52);
  };
  const auto each =
      [&](const std::function<Status(Running&, std::vector<std::vector<float>>*)>& use) {
        SRU_RETURN_IF_ERROR(use(both.expecting, &both.expected));
        SRU_RETURN_IF_ERROR(use(both.running, &both.found));
        both.NoteError();
        return kernels::OkStatus();
      };
  *same_bits = true;
  const ProgramData first = axes({small ? 20 : 90}, {});
  SRU_RETURN_IF_ERROR(each([&](Running& running, std::vector<std::vector<float>>* results) {
    const std::vector<StateArena::Slot>& slots = running.slots();
    SRU_RETURN_IF_ERROR(running.Run(first, {{slots[0]}, {}}, results));
    // The hypotheses, and one that goes on alone.
    const std::vector<int> parents(kSlots, 0);
    return running.arena().Reorder(slots.data(), parents.data(), kSlots);
  }));
  for (int step = 0; step < (small ? 20 : 40); ++step) {
    // Two sentences come at each fourth step, in turns of more rows than products make layer norms
    // for and of fewer.
    const bool comes = step % 4 == 1;
    const std::vector<int> lengths = {step % 8 == 1 ? 30 : 20, 7};
    ProgramData data = axes(comes ? lengths : std::vector<int>{}, std::vector<int>(kBeam, 1));
    data.ids[RandomTranslator::kTargetIds][0] = step % 70;
    std::fill(data.ids[RandomTranslator::kCounts].begin(),
              data.ids[RandomTranslator::kCounts].end(), sizes.max_candidates);
    const int parents[kBeam] = {0, 0, step % kBeam, 1, 4};
    SRU_RETURN_IF_ERROR(each([&](Running& running, std::vector<std::vector<float>>* results) {
      const std::vector<StateArena::Slot>& slots = running.slots();
      Slots given(2);
      given[model.target].assign(slots.begin(), slots.begin() + kBeam);
      for (int i = 0; comes && i < 2; ++i) {
        SRU_RETURN_IF_ERROR(running.arena().Allocate(&given[model.source].emplace_back()));
      }
      const Status status = running.Run(data, given, results);
      for (const StateArena::Slot slot : given[model.source]) running.arena().Free(slot);
      return status.ok() ? running.arena().Reorder(slots.data(), parents, kBeam) : status;
    }));
    ProgramData alone = axes({}, {1});
    alone.ids[RandomTranslator::kTargetIds] = {step % 70};
    alone.ids[RandomTranslator::kTargets] = {data.ids[RandomTranslator::kTargets][0]};
    alone.ids[RandomTranslator::kCounts] = {sizes.max_candidates};
    std::vector<std::vector<float>> of_one;
    SRU_RETURN_IF_ERROR(both.running.Run(alone, {{}, {both.running.slots()[kBeam]}}, &of_one));
    for (const int output : {RandomTranslator::kLogProb, RandomTranslator::kCandidates}) {
      *same_bits = *same_bits && BeginsWith({both.found[output]}, {of_one[output]});
    }
  }
  *largest = both.largest_error;
  return kernels::OkStatus();
}

// Clusters of blocks may answer few rows: 1 and 16 rows of many must have the bits that they have
// among all.
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
  SRU_RETURN_IF_ERROR(running.Prepare(tested, dtype, p.program, 2000, kRows));
  std::vector<std::vector<float>> all, found;
  SRU_RETURN_IF_ERROR(running.Run(data, {}, &all));
  const std::vector<int32_t> picked = running.picked();
  *same_bits = true;
  for (const int rows : {1, 16}) {
    std::vector<std::vector<Piece>> pieces(p.program.axes.size());
    pieces[axis] = {{0, 0, rows}};
    SRU_RETURN_IF_ERROR(running.Run(SliceOf(p.program, data, pieces), {}, &found));
    *same_bits = *same_bits && BeginsWith(all, found);
    const size_t end = running.picked().size();
    for (size_t row = 0; picks && row < static_cast<size_t>(rows); ++row) {
      *same_bits = *same_bits && running.picked()[end - rows + row] == picked[row];
    }
  }
  return kernels::OkStatus();
}

// A step of 1 and of 8 sessions of the paper's language model must have the bits that it has
// among 64. Two of its layers: the products are those of all twelve.
Status CheckLanguageModel(Backend& tested, DataType dtype, bool* same_bits) {
  constexpr int kSessions = 64;
  LanguageModelSizes sizes;
  sizes.layers = 2;
  const RandomLanguageModel model(sizes);
  Running running;
  SRU_RETURN_IF_ERROR(running.Prepare(tested, dtype, model.program, kSessions, kSessions));
  const ProgramData data = RandomData(model.program, {std::vector<int>(kSessions, 1)}, 49);
  std::vector<std::vector<float>> all, found;
  SRU_RETURN_IF_ERROR(running.Run(data, {}, &all));
  *same_bits = true;
  for (const int sessions : {1, 8}) {
    std::vector<std::vector<Piece>> pieces(model.program.axes.size());
    for (int i = 0; i < sessions; ++i) pieces[model.tokens].push_back({i, 0, 1});
    SRU_RETURN_IF_ERROR(running.Run(SliceOf(model.program, data, pieces), {}, &found));
    *same_bits = *same_bits && BeginsWith(all, found);
  }
  return kernels::OkStatus();
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
  Compared both;
  SRU_RETURN_IF_ERROR(both.Prepare(tested, reference, dtype, p.program, 1000, 3));
  SRU_RETURN_IF_ERROR(both.Run(RandomData(p.program, {{5, 1, small ? 9 : 40}}, 46), 0));
  for (unsigned step = 1; step < 4; ++step) {
    const std::vector<std::vector<int>> lengths = {{}, {1, 1, 1}, {20, 7, small ? 50 : 700}};
    SRU_RETURN_IF_ERROR(both.Run(RandomData(p.program, lengths, 46 + step), 1));
  }
  *largest = both.largest_error;
  return kernels::OkStatus();
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
  const auto report_error = [&](const std::string& name, const Status& status, double largest) {
    const double most = dtype == DataType::kFloat32 ? 1e-5 : 5e-2;
    char detail[100];
    std::snprintf(detail, sizeof(detail), "largest error %.2e, expected at most %.0e", largest,
                  most);
    report(name, status.ok() && largest <= most, status.ok() ? detail : status.message());
  };
  const auto sizes = [small, brief](int least, int usual, const std::vector<int>& all) {
    return small ? std::vector<int>{least} : brief ? std::vector<int>{usual} : all;
  };
  for (const Kind& kind : kinds) {
    for (const int width : sizes(12, 64, {12, 64, 256})) {
      RandomProgram p(41);
      kind.build(&p, width);
      const int sequences = static_cast<int>(kind.lengths[0].size());
      Compared both;
      Status status = both.Prepare(tested, reference, dtype, p.program, 1000, sequences);
      // The second run goes on from the first, where there are slots.
      for (unsigned run = 0; run < 2 && status.ok(); ++run) {
        status = both.Run(RandomData(p.program, kind.lengths, 42 + run));
      }
      report_error(std::string("program, ") + kind.name + " of width " + std::to_string(width),
                   status, both.largest_error);
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
    Compared both;
    Status status = both.Prepare(tested, reference, dtype, p.program, 2000, rows);
    if (status.ok()) status = both.Run(data);
    report_error(name, status, both.largest_error);
    if (!status.ok()) continue;
    report(name + ", symbols", both.expecting.picked() == both.running.picked(),
           "as the reference's");
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
    const Status status = CheckStudent(tested, reference, dtype, small, width, &largest);
    report_error("program, student of width " + std::to_string(4 * width), status, largest);
  }
  for (const int width : sizes(12, 64, {64, 256})) {
    const std::string name = "program, translator of width " + std::to_string(width);
    double largest = 0;
    bool same_bits = false;
    const Status status =
        CheckTranslator(tested, reference, dtype, small, width, &largest, &same_bits);
    report_error(name, status, largest);
    if (!status.ok()) continue;
    report(name + ", same bits", same_bits, same_bits ? "alone and in a beam" : "other bits alone");
  }
}

}  // namespace sru::testing
