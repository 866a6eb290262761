// Every backend against the reference backend, over the variants of the published package, and the
// promise that a sequence's results do not depend on its batch. Which backend is tested comes from
// the environment (SRU_BACKEND), so that each has a CTest entry of its own.
#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/testing/guarded.h"
#include "kernels/testing/random_stack.h"
#include "tests/kernels/status_matchers.h"
#include "tests/testing/strict_weight_source.h"
#include "tests/testing/tested_backend.h"

namespace sru::kernels {
namespace {

using ::sru::testing::DifferentKinds;
using ::sru::testing::Guarded;
using ::sru::testing::OutputArrays;
using ::sru::testing::OutputKinds;
using ::sru::testing::RandomBatch;
using ::sru::testing::RandomStack;
using ::sru::testing::StackOptions;
using ::sru::testing::StackVariants;
using ::sru::testing::StrictWeightSource;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ::sru::testing::TestedBackend;

std::string BackendName() { return TestedBackend::FromEnvironment().name; }

// The tolerance against float64, on stacks of up to four layers with values of about 1.
constexpr float kTolerance = 1e-5f;
// The reference rounds weights and activations as the CPU backend's bfloat16 storage does; an
// activation that is almost halfway may be rounded the other way, by 2^-8 of its value, and reaches
// the result weakened by a layer's weights.
constexpr float kBFloat16Tolerance = 1e-2f;
// The reference rounds the weights as int8 does. The CPU backend's products also take x in fixed
// point, which is off by up to 1 / 65024 of a row's largest value, about 4 here. A layer of k
// inputs has weights whose magnitudes add up to 0.8 sqrt(k), 12 for the widest: 7.5e-4 for each of
// two such layers; the deeper stacks are narrower.
constexpr float kInt8Tolerance = 1.5e-3f;
// The CUDA backend's bfloat16 folds another factor into the gates' weights before it rounds them,
// and takes the hardware's tanh; it is measured against the unrounded reference, by the largest
// error of tens of thousands of values over the largest value, and the root of the mean square.
constexpr double kCudaBFloat16Largest = 5e-2;
constexpr double kCudaBFloat16MeanSquare = 4e-3;

// The tolerance of one value.
float Tolerance() {
  const TestedBackend tested = TestedBackend::FromEnvironment();
  switch (tested.dtype) {
    case DataType::kFloat32:
      return kTolerance;
    case DataType::kBFloat16:
      return tested.is_cuda() ? static_cast<float>(kCudaBFloat16Largest) : kBFloat16Tolerance;
    case DataType::kInt8:
      return kInt8Tolerance;
  }
  return 0;
}

struct Compiled {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Executable> executable;
  std::unique_ptr<Workspace> workspace;
};

Compiled Compile(const std::string& backend, const StackSpec& spec,
                 const WorkspaceLimits& limits = {4096, 64}) {
  Compiled c;
  TestedBackend tested = TestedBackend::FromEnvironment();
  CompileOptions compile;
  if (backend != "reference" || !tested.is_cuda()) compile.dtype = tested.dtype;
  tested.name = backend;
  EXPECT_THAT(tested.Create(&c.backend), IsOk());
  EXPECT_THAT(c.backend->Compile(spec, compile, &c.executable), IsOk());
  EXPECT_THAT(c.executable->CreateWorkspace(limits, &c.workspace), IsOk());
  return c;
}

void ExpectRuns(const Compiled& c, const RaggedBatch& batch, const OutputArrays& outputs) {
  EXPECT_THAT(c.executable->Run(batch, outputs.outputs.data(), *c.workspace), IsOk());
}

void ExpectNear(const std::vector<float>& expected, const std::vector<float>& found,
                const std::string& what) {
  ASSERT_EQ(expected.size(), found.size());
  const TestedBackend tested = TestedBackend::FromEnvironment();
  const bool bfloat16 = tested.dtype == DataType::kBFloat16;
  if (!bfloat16 || !tested.is_cuda()) {
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(expected[i], found[i], Tolerance()) << what << " " << i;
    }
    return;
  }
  double scale = 1;
  double largest = 0;
  double squares = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double error = std::abs(double{expected[i]} - double{found[i]});
    ASSERT_TRUE(error == error) << what << " " << i << " is not a number";
    scale = std::max(scale, std::abs(double{expected[i]}));
    largest = std::max(largest, error);
    squares += error * error;
  }
  EXPECT_LE(largest / scale, kCudaBFloat16Largest) << what;
  const double count = std::max<double>(1, static_cast<double>(expected.size()));
  EXPECT_LE(std::sqrt(squares / count) / scale, kCudaBFloat16MeanSquare) << what;
}

