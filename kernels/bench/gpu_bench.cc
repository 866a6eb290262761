// gpu_bench: what the CUDA backend's kernels and recorded forward passes take on this machine's
// GPU, timed by events over many launches in a row. Needs a GPU; exits with 77 where there is none.
//
//   gpu_bench scan         the scan alone on large batches: bytes a second over the device's copy
//                          rate
//   gpu_bench classify     one question of the bundled TREC model's shape: from the call of Run()
//                          to the answer, and the part of it that the GPU and the copies take, also
//                          without the token table (token_table.h)
//   gpu_bench systems      steps of a translator's beam search and of a language model, the
//   encoder, and
//                          batches of a reader, with random weights of the paper's sizes: from the
//                          call of Run() to the results
//   gpu_bench step SYSTEM TYPE SEQUENCES
//                          one step of "translator" or "language_model" between cudaProfilerStart()
//                          and cudaProfilerStop(), without a graph, for ncu --profile-from-start
//                          off
//   gpu_bench predict      Predict with one block for each row, and with a cluster of blocks
//   gpu_bench products     each product of the paper's systems by our kernel and by the library's
//                          (gpu_products.h)
//   gpu_bench fused        forward passes of 2 to 8 bfloat16 layers with and without a kernel for
//   each layer gpu_bench interactive  reads lines "layers input hidden directions length batch
//   type", answers
//                          each with the microseconds of one forward pass; keeps two shapes in
//                          memory; compare_pytorch_gpu.py alternates them with PyTorch
//
// The types are float32, bfloat16 and bfloat16_fused (all layers that can be).
//
// scan, classify, systems, predict, products and fused print a JSON array, one object per line.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/gpu_products.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/program_model.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/open_devices.h"
#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/kernels/scan_shape.h"
#include "kernels/cuda/stack/cuda_workspace.h"
#include "kernels/cuda/stack/forward.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/cuda/stack/token_table.h"
#include "kernels/state_arena.h"
#include "kernels/testing/random_program.h"
#include "kernels/testing/random_stack.h"
#include "kernels/testing/random_systems.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::LanguageModelSizes;
using ::sru::testing::ProgramData;
using ::sru::testing::RandomData;
using ::sru::testing::RandomLanguageModel;
using ::sru::testing::RandomReader;
using ::sru::testing::RandomStack;
using ::sru::testing::RandomTranslator;
using ::sru::testing::ReaderSizes;
using ::sru::testing::StackOptions;
using ::sru::testing::TranslatorSizes;

constexpr int kExitNoGpu = 77;
constexpr double kTimedSeconds = 20e-3;  // of one timing
constexpr int kTimings = 9;              // of which the median counts

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "gpu_bench: %s\n", what.c_str());
  std::exit(1);
}
void Check(const Status& status) {
  if (!status.ok()) Fail(status.message());
}
void Check(cudaError_t error) {
  if (error != cudaSuccess) Fail(cudaGetErrorString(error));
}

