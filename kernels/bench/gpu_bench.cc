// gpu_bench: what the CUDA backend's kernels and recorded forward passes take on this machine's
// GPU, timed by events over many launches in a row. Needs a GPU; exits with 77 where there is none.
//
//   gpu_bench scan         the scan alone on large batches: bytes a second over the device's copy
//                          rate
//   gpu_bench classify     one question of the bundled TREC model's shape: from the call of Run()
//                          to the answer, and the part of it that the GPU and the copies take, also
//                          without the token table (token_table.h)
//   gpu_bench systems      steps of a translator's beam search, its encoder, and batches of a reader, with
//                          random weights of the paper's sizes: from the call of Run() to the results
//   gpu_bench interactive  reads lines "layers input hidden directions length batch type", answers
//                          each with the microseconds of one forward pass; keeps two shapes in
//                          memory; compare_pytorch_gpu.py alternates them with PyTorch
//
// The types are float32, bfloat16 and bfloat16_fused (all layers that can be).
//
// scan, classify and systems print a JSON array, one object per line.
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
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/program_model.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/open_devices.h"
#include "kernels/cuda/kernels/launch.h"
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

using ::sru::testing::ProgramData;
using ::sru::testing::RandomData;
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

// How a stack is compiled.
struct StackType {
  const char* name;
  DataType dtype;
  int fuse_max_input;  // as BackendOptions::cuda_fuse_max_input
};