// Lengths from one token to past a chunk of the CPU backend.
const std::vector<int> kLengths = {1, 2, 3, 700, 1, 31, 5, 256, 64};

class BackendTest : public ::testing::TestWithParam<std::pair<std::string, StackOptions>> {};

TEST_P(BackendTest, EqualsReference) {
  for (Pooling pooling : kAllPoolings) {
    if (pooling == Pooling::kNone) continue;
    for (bool initial_state : {false, true}) {
      StackOptions options = GetParam().second;
      options.pooling = pooling;
      const RandomStack stack(options, 7);
      const RandomBatch batch(stack.spec(), kLengths, initial_state, 8);
      const Compiled reference = Compile("reference", stack.spec());
      const Compiled tested = Compile(BackendName(), stack.spec());
      OutputArrays expected(stack.spec(), batch.view(), pooling);
      OutputArrays found(stack.spec(), batch.view(), pooling);
      ExpectRuns(reference, batch.view(), expected);
      ExpectRuns(tested, batch.view(), found);
      for (const auto& [name, kind] : OutputKinds()) {
        ExpectNear(expected.*kind, found.*kind, name);
      }
    }
  }
}

// Every output of a sequence has the same bits alone and in random batches.
TEST_P(BackendTest, ResultsDoNotDependOnTheBatch) {
  const RandomStack stack(GetParam().second, 17);
  const StackSpec& spec = stack.spec();
  const Compiled tested = Compile(BackendName(), spec);
  std::mt19937 random(18);
  for (int round = 0; round < 5; ++round) {
    std::vector<int> lengths(1 + random() % 40);
    for (int& length : lengths) length = 1 + random() % (round == 0 ? 4 : 100);
    const RandomBatch batch(spec, lengths, round % 2 == 1, random());
    const RaggedBatch together = batch.view();
    OutputArrays all(spec, together, spec.pooling);
    ExpectRuns(tested, together, all);
    for (int b = 0; b < together.num_sequences; ++b) {
      const int offsets[2] = {0, lengths[b]};
      RaggedBatch alone = together;
      alone.num_sequences = 1;
      alone.offsets = offsets;
      if (alone.token_ids != nullptr) alone.token_ids += together.offsets[b];
      if (alone.features != nullptr) alone.features += together.offsets[b] * spec.input_size;
      if (alone.initial_states != nullptr) alone.initial_states += b;
      OutputArrays single(spec, alone, spec.pooling);
      ExpectRuns(tested, alone, single);
      for (const auto& [name, kind] : OutputKinds()) {
        // The sequence's part of all of them.
        const std::vector<float>& found = single.*kind;
        const std::vector<float>& together_all = all.*kind;
        const size_t per_row =
            found.size() / (kind == &OutputArrays::token_vectors ? lengths[b] : 1);
        const size_t first = kind == &OutputArrays::token_vectors ? together.offsets[b] : b;
        EXPECT_EQ(std::memcmp(found.data(), together_all.data() + first * per_row,
                              found.size() * sizeof(float)),
                  0)
            << name << ", round " << round;
      }
    }
  }
}

