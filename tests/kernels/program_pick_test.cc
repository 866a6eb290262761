// Picks of every backend against a plain implementation of their equations (program.h), written for
// this test. Logits are whole multiples of 1/8, which no backend and data type rounds, so that what
// is picked follows from the equations but for borders of sums, from which the tests stay away.
// Which backend is tested comes from the environment (SRU_BACKEND).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/program.h"
#include "tests/kernels/compiled_program.h"

namespace sru::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();

// One Predict with picks over rows of one value x. With x = 1 a row's logits are `logits`.
struct PickModel {
  RandomProgram p{1};
  AxisId rows, adjusted;
  InputId targets, counts, sampling, adjustments;
  int vocabulary;

  explicit PickModel(const std::vector<float>& logits)
      : vocabulary(static_cast<int>(logits.size())) {
    rows = p.program.AddAxis("rows");
    const ValueId value = p.Pick("next", p.Features("x", rows, 1), rows, vocabulary, vocabulary);
    auto& op = p.op<ops::Predict>(value);
    op.weight = p.Keep(logits);
    op.bias = {};
    targets = op.targets;
    counts = op.counts;
    sampling = op.sampling;
    adjustments = op.adjustments;
    adjusted = p.program.inputs[adjustments].axis;
  }

  // Rows of these samplings, none of which is adjusted.
  ProgramData Data(const std::vector<Sampling>& of_rows) const {
    const int count = static_cast<int>(of_rows.size());
    ProgramData data = RandomData(p.program, {{count}}, 2);
    data.features[0].assign(count, 1.0f);
    data.sampling[sampling] = of_rows;
    return data;
  }

  void Adjust(const std::vector<std::vector<Adjustment>>& of_rows, ProgramData* data) const {
    data->lengths[adjusted].clear();
    data->adjustments[adjustments].clear();
    for (const std::vector<Adjustment>& row : of_rows) {
      data->lengths[adjusted].push_back(static_cast<int>(row.size()));
      for (const Adjustment& adjustment : row) data->adjustments[adjustments].push_back(adjustment);
    }
  }
};

// Outputs of PickModel.
constexpr int kLogProbs = 0;
constexpr int kCandidates = 1;
constexpr int kPicks = 2;

// Distinct and equal logits between -6 and 6.
std::vector<float> RandomLogits(int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = static_cast<float>(static_cast<int>(random() % 97) - 48) / 8;
  return logits;
}

double LogProb(const std::vector<float>& logits, int v) {
  double sum = 0;
  for (float logit : logits) sum += std::exp(double{logit});
  return logits[v] - std::log(sum);
}

// What can be picked, in the order of ids, with its part of 1; empty when all is forbidden.
struct Choice {
  int id;
  double probability;
};

std::vector<Choice> Choices(const std::vector<float>& logits,
                            const std::vector<Adjustment>& adjustments, const Sampling& sampling) {
  std::vector<double> z(logits.begin(), logits.end());
  for (const Adjustment& a : adjustments) {
    z[a.id] = z[a.id] > 0 ? z[a.id] / a.scale : z[a.id] * a.scale;
    z[a.id] += a.add;
  }
  std::vector<int> ids;
  for (int v = 0; v < static_cast<int>(z.size()); ++v) {
    if (z[v] > -kInfinity) ids.push_back(v);
  }
  if (ids.empty()) return {};
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) { return z[a] > z[b]; });
  if (sampling.temperature == 0) return {{ids[0], 1.0}};
  std::vector<Choice> choices;
  const double best = z[ids[0]];
  for (int v : ids) {
    if (sampling.top_k > 0 && static_cast<int>(choices.size()) == sampling.top_k) break;
    const double p = std::exp((z[v] - best) / sampling.temperature);
    if (sampling.min_p == 0 || p >= sampling.min_p) choices.push_back({v, p});
  }
  double all = 0;
  for (const Choice& choice : choices) all += choice.probability;
  if (sampling.top_p > 0) {
    double sum = 0;
    size_t count = 0;
    while (count < choices.size() && (count == 0 || sum < sampling.top_p * all)) {
      sum += choices[count++].probability;
    }
    choices.resize(count);
    all = sum;
  }
  for (Choice& choice : choices) choice.probability /= all;
  std::sort(choices.begin(), choices.end(),
            [](const Choice& a, const Choice& b) { return a.id < b.id; });
  return choices;
}

