#include "tests/gpu/checks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/testing/random_stack.h"
#include "tests/gpu/golden_case.h"
#include "tests/gpu/program_checks.h"

namespace sru::testing {
namespace {

using kernels::Backend;
using kernels::DataType;
using kernels::Executable;
using kernels::LayerNorm;
using kernels::Pooling;
using kernels::RaggedBatch;
using kernels::SequenceOutput;
using kernels::StackSpec;
using kernels::Status;
using kernels::Workspace;

constexpr int kExitSkipped = 77;

// The result of a comparison.
struct Errors {
  double largest = 0;   // of |expected - found|, NaN counted as infinite
  double relative = 0;  // the same, each over max(1, |expected|)
  double scale = 1;     // the largest |expected|, at least 1
  double squares = 0;
  size_t count = 0;

  void Add(const float* expected, const float* found, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      double error = std::abs(double{expected[i]} - double{found[i]});
      if (!(error >= 0)) error = INFINITY;
      largest = std::max(largest, error);
      relative = std::max(relative, error / std::max(1.0, std::abs(double{expected[i]})));
      scale = std::max(scale, std::abs(double{expected[i]}));
      squares += error * error;
      ++count;
    }
  }
  double mean_square() const { return std::sqrt(squares / std::max<size_t>(1, count)); }
};

class Checker {
 public:
  explicit Checker(const CheckOptions& flags) : flags_(flags), dtype_(flags.dtype) {}

  int Run() {
    Status status = kernels::CreateBackend(flags_.backend, BackendOptions(), &backend_);
    if (!status.ok()) {
      std::fprintf(stderr, "gpu_check: skipped, %s\n", status.message().c_str());
      return kExitSkipped;
    }
    status = kernels::CreateBackend(flags_.reference, &reference_);
    if (!status.ok()) return Report("reference", false, status.message());
    std::printf("backend %s (%s), %s\n", backend_->name(), backend_->description().c_str(),
                kernels::DataTypeName(dtype_));
    if (runs(CheckGroup::kGoldens)) {
      Goldens();
      ForgetGateSweep();
    }
    if (runs(CheckGroup::kBits)) Bits();
    if (runs(CheckGroup::kLarge)) Large();
    if (runs(CheckGroup::kReference)) References();
    if (runs(CheckGroup::kPrograms)) Programs();
    if (runs(CheckGroup::kOthers)) {
      InParallel();
      BadInput();
    }
    std::printf("%d checks, %d failed\n", checks_, failures_);
    return failures_ == 0 ? 0 : 1;
  }

 private:
  struct Compiled {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Workspace> workspace;
  };

  bool runs(CheckGroup group) const { return flags_.only.empty() || flags_.only.count(group) > 0; }

  kernels::BackendOptions BackendOptions() const {
    kernels::BackendOptions options;
    options.cuda_fuse_layers = flags_.fuse_layers;
    return options;
  }

  // Programs run in other graphs and wait for other results than stacks do.
  void Programs() {
    const auto check = [this](Backend& backend, bool brief, const std::string& prefix) {
      CheckPrograms(backend, *reference_, dtype_, flags_.small, brief,
                    [&](const std::string& name, bool ok, const std::string& detail) {
                      Report(prefix + name, ok, detail);
                    });
    };
    check(*backend_, /*brief=*/false, "");
    kernels::BackendOptions options = BackendOptions();
    Poll(options);
    std::unique_ptr<Backend> changed;
    if (Ok(kPolling, kernels::CreateBackend(flags_.backend, options, &changed))) {
      check(*changed, /*brief=*/true, std::string(kPolling) + ", ");
    }
  }

  static constexpr const char* kPolling = "with polling";
  static void Poll(kernels::BackendOptions& options) {
    options.cuda_poll = std::chrono::microseconds(50);
  }

  void Goldens() {
    for (const auto& golden : ReadGoldenCases(flags_.goldens)) {
      if (flags_.small && golden->spec.layers.size() > 2) continue;
      if (flags_.small && golden->spec.layers[0].hidden_size > 32) continue;
      Golden(*golden);
    }
  }

  bool leaves_out(const StackOptions& options) const {
    return flags_.small && (options.hidden_size > 32 || options.num_layers > 2);
  }

  void References() {
    for (const auto& [name, options] : StackVariants()) {
      if (!leaves_out(options)) AgainstReference(name, options);
    }
  }