// The poolings that pick one token's h give its bits, whether its token vector is asked for or not.
TEST_P(BackendTest, PickedVectorsAreTokenVectors) {
  const RandomStack stack(GetParam().second, 37);
  const StackSpec& spec = stack.spec();
  const Compiled tested = Compile(BackendName(), spec);
  const RandomBatch batch(spec, {1, 5, 300, 2, 33, 1}, true, 38);
  const RaggedBatch view = batch.view();
  const int width = spec.output_size();
  const int hidden = spec.layers.back().hidden_size;
  for (Pooling pooling : {Pooling::kFirst, Pooling::kLast}) {
    OutputArrays all(spec, view, pooling);
    ExpectRuns(tested, view, all);
    OutputArrays pooled_alone(spec, view, pooling);
    for (SequenceOutput& out : pooled_alone.outputs) {
      out.token_vectors = nullptr;
      out.final_state = nullptr;
    }
    ExpectRuns(tested, view, pooled_alone);
    for (int b = 0; b < view.num_sequences; ++b) {
      const int length = view.offsets[b + 1] - view.offsets[b];
      const float* vectors = all.outputs[b].token_vectors;
      std::vector<float> expected(vectors, vectors + width);
      if (pooling == Pooling::kLast) {
        const float* last = vectors + (length - 1) * width;
        std::copy_n(last, hidden, expected.begin());
      }
      for (const OutputArrays* found : {&all, &pooled_alone}) {
        EXPECT_EQ(std::memcmp(found->outputs[b].pooled, expected.data(), width * sizeof(float)), 0)
            << PoolingName(pooling) << " of sequence " << b;
      }
    }
  }
}

// Each sequence may request other outputs; it gets the same values as if it requested all.
TEST_P(BackendTest, OutputsAreIndependentOfEachOther) {
  const RandomStack stack(GetParam().second, 27);
  const StackSpec& spec = stack.spec();
  const Compiled tested = Compile(BackendName(), spec);
  const RandomBatch batch(spec, {4, 40, 3, 1, 17, 9}, false, 28);
  OutputArrays all(spec, batch.view(), spec.pooling);
  ExpectRuns(tested, batch.view(), all);
  OutputArrays mean(spec, batch.view(), Pooling::kMean);
  ExpectRuns(tested, batch.view(), mean);

  OutputArrays some(spec, batch.view(), spec.pooling);
  std::vector<SequenceOutput> wanted(some.outputs.size());
  wanted[0].token_vectors = some.outputs[0].token_vectors;
  wanted[1].logits = some.outputs[1].logits;
  wanted[2].final_state = some.outputs[2].final_state;
  wanted[3].pooling = Pooling::kMean;
  wanted[3].pooled = some.outputs[3].pooled;
  wanted[4].probabilities = some.outputs[4].probabilities;
  ASSERT_THAT(tested.executable->Run(batch.view(), wanted.data(), *tested.workspace), IsOk());

  const auto same = [](const float* a, const float* b, size_t size) {
    return std::memcmp(a, b, size * sizeof(float)) == 0;
  };
  const size_t width = spec.output_size();
  EXPECT_TRUE(same(wanted[0].token_vectors, all.outputs[0].token_vectors, 4 * width));
  EXPECT_TRUE(same(wanted[1].logits, all.outputs[1].logits, spec.num_labels));
  EXPECT_TRUE(same(wanted[2].final_state, all.outputs[2].final_state, spec.layers.size() * width));
  EXPECT_TRUE(same(wanted[3].pooled, mean.outputs[3].pooled, width));
  EXPECT_TRUE(same(wanted[4].probabilities, all.outputs[4].probabilities, spec.num_labels));
  EXPECT_EQ(some.outputs[1].token_vectors[0], OutputArrays::kUnwritten);
  EXPECT_EQ(some.outputs[5].pooled[0], OutputArrays::kUnwritten);
}