// A random number in the middle of what belongs to the k-th choice.
uint64_t MiddleOf(const std::vector<Choice>& choices, size_t k) {
  double before = 0;
  for (size_t i = 0; i < k; ++i) before += choices[i].probability;
  const double middle = before + choices[k].probability / 2;
  return static_cast<uint64_t>(std::ldexp(middle, 64));
}

Sampling Sampled(float temperature, int top_k = 0, float top_p = 0, float min_p = 0,
                 uint64_t random = 0) {
  Sampling sampling;
  sampling.temperature = temperature;
  sampling.top_k = top_k;
  sampling.top_p = top_p;
  sampling.min_p = min_p;
  sampling.random = random;
  return sampling;
}

// Every member alone, and some together. No bound is where the logits of the tests have a symbol.
std::vector<Sampling> SamplingsToTest() {
  return {Sampled(0),
          Sampled(0, 3, 0.5f, 0.5f),
          Sampled(1),
          Sampled(0.3f),
          Sampled(2.5f),
          Sampled(1, 1),
          Sampled(1, 2),
          Sampled(1, 40),
          Sampled(1, 300),
          Sampled(1, 1 << 30),
          Sampled(1, 0, 0.001f),
          Sampled(1, 0, 0.53f),
          Sampled(1, 0, 0.9371f),
          Sampled(1, 0, 1),
          Sampled(1, 0, 0, 0.0071f),
          Sampled(1, 0, 0, 0.31f),
          Sampled(1, 0, 0, 1),
          Sampled(0.7f, 20, 0.813f),
          Sampled(1.3f, 20, 0, 0.0213f),
          Sampled(0.9f, 0, 0.713f, 0.0213f),
          Sampled(1.7f, 30, 0.813f, 0.0113f)};
}

std::vector<int> Vocabularies() {
  if (IsEmulated()) return {1, 2, 17, 256};
  return {1, 2, 17, 256, 1000};
}

// Adjustments of about a quarter of the symbols; of positive and negative logits, and some
// forbidden.
std::vector<Adjustment> SomeAdjustments(int vocabulary, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Adjustment> adjustments;
  for (int v = static_cast<int>(random() % 2); v < vocabulary;
       v += 1 + static_cast<int>(random() % 7)) {
    Adjustment a;
    a.id = v;
    if (random() % 3 != 0) a.scale = random() % 2 == 0 ? 2.0f : 0.5f;
    if (random() % 3 != 0) a.add = static_cast<float>(static_cast<int>(random() % 33) - 16) / 4;
    if (random() % 9 == 0) a.add = -kInfinity;
    adjustments.push_back(a);
  }
  return adjustments;
}