  void Bits() {
    for (const auto& [name, options] : StackVariants()) {
      if (leaves_out(options)) continue;
      std::mt19937 random(18);
      std::vector<int> lengths(flags_.small ? 5 : 40);
      for (int& length : lengths) {
        length = 1 + static_cast<int>(random() % (flags_.small ? 12 : 60));
      }
      SameBitsInAnyBatch(name, options, lengths, static_cast<int>(lengths.size()));
      if (!flags_.small || options.input_to_hidden) SameBitsWithoutTokenTable(name, options);
      SameBitsWith(std::string(kPolling) + ", " + name, options, Poll);
    }
  }

  // Batches that fill a GPU of 132 multiprocessors: four dimensions a thread, two slices a block,
  // blocks that go from group to group. Sequences alone run with two, one and one. Every kind of
  // scan has a stack here, and every longest row of fused layers.
  void Large() {
    std::mt19937 random(28);
    std::vector<int> lengths(flags_.small ? 300 : kLargeBatch);
    for (int& length : lengths) length = 1 + static_cast<int>(random() % (flags_.small ? 4 : 40));
    const auto check = [&](const std::string& name, int input, int hidden, auto change) {
      StackOptions options;
      options.input_size = input;
      options.hidden_size = hidden;
      change(options);
      SameBitsInAnyBatch(name + " of 2 x " + std::to_string(hidden), options, lengths,
                         flags_.small ? 5 : 40);
    };
    for (const int hidden : {128, 256}) {
      check("large batch", 2 * hidden, hidden, [](StackOptions& o) { o.num_layers = 2; });
    }
    // The first two have four matrices and three; two slices a block and several groups in either.
    std::vector<std::pair<int, int>> rows = {{64, 128}, {128, 64}, {64, 32}, {128, 128}};
    if (flags_.small) rows.resize(2);  // a kernel each
    for (const auto& [input, hidden] : rows) {
      check("large batch of rows of " + std::to_string(input), input, hidden,
            [](StackOptions& o) { o.vocabulary_size = 0; });
    }
    if (flags_.small) return;
    for (const auto activation : {kernels::Activation::kIdentity, kernels::Activation::kTanh}) {
      const bool tanh = activation == kernels::Activation::kTanh;
      for (const int layers : {1, 2}) {
        for (const int vocabulary : {0, 50}) {
          const std::string name = std::string("large batch, ") + (tanh ? "tanh, " : "") +
                                   std::to_string(layers) + " layers, " +
                                   (vocabulary > 0 ? "token ids" : "features");
          check(name, 60, 128, [&](StackOptions& o) {
            o.activation = activation;
            o.num_layers = layers;
            o.vocabulary_size = vocabulary;
          });
        }
      }
    }
  }