// A token id and its embedding row sent as features are the same input and give the same bits: a
// backend may look up what depends on the token alone.
TEST_P(BackendTest, TokensEqualTheirEmbeddings) {
  const RandomStack stack(GetParam().second, 37);
  const StackSpec& spec = stack.spec();
  if (spec.vocabulary_size == 0) return;
  const Compiled tested = Compile(BackendName(), spec);
  const RandomBatch batch(spec, {1, 300, 3, 17}, true, 38);
  const RaggedBatch tokens = batch.view();
  std::vector<float> rows;
  for (int t = 0; t < tokens.num_tokens(); ++t) {
    const float* row =
        spec.embedding.data + static_cast<size_t>(tokens.token_ids[t]) * spec.input_size;
    rows.insert(rows.end(), row, row + spec.input_size);
  }
  // Only int8 rounds embeddings and not features.
  if (TestedBackend::FromEnvironment().dtype == DataType::kInt8) {
    for (float& value : rows) value = cpu::RoundedToBFloat16(value);
  }
  RaggedBatch features = tokens;
  features.token_ids = nullptr;
  features.features = rows.data();
  OutputArrays from_tokens(spec, tokens, spec.pooling);
  OutputArrays from_features(spec, features, spec.pooling);
  ExpectRuns(tested, tokens, from_tokens);
  ExpectRuns(tested, features, from_features);
  EXPECT_EQ(DifferentKinds(from_tokens, from_features), "");
}

INSTANTIATE_TEST_SUITE_P(Variants, BackendTest, ::testing::ValuesIn(StackVariants()),
                         [](const auto& info) { return info.param.first; });

TEST(EdgeTest, PoisonedSurroundings) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(5);
  for (int hidden : {1, 3, 15, 16, 17, 33, 49}) {
    for (int sequences : {1, 2, 3, 5, 16, 17, 40}) {
      StackOptions options;
      options.vocabulary_size = 0;
      options.hidden_size = hidden;
      options.input_size = 1 + static_cast<int>(random() % 50);
      options.directions = 1 + static_cast<int>(random() % 2);
      const RandomStack stack(options, random());
      const StackSpec& spec = stack.spec();
      std::vector<int> lengths(sequences);
      for (int& length : lengths) length = 1 + static_cast<int>(random() % 48);
      const RandomBatch batch(spec, lengths, true, random());
      RaggedBatch view = batch.view();
      OutputArrays expected(spec, view, spec.pooling);
      ExpectRuns(Compile("reference", spec), view, expected);

      const size_t width = spec.output_size();
      const size_t states = sequences * spec.layers.size() * width;
      Guarded<float> features(static_cast<size_t>(view.num_tokens()) * spec.input_size, nan);
      Guarded<float> initial(states, nan);
      std::copy_n(view.features, static_cast<size_t>(view.num_tokens()) * spec.input_size,
                  features.data());
      const size_t state = spec.layers.size() * width;
      std::vector<const float*> initial_states;
      for (int b = 0; b < sequences; ++b) {
        std::copy_n(view.initial_states[b], state, initial.data() + b * state);
        initial_states.push_back(initial.data() + b * state);
      }
      view.features = features.data();
      view.initial_states = initial_states.data();
      OutputArrays found(spec, view, spec.pooling);
      Guarded<float> vectors(view.num_tokens() * width, nan);
      Guarded<float> final_state(states, nan);
      for (int b = 0; b < sequences; ++b) {
        found.outputs[b].token_vectors = vectors.data() + view.offsets[b] * width;
        found.outputs[b].final_state = final_state.data() + b * spec.layers.size() * width;
      }
      // The second run finds what the first has left in the workspace.
      const Compiled tested = Compile(BackendName(), spec, {view.num_tokens(), sequences});
      ExpectRuns(tested, view, found);
      ExpectRuns(tested, view, found);
      ExpectNear(expected.token_vectors,
                 {vectors.data(), vectors.data() + view.num_tokens() * width}, "token_vectors");
      ExpectNear(expected.final_state, {final_state.data(), final_state.data() + states},
                 "final_state");
      ExpectNear(expected.logits, found.logits, "logits");
      EXPECT_TRUE(vectors.IsIntact());
      EXPECT_TRUE(final_state.IsIntact());
    }
  }
}