// Device memory of the benchmark's own, filled with finite values.
class Memory {
 public:
  explicit Memory(size_t bytes) {
    Check(cudaMalloc(&data_, bytes));
    Check(cudaMemset(data_, 0, bytes));
  }
  ~Memory() { (void)cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  template <typename T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    Check(cudaEventCreate(&begin_));
    Check(cudaEventCreate(&end_));
    // The memory was filled on the default stream, which `stream` does not wait for.
    Check(cudaDeviceSynchronize());
  }
  ~Timer() {
    (void)cudaEventDestroy(begin_);
    (void)cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Seconds of one `work`, over `repeat` of them in a row.
  template <typename Work>
  double Seconds(int repeat, const Work& work) {
    Check(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < repeat; ++i) work();
    Check(cudaEventRecord(end_, stream_));
    Check(cudaEventSynchronize(end_));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3 / repeat;
  }
  // The same, repeated so often that it takes about kTimedSeconds.
  template <typename Work>
  double Seconds(const Work& work) {
    const double once = Seconds(3, work);
    return Seconds(std::clamp(static_cast<int>(kTimedSeconds / once), 3, 10000), work);
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// As sru_server opens the backend where it has four cores.
BackendOptions ServedOptions() {
  BackendOptions options;
  options.cuda_poll = std::chrono::microseconds(50);
  return options;
}

// How a stack is compiled.
struct StackType {
  const char* name;
  DataType dtype;
  bool fuse_layers;  // as BackendOptions::cuda_fuse_layers
};

constexpr StackType kStackTypes[] = {
    {"float32", DataType::kFloat32, false},
    {"bfloat16", DataType::kBFloat16, false},
    {"bfloat16_fused", DataType::kBFloat16, true},
};

// The scan ----------------------------------------------------------------------------------------

struct ScanCase {
  DataType dtype;
  int directions;
  int hidden;
  int sequences;
  int length;
};

void PrintScan(const ScanCase& c, int num_multiprocessors, double copy_rate, bool last) {
  const size_t tokens = size_t{1} * c.sequences * c.length;
  const size_t width = size_t{1} * c.directions * c.hidden;
  const size_t value = ValueBytes(c.dtype);
  const Memory u(tokens * width * 3 * value);
  const Memory x(tokens * width * value);
  const Memory h(tokens * width * value);
  const Memory constants(width * 4 * sizeof(float));
  const Memory entries(c.sequences * sizeof(SequenceEntry));
  std::vector<SequenceEntry> sequences;
  for (int i = 0; i < c.sequences; ++i) {
    sequences.push_back({i * c.length, c.length, i, Pooling::kNone, -1, -1, -1, -1});
  }
  Check(cudaMemcpy(entries.as(), sequences.data(), sequences.size() * sizeof(SequenceEntry),
                   cudaMemcpyHostToDevice));
  ScanArgs args{};
  args.sequences = entries.as<SequenceEntry>();
  args.num_sequences = c.sequences;
  args.directions = c.directions;
  args.padded = c.hidden;
  args.u = u.as();
  args.u_stride = static_cast<int>(3 * width);
  args.matrices = 3;
  args.highway = x.as();
  args.highway_stride = static_cast<int>(width);
  args.highway_direction_stride = c.hidden;
  args.highway_scale = 1.0f;
  args.constants = constants.as<float>();
  args.h = h.as();
  const int dims = ScanDims(args, num_multiprocessors);
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<double> seconds;
  {
    Timer timer(stream);
    for (int i = 0; i < kTimings; ++i) {
      seconds.push_back(timer.Seconds([&] {
        Check(LaunchScan(c.dtype, dims, args, LaunchStream{stream, /*dependent=*/false}));
      }));
    }
  }
  Check(cudaStreamDestroy(stream));
  // Three planes of U and the highway term are read, h is written.
  const double bytes = static_cast<double>(tokens * width * 5 * value);
  const double rate = bytes / Median(seconds);
  std::printf(
      "{\"kind\": \"scan\", \"dtype\": \"%s\", \"directions\": %d, \"hidden\": %d, "
      "\"sequences\": %d, \"length\": %d, \"us\": %.2f, \"bytes_per_s\": %.4g, "
      "\"copy_bytes_per_s\": %.4g, \"ratio\": %.3f}%s\n",
      DataTypeName(c.dtype), c.directions, c.hidden, c.sequences, c.length, Median(seconds) * 1e6,
      rate, copy_rate, rate / copy_rate, last ? "" : ",");
  std::fflush(stdout);
}

// Bytes read plus bytes written a second by the device's own copy.
double CopyRate() {
  constexpr size_t kBytes = size_t{1} << 30;
  const Memory from(kBytes);
  const Memory to(kBytes);
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::vector<double> seconds;
  {
    Timer timer(stream);
    for (int i = 0; i < kTimings; ++i) {
      seconds.push_back(timer.Seconds([&] {
        Check(cudaMemcpyAsync(to.as(), from.as(), kBytes, cudaMemcpyDeviceToDevice, stream));
      }));
    }
  }
  Check(cudaStreamDestroy(stream));
  return 2.0 * kBytes / Median(seconds);
}

int RunScan(const Device& device) {
  const double copy_rate = CopyRate();
  // Far more than the second-level cache holds, in each case.
  const std::vector<ScanCase> cases = {
      {DataType::kFloat32, 2, 128, 1024, 128},
      {DataType::kFloat32, 2, 256, 512, 128},
      {DataType::kFloat32, 2, 512, 512, 128},
      {DataType::kFloat32, 1, 1024, 512, 128},
      {DataType::kBFloat16, 2, 128, 2048, 128},
      {DataType::kBFloat16, 2, 256, 1024, 128},
      {DataType::kBFloat16, 2, 512, 512, 128},
      {DataType::kBFloat16, 1, 1024, 512, 128},
      {DataType::kFloat32, 2, 128, 32, 128},
      {DataType::kBFloat16, 2, 128, 32, 128},
      // On both sides of two blocks a multiprocessor of 132: two dimensions a thread, then four.
      {DataType::kFloat32, 2, 128, 200, 128},
      {DataType::kBFloat16, 2, 128, 200, 128},
      {DataType::kFloat32, 2, 128, 280, 128},
      {DataType::kBFloat16, 2, 128, 280, 128},
      // Half-empty blocks if a thread had four.
      {DataType::kFloat32, 2, 64, 1024, 128},
      {DataType::kBFloat16, 2, 64, 2048, 128},
  };
  std::printf("[\n");
  for (size_t i = 0; i < cases.size(); ++i) {
    PrintScan(cases[i], device.num_multiprocessors(), copy_rate, i + 1 == cases.size());
  }
  std::printf("]\n");
  return 0;
}

// Recorded forward passes -------------------------------------------------------------------------

// A stack with random weights, its workspace and a batch of equal lengths on the device.
class Forward {
 public:
  // `token_table_bytes` as in BackendOptions.
  Forward(const std::shared_ptr<Gpu>& gpu, const StackOptions& options, const StackType& type,
          int length, int batch, uint32_t outputs, size_t token_table_bytes)
      : random_(options, 1) {
    PackOptions pack;
    pack.dtype = type.dtype;
    pack.fuse_layers = type.fuse_layers;
    stack_ = std::make_unique<PackedStack>(random_.spec(), pack);
    std::unique_ptr<Stream> stream;
    Check(gpu->device().CreateStream(nullptr, &stream));
    Check(DeviceStack::Create(*stack_, gpu, *stream, &weights_));
    Check(ProductPlans::Create(*stack_, *weights_, gpu, &plans_));
    Check(TokenTable::Create(*stack_, *weights_, *plans_, gpu, token_table_bytes, &table_));
    WorkspaceLimits limits;
    limits.max_tokens = length * batch;
    limits.max_sequences = batch;
    limits.states = false;
    Check(CudaWorkspace::Create(*stack_, gpu, *plans_, limits, &workspace_));

    bucket_.tokens = workspace_->token_buckets()[workspace_->TokenBucketIndex(limits.max_tokens)];
    bucket_.sequences = SequenceBucket(batch, batch);
    bucket_.flags = outputs;
    if (options.vocabulary_size == 0) bucket_.flags |= Bucket::kFeatures;
    WriteInput(length, batch);
    Copy();
    Check(workspace_->stream->Wait());
    Check(workspace_->stream->Record(
        [this] { return EnqueueForward(*stack_, *weights_, table_.get(), bucket_, *workspace_); },
        &graph_));
    Launch();
    Check(workspace_->stream->Wait());
    timer_ =
        std::make_unique<Timer>(static_cast<cudaStream_t>(workspace_->stream->native_handle()));
  }
  // The graph goes before the stream that it was recorded on.
  ~Forward() {
    (void)workspace_->stream->Wait();
    timer_.reset();
    graph_.reset();
  }
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  void Copy() {
    Check(workspace_->stream->CopyToDevice(workspace_->input.data(), workspace_->host_input.data(),
                                           input_bytes_));
  }
  void Launch() { Check(workspace_->stream->Launch(*graph_)); }
  Timer& timer() { return *timer_; }

 private:
  void WriteInput(int length, int batch) {
    const InputLayout layout(*stack_, bucket_);
    input_bytes_ = layout.end;
    char* const input = workspace_->host_input.as<char>();
    std::memset(input, 0, layout.end);
    *reinterpret_cast<BatchHeader*>(input + layout.header) = BatchHeader{length * batch, {}};
    auto* const entries = reinterpret_cast<SequenceEntry*>(input + layout.sequences);
    const bool labels = bucket_.has(Bucket::kLabels);
    const bool vectors = bucket_.has(Bucket::kTokenVectors);
    for (int b = 0; b < batch; ++b) {
      entries[b] = {
          b * length,      length,          b,  labels ? stack_->spec.pooling : Pooling::kNone,
          labels ? b : -1, labels ? b : -1, -1, vectors ? b * length : -1};
    }
    const sru::testing::RandomBatch values(random_.spec(), std::vector<int>(batch, length), false,
                                           2);
    const RaggedBatch view = values.view();
    const void* from = view.token_ids;
    if (from == nullptr) from = view.features;
    std::memcpy(input + layout.tokens, from, size_t{1} * length * batch * layout.token_bytes);
  }

  const RandomStack random_;
  std::unique_ptr<PackedStack> stack_;
  std::unique_ptr<DeviceStack> weights_;
  std::unique_ptr<ProductPlans> plans_;
  std::unique_ptr<TokenTable> table_;
  std::unique_ptr<CudaWorkspace> workspace_;
  Bucket bucket_;
  size_t input_bytes_ = 0;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Timer> timer_;
};

int RunInteractive(const std::shared_ptr<Gpu>& gpu) {
  // Two shapes at most, the latest one first: timings of a fused and a plain stack alternate. PyTorch
  // shares the device's memory.
  std::list<std::pair<std::string, std::unique_ptr<Forward>>> forwards;
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto kept = std::find_if(forwards.begin(), forwards.end(),
                                   [&](const auto& forward) { return forward.first == line; });
    if (kept != forwards.end()) {
      forwards.splice(forwards.begin(), forwards, kept);
    } else {
      if (forwards.size() == 2) forwards.pop_back();
      std::istringstream words(line);
      StackOptions options;
      int length = 0;
      int batch = 0;
      std::string name;
      words >> options.num_layers >> options.input_size >> options.hidden_size >>
          options.directions >> length >> batch >> name;
      const auto type = std::find_if(std::begin(kStackTypes), std::end(kStackTypes),
                                     [&](const StackType& t) { return name == t.name; });
      if (words.fail() || type == std::end(kStackTypes)) {
        Fail("expected 'layers input hidden directions length batch type', found '" + line + "'");
      }
      options.vocabulary_size = 0;
      options.num_labels = 0;
      // Every token's vector, as an LSTM gives them.
      forwards.emplace_front(
          line, std::make_unique<Forward>(gpu, options, *type, length, batch, Bucket::kTokenVectors,
                                          /*token_table_bytes=*/0));
    }
    Forward& forward = *forwards.front().second;
    std::printf("%.3f\n", forward.timer().Seconds([&] { forward.Launch(); }) * 1e6);
    std::fflush(stdout);
  }
  return 0;
}

int RunFused(const std::shared_ptr<Gpu>& gpu) {
  std::printf("[\n");
  const char* separator = "";
  for (const int layers : {2, 4, 8}) {
    for (const int batch : {1, 32, 128}) {
      StackOptions options;  // the paper's classifier of sentences
      options.num_layers = layers;
      options.input_size = 300;
      options.hidden_size = 128;
      options.directions = 1;
      options.vocabulary_size = 0;
      options.num_labels = 0;
      constexpr int kLength = 32;
      Forward plain(gpu, options, kStackTypes[1], kLength, batch, Bucket::kTokenVectors, 0);
      Forward fused(gpu, options, kStackTypes[2], kLength, batch, Bucket::kTokenVectors, 0);
      std::vector<double> plain_us, fused_us;
      for (int i = 0; i < kTimings; ++i) {
        plain_us.push_back(1e6 * plain.timer().Seconds([&] { plain.Launch(); }));
        fused_us.push_back(1e6 * fused.timer().Seconds([&] { fused.Launch(); }));
      }
      std::printf(
          "%s{\"kind\": \"fused\", \"layers\": %d, \"batch\": %d, \"plain_us\": %.2f, "
          "\"fused_us\": %.2f}",
          separator, layers, batch, Median(plain_us), Median(fused_us));
      std::fflush(stdout);
      separator = ",\n";
    }
  }
  std::printf("\n]\n");
  return 0;
}

// One question ------------------------------------------------------------------------------------

int RunClassify(const std::shared_ptr<Gpu>& gpu) {
  StackOptions options;  // as models/pretrained/trec
  options.input_size = 128;
  options.hidden_size = 64;
  options.num_layers = 2;
  options.vocabulary_size = 8759;
  options.num_labels = 6;
  constexpr int kTokens = 10;
  constexpr int kCalls = 2000;
  std::printf("[\n");
  for (const StackType& type : kStackTypes) {
    // The copy of the input, the recorded pass and, in it, the copy of the result, with and without
    // the token table in turn.
    std::vector<double> gpu_us;
    std::vector<double> without_table_us;
    {
      Forward with(gpu, options, type, kTokens, 1, Bucket::kLabels,
                   BackendOptions().cuda_token_table_bytes);
      Forward without(gpu, options, type, kTokens, 1, Bucket::kLabels, 0);
      const auto time = [](Forward& forward) {
        return 1e6 * forward.timer().Seconds([&] {
          forward.Copy();
          forward.Launch();
        });
      };
      for (int i = 0; i < kTimings; ++i) {
        gpu_us.push_back(time(with));
        without_table_us.push_back(time(without));
      }
    }
    const RandomStack random(options, 1);
    std::unique_ptr<Backend> backend;
    BackendOptions backend_options = ServedOptions();
    backend_options.cuda_fuse_layers = type.fuse_layers;
    Check(CreateBackend("cuda", backend_options, &backend));
    CompileOptions compile;
    compile.dtype = type.dtype;
    std::unique_ptr<Executable> executable;
    Check(backend->Compile(random.spec(), compile, &executable));
    std::unique_ptr<Workspace> workspace;
    Check(executable->CreateWorkspace({4096, 256}, &workspace));
    const sru::testing::RandomBatch batch(random.spec(), {kTokens}, false, 2);
    std::vector<float> logits(options.num_labels);
    SequenceOutput output;
    output.pooling = options.pooling;
    output.logits = logits.data();
    std::vector<double> run_us;
    for (int i = 0; i < kCalls + kCalls / 10; ++i) {
      const double took =
          Microseconds([&] { Check(executable->Run(batch.view(), &output, *workspace)); });
      if (i >= kCalls / 10) run_us.push_back(took);
    }
    std::sort(run_us.begin(), run_us.end());
    std::printf(
        "{\"kind\": \"classify\", \"type\": \"%s\", \"tokens\": %d, \"gpu_and_copy_us\": %.2f, "
        "\"without_token_table_us\": %.2f, \"run_p50_us\": %.2f, \"run_p99_us\": %.2f}%s\n",
        type.name, kTokens, Median(gpu_us), Median(without_table_us), run_us[kCalls / 2],
        run_us[kCalls * 99 / 100], &type == std::end(kStackTypes) - 1 ? "" : ",");
  }
  std::printf("]\n");
  return 0;
}

// Readers and translators -------------------------------------------------------------------------

using Slots = std::vector<StateArena::Slot>;

// A program on the backend, and how long it took to get there.
class System {
 public:
  System(Backend& backend, const Program& program, DataType dtype, std::vector<AxisLimits> axes,
         double copy_rate)
      : program_(program), dtype_(dtype), copy_rate_(copy_rate) {
    ProgramLimits limits;
    limits.axes = std::move(axes);
    load_us_ = Microseconds(
        [&] { model_ = std::make_unique<BenchmarkModel>(backend, program, dtype, limits); });
    Check(model_->status());
  }

  BenchmarkModel& model() { return *model_; }

  // `slots` is [axis]; empty = none. Returns the microseconds of Run().
  double Run(const ProgramData& data, const std::vector<Slots>& slots,
             const std::vector<int>& wanted) {
    BenchmarkBatch batch(program_, data, slots, 0);
    for (int output : wanted) batch.Want(output);
    const double us = Microseconds([&] { model_->Run(batch); });
    Check(model_->status());
    return us;
  }

  // `weights` are those that a run reads: the row has how long that takes at the device's copy
  // rate. 0: no bound.
  void Print(const std::string& name, int sequences, int rows, const std::vector<double>& us,
             int64_t weights = 0) const {
    std::vector<double> sorted = us;
    std::sort(sorted.begin(), sorted.end());
    const double bytes = static_cast<double>(weights) * static_cast<double>(ValueBytes(dtype_));
    std::printf(
        "%s{\"kind\": \"system\", \"name\": \"%s\", \"type\": \"%s\", \"sequences\": %d, "
        "\"rows\": %d, \"run_p50_us\": %.2f, \"run_p99_us\": %.2f, \"weights_us\": %.2f, "
        "\"workspace_mb\": %.1f, \"load_s\": %.2f}",
        printed_ ? ",\n" : "", name.c_str(), DataTypeName(dtype_), sequences, rows, Median(us),
        sorted[sorted.size() * 99 / 100], 1e6 * bytes / copy_rate_,
        static_cast<double>(model_->workspace_bytes()) / 1e6, load_us_ / 1e6);
    std::fflush(stdout);
    printed_ = true;
  }

 private:
  static inline bool printed_ = false;  // by any

  const Program& program_;
  const DataType dtype_;
  const double copy_rate_;
  std::unique_ptr<BenchmarkModel> model_;
  double load_us_ = 0;
};

// How many weights the products of a run read, once each.
int64_t WeightsOf(const Program& program, const ProgramData& data) {
  ProgramShape shape;
  Check(Validate(program, &shape));
  size_t weights = 0;
  for (size_t i = 0; i < program.operations.size(); ++i) {
    if (data.num_rows(program, shape.values[i].axis) == 0) continue;
    if (const auto* linear = std::get_if<ops::Linear>(&program.operations[i])) {
      weights += linear->weight.size;
    } else if (const auto* predict = std::get_if<ops::Predict>(&program.operations[i])) {
      weights += predict->weight.size;
    } else if (const auto* stack = std::get_if<ops::Stack>(&program.operations[i])) {
      for (const LayerSpec& layer : stack->spec.layers) {
        weights += layer.weight.size + layer.weight_proj.size;
      }
    }
  }
  return static_cast<int64_t>(weights);
}

// Texts of which each step is a run of one row for each slot.
struct Texts {
  ProgramData data;
  std::vector<Slots> slots;  // [axis]; the last one's are those of the texts
  int wanted = 0;
  std::vector<int> parents;  // of hypotheses, which are forked after each step

  Slots& own() { return slots.back(); }
  double Step(System& system) { return system.Run(data, slots, {wanted}); }
  double Fork(System& system) {
    return Microseconds([&] {
      Check(system.model().arena().Reorder(own().data(), parents.data(),
                                           static_cast<int>(parents.size())));
    });
  }
  void Free(System& system) {
    for (const StateArena::Slot slot : own()) system.model().arena().Free(slot);
  }
};

constexpr int kSentenceWords = 25;

RandomTranslator PaperTranslator() {
  TranslatorSizes sizes;
  sizes.vocabulary_size = 32000;
  sizes.width = 512;
  sizes.heads = 8;
  sizes.hidden_size = 2048;
  sizes.layers = 5;
  sizes.max_candidates = 64;
  return RandomTranslator(sizes);
}

// The state of a beam search after 20 steps. Appends what each run of the encoder took.
Texts StartTranslations(const RandomTranslator& model, System& system, int sentences,
                        std::vector<double>* encoder_us) {
  constexpr int kBeam = 5;
  constexpr int kPrefix = 20;
  StateArena& arena = system.model().arena();
  const ProgramData words =
      RandomData(model.program, {std::vector<int>(sentences, kSentenceWords), {}}, 1);
  Slots encoded;
  for (int run = 0; run < 20; ++run) {
    for (StateArena::Slot slot : encoded) arena.Free(slot);
    encoded = system.model().NewSlots(sentences);
    const double us = system.Run(words, {encoded, {}}, {});
    if (run >= 3) encoder_us->push_back(us);
  }
  (void)system.Run(RandomData(model.program, {{}, std::vector<int>(sentences, kPrefix)}, 2),
                   {{}, encoded}, {});
  Texts texts;
  texts.slots.resize(2);
  for (int s = 0; s < sentences; ++s) {
    for (int i = 0; i < kBeam; ++i) {
      texts.parents.push_back(s * kBeam + i / 2);
      Check(arena.Copy(encoded[s], &texts.own().emplace_back()));
    }
    arena.Free(encoded[s]);
  }
  const size_t rows = texts.parents.size();
  texts.data = RandomData(model.program, {{}, std::vector<int>(rows, 1)}, 3);
  texts.data.ids[RandomTranslator::kTargets].assign(rows, -1);
  texts.data.ids[RandomTranslator::kCounts].assign(rows, kBeam);
  texts.wanted = RandomTranslator::kCandidates;
  return texts;
}

// Sessions that pick the most probable token.
Texts StartSessions(const RandomLanguageModel& model, System& system, int sessions) {
  Texts texts;
  texts.slots = {system.model().NewSlots(sessions)};
  texts.data = RandomData(model.program, {std::vector<int>(sessions, 1)}, 1);
  texts.data.ids[RandomLanguageModel::kTargets].assign(sessions, -1);
  texts.data.ids[RandomLanguageModel::kCounts].assign(sessions, 0);
  texts.data.sampling[RandomLanguageModel::kSampling].assign(sessions, Sampling());
  texts.wanted = RandomLanguageModel::kPicked;
  return texts;
}

// Prints a row of the steps and, of hypotheses, one of what they cost the host between steps.
void BenchSteps(System& system, const Program& program, const std::string& name, int sequences,
                Texts texts) {
  constexpr int kSteps = 40;
  std::vector<double> step_us;
  std::vector<double> fork_us;
  for (int step = 0; step < kSteps; ++step) {
    const double us = texts.Step(system);
    const double forked = texts.parents.empty() ? 0 : texts.Fork(system);
    if (step < 3) continue;  // without a graph, or recording one
    step_us.push_back(us);
    fork_us.push_back(forked);
  }
  const auto rows = static_cast<int>(texts.own().size());
  system.Print(name, sequences, rows, step_us, WeightsOf(program, texts.data));
  if (!texts.parents.empty()) {
    system.Print("translator, reorder on the host", sequences, rows, fork_us);
  }
  texts.Free(system);
}

const std::vector<AxisLimits> kTranslatorLimits = {{1024, 256}, {1024, 256}};
const std::vector<AxisLimits> kLanguageModelLimits = {{256, 64}, {0, 0}, {0, 0}};

void BenchTranslator(Backend& backend, const RandomTranslator& model, DataType dtype,
                     const std::vector<int>& counts, const std::string& how, double copy_rate) {
  System system(backend, model.program, dtype, kTranslatorLimits, copy_rate);
  for (const int sentences : counts) {
    std::vector<double> encoder_us;
    Texts texts = StartTranslations(model, system, sentences, &encoder_us);
    system.Print("translator, encoder" + how, sentences, sentences * kSentenceWords, encoder_us);
    BenchSteps(system, model.program, "translator, step" + how, sentences, std::move(texts));
  }
}

void BenchLanguageModel(Backend& backend, const RandomLanguageModel& model, DataType dtype,
                        const std::vector<int>& counts, const std::string& how, double copy_rate) {
  System system(backend, model.program, dtype, kLanguageModelLimits, copy_rate);
  for (const int sessions : counts) {
    BenchSteps(system, model.program, "language model, step" + how, sessions,
               StartSessions(model, system, sessions));
  }
}

void BenchReader(Backend& backend, const RandomReader& model, DataType dtype, double copy_rate) {
  constexpr int kPassage = 130;
  constexpr int kQuestion = 12;
  System system(backend, model.program, dtype, {{8192, 256}, {8192, 256}, {0, 0}}, copy_rate);
  for (const int queries : {1, 32}) {
    const ProgramData data =
        RandomData(model.program,
                   {std::vector<int>(queries, kPassage), std::vector<int>(queries, kQuestion)}, 1);
    std::vector<double> us;
    for (int run = 0; run < 60; ++run) {
      const double took = system.Run(data, {}, {RandomReader::kStart, RandomReader::kEnd});
      if (run >= 3) us.push_back(took);
    }
    system.Print("reader", queries, queries * (kPassage + kQuestion), us);
  }
}

int RunSystems() {
  const RandomTranslator translator = PaperTranslator();
  const RandomLanguageModel language_model;
  BackendOptions sleeping = ServedOptions();
  sleeping.cuda_poll = {};
  BackendOptions dependent = ServedOptions();
  dependent.cuda_dependent_launch = true;
  BackendOptions by_library = ServedOptions();
  by_library.cuda_own_products = false;
  const struct {
    const char* how;
    BackendOptions options;
    std::vector<int> sentences, sessions;
  } variants[] = {
      {"", ServedOptions(), {1, 32}, {1, 8, 64}},
      {", dependent launch", dependent, {1, 32}, {1, 64}},
      {", products of the library alone", by_library, {1, 32}, {1, 64}},
      {", without polling", sleeping, {1}, {1}},
  };
  const double copy_rate = CopyRate();
  std::printf("[\n");
  std::unique_ptr<Backend> backend;
  for (const auto& variant : variants) {
    Check(CreateBackend("cuda", variant.options, &backend));
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      BenchTranslator(*backend, translator, dtype, variant.sentences, variant.how, copy_rate);
      BenchLanguageModel(*backend, language_model, dtype, variant.sessions, variant.how, copy_rate);
    }
  }
  ReaderSizes sizes;  // DrQA's
  sizes.vocabulary_size = 20000;
  sizes.width = 300;
  sizes.hidden_size = 128;
  sizes.layers = 3;
  const RandomReader reader(sizes);
  Check(CreateBackend("cuda", ServedOptions(), &backend));
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    BenchReader(*backend, reader, dtype, copy_rate);
  }
  std::printf("\n]\n");
  return 0;
}