  // The states after one step from zeros, which are 1 - f, for every bfloat16 input z of a forget
  // gate f = sigmoid(z) with 2^-6 <= |z| <= 16. What a gate near 1 forgets is that 1 - f, so the
  // detail has its largest relative error by decade. Allowed are
  //
  //   float32    4e-6 (1 - f), as the CUDA backend computes 1 - f without f, and in other backends
  //              1.5 x 2^-23 besides, for what f has lost
  //   bfloat16   2^-12, for tanh.approx, beside what the rounding of a gate's weight to 2^-9
  //              changes
  void ForgetGateSweep() {
    constexpr int kHidden = 8;
    constexpr int kInput = 16;
    const std::string name = "forget gates";
    // Every z is an input of its own dimension's gate, beside a 1 that is every dimension's U0.
    std::vector<float> weight(kInput * kHidden * 3);
    for (int j = 0; j < kHidden; ++j) {
      weight[j * 3] = 1.0f;
      weight[((1 + j) * kHidden + j) * 3 + 1] = 1.0f;
    }
    kernels::LayerSpec layer;
    layer.input_size = kInput;
    layer.hidden_size = kHidden;
    layer.has_skip_term = false;
    layer.weight = {weight.data(), weight.size()};
    const std::vector<float> bias(2 * kHidden);
    layer.bias = {bias.data(), bias.size()};
    StackSpec spec;
    spec.input_size = kInput;
    spec.layers.push_back(layer);
    std::vector<float> inputs = {16.0f, -16.0f};
    for (float octave = 1.0f / 64; octave < 16.0f; octave *= 2) {
      for (int i = 128; i < 256; ++i) {
        for (const float sign : {1.0f, -1.0f}) {
          inputs.push_back(sign * octave * static_cast<float>(i) / 128.0f);
        }
      }
    }
    inputs.resize((inputs.size() + kHidden - 1) / kHidden * kHidden, 1.0f);
    const int rows = static_cast<int>(inputs.size()) / kHidden;
    std::vector<float> features(rows * kInput);
    std::vector<float> states(inputs.size());
    std::vector<int32_t> offsets(rows + 1);
    std::iota(offsets.begin(), offsets.end(), 0);
    std::vector<SequenceOutput> outputs(rows);
    for (int b = 0; b < rows; ++b) {
      features[b * kInput] = 1.0f;
      std::copy_n(&inputs[b * kHidden], kHidden, &features[b * kInput + 1]);
      outputs[b].final_state = &states[b * kHidden];
    }
    RaggedBatch batch;
    batch.num_sequences = rows;
    batch.offsets = offsets.data();
    batch.features = features.data();
    Compiled compiled;
    if (!Compile(name, *backend_, spec, rows, rows, &compiled) ||
        !Ok(name, compiled.executable->Run(batch, outputs.data(), *compiled.workspace))) {
      return;
    }
    const double lost = std::strcmp(backend_->name(), "cuda") == 0 ? 0 : 0x1.8p-23;
    double worst = 0;                // of its limit
    std::map<int, double> relative;  // by the power of ten that 1 - f is at least
    for (size_t i = 0; i < inputs.size(); ++i) {
      const double left = 1 / (1 + std::exp(double{inputs[i]}));
      double error = std::abs(double{states[i]} - left);
      if (!(error >= 0)) error = INFINITY;
      const double limit =
          dtype_ == DataType::kFloat32
              ? lost + 4e-6 * left
              : 0x1p-12 + 0x1p-18 + 0x1p-9 * std::abs(double{inputs[i]}) * left * (1 - left);
      worst = std::max(worst, error / limit);
      double& decade = relative[static_cast<int>(std::floor(std::log10(left)))];
      decade = std::max(decade, error / left);
    }
    char detail[300];
    size_t length =
        std::snprintf(detail, sizeof(detail), "%.2f of the error allowed; of 1 - f", worst);
    for (const auto& [power, error] : relative) {
      length += std::snprintf(detail + length, sizeof(detail) - length, "%s from 1e%d %.0e",
                              power == relative.begin()->first ? "" : ",", power, error);
    }
    Report(name, worst <= 1, detail);
  }

  int Report(const std::string& name, bool ok, const std::string& detail) {
    ++checks_;
    if (!ok) ++failures_;
    std::printf("%-4s %s: %s\n", ok ? "ok" : "FAIL", name.c_str(), detail.c_str());
    std::fflush(stdout);
    return 1;
  }
  // A status that is not OK is a failed check.
  bool Ok(const std::string& name, const Status& status) {
    if (!status.ok()) Report(name, false, status.message());
    return status.ok();
  }

  bool Compile(const std::string& name, Backend& backend, const StackSpec& spec, int tokens,
               int sequences, Compiled* compiled) {
    kernels::CompileOptions options;
    if (&backend == backend_.get()) options.dtype = dtype_;
    return Ok(name, backend.Compile(spec, options, &compiled->executable)) &&
           Ok(name,
              compiled->executable->CreateWorkspace({tokens, sequences}, &compiled->workspace));
  }