// Compares rows of `width` values relative to the larger of 1 and the expected value, or in int8,
// which takes rows in fixed point, the row's largest; infinities and NaN must be where they are
// expected.
void ExpectSame(const std::vector<float>& expected, const std::vector<float>& found, size_t width,
                const std::string& what) {
  // A gate of 2^-100 on a state of 1e30 turns the last bit of the gate's argument into 1e-5 of the
  // result (of a bfloat16 weight: into a tenth), so the order of the product's sum shows; the CPU
  // backend's happens to be that of the reference.
  const TestedBackend tested = TestedBackend::FromEnvironment();
  const float tolerance = !tested.is_cuda()                    ? Tolerance()
                          : tested.dtype == DataType::kFloat32 ? 1e-3f
                                                               : 1e-1f;
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i % width == 0) largest = 0;
    for (size_t j = i; j < i + width && i % width == 0; ++j) {
      if (tested.dtype == DataType::kInt8) largest = std::max(largest, std::abs(expected[j]));
    }
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(found[i])) << what << " " << i << ": " << found[i];
    } else if (std::isinf(expected[i])) {
      ASSERT_EQ(expected[i], found[i]) << what << " " << i;
    } else {
      ASSERT_NEAR(expected[i], found[i],
                  tolerance * std::max({1.0f, std::abs(expected[i]), largest}))
          << what << " " << i;
    }
  }
}

// int8's products of a row with a value that is not finite are NaN (int8_product.h).
bool ProductsGiveNaN(float value) {
  const TestedBackend tested = TestedBackend::FromEnvironment();
  return tested.dtype == DataType::kInt8 && tested.name == "cpu" && !std::isfinite(value);
}

TEST(EdgeTest, ExtremeInputs) {
  const float infinity = std::numeric_limits<float>::infinity();
  // NaN of both signs: an instruction set's arithmetic makes a negative one, constants are
  // positive.
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float extreme : {1e-40f, -1e-40f, 1e30f, -1e30f, infinity, -infinity, nan, -nan}) {
    for (LayerNorm norm : {LayerNorm::kNone, LayerNorm::kBefore, LayerNorm::kAfter}) {
      for (Activation activation : {Activation::kIdentity, Activation::kTanh}) {
        StackOptions options;
        options.vocabulary_size = 0;
        options.num_layers = std::isfinite(extreme) ? 2 : 1;
        options.layer_norm = norm;
        options.activation = activation;
        const RandomStack stack(options, 3);
        const StackSpec& spec = stack.spec();
        const RandomBatch batch(spec, {7, 20, 1}, false, 4);
        RaggedBatch view = batch.view();
        std::vector<float> features(view.features,
                                    view.features + view.num_tokens() * spec.input_size);
        // Changes one value of a sequence and all values of another; the first sequence stays.
        features[10 * spec.input_size + 3] = extreme;
        std::fill(features.end() - spec.input_size, features.end(), extreme);
        view.features = features.data();
        OutputArrays expected(spec, view, spec.pooling);
        OutputArrays found(spec, view, spec.pooling);
        ExpectRuns(Compile("reference", spec), view, expected);
        ExpectRuns(Compile(BackendName(), spec), view, found);
        const std::string what = std::to_string(extreme) + " norm " +
                                 std::to_string(static_cast<int>(norm)) + " tanh " +
                                 std::to_string(static_cast<int>(activation));
        if (ProductsGiveNaN(extreme)) {
          // The sequence that has the value in its middle: from there on.
          const size_t width = spec.output_size();
          for (size_t i = 0; i < width; ++i) {
            EXPECT_TRUE(std::isnan(found.token_vectors[10 * width + i]))
                << what << ", value " << i << ": " << found.token_vectors[10 * width + i];
            EXPECT_FALSE(std::isnan(found.token_vectors[6 * width + i])) << i;
          }
          continue;
        }
        ExpectSame(expected.token_vectors, found.token_vectors, spec.output_size(),
                   what + ": token_vectors");
        ExpectSame(expected.final_state, found.final_state, spec.output_size(),
                   what + ": final_state");
      }
    }
  }
}