// A profiler that starts and stops with it sees the kernels of one step.
int RunStep(const std::string& name, const std::string& type, int sequences) {
  DataType dtype;
  if (!ParseDataType(type, &dtype) || sequences < 1) {
    Fail("step: expected a type and a number of sequences");
  }
  std::unique_ptr<Backend> backend;
  Check(CreateBackend("cuda", ServedOptions(), &backend));
  const auto profile = [](System& system, Texts texts) {
    Check(cudaProfilerStart());
    (void)texts.Step(system);
    Check(cudaProfilerStop());
    return 0;
  };
  if (name == "translator") {
    const RandomTranslator model = PaperTranslator();
    System system(*backend, model.program, dtype, kTranslatorLimits, /*copy_rate=*/1);
    std::vector<double> encoder_us;
    return profile(system, StartTranslations(model, system, sequences, &encoder_us));
  }
  if (name == "language_model") {
    const RandomLanguageModel model;
    System system(*backend, model.program, dtype, kLanguageModelLimits, /*copy_rate=*/1);
    return profile(system, StartSessions(model, system, sequences));
  }
  Fail("step: expected translator or language_model, found " + name);
}

// Predict -----------------------------------------------------------------------------------------

template <typename T>
std::unique_ptr<Memory> ToDevice(const std::vector<T>& values) {
  auto memory = std::make_unique<Memory>(values.size() * sizeof(T));
  Check(cudaMemcpy(memory->as(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

int RunPredict(const Device& device) {
  constexpr int kCandidates = 5;
  constexpr int kMostRows = 33;
  OperationLimits one_block;
  int shared_bytes = 0;
  Check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               device.ordinal()));
  one_block.max_shared_bytes = shared_bytes;
  OperationLimits clusters = one_block;
  clusters.max_clustered_rows = MaxClusteredRows(device.num_multiprocessors());
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::printf("[\n");
  const char* separator = "";
  for (const int vocabulary : {8200, 32000, 128000}) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> values(size_t{kMostRows} * vocabulary);
    for (float& value : values) value = normal(random);
    const auto logits = ToDevice(values);
    const auto targets = ToDevice(std::vector<int32_t>(kMostRows, -1));
    const Memory log_prob(kMostRows * sizeof(float));
    const Memory candidates(kMostRows * kCandidates * sizeof(PredictCandidate));
    const Memory picked(kMostRows * sizeof(PredictCandidate));
    const struct {
      const char* name;
      int count;
      PickSampling sampling;  // nothing is picked if the temperature is below 0
    } questions[] = {
        {"5 candidates", kCandidates, {-1, 0, 1, 0, 0}},
        {"most probable symbol", 0, {0, 0, 1, 0, 0}},
        {"top_k 40, top_p 0.9", 0, {1, 40, 0.9f, 0, 1ULL << 63}},
        {"top_p 0.9", 0, {1, 0, 0.9f, 0, 1ULL << 63}},
    };
    for (const auto& question : questions) {
      const auto counts = ToDevice(std::vector<int32_t>(kMostRows, question.count));
      const auto sampling = ToDevice(std::vector<PickSampling>(kMostRows, question.sampling));
      for (const int rows : {1, 5, 16, kMostRows}) {
        const auto header = ToDevice(std::vector<PredictHeader>{
            {{rows, {}}, question.count, 0, candidates.as<PredictCandidate>()}});
        PredictArgs args{};
        args.header = header->as<PredictHeader>();
        args.max_rows = rows;
        args.logits = logits->as<float>();
        args.logit_stride = args.vocabulary_size = vocabulary;
        args.targets = targets->as<int32_t>();
        args.counts = counts->as<int32_t>();
        args.log_prob = log_prob.as<float>();
        args.picked = picked.as<PredictCandidate>();
        if (question.sampling.temperature >= 0) args.sampling = sampling->as<PickSampling>();
        Timer timer(stream);
        std::vector<double> us[2];
        for (int i = 0; i < 2 * 3; ++i) {
          us[i % 2].push_back(1e6 * timer.Seconds([&] {
            Check(LaunchOperation(args, i % 2 == 0 ? one_block : clusters,
                                  LaunchStream{stream, /*dependent=*/false}));
          }));
        }
        std::printf(
            "%s{\"kind\": \"predict\", \"vocabulary\": %d, \"rows\": %d, \"asked\": \"%s\", "
            "\"one_block_us\": %.2f, \"cluster_us\": %.2f}",
            separator, vocabulary, rows, question.name, Median(us[0]), Median(us[1]));
        std::fflush(stdout);
        separator = ",\n";
      }
    }
  }
  Check(cudaStreamDestroy(stream));
  std::printf("\n]\n");
  return 0;
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::string command = words.empty() ? "" : words[0];
  const std::vector<std::string> commands = {"scan",     "classify", "systems", "predict",
                                             "products", "fused",    "step",    "interactive"};
  if (std::find(commands.begin(), commands.end(), command) == commands.end() ||
      words.size() != (command == "step" ? 4 : 1)) {
    std::fprintf(stderr,
                 "usage: gpu_bench scan|classify|systems|predict|products|fused|interactive\n"
                 "       gpu_bench step SYSTEM TYPE SEQUENCES\n");
    return 2;
  }
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::string> warnings;
  const Status opened = OpenDevices(SystemDriver(), {}, &devices, &warnings);
  if (!opened.ok()) {
    std::fprintf(stderr, "gpu_bench: needs a GPU: %s\n", opened.message().c_str());
    return kExitNoGpu;
  }
  for (const std::string& warning : warnings) {
    std::fprintf(stderr, "gpu_bench: %s\n", warning.c_str());
  }
  auto gpu = std::make_shared<Gpu>(std::move(devices[0]), 0);
  Check(cudaSetDevice(gpu->device().ordinal()));
  if (command == "scan") return RunScan(gpu->device());
  if (command == "systems") return RunSystems();
  if (command == "step") return RunStep(words[1], words[2], std::atoi(words[3].c_str()));
  if (command == "predict") return RunPredict(gpu->device());
  if (command == "products") {
    Check(PrintProducts(gpu));
    return 0;
  }
  if (command == "fused") return RunFused(gpu);
  return command == "classify" ? RunClassify(gpu) : RunInteractive(gpu);
}

}  // namespace
}  // namespace sru::kernels::cuda

int main(int argc, char** argv) { return sru::kernels::cuda::Main(argc, argv); }