// The middle of each choice's random numbers picks it, for every sampling, with and without
// adjustments; the smallest and the largest number pick the first and the last choice.
TEST(ProgramPickTest, PicksWhatTheEquationsSay) {
  for (int vocabulary : Vocabularies()) {
    const std::vector<float> logits = RandomLogits(vocabulary, 3 + vocabulary);
    const PickModel model(logits);
    Compiled tested = CompileTested(model.p.program);
    for (bool adjusts : {false, true}) {
      std::vector<Sampling> samplings;
      std::vector<std::vector<Adjustment>> adjustments;
      std::vector<int> expected;
      for (Sampling sampling : SamplingsToTest()) {
        std::vector<Adjustment> own;
        if (adjusts) own = SomeAdjustments(vocabulary, 4 + static_cast<unsigned>(expected.size()));
        const std::vector<Choice> choices = Choices(logits, own, sampling);
        const auto expect = [&](uint64_t random, int id) {
          sampling.random = random;
          samplings.push_back(sampling);
          adjustments.push_back(own);
          expected.push_back(id);
        };
        if (choices.empty()) {
          expect(kMost / 3, kNone);
          continue;
        }
        const size_t step = std::max<size_t>(1, choices.size() / 20);
        for (size_t k = 0; k < choices.size(); k += step) {
          // Where rounding of sums does not matter.
          if (choices[k].probability > 1e-5) expect(MiddleOf(choices, k), choices[k].id);
        }
        const auto picks = [](const Choice& c) { return c.probability > 1e-7; };
        if (!picks(choices.front()) || !picks(choices.back())) continue;
        expect(0, choices.front().id);
        expect(kMost, choices.back().id);
      }
      ProgramData data = model.Data(samplings);
      if (adjusts) {
        model.Adjust(adjustments, &data);
        ProgramLimits limits;
        limits.axes = {kWideLimits, {100'000, 512}};
        tested.MakeWorkspace(limits);
      }
      const Results found = tested.Run(data);
      for (size_t t = 0; t < expected.size(); ++t) {
        const Candidate& picked = found.candidates[kPicks][t];
        const Sampling& s = samplings[t];
        ASSERT_EQ(picked.id, expected[t])
            << "row " << t << " of " << vocabulary << " symbols, temperature " << s.temperature
            << ", top_k " << s.top_k << ", top_p " << s.top_p << ", min_p " << s.min_p
            << ", random " << s.random << (adjusts ? ", adjusted" : "");
        const double log_prob = expected[t] == kNone ? 0 : LogProb(logits, expected[t]);
        ASSERT_NEAR(picked.log_prob, log_prob, kTolerance * std::max(1.0, -log_prob));
      }
    }
  }
}

// A pick's log-probability has the bits of log_prob with that target, and of a candidate.
TEST(ProgramPickTest, LogProbsHaveTheBitsOfScores) {
  for (int vocabulary : Vocabularies()) {
    RandomProgram p(5);
    const AxisId tokens = p.program.AddAxis("tokens");
    const ValueId x = p.Features("x", tokens, 24);
    p.Pick("next", x, tokens, vocabulary, vocabulary);
    const auto& op = std::get<ops::Predict>(p.program.operations.back());
    const int rows = IsEmulated() ? 12 : 70;
    ProgramData data = RandomData(
        p.program, {{rows}, std::vector<int>(rows, std::min(vocabulary, 5))}, 6 + vocabulary);
    Compiled tested = CompileTested(p.program);
    const Results picks = tested.Run(data);
    for (int t = 0; t < rows; ++t) {
      data.ids[op.targets][t] = picks.candidates[kPicks][t].id;
      data.ids[op.counts][t] = vocabulary;
    }
    const Results scores = tested.Run(data);
    for (int t = 0; t < rows; ++t) {
      const Candidate& picked = picks.candidates[kPicks][t];
      if (picked.id == kNone) continue;
      EXPECT_TRUE(SameBits({picked.log_prob}, std::vector<float>{scores.values[kLogProbs][t]}));
      const auto* const first =
          &scores.candidates[kCandidates][static_cast<size_t>(t) * vocabulary];
      const auto* const same = std::find_if(first, first + vocabulary,
                                            [&](const Candidate& c) { return c.id == picked.id; });
      ASSERT_NE(same, first + vocabulary);
      EXPECT_TRUE(SameBits(std::vector<Candidate>{picked}, std::vector<Candidate>{*same}));
    }
  }
}

// Of equal symbols the smallest id is the best, in whatever block of the vocabulary it is.
TEST(ProgramPickTest, OfEqualSymbolsTheSmallestIdIsTheBest) {
  for (int vocabulary : Vocabularies()) {
    for (int first : {0, vocabulary / 2, vocabulary - 1}) {
      std::vector<float> logits(vocabulary, -1.0f);
      for (int v = first; v < vocabulary; v += 3) logits[v] = 2.0f;
      const PickModel model(logits);
      Compiled tested = CompileTested(model.p.program);
      const std::vector<Sampling> samplings = {Sampled(0), Sampled(1, 1, 0, 0, kMost),
                                               Sampled(1, 0, 1e-6f, 0, kMost)};
      const Results found = tested.Run(model.Data(samplings));
      for (size_t t = 0; t < samplings.size(); ++t) {
        EXPECT_EQ(found.candidates[kPicks][t].id, first) << vocabulary << ", row " << t;
      }
      // What is adjusted to be equal is equal.
      ProgramData data = model.Data({Sampled(0)});
      Adjustment a;
      a.id = 0;
      a.add = first == 0 ? 0 : 3;
      model.Adjust({{a}}, &data);
      EXPECT_EQ(tested.Run(data).candidates[kPicks][0].id, 0) << vocabulary;
    }
  }
}

TEST(ProgramPickTest, NothingIsPickedWhereEverythingIsForbidden) {
  for (int vocabulary : Vocabularies()) {
    const PickModel model(RandomLogits(vocabulary, 7));
    Compiled tested = CompileTested(model.p.program);
    std::vector<Adjustment> all(vocabulary);
    for (int v = 0; v < vocabulary; ++v) all[v] = {v, 1.0f, -kInfinity};
    std::vector<Adjustment> but_last = all;
    but_last.pop_back();
    for (const Sampling& sampling : {Sampled(0), Sampled(1), Sampled(1, 3, 0.5f, 0.1f, kMost)}) {
      ProgramData data = model.Data({sampling, sampling});
      model.Adjust({all, but_last}, &data);
      const std::vector<Candidate> picked = tested.Run(data).candidates[kPicks];
      EXPECT_EQ(picked[0].id, kNone) << vocabulary;
      EXPECT_EQ(picked[0].log_prob, 0.0f) << vocabulary;
      EXPECT_EQ(picked[1].id, vocabulary - 1) << vocabulary;
    }
  }
}

// Sums and quotients that overflow are bounded: they keep their sign and can be compared.
TEST(ProgramPickTest, ExtremeAdjustments) {
  const PickModel model({1.0f, 4.0f, -2.0f, 3.0f});
  Compiled tested = CompileTested(model.p.program);
  constexpr float kLarge = std::numeric_limits<float>::max();
  constexpr float kSmall = std::numeric_limits<float>::min();
  const std::vector<std::vector<Adjustment>> adjustments = {
      {{0, kSmall, kLarge}},                   // far above the others
      {{1, kLarge, 0.0f}},                     // 4 becomes almost nothing
      {{1, 1.0f, -kLarge}, {3, 1.0f, -6.0f}},  // 1 is left
      {{0, kSmall, -kInfinity}, {1, kSmall, -kInfinity}},
      {{2, kLarge, -kLarge}},
      {{2, 1e-30f, 5.0f}}};
  const std::vector<int> expected = {0, 3, 0, 3, 1, 2};
  for (float temperature : {0.0f, 1e-30f, 0.01f}) {
    ProgramData data = model.Data(
        std::vector<Sampling>(adjustments.size(), Sampled(temperature, 0, 0, 0, kMost / 2)));
    model.Adjust(adjustments, &data);
    const std::vector<Candidate> picked = tested.Run(data).candidates[kPicks];
    for (size_t t = 0; t < expected.size(); ++t) {
      EXPECT_EQ(picked[t].id, expected[t]) << "row " << t << ", temperature " << temperature;
    }
  }
}

// Frequencies of picks with random numbers at a fixed seed against the probabilities, by
// chi-square.
TEST(ProgramPickTest, FrequenciesAreTheProbabilities) {
  const std::vector<float> logits = RandomLogits(24, 9);
  const PickModel model(logits);
  Compiled tested = CompileTested(model.p.program);
  const int runs = IsEmulated() ? 2 : 40;
  constexpr int kRows = 500;
  for (const Sampling& kind :
       {Sampled(1), Sampled(2), Sampled(1.5f, 6), Sampled(2, 0, 0.8f), Sampled(2, 0, 0, 0.11f)}) {
    const std::vector<Adjustment> own = SomeAdjustments(24, 10);
    const std::vector<Choice> choices = Choices(logits, own, kind);
    std::vector<double> counts(24);
    std::mt19937_64 random(11);
    for (int run = 0; run < runs; ++run) {
      std::vector<Sampling> samplings(kRows, kind);
      for (Sampling& sampling : samplings) sampling.random = random();
      ProgramData data = model.Data(samplings);
      model.Adjust(std::vector<std::vector<Adjustment>>(kRows, own), &data);
      const Results found = tested.Run(data, {}, uint64_t{1} << kPicks);
      for (const Candidate& picked : found.candidates[kPicks]) {
        ASSERT_GE(picked.id, 0);
        ++counts[picked.id];
      }
    }
    const double draws = static_cast<double>(runs) * kRows;
    double chi_square = 0;
    double rare = 0;  // choices that are expected fewer than five times count as one
    double rare_found = 0;
    int degrees = -1;
    for (const Choice& choice : choices) {
      const double expected = draws * choice.probability;
      if (expected < 5) {
        rare += expected;
        rare_found += counts[choice.id];
      } else {
        chi_square += (counts[choice.id] - expected) * (counts[choice.id] - expected) / expected;
        ++degrees;
      }
      counts[choice.id] = 0;
    }
    if (rare > 1) {
      chi_square += (rare_found - rare) * (rare_found - rare) / rare;
      ++degrees;
    }
    for (int v = 0; v < 24; ++v) EXPECT_EQ(counts[v], 0) << v << " must not be picked";
    // Exceeded once in more than 10,000 seeds (Wilson and Hilferty's approximation with 4
    // deviations).
    ASSERT_GE(degrees, 1);
    const double part = 2.0 / (9.0 * degrees);
    EXPECT_LT(chi_square, degrees * std::pow(1 - part + 4 * std::sqrt(part), 3))
        << "temperature " << kind.temperature << ", top_k " << kind.top_k << ", top_p "
        << kind.top_p << ", min_p " << kind.min_p;
  }
}

// More sampled logits than a backend keeps: rows are computed in groups, with the same bits.
TEST(ProgramPickTest, SampledRowsOfALargeVocabulary) {
  const int vocabulary = IsEmulated() ? 3000 : 30'000;
  const int rows = IsEmulated() ? 10 : 300;
  RandomProgram p(13);
  const AxisId tokens = p.program.AddAxis("tokens");
  p.Pick("next", p.Features("x", tokens, 8), tokens, vocabulary, 1, 1.5f);
  const ProgramData data = RandomData(p.program, {{rows}, std::vector<int>(rows, 7)}, 14);
  Compiled tested = CompileTested(p.program);
  const Results found = tested.Run(data);
  Compiled reference = CompileReference(p.program, Rounding::kSameRows);
  ExpectNear(p.program, reference.Run(data), found, Tolerance(Rounding::kSameRows), "all rows");
  for (const int t : {0, rows / 2, rows - 1}) {
    const ProgramData one = SliceOf(p.program, data, {{{0, t, t + 1}}, {}});
    ExpectSameBits(p.program, RowsOf(tested, data, found, 0, {{0, t, t + 1}}),
                   RowsOf(tested, one, tested.Run(one), 0, {{0, 0, 1}}),
                   "row " + std::to_string(t));
  }
}

// Logits that are no numbers: something within the vocabulary, or nothing.
TEST(ProgramPickTest, LogitsThatAreNoNumbers) {
  const PickModel model(RandomLogits(300, 15));
  Compiled tested = CompileTested(model.p.program);
  for (float x : {kNaN, -kNaN, kInfinity, -kInfinity}) {
    const std::vector<Sampling> samplings = SamplingsToTest();
    ProgramData data = model.Data(samplings);
    data.features[0].assign(samplings.size(), x);
    const Results found = tested.Run(data);
    for (const Candidate& picked : found.candidates[kPicks]) {
      EXPECT_GE(picked.id, kNone);
      EXPECT_LT(picked.id, 300);
    }
  }
}

// A language model whose Predict over the rows of the run before scores, and whose other one, over
// the last rows, picks.
struct Generator {
  RandomProgram p{17};
  AxisId tokens, sequences;
  InputId ids;
  ValueId score, pick;
  static constexpr int kVocabulary = 61;

  explicit Generator(bool shares) {
    tokens = p.program.AddAxis("tokens");
    sequences = p.program.AddSequenceAxis("sequences", tokens);
    StackOptions options;
    options.input_size = 12;
    options.hidden_size = 20;
    options.directions = 1;
    ids = p.program.AddIds("ids", tokens, 0, kVocabulary);
    const ValueId h = p.StackOfIds(ids, options, "c");
    const ValueId shifted = p.Shift(h, "h");
    score = p.Predict("token", shifted, tokens, kVocabulary, kVocabulary);
    const ValueId last = p.Last(h, sequences, p.LastOf(shifted));
    if (!shares) return;
    pick = p.Pick("next", last, sequences, kVocabulary, 1);
    auto& picking = p.op<ops::Predict>(pick);
    const auto& scoring = p.op<ops::Predict>(score);
    picking.weight = scoring.weight;
    picking.bias = scoring.bias;
  }
};

// What is picked greedily from states, step by step, is the best candidate of a score of the whole.
TEST(ProgramPickTest, StepsPickWhatAScoreOfTheWholeFindsBest) {
  Generator model(true);
  Compiled tested = CompileTested(model.p.program);
  constexpr int kSequences = 3;
  constexpr int kSteps = 9;
  const std::vector<int> prompts = {4, 1, 7};
  ProgramData step = RandomData(model.p.program, {prompts}, 18);
  std::vector<std::vector<int32_t>> texts(kSequences);
  const std::vector<int32_t> offsets = step.Offsets(model.p.program, model.tokens);
  for (int b = 0; b < kSequences; ++b) {
    texts[b].assign(&step.ids[model.ids][offsets[b]], &step.ids[model.ids][offsets[b + 1]]);
  }
  std::vector<std::vector<Candidate>> picks(kSequences);
  const Slots slots = tested.NewSlots(step);
  const int picked_output = static_cast<int>(model.p.program.outputs.size()) - 1;
  const uint64_t wanted = uint64_t{1} << picked_output;
  for (int i = 0; i < kSteps; ++i) {
    for (std::vector<Sampling>& sampling : step.sampling) {
      for (Sampling& s : sampling) s = Sampled(0);
    }
    const Results results = tested.Run(step, slots, wanted);
    step = RandomData(model.p.program, {std::vector<int>(kSequences, 1)}, 19);
    for (int b = 0; b < kSequences; ++b) {
      const Candidate& picked = results.candidates[picked_output][b];
      picks[b].push_back(picked);
      texts[b].push_back(picked.id);
      step.ids[model.ids][b] = picked.id;
    }
  }
  std::vector<int> lengths;
  for (const auto& text : texts) lengths.push_back(static_cast<int>(text.size()));
  ProgramData whole = RandomData(model.p.program, {lengths}, 20);
  whole.ids[model.ids].clear();
  for (const auto& text : texts) {
    whole.ids[model.ids].insert(whole.ids[model.ids].end(), text.begin(), text.end());
  }
  const auto& op = model.p.op<ops::Predict>(model.score);
  std::fill(whole.ids[op.counts].begin(), whole.ids[op.counts].end(), 1);
  const Results scores = tested.Run(whole);
  int t = 0;
  for (int b = 0; b < kSequences; ++b) {
    for (int i = 0; i < lengths[b]; ++i, ++t) {
      if (i < prompts[b]) continue;
      const Candidate& best =
          scores.candidates[kCandidates][static_cast<size_t>(t) * Generator::kVocabulary];
      EXPECT_TRUE(
          SameBits(std::vector<Candidate>{picks[b][i - prompts[b]]}, std::vector<Candidate>{best}))
          << "sequence " << b << ", token " << i;
    }
  }
}

// Two operations over one matrix cost the weights of one.
TEST(ProgramPickTest, OperationsOverOneMatrixShareIt) {
  const Generator one(false);
  const Generator two(true);
  Compiled with_one = CompileTested(one.p.program);
  Compiled with_two = CompileTested(two.p.program);
  EXPECT_GT(with_one.executable().weight_bytes(), 0);
  EXPECT_EQ(with_two.executable().weight_bytes(), with_one.executable().weight_bytes());
}

// A last row of a sequence without rows is that of the run before, or zeros without one, a slot or
// a field.
TEST(ProgramPickTest, LastRowsOfSequencesWithoutRows) {
  RandomProgram p(21);
  const AxisId tokens = p.program.AddAxis("tokens");
  const AxisId sequences = p.program.AddSequenceAxis("sequences", tokens);
  const ValueId x = p.Features("x", tokens, 3);
  const ValueId shifted = p.Shift(x, "last");
  p.Output(p.Last(x, sequences, p.LastOf(shifted)), "of_any_run");
  p.Output(p.Last(x, sequences), "of_this_run");
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{2, 1, 4}}, 22);
  const auto row = [&](int t) {
    return std::vector<float>(&data.features[0][3 * t], &data.features[0][3 * t] + 3);
  };
  const auto rows = [](const std::vector<std::vector<float>>& parts) {
    std::vector<float> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const std::vector<float> zeros(3);
  const Slot slot = tested.NewSlot();
  const Slot fresh = tested.NewSlot();
  Results found = tested.Run(SliceOf(p.program, data, {{{0, 0, 2}, {1, 0, 1}}, {}}),
                             {{slot, StateArena::kNoSlot}});
  EXPECT_EQ(found.values[0], rows({row(1), row(2)}));
  EXPECT_EQ(found.values[1], rows({row(1), row(2)}));
  found = tested.Run(SliceOf(p.program, data, {{{1, 0, 0}, {0, 0, 0}, {2, 0, 4}, {2, 0, 0}}, {}}),
                     {{fresh, slot, StateArena::kNoSlot, StateArena::kNoSlot}});
  EXPECT_EQ(found.values[0], rows({zeros, row(1), row(6), zeros}));
  EXPECT_EQ(found.values[1], rows({zeros, zeros, row(6), zeros}));
  // Rows that come later are again the last ones.
  found = tested.Run(SliceOf(p.program, data, {{{2, 1, 3}}, {}}), {{slot}});
  EXPECT_EQ(found.values[0], row(5));
}

// A stack runs sequences with rows as if the others were not there, and leaves the states of those.
TEST(ProgramPickTest, StacksSkipSequencesWithoutRows) {
  RandomProgram p(23);
  const AxisId tokens = p.program.AddAxis("tokens");
  StackOptions options;
  options.hidden_size = 18;
  options.directions = 1;
  p.Output(p.Stack(p.Features("x", tokens, 18), options, "c"), "h");
  Compiled tested = CompileTested(p.program);
  const ProgramData data = RandomData(p.program, {{3, 5, 2}}, 24);
  const auto slots = tested.NewSlots(data)[0];
  const auto plain = tested.NewSlots(data)[0];
  for (const auto& of : {slots, plain}) tested.Run(data, {of});
  const StateArena::State before = tested.Take(slots[1]);
  const Slot fresh = tested.NewSlot();
  const Results with = tested.Run(
      SliceOf(p.program, data, {{{1, 0, 0}, {0, 0, 2}, {0, 0, 0}, {2, 0, 2}, {2, 0, 0}}}),
      {{slots[1], slots[0], fresh, slots[2], StateArena::kNoSlot}});
  const Results without =
      tested.Run(SliceOf(p.program, data, {{{0, 0, 2}, {2, 0, 2}}}), {{plain[0], plain[2]}});
  EXPECT_TRUE(SameBits(with.values[0], without.values[0]));
  EXPECT_TRUE(SameBits(tested.Take(slots[0]).values, tested.Take(plain[0]).values));
  EXPECT_TRUE(SameBits(tested.Take(slots[2]).values, tested.Take(plain[2]).values));
  EXPECT_TRUE(SameBits(tested.Take(slots[1]).values, before.values));
  for (float value : tested.Take(fresh).values) EXPECT_EQ(value, 0.0f);
  // None has rows.
  tested.Run(SliceOf(p.program, data, {{{1, 0, 0}}}), {{slots[1]}});
  EXPECT_TRUE(SameBits(tested.Take(slots[1]).values, before.values));
}

}  // namespace
}  // namespace sru::kernels