// This holds for any number of threads that share a batch, and however often they yield the core.
TEST(EdgeTest, SplittingChangesNoBit) {
  if (BackendName() != "cpu") GTEST_SKIP() << "of backend cpu";
  const TestedBackend of_environment = TestedBackend::FromEnvironment();
  for (int directions : {1, 2}) {
    for (bool norm : {false, true}) {
      StackOptions options;
      options.vocabulary_size = 0;
      options.input_size = 100;
      options.hidden_size = 200;
      options.directions = directions;
      if (norm) options.layer_norm = LayerNorm::kBefore;
      const RandomStack stack(options, 11);
      const StackSpec& spec = stack.spec();
      const RandomBatch batch(spec, {150, 3, 40}, true, 12);
      std::vector<OutputArrays> outputs;
      for (int threads : {1, 2, 5}) {
        BackendOptions backend_options;
        backend_options.cpu_isa = of_environment.cpu_isa;
        backend_options.cpu_threads = threads;
        CompileOptions compile;
        compile.dtype = of_environment.dtype;
        Compiled c;
        ASSERT_TRUE(CreateBackend("cpu", backend_options, &c.backend).ok());
        ASSERT_TRUE(c.backend->Compile(spec, compile, &c.executable).ok());
        WorkspaceLimits limits{4096, 8};
        limits.turn = std::chrono::microseconds(threads - 1);
        ASSERT_TRUE(c.executable->CreateWorkspace(limits, &c.workspace).ok());
        outputs.emplace_back(spec, batch.view(), spec.pooling);
        ExpectRuns(c, batch.view(), outputs.back());
        EXPECT_EQ(DifferentKinds(outputs[0], outputs.back()), "") << threads;
      }
    }
  }
}

// What a server expects of a model before it reads it.
TEST(EdgeTest, PackedWeightsTakeWhatTheBackendSays) {
  if (BackendName() != "cpu") GTEST_SKIP() << "of backend cpu";
  const TestedBackend of_environment = TestedBackend::FromEnvironment();
  StackOptions options;
  options.vocabulary_size = 0;
  options.input_size = options.hidden_size = 512;
  const RandomStack stack(options, 11);
  size_t values = 0;
  for (const LayerSpec& layer : stack.spec().layers) values += layer.weight.size;
  BackendOptions backend_options;
  backend_options.cpu_isa = of_environment.cpu_isa;
  CompileOptions compile;
  compile.dtype = of_environment.dtype;
  Compiled c;
  ASSERT_TRUE(CreateBackend("cpu", backend_options, &c.backend).ok());
  ASSERT_TRUE(c.backend->Compile(stack.spec(), compile, &c.executable).ok());
  // The rest are gates' vectors and the classifier.
  const double bytes = static_cast<double>(values * c.backend->packed_bytes(compile.dtype).weight);
  EXPECT_NEAR(static_cast<double>(c.executable->weight_bytes()) / bytes, 1.0, 0.1);
}