  // Compares with the package's recorded float32 values, from features and from the same values as
  // an embedding's rows.
  void Golden(const GoldenCase& golden) {
    const std::string name = "golden " + golden.name;
    const int64_t layers = static_cast<int64_t>(golden.spec.layers.size());
    const int64_t width = golden.spec.output_size();
    const int batch_size = static_cast<int>(golden.lengths.size());
    std::vector<int32_t> offsets = {0};
    std::vector<float> features, initial_state;
    for (int b = 0; b < batch_size; ++b) {
      offsets.push_back(offsets.back() + golden.lengths[b]);
      for (int t = 0; t < golden.lengths[b]; ++t) {
        const float* row = golden.x.row(t, b);
        features.insert(features.end(), row, row + golden.x.width);
      }
      for (int64_t i = 0; i < layers && golden.c0.data != nullptr; ++i) {
        const float* row = golden.c0.row(i, b);
        initial_state.insert(initial_state.end(), row, row + width);
      }
    }
    RaggedBatch batch;
    batch.num_sequences = batch_size;
    batch.offsets = offsets.data();
    batch.features = features.data();
    StackSpec spec = golden.spec;
    spec.vocabulary_size = batch.num_tokens();
    spec.embedding = {features.data(), features.size()};
    std::vector<int32_t> token_ids(batch.num_tokens());
    std::iota(token_ids.begin(), token_ids.end(), 0);
    std::vector<const float*> initial_states;
    for (int b = 0; b < batch_size && golden.c0.data != nullptr; ++b) {
      initial_states.push_back(initial_state.data() + b * layers * width);
    }
    if (golden.c0.data != nullptr) batch.initial_states = initial_states.data();
    std::vector<float> h(static_cast<size_t>(batch.num_tokens()) * width);
    std::vector<float> c(static_cast<size_t>(batch_size) * layers * width);
    std::vector<SequenceOutput> outputs(batch_size);
    for (int b = 0; b < batch_size; ++b) {
      outputs[b].token_vectors = &h[offsets[b] * width];
      outputs[b].final_state = &c[b * layers * width];
    }
    Compiled compiled;
    if (!Compile(name, *backend_, spec, batch.num_tokens(), batch_size, &compiled)) return;
    CheckGolden(name, golden, batch, outputs, compiled);
    batch.features = nullptr;
    batch.token_ids = token_ids.data();
    CheckGolden(name + ", by token id", golden, batch, outputs, compiled);
  }

  void CheckGolden(const std::string& name, const GoldenCase& golden, const RaggedBatch& batch,
                   const std::vector<SequenceOutput>& outputs, const Compiled& compiled) {
    if (!Ok(name, compiled.executable->Run(batch, outputs.data(), *compiled.workspace))) return;
    const int64_t layers = static_cast<int64_t>(golden.spec.layers.size());
    const int64_t width = golden.spec.output_size();
    Errors errors;
    for (int b = 0; b < batch.num_sequences; ++b) {
      for (int t = 0; t < golden.lengths[b]; ++t) {
        errors.Add(golden.h.row(t, b), outputs[b].token_vectors + t * width, width);
      }
      for (int64_t i = 0; i < layers; ++i) {
        errors.Add(golden.c.row(i, b), outputs[b].final_state + i * width, width);
      }
    }
    char detail[160];
    // The same as in tests/golden/golden_test.cc.
    const bool exact = dtype_ == DataType::kFloat32;
    const double error = exact ? errors.largest : errors.relative;
    const double depth = std::max(1.0, static_cast<double>(layers) / 4);
    const double tolerance = exact ? 1e-5 : 2e-2 * depth;
    std::snprintf(detail, sizeof(detail), "largest error %.2e, expected at most %.0e", error,
                  tolerance);
    Report(name, error <= tolerance, detail);
  }

  void AgainstReference(const std::string& variant, StackOptions options) {
    const std::vector<int> lengths = flags_.small
                                         ? std::vector<int>{1, 2, 3, 20, 1, 17}
                                         : std::vector<int>{1, 2, 3, 700, 1, 31, 5, 256, 64};
    for (Pooling pooling : kernels::kAllPoolings) {
      if (pooling == Pooling::kNone) continue;
      if (flags_.small && pooling != Pooling::kMean) continue;
      const bool initial_state = pooling != Pooling::kMax;
      const std::string name =
          "reference, " + variant + ", pooling " + kernels::PoolingName(pooling);
      options.pooling = pooling;
      const RandomStack stack(options, 7);
      const RandomBatch batch(stack.spec(), lengths, initial_state, 8);
      const RaggedBatch view = batch.view();
      Compiled reference, tested;
      if (!Compile(name, *reference_, stack.spec(), view.num_tokens(), view.num_sequences,
                   &reference) ||
          !Compile(name, *backend_, stack.spec(), view.num_tokens(), view.num_sequences, &tested)) {
        continue;
      }
      OutputArrays expected(stack.spec(), view, pooling);
      OutputArrays found(stack.spec(), view, pooling);
      if (!Ok(name,
              reference.executable->Run(view, expected.outputs.data(), *reference.workspace)) ||
          !Ok(name, tested.executable->Run(view, found.outputs.data(), *tested.workspace))) {
        continue;
      }
      // The same as in tests/kernels/backend_test.cc: float32 by the largest error, bfloat16
      // against the largest value of the tensor; both also by the root of the mean square, against
      // the largest value.
      const bool exact = dtype_ == DataType::kFloat32;
      double largest = 0, mean_square = 0;
      for (const auto& [kind_name, kind] : OutputKinds()) {
        Errors errors;
        errors.Add((expected.*kind).data(), (found.*kind).data(), (expected.*kind).size());
        largest = std::max(largest, errors.largest / (exact ? 1 : errors.scale));
        mean_square = std::max(mean_square, errors.mean_square() / errors.scale);
      }
      const double most = exact ? 1e-5 : 5e-2;
      const double most_mean_square = exact ? 5e-7 : 4e-3;
      char detail[160];
      std::snprintf(detail, sizeof(detail),
                    "largest error %.2e, root mean square %.2e, expected at most %.0e, %.0e",
                    largest, mean_square, most, most_mean_square);
      Report(name, largest <= most && mean_square <= most_mean_square, detail);
    }
  }