constexpr StackType kStackTypes[] = {
    {"float32", DataType::kFloat32, kFuseNone},
    {"bfloat16", DataType::kBFloat16, kFuseNone},
    {"bfloat16_fused", DataType::kBFloat16, kFuseAll},
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
    pack.fuse_max_input = type.fuse_max_input;
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
    BackendOptions backend_options;
    backend_options.cuda_fuse_max_input = type.fuse_max_input;
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

// A program on the backend.
class System {
 public:
  System(Backend& backend, const Program& program, DataType dtype, std::vector<AxisLimits> axes)
      : program_(program) {
    ProgramLimits limits;
    limits.axes = std::move(axes);
    model_ = std::make_unique<BenchmarkModel>(backend, program, dtype, limits);
    Check(model_->status());
  }

  BenchmarkModel& model() { return *model_; }
  size_t workspace_bytes() const { return model_->workspace_bytes(); }

  // `slots` is [axis]; empty = none. Returns the microseconds of Run().
  double Run(const ProgramData& data, const std::vector<Slots>& slots,
             const std::vector<int>& wanted) {
    BenchmarkBatch batch(program_, data, slots, 0);
    for (int output : wanted) batch.Want(output);
    const double us = Microseconds([&] { model_->Run(batch); });
    Check(model_->status());
    return us;
  }

 private:
  const Program& program_;
  std::unique_ptr<BenchmarkModel> model_;
};

void PrintSystem(bool first, const char* name, DataType dtype, int sequences, int rows,
                 const std::vector<double>& us, size_t workspace_bytes) {
  std::vector<double> sorted = us;
  std::sort(sorted.begin(), sorted.end());
  std::printf(
      "%s{\"kind\": \"system\", \"name\": \"%s\", \"type\": \"%s\", \"sequences\": %d, "
      "\"rows\": %d, \"run_p50_us\": %.2f, \"run_p99_us\": %.2f, \"workspace_mb\": %.1f}",
      first ? "" : ",\n", name, DataTypeName(dtype), sequences, rows, Median(us),
      sorted[sorted.size() * 99 / 100], static_cast<double>(workspace_bytes) / 1e6);
  std::fflush(stdout);
}

// Steps 21 to 60 of a beam search whose hypotheses are forked at every step, and the encoder. A backend with other
// options says so in `how`, and prints its steps alone.
void BenchTranslator(Backend& backend, DataType dtype, int sentences, bool first,
                     const std::string& how = "") {
  constexpr int kBeam = 5;
  constexpr int kWords = 25;
  constexpr int kPrefix = 20;
  constexpr int kSteps = 40;
  TranslatorSizes sizes;  // the paper's
  sizes.vocabulary_size = 32000;
  sizes.width = 512;
  sizes.heads = 8;
  sizes.hidden_size = 2048;
  sizes.layers = 5;
  sizes.max_candidates = 64;
  const RandomTranslator model(sizes);
  System system(backend, model.program, dtype, {{4096, 256}, {4096, 256}});
  StateArena& arena = system.model().arena();
  const ProgramData words = RandomData(model.program, {std::vector<int>(sentences, kWords), {}}, 1);
  std::vector<double> encoder_us;
  Slots encoded;
  for (int run = 0; run < 20; ++run) {
    for (StateArena::Slot slot : encoded) arena.Free(slot);
    encoded = system.model().NewSlots(sentences);
    const double us = system.Run(words, {encoded, {}}, {});
    if (run >= 3) encoder_us.push_back(us);
  }
  if (how.empty()) {
    PrintSystem(first, "translator, encoder", dtype, sentences, sentences * kWords, encoder_us,
                system.workspace_bytes());
  }

  ProgramData prefix = RandomData(model.program, {{}, std::vector<int>(sentences, kPrefix)}, 2);
  (void)system.Run(prefix, {{}, encoded}, {});
  Slots hypotheses;
  std::vector<int> parents;
  for (int s = 0; s < sentences; ++s) {
    for (int i = 0; i < kBeam; ++i) {
      parents.push_back(s * kBeam + i / 2);
      Check(arena.Copy(encoded[s], &hypotheses.emplace_back()));
    }
  }
  const int rows = static_cast<int>(hypotheses.size());
  ProgramData data = RandomData(model.program, {{}, std::vector<int>(rows, 1)}, 3);
  data.ids[RandomTranslator::kTargets].assign(rows, -1);
  data.ids[RandomTranslator::kCounts].assign(rows, kBeam);
  std::vector<double> step_us;
  std::vector<double> reorder_us;
  for (int step = 0; step < kSteps; ++step) {
    const double us = system.Run(data, {{}, hypotheses}, {RandomTranslator::kCandidates});
    const double reordered =
        Microseconds([&] { Check(arena.Reorder(hypotheses.data(), parents.data(), rows)); });
    if (step < 3) continue;  // without a graph, or recording one
    step_us.push_back(us);
    reorder_us.push_back(reordered);
  }
  PrintSystem(false, ("translator, step" + how).c_str(), dtype, sentences, rows, step_us,
              system.workspace_bytes());
  if (!how.empty()) return;
  PrintSystem(false, "translator, reorder on the host", dtype, sentences, rows, reorder_us,
              system.workspace_bytes());
}

void BenchReader(Backend& backend, DataType dtype, int queries) {
  ReaderSizes sizes;  // DrQA's
  sizes.vocabulary_size = 20000;
  sizes.width = 300;
  sizes.hidden_size = 128;
  sizes.layers = 3;
  const RandomReader model(sizes);
  constexpr int kPassage = 130;
  constexpr int kQuestion = 12;
  System system(backend, model.program, dtype, {{8192, 256}, {8192, 256}, {0, 0}});
  ProgramData data =
      RandomData(model.program,
                 {std::vector<int>(queries, kPassage), std::vector<int>(queries, kQuestion)}, 1);
  std::vector<double> us;
  for (int run = 0; run < 60; ++run) {
    const double took = system.Run(data, {}, {RandomReader::kStart, RandomReader::kEnd});
    if (run >= 3) us.push_back(took);
  }
  PrintSystem(false, "reader", dtype, queries, queries * (kPassage + kQuestion), us,
              system.workspace_bytes());
}

int RunSystems() {
  std::unique_ptr<Backend> backend;
  Check(CreateBackend("cuda", BackendOptions(), &backend));
  std::printf("[\n");
  bool first = true;
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    for (const int sentences : {1, 32}) {
      BenchTranslator(*backend, dtype, sentences, first);
      first = false;
    }
    for (const int queries : {1, 32}) BenchReader(*backend, dtype, queries);
  }
  BackendOptions polling, dependent;
  polling.cuda_poll = std::chrono::microseconds(50);
  dependent.cuda_dependent_launch = true;
  for (const auto& [how, options] :
       {std::pair(", polling", polling), std::pair(", dependent launch", dependent)}) {
    Check(CreateBackend("cuda", options, &backend));
    BenchTranslator(*backend, DataType::kBFloat16, /*sentences=*/1, /*first=*/false, how);
  }
  std::printf("\n]\n");
  return 0;
}

int Main(int argc, char** argv) {
  const std::string command = argc == 2 ? argv[1] : "";
  if (command != "scan" && command != "classify" && command != "systems" &&
      command != "interactive") {
    std::fprintf(stderr, "usage: gpu_bench scan|classify|systems|interactive\n");
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
  if (command == "scan") {
    Check(cudaSetDevice(gpu->device().ordinal()));
    return RunScan(gpu->device());
  }
  if (command == "systems") return RunSystems();
  return command == "classify" ? RunClassify(gpu) : RunInteractive(gpu);
}

}  // namespace
}  // namespace sru::kernels::cuda

int main(int argc, char** argv) { return sru::kernels::cuda::Main(argc, argv); }