TEST(RunTest, RefusesBadBatches) {
  const RandomStack stack(StackOptions(), 1);
  const Compiled c = Compile(BackendName(), stack.spec(), {8, 2});
  const RandomBatch good(stack.spec(), {3, 5}, false, 2);
  OutputArrays outputs(stack.spec(), good.view(), Pooling::kMax);
  const auto message = [&](const RaggedBatch& batch, const SequenceOutput* out) {
    const Status status = c.executable->Run(batch, out, *c.workspace);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const SequenceOutput* out = outputs.outputs.data();

  RaggedBatch batch = good.view();
  batch.num_sequences = 3;
  EXPECT_THAT(message(batch, out), HasSubstr("at most 2 sequences, found 3"));
  batch = good.view();
  const int32_t empty[] = {0, 3, 3};
  batch.offsets = empty;
  EXPECT_THAT(message(batch, out), HasSubstr("sequence 1 is empty"));
  const int32_t late[] = {1, 3, 5};
  batch.offsets = late;
  EXPECT_THAT(message(batch, out), HasSubstr("offsets[0]"));
  const int32_t long_offsets[] = {0, 3, 9};
  batch.offsets = long_offsets;
  EXPECT_THAT(message(batch, out), HasSubstr("at most 8 tokens, found 9"));
  batch = good.view();
  std::vector<int32_t> ids(8, 0);
  ids[6] = 50;
  batch.token_ids = ids.data();
  EXPECT_THAT(message(batch, out), HasSubstr("token_ids[6]: expected 0 to 49, found 50"));
  ids[6] = -1;
  EXPECT_THAT(message(batch, out), HasSubstr("found -1"));
  batch.token_ids = nullptr;
  EXPECT_THAT(message(batch, out), HasSubstr("exactly one of token_ids and features"));
  std::vector<SequenceOutput> wrong = outputs.outputs;
  wrong[1].pooling = Pooling::kMean;
  EXPECT_THAT(message(good.view(), wrong.data()), HasSubstr("model's own pooling"));
  wrong[1].pooling = static_cast<Pooling>(99);
  EXPECT_THAT(message(good.view(), wrong.data()), HasSubstr("outputs: no such pooling, 99"));

  EXPECT_EQ(outputs.pooled[0], OutputArrays::kUnwritten) << "a refused batch wrote results";
  EXPECT_TRUE(c.executable->Run(good.view(), out, *c.workspace).ok());
  EXPECT_TRUE(c.executable->Run(RaggedBatch(), nullptr, *c.workspace).ok());
}

TEST(RunTest, RefusesClassifierOutputsWithoutClassifier) {
  StackOptions options;
  options.num_labels = 0;
  const RandomStack stack(options, 1);
  const Compiled c = Compile(BackendName(), stack.spec());
  const RandomBatch batch(stack.spec(), {3}, false, 2);
  float logits[1];
  SequenceOutput out;
  out.logits = logits;
  EXPECT_THAT(c.executable->Run(batch.view(), &out, *c.workspace),
              IsInvalid(HasSubstr("without a classifier")));
}

TEST(CompileTest, NamesTheWrongField) {
  const RandomStack stack(StackOptions(), 1);
  std::unique_ptr<Backend> backend;
  ASSERT_TRUE(TestedBackend::FromEnvironment().Create(&backend).ok());
  const auto message = [&](auto change) {
    StackSpec spec = stack.spec();
    change(spec);
    std::unique_ptr<Executable> executable;
    const Status status = backend->Compile(spec, CompileOptions(), &executable);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message([](StackSpec& s) { s.layers.clear(); }), HasSubstr("layers"));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[1].input_size = 31; }),
              HasSubstr("layers[1].input_size: expected 32 to 32, found 31"));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[0].directions = 3; }),
              HasSubstr("layers[0].directions"));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[0].weight.size -= 1; }),
              HasSubstr("layers[0].weight"));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[1].bias = {}; }), HasSubstr("layers[1].bias"));
  EXPECT_THAT(message([](StackSpec& s) { s.pooling = Pooling::kNone; }), HasSubstr("pooling"));
  EXPECT_THAT(message([](StackSpec& s) { s.pooling = static_cast<Pooling>(99); }),
              HasSubstr("pooling: expected 0 to "));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[1].activation = static_cast<Activation>(-1); }),
              HasSubstr("layers[1].activation: expected 0 to "));
  EXPECT_THAT(message([](StackSpec& s) { s.layers[1].layer_norm = static_cast<LayerNorm>(7); }),
              HasSubstr("layers[1].layer_norm: no such placement, 7"));
  EXPECT_THAT(message([](StackSpec& s) { s.embedding.size -= 1; }), HasSubstr("embedding"));
}