  // Each sequence alone, `num_alone` of them, has the bits that it has among the others, also where
  // the pooled vectors are the only output.
  void SameBitsInAnyBatch(const std::string& variant, const StackOptions& options,
                          const std::vector<int>& lengths, int num_alone) {
    const std::string name = "same bits in any batch, " + variant;
    const RandomStack stack(options, 17);
    const StackSpec& spec = stack.spec();
    const RandomBatch batch(spec, lengths, false, 19);
    const RaggedBatch together = batch.view();
    Compiled tested;
    if (!Compile(name, *backend_, spec, together.num_tokens(), together.num_sequences, &tested)) {
      return;
    }
    OutputArrays all(spec, together, spec.pooling);
    const auto pool_alone = [](OutputArrays* arrays) {
      for (SequenceOutput& out : arrays->outputs) {
        out.token_vectors = out.final_state = out.logits = out.probabilities = nullptr;
      }
    };
    OutputArrays pooled(spec, together, spec.pooling);
    pool_alone(&pooled);
    if (!Ok(name, tested.executable->Run(together, all.outputs.data(), *tested.workspace)) ||
        !Ok(name, tested.executable->Run(together, pooled.outputs.data(), *tested.workspace))) {
      return;
    }
    int differ = pooled.pooled == all.pooled ? 0 : 1;
    for (int i = 0; i < num_alone; ++i) {
      const int b = i * together.num_sequences / num_alone;
      const int32_t offsets[2] = {0, lengths[b]};
      RaggedBatch alone = together;
      alone.num_sequences = 1;
      alone.offsets = offsets;
      if (alone.token_ids != nullptr) alone.token_ids += together.offsets[b];
      if (alone.features != nullptr) alone.features += together.offsets[b] * spec.input_size;
      OutputArrays single(spec, alone, spec.pooling);
      OutputArrays single_pooled(spec, alone, spec.pooling);
      pool_alone(&single_pooled);
      if (!Ok(name, tested.executable->Run(alone, single.outputs.data(), *tested.workspace)) ||
          !Ok(name,
              tested.executable->Run(alone, single_pooled.outputs.data(), *tested.workspace))) {
        return;
      }
      const auto same = [](const std::vector<float>& found, const float* expected) {
        return std::memcmp(found.data(), expected, found.size() * sizeof(float)) == 0;
      };
      const SequenceOutput& out = all.outputs[b];
      if (!same(single.token_vectors, out.token_vectors) || !same(single.pooled, out.pooled) ||
          single_pooled.pooled != single.pooled || !same(single.final_state, out.final_state) ||
          !same(single.logits, out.logits)) {
        ++differ;
      }
    }
    Report(name, differ == 0,
           std::to_string(differ) + " of " + std::to_string(num_alone) + " differ");
  }

  // The CUDA backend looks the first layer's U up by token id; other backends have no such option.
  void SameBitsWithoutTokenTable(const std::string& variant, const StackOptions& options) {
    if (options.vocabulary_size == 0) return;
    // A fused first layer has no table.
    const bool expects_table = std::strcmp(backend_->name(), "cuda") == 0 &&
                               !(flags_.fuse_layers && dtype_ == DataType::kBFloat16);
    SameBitsWith(
        "without the token table, " + variant, options,
        [](auto& backend) { backend.cuda_token_table_bytes = 0; }, expects_table);
  }