// What a served model keeps must not refer to what it was loaded from.
TEST(CompileTest, ReadsWeightsInTheirScopesOnly) {
  auto variants = StackVariants();
  StackOptions mapped;
  mapped.input_to_hidden = true;
  mapped.input_size = 21;
  variants.emplace_back("input_to_hidden", mapped);
  // More than one part of the embedding.
  StackOptions many_words;
  many_words.vocabulary_size = 40000;
  variants.emplace_back("many_words", many_words);
  for (const auto& [name, options] : variants) {
    SCOPED_TRACE(name);
    const RandomStack stack(options, 6);
    const RandomBatch batch(stack.spec(), {5, 1, 12}, false, 7);
    const Compiled direct = Compile(BackendName(), stack.spec());
    const OutputArrays expected(stack.spec(), batch.view(), stack.spec().pooling);
    ExpectRuns(direct, batch.view(), expected);

    Compiled c;
    {
      StrictWeightSource source;
      const StackSpec spec = source.Take(stack.spec());
      const TestedBackend tested = TestedBackend::FromEnvironment();
      ASSERT_TRUE(tested.Create(&c.backend).ok());
      CompileOptions compile;
      compile.dtype = tested.dtype;
      compile.weights = &source;
      ASSERT_THAT(c.backend->Compile(spec, compile, &c.executable), IsOk());
      EXPECT_EQ(source.Error(), "");
    }
    ASSERT_TRUE(c.executable->CreateWorkspace({64, 3}, &c.workspace).ok());
    const OutputArrays found(stack.spec(), batch.view(), stack.spec().pooling);
    ExpectRuns(c, batch.view(), found);
    EXPECT_EQ(DifferentKinds(found, expected), "");
    EXPECT_EQ(c.executable->weight_bytes(), direct.executable->weight_bytes());
  }
}

// The embedding is counted where a backend keeps it, and rounded where weights are.
TEST(CompileTest, CountsTheEmbedding) {
  size_t bytes[2] = {};
  StackOptions options;
  options.input_to_hidden = true;  // so that no products are looked up
  options.input_size = 64;
  for (int i = 0; i < 2; ++i) {
    options.vocabulary_size = 1000 * i;
    const RandomStack stack(options, 6);
    bytes[i] = Compile(BackendName(), stack.spec()).executable->weight_bytes();
  }
  const TestedBackend tested = TestedBackend::FromEnvironment();
  const size_t value_bytes =
      BackendName() == "reference" ? sizeof(float) : RowOf(tested.dtype).bytes.embedding;
  const auto added = static_cast<double>(bytes[1] - bytes[0]);
  if (tested.is_cuda()) {
    EXPECT_GE(added, 64000.0 * value_bytes);  // and the token table
  } else {
    EXPECT_EQ(added, 64000.0 * value_bytes);
  }
}

TEST(CompileTest, RefusesADataTypeThatItDoesNotHave) {
  const RandomStack stack(StackOptions(), 1);
  std::unique_ptr<Backend> backend;
  ASSERT_TRUE(TestedBackend::FromEnvironment().Create(&backend).ok());
  CompileOptions options;
  options.dtype = static_cast<DataType>(99);
  std::unique_ptr<Executable> executable;
  EXPECT_THAT(backend->Compile(stack.spec(), options, &executable),
              IsError(StatusCode::kUnsupported,
                      "dtype: the " + std::string(backend->name()) + " backend does not have 99"));
  EXPECT_EQ(executable, nullptr);
}

TEST(BackendRegistryTest, NamesWhatItExpects) {
  std::unique_ptr<Backend> backend;
  EXPECT_THAT(CreateBackend("tpu", &backend),
              IsInvalid(HasSubstr("expected cpu, cuda or reference, found 'tpu'")));
  EXPECT_THAT(BackendNames(), ElementsAre("cpu", "cuda", "reference"));
  for (const std::string& name : AvailableBackends()) {
    EXPECT_THAT(BackendNames(), Contains(name));
    ASSERT_TRUE(CreateBackend(name, &backend).ok()) << name;
    EXPECT_EQ(backend->name(), name);
    EXPECT_EQ(!backend->devices().empty(), BackendHasDevices(name));
  }
  EXPECT_TRUE(BackendHasDevices("cuda"));  // on a machine without a GPU, too
  EXPECT_FALSE(BackendHasDevices("tpu"));
}

}  // namespace
}  // namespace sru::kernels