  // With changed options of the backend, which change what the weights take if `other_weights`.
  void SameBitsWith(const std::string& variant, const StackOptions& options,
                    const std::function<void(kernels::BackendOptions&)>& change,
                    bool other_weights = false) {
    const std::string name = "same bits " + variant;
    const RandomStack stack(options, 47);
    const StackSpec& spec = stack.spec();
    const std::vector<int> lengths = flags_.small
                                         ? std::vector<int>{1, 7, 8, 9, 17, 40}
                                         : std::vector<int>{1, 2, 7, 8, 9, 15, 16, 17, 25, 33, 700};
    const RandomBatch batch(spec, lengths, true, 48);
    const RaggedBatch view = batch.view();
    kernels::BackendOptions changed = BackendOptions();
    change(changed);
    kernels::CompileOptions compile;
    compile.dtype = dtype_;
    std::unique_ptr<Backend> backend;
    Compiled with, without;
    OutputArrays expected(spec, view, spec.pooling);
    OutputArrays found(spec, view, spec.pooling);
    if (!Ok(name, kernels::CreateBackend(flags_.backend, changed, &backend)) ||
        !Ok(name, backend->Compile(spec, compile, &without.executable)) ||
        !Ok(name, without.executable->CreateWorkspace({view.num_tokens(), view.num_sequences},
                                                      &without.workspace)) ||
        !Compile(name, *backend_, spec, view.num_tokens(), view.num_sequences, &with) ||
        !Ok(name, without.executable->Run(view, expected.outputs.data(), *without.workspace)) ||
        !Ok(name, with.executable->Run(view, found.outputs.data(), *with.workspace))) {
      return;
    }
    const std::string different = DifferentKinds(expected, found);
    const bool lacks_table =
        other_weights && with.executable->weight_bytes() == without.executable->weight_bytes();
    Report(name, different.empty() && !lacks_table,
           "outputs that differ: " + (different.empty() ? "none" : different) +
               (lacks_table ? "; there was no table" : ""));
  }

  // Two workspaces, each with its stream, on two threads.
  void InParallel() {
    const std::string name = "two workspaces at a time";
    const RandomStack stack(StackOptions(), 27);
    const StackSpec& spec = stack.spec();
    Compiled tested;
    if (!Compile(name, *backend_, spec, 512, 16, &tested)) return;
    const int rounds = flags_.small ? 5 : 200;
    std::vector<int> wrong(2, 0);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        std::unique_ptr<Workspace> workspace;
        wrong[i] = rounds;
        if (!tested.executable->CreateWorkspace({512, 16}, &workspace).ok()) return;
        std::vector<float> first;
        for (int round = 0; round < rounds; ++round) {
          const RandomBatch batch(spec, {3 + i, 40, 1, 100 + 7 * i}, false, 28 + i);
          OutputArrays out(spec, batch.view(), spec.pooling);
          if (!tested.executable->Run(batch.view(), out.outputs.data(), *workspace).ok()) return;
          if (round == 0) first = out.token_vectors;
          if (out.token_vectors == first) --wrong[i];
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    Report(name, wrong[0] + wrong[1] == 0,
           std::to_string(wrong[0] + wrong[1]) + " of " + std::to_string(2 * rounds) +
               " runs gave other bits or failed");
  }

  void BadInput() {
    const std::string name = "a token id outside of the vocabulary";
    const RandomStack stack(StackOptions(), 37);
    Compiled tested;
    if (!Compile(name, *backend_, stack.spec(), 8, 2, &tested)) return;
    const int32_t offsets[2] = {0, 2};
    const int32_t ids[2] = {0, stack.spec().vocabulary_size};
    RaggedBatch batch;
    batch.num_sequences = 1;
    batch.offsets = offsets;
    batch.token_ids = ids;
    SequenceOutput output;
    const Status status = tested.executable->Run(batch, &output, *tested.workspace);
    Report(name, status.code() == kernels::StatusCode::kInvalidArgument, status.message());
  }

  const CheckOptions flags_;
  const DataType dtype_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Backend> reference_;
  int checks_ = 0;
  int failures_ = 0;
};

}  // namespace

int RunChecks(const CheckOptions& options) { return Checker(options).Run(); }

}  // namespace sru::testing
