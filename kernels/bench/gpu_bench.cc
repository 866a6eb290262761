// gpu_bench: what the CUDA backend's kernels and recorded forward passes take on this machine's
// GPU, timed by events over many launches in a row. Needs a GPU; exits with 77 where there is none.
//
//   gpu_bench scan         the scan alone on large batches: bytes a second over the device's copy
//                          rate
//   gpu_bench classify     one question of the bundled TREC model's shape: what the GPU and the
//                          copies take
//   gpu_bench systems      steps of a translator's beam search and of a language model, the
//                          encoder, and batches of a reader, with random weights of the paper's
//                          sizes: from the call of Run() to the results
//   gpu_bench step SYSTEM TYPE SEQUENCES
//                          one step of "translator" or "language_model" between cudaProfilerStart()
//                          and cudaProfilerStop(), without a graph, for ncu --profile-from-start
//                          off
//   gpu_bench predict      Predict with one block for each row, and with a cluster of blocks
//   gpu_bench products     each product of a decode step of the paper's systems, with weights from
//                          memory: our kernel, whether it has the bits of the reference
//                          (product_plan.h), the library's fastest with these bits and with any
//   gpu_bench fused        forward passes of 2 to 8 bfloat16 layers with and without a kernel for
//                          each layer
//   gpu_bench interactive  reads lines "layers input hidden directions length batch type", answers
//                          each with the microseconds of one forward pass; keeps two shapes in
//                          memory; compare_pytorch.py alternates them with PyTorch
//
// The types are float32, bfloat16 and bfloat16_fused (all layers that can be). All but step and
// interactive print a JSON object a line, whose members that end in _us are medians in
// microseconds.
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <list>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/system_case.h"
#include "kernels/cuda/device/gpu.h"
#include "kernels/cuda/device/open_devices.h"
#include "kernels/cuda/kernels/launch.h"
#include "kernels/cuda/kernels/predict_shape.h"
#include "kernels/cuda/kernels/scan_shape.h"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/cuda/stack/cuda_workspace.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/cuda/stack/stack_on_device.h"
#include "kernels/testing/random_stack.h"

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::RandomStack;
using ::sru::testing::StackOptions;

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

template <typename T>
std::unique_ptr<Memory> ToDevice(const std::vector<T>& values) {
  auto memory = std::make_unique<Memory>(values.size() * sizeof(T));
  Check(cudaMemcpy(memory->as(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  return memory;
}

// What is timed: work that is enqueued on a stream.
struct Work {
  cudaStream_t stream;
  std::function<void()> enqueue;
};

// Lives as long as the program, and so do its events.
class Timer {
 public:
  Timer() {
    Check(cudaEventCreate(&begin_));
    Check(cudaEventCreate(&end_));
  }

  // Microseconds of the work, repeated so often in a row that it takes about kTimedSeconds.
  double Microseconds(const Work& work) {
    const double once = Microseconds(work, 3);
    return Microseconds(work, std::clamp(static_cast<int>(1e6 * kTimedSeconds / once), 3, 10000));
  }
  // The medians of several timings, in which they take turns.
  std::vector<double> Medians(const std::vector<Work>& works) {
    // Memory was filled on the default stream, which other ones do not wait for.
    Check(cudaDeviceSynchronize());
    std::vector<std::vector<double>> times(works.size());
    for (int i = 0; i < kTimings; ++i) {
      for (size_t w = 0; w < works.size(); ++w) times[w].push_back(Microseconds(works[w]));
    }
    std::vector<double> medians;
    for (std::vector<double>& series : times) medians.push_back(Median(std::move(series)));
    return medians;
  }

 private:
  double Microseconds(const Work& work, int repeat) {
    Check(cudaEventRecord(begin_, work.stream));
    for (int i = 0; i < repeat; ++i) work.enqueue();
    Check(cudaEventRecord(end_, work.stream));
    Check(cudaEventSynchronize(end_));
    float milliseconds = 0;
    Check(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e3 / repeat;
  }

  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
};

// What every benchmark runs on.
struct Bench {
  std::shared_ptr<Gpu> gpu;
  cudaStream_t stream;
  Timer timer;
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

// Bytes read plus bytes written a microsecond by the device's own copy.
double CopyRate(Bench& bench) {
  constexpr size_t kBytes = size_t{1} << 30;
  const Memory from(kBytes);
  const Memory to(kBytes);
  const Work copy = {
      bench.stream, [&] {
        Check(cudaMemcpyAsync(to.as(), from.as(), kBytes, cudaMemcpyDeviceToDevice, bench.stream));
      }};
  return 2.0 * kBytes / bench.timer.Medians({copy})[0];
}

void PrintScan(Bench& bench, double copy_rate, DataType dtype, int directions, int hidden,
               int num_sequences) {
  constexpr int kLength = 128;
  const size_t tokens = size_t{1} * num_sequences * kLength;
  const size_t width = size_t{1} * directions * hidden;
  const size_t value = ValueBytes(dtype);
  const Memory u(tokens * width * 3 * value);
  const Memory x(tokens * width * value);
  const Memory h(tokens * width * value);
  const Memory constants(width * 4 * sizeof(float));
  std::vector<SequenceEntry> sequences;
  for (int i = 0; i < num_sequences; ++i) {
    sequences.push_back({i * kLength, kLength, i, Pooling::kNone, -1, -1, -1, -1});
  }
  const auto entries = ToDevice(sequences);
  ScanArgs args{};
  args.sequences = entries->as<SequenceEntry>();
  args.num_sequences = num_sequences;
  args.directions = directions;
  args.padded = hidden;
  args.u = u.as();
  args.u_stride = static_cast<int>(3 * width);
  args.matrices = 3;
  args.highway = x.as();
  args.highway_stride = static_cast<int>(width);
  args.highway_direction_stride = hidden;
  args.highway_scale = 1.0f;
  args.constants = constants.as<float>();
  args.h = h.as();
  const int dims = ScanDims(args, bench.gpu->device().num_multiprocessors());
  const Work scan = {bench.stream,
                     [&] { Check(LaunchScan(dtype, dims, args, LaunchStream{bench.stream})); }};
  const double us = bench.timer.Medians({scan})[0];
  // Three planes of U and the highway term are read, h is written.
  const double rate = static_cast<double>(tokens * width * 5 * value) / us;
  std::printf(
      "{\"dtype\": \"%s\", \"directions\": %d, \"hidden\": %d, \"sequences\": %d, "
      "\"length\": %d, \"scan_us\": %.2f, \"of_the_copy_rate\": %.3f}\n",
      DataTypeName(dtype), directions, hidden, num_sequences, kLength, us, rate / copy_rate);
  std::fflush(stdout);
}

void RunScan(Bench& bench) {
  const double copy_rate = CopyRate(bench);
  const struct {
    int directions, hidden, sequences;  // of float32
    int more;                           // times as many sequences of bfloat16
  } cases[] = {
      // Far more than the second-level cache holds.
      {2, 128, 1024, 2},
      {2, 256, 512, 2},
      {2, 512, 512, 1},
      {1, 1024, 512, 1},
      {2, 128, 32, 1},
      // On both sides of two blocks a multiprocessor of 132: two dimensions a thread, then four.
      {2, 128, 200, 1},
      {2, 128, 280, 1},
      // Half-empty blocks if a thread had four.
      {2, 64, 1024, 2},
  };
  for (const auto& c : cases) {
    PrintScan(bench, copy_rate, DataType::kFloat32, c.directions, c.hidden, c.sequences);
    PrintScan(bench, copy_rate, DataType::kBFloat16, c.directions, c.hidden, c.more * c.sequences);
  }
}

// Recorded forward passes -------------------------------------------------------------------------

// A stack with random weights, its workspace and a batch of equal lengths on the device.
class Forward {
 public:
  Forward(const std::shared_ptr<Gpu>& gpu, const StackOptions& options, const StackType& type,
          int length, int batch, uint32_t outputs)
      : random_(options, 1) {
    PackOptions pack;
    pack.dtype = type.dtype;
    pack.fuse_layers = type.fuse_layers;
    stack_ = std::make_unique<PackedStack>(random_.spec(), pack);
    std::unique_ptr<Stream> stream;
    Check(gpu->device().CreateStream(nullptr, &stream));
    Check(StackOnDevice::Create(*stack_, gpu, *stream, &on_device_));
    WorkspaceLimits limits;
    limits.max_tokens = length * batch;
    limits.max_sequences = batch;
    limits.states = false;
    Check(CudaWorkspace::Create(*stack_, gpu, *on_device_.plans, limits, &workspace_));

    bucket_.tokens = workspace_->token_buckets()[workspace_->TokenBucketIndex(limits.max_tokens)];
    bucket_.sequences = SequenceBucket(batch, batch);
    bucket_.flags = outputs;
    if (options.vocabulary_size == 0) bucket_.flags |= Bucket::kFeatures;
    WriteInput(length, batch);
    Copy();
    Check(workspace_->stream->Wait());
    const auto enqueue = [this] {
      return EnqueueForward(*stack_, *on_device_.weights, on_device_.token_table->Use(), bucket_,
                            *workspace_);
    };
    Check(workspace_->stream->Record(enqueue, &graph_));
    Launch();
    Check(workspace_->stream->Wait());
  }
  // The graph goes before the stream that it was recorded on.
  ~Forward() {
    (void)workspace_->stream->Wait();
    graph_.reset();
  }
  Forward(const Forward&) = delete;
  Forward& operator=(const Forward&) = delete;

  // A pass, with the copy of its input or without.
  Work Pass(bool with_copy = false) {
    return {static_cast<cudaStream_t>(workspace_->stream->native_handle()), [this, with_copy] {
              if (with_copy) Copy();
              Launch();
            }};
  }

 private:
  void Launch() { Check(workspace_->stream->Launch(*graph_)); }
  void Copy() {
    Check(workspace_->stream->CopyToDevice(workspace_->input.data(), workspace_->host_input.data(),
                                           input_bytes_));
  }
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
  StackOnDevice on_device_;
  std::unique_ptr<CudaWorkspace> workspace_;
  Bucket bucket_;
  size_t input_bytes_ = 0;
  std::unique_ptr<Graph> graph_;
};

// A forward pass of which every token's vector is wanted, as an LSTM gives them.
std::unique_ptr<Forward> Layers(const Bench& bench, int layers, int input, int hidden,
                                int directions, int length, int batch, const StackType& type) {
  StackOptions options;
  options.num_layers = layers;
  options.input_size = input;
  options.hidden_size = hidden;
  options.directions = directions;
  options.vocabulary_size = 0;
  options.num_labels = 0;
  return std::make_unique<Forward>(bench.gpu, options, type, length, batch, Bucket::kTokenVectors);
}

void RunInteractive(Bench& bench) {
  // Two shapes at most, the latest one first: timings of a fused and a plain stack alternate.
  // PyTorch shares the device's memory.
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
      int layers = 0, input = 0, hidden = 0, directions = 0, length = 0, batch = 0;
      std::string name;
      words >> layers >> input >> hidden >> directions >> length >> batch >> name;
      const auto type = std::find_if(std::begin(kStackTypes), std::end(kStackTypes),
                                     [&](const StackType& t) { return name == t.name; });
      if (words.fail() || type == std::end(kStackTypes)) {
        Fail("expected 'layers input hidden directions length batch type', found '" + line + "'");
      }
      forwards.emplace_front(
          line, Layers(bench, layers, input, hidden, directions, length, batch, *type));
    }
    std::printf("%.3f\n", bench.timer.Microseconds(forwards.front().second->Pass()));
    std::fflush(stdout);
  }
}

void RunFused(Bench& bench) {
  for (const int layers : {2, 4, 8}) {
    for (const int batch : {1, 32, 128}) {
      // The paper's classifier of sentences.
      const auto plain = Layers(bench, layers, 300, 128, 1, 32, batch, kStackTypes[1]);
      const auto fused = Layers(bench, layers, 300, 128, 1, 32, batch, kStackTypes[2]);
      const std::vector<double> us = bench.timer.Medians({plain->Pass(), fused->Pass()});
      std::printf("{\"layers\": %d, \"batch\": %d, \"plain_us\": %.2f, \"fused_us\": %.2f}\n",
                  layers, batch, us[0], us[1]);
      std::fflush(stdout);
    }
  }
}

// The copy of the input, the recorded pass and, in it, the copy of the result.
void RunClassify(Bench& bench) {
  StackOptions options;  // as models/pretrained/trec
  options.input_size = 128;
  options.hidden_size = 64;
  options.num_layers = 2;
  options.vocabulary_size = 8759;
  options.num_labels = 6;
  for (const StackType& type : kStackTypes) {
    Forward question(bench.gpu, options, type, /*length=*/10, /*batch=*/1, Bucket::kLabels);
    std::printf("{\"type\": \"%s\", \"gpu_and_copy_us\": %.2f}\n", type.name,
                bench.timer.Medians({question.Pass(/*with_copy=*/true)})[0]);
  }
}

// Whole systems -----------------------------------------------------------------------------------

// Prints a row for each batch, of a model that is compiled for all of them. Its bound is how long
// reading the weights of its products once takes at the device's copy rate.
void PrintSystems(const BackendOptions& options, const std::string& how, double copy_rate,
                  const std::vector<Case>& cases) {
  if (cases.empty()) return;
  std::unique_ptr<Backend> backend;
  Check(CreateBackend("cuda", options, &backend));
  std::unique_ptr<Model> model;
  const double load_us =
      Microseconds([&] { model = std::make_unique<Model>(cases, backend.get()); });
  Check(model->status());
  for (const Case& c : cases) {
    constexpr int kRuns = 40;
    constexpr int kWarmUp = 3;  // without a graph, or recording one
    System system(c, model.get());
    std::vector<double> us;
    for (int run = 0; run < kRuns; ++run) us.push_back(system.Run());
    Check(model->status());
    us.erase(us.begin(), us.begin() + kWarmUp);
    std::sort(us.begin(), us.end());
    double weights = 0;
    for (const ProductSize& product : ProductsOf(c)) weights += 1.0 * product.k * product.n;
    int rows = 0;
    for (const std::vector<int>& lengths : c.measured.lengths) {
      for (const int length : lengths) rows += length;
    }
    std::printf(
        "{\"name\": \"%s\", \"type\": \"%s\", \"sequences\": %d, \"rows\": %d, "
        "\"run_p50_us\": %.2f, \"run_p99_us\": %.2f, \"weights_us\": %.2f, "
        "\"workspace_mb\": %.1f, \"load_s\": %.2f}\n",
        (c.name + how).c_str(), DataTypeName(c.dtype), c.sequences(), rows, Median(us),
        us[us.size() * 99 / 100], weights * static_cast<double>(ValueBytes(c.dtype)) / copy_rate,
        static_cast<double>(model->workspace_bytes()) / 1e6, load_us / 1e6);
    std::fflush(stdout);
  }
}

void RunSystems(Bench& bench) {
  const auto translator = Translator(/*paper=*/true);
  const auto language_model = LanguageModel(1);
  const auto reader = Reader();
  BackendOptions sleeping = ServedOptions();
  sleeping.cuda_poll = {};
  BackendOptions by_library = ServedOptions();
  by_library.cuda_own_products = false;
  const struct {
    const char* how;
    BackendOptions options;
    std::vector<int> sentences, sessions, questions;
  } variants[] = {
      {"", ServedOptions(), {1, 32}, {1, 8, 64}, {1, 32}},
      {", products of the library alone", by_library, {1, 32}, {1, 64}, {}},
      {", without polling", sleeping, {1}, {1}, {}},
  };
  const double copy_rate = CopyRate(bench);
  for (const auto& variant : variants) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      std::vector<Case> translations, sessions, questions;
      for (const int count : variant.sentences) {
        translations.push_back(TranslatorEncode(translator, dtype, count));
        translations.push_back(TranslatorStep(translator, dtype, count));
      }
      for (const int count : variant.sessions) {
        sessions.push_back(LanguageModelStep(language_model, dtype, count));
      }
      for (const int count : variant.questions) {
        questions.push_back(ReaderBatch(reader, dtype, count));
      }
      for (const auto& cases : {translations, sessions, questions}) {
        PrintSystems(variant.options, variant.how, copy_rate, cases);
      }
    }
  }
}

// A profiler that starts and stops with it sees the kernels of one step.
void RunStep(const std::string& name, const std::string& type, int sequences) {
  DataType dtype;
  if (!ParseDataType(type, &dtype) || sequences < 1) {
    Fail("step: expected a type and a number of sequences");
  }
  if (name != "translator" && name != "language_model") {
    Fail("step: expected translator or language_model, found " + name);
  }
  const Case step = name == "translator" ? TranslatorStep(Translator(true), dtype, sequences)
                                         : LanguageModelStep(LanguageModel(1), dtype, sequences);
  std::unique_ptr<Backend> backend;
  Check(CreateBackend("cuda", ServedOptions(), &backend));
  Model model({step}, backend.get());
  System system(step, &model);
  Check(cudaProfilerStart());
  (void)system.Run();
  Check(cudaProfilerStop());
  Check(model.status());
}

// Predict -----------------------------------------------------------------------------------------

void RunPredict(Bench& bench) {
  const Device& device = bench.gpu->device();
  constexpr int kCandidates = 5;
  constexpr int kMostRows = 33;
  OperationLimits one_block;
  int shared_bytes = 0;
  Check(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                               device.ordinal()));
  one_block.max_shared_bytes = shared_bytes;
  OperationLimits clusters = one_block;
  clusters.max_clustered_rows = MaxClusteredRows(device.num_multiprocessors());
  for (const int vocabulary : {8200, 32000, 128000}) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0.0f, 3.0f);
    std::vector<float> values(size_t{kMostRows} * vocabulary);
    for (float& value : values) value = normal(random);
    const auto logits = ToDevice(values);
    const auto targets = ToDevice(std::vector<int32_t>(kMostRows, -1));
    const Memory log_prob(kMostRows * sizeof(float));
    const Memory candidates(kMostRows * kCandidates * sizeof(Candidate));
    const Memory picked(kMostRows * sizeof(Candidate));
    const struct {
      const char* name;
      int count;
      Sampling sampling;  // nothing is picked if the temperature is below 0
    } questions[] = {
        {"5 candidates", kCandidates, {-1, 0, 1, 0, 0}},
        {"most probable symbol", 0, {0, 0, 1, 0, 0}},
        {"top_k 40, top_p 0.9", 0, {1, 40, 0.9f, 0, 1ULL << 63}},
        {"top_p 0.9", 0, {1, 0, 0.9f, 0, 1ULL << 63}},
    };
    for (const auto& question : questions) {
      const auto counts = ToDevice(std::vector<int32_t>(kMostRows, question.count));
      const auto sampling = ToDevice(std::vector<Sampling>(kMostRows, question.sampling));
      for (const int rows : {1, 5, 16, kMostRows}) {
        const auto header = ToDevice(std::vector<PredictHeader>{
            {{rows, {}}, question.count, 0, candidates.as<Candidate>()}});
        PredictArgs args{};
        args.header = header->as<PredictHeader>();
        args.max_rows = rows;
        args.logits = logits->as<float>();
        args.logit_stride = args.vocabulary_size = vocabulary;
        args.targets = targets->as<int32_t>();
        args.counts = counts->as<int32_t>();
        args.log_prob = log_prob.as<float>();
        args.picked = picked.as<Candidate>();
        if (question.sampling.temperature >= 0) args.sampling = sampling->as<Sampling>();
        const auto launch = [&](const OperationLimits& limits) {
          return Work{bench.stream,
                      [&] { Check(LaunchOperation(args, limits, LaunchStream{bench.stream})); }};
        };
        const std::vector<double> us = bench.timer.Medians({launch(one_block), launch(clusters)});
        std::printf(
            "{\"vocabulary\": %d, \"rows\": %d, \"asked\": \"%s\", \"one_block_us\": %.2f, "
            "\"cluster_us\": %.2f}\n",
            vocabulary, rows, question.name, us[0], us[1]);
        std::fflush(stdout);
      }
    }
  }
}

// Products ----------------------------------------------------------------------------------------

std::unique_ptr<Memory> RandomValues(DataType dtype, size_t size) {
  return WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<T> values(size);
    for (T& value : values) value = FromFloat<T>(static_cast<float>(random()) * 0x1p-31f - 1.0f);
    return ToDevice(values);
  });
}

void PrintProducts(const std::shared_ptr<Gpu>& gpu, Stream& stream, const ProductShape& shape) {
  constexpr size_t kCandidates = 8;
  constexpr int kMostRows = kReferenceRows;
  const size_t result_bytes = shape.n * ValueBytes(shape.result_dtype());  // of a row
  const auto x = RandomValues(shape.dtype, size_t{kMostRows} * shape.k);
  const auto weights = RandomValues(shape.dtype, size_t{1} * shape.n * shape.k);
  const Memory y(kMostRows * result_bytes);
  const size_t cache_bytes = gpu->device().cache_bytes();
  const Memory evicting(cache_bytes);
  Check(cudaDeviceSynchronize());  // memory was filled on the default stream
  std::unique_ptr<ProductPlans> plans;
  Check(ProductPlans::Create({{shape, weights->as(), {}}}, gpu, &plans));
  PackedProduct product;
  product.shape = 0;
  const ProductAlgorithm reference = plans->reference(product);
  // Microseconds, or NAN where the algorithm refuses the shape.
  const auto time = [&](const ProductAlgorithm& algorithm, int rows) {
    double seconds = NAN;
    const Status status = stream.TimeProduct(shape, algorithm, rows, x->as(), weights->as(), y.as(),
                                             {evicting.as(), cache_bytes}, &seconds);
    return status.ok() ? seconds * 1e6 : NAN;
  };
  // The results, or none there.
  const auto results = [&](const ProductAlgorithm& algorithm, int rows) {
    std::vector<uint8_t> values(rows * result_bytes);
    const Status status = RunWork(stream, [&]() -> Status {
      SRU_RETURN_IF_ERROR(stream.Multiply(shape, algorithm, rows, x->as(), weights->as(), y.as()));
      return stream.CopyToHost(values.data(), y.as(), values.size());
    });
    if (!status.ok()) values.clear();
    return values;
  };
  for (const int rows : {16, 32, 48, 64, 128, 160, kMostRows}) {
    const std::vector<uint8_t> expected = results(reference, rows);
    std::vector<ProductAlgorithm> library;
    Check(gpu->device().ProductCandidates(shape, rows, kCandidates, &library));
    library.push_back(reference);
    double fastest = HUGE_VAL;
    double any = HUGE_VAL;
    for (const ProductAlgorithm& algorithm : library) {
      const double us = time(algorithm, rows);
      any = std::fmin(any, us);
      if (results(algorithm, rows) == expected) fastest = std::fmin(fastest, us);
    }
    const ProductAlgorithm own = {true, {}};
    const bool same = results(own, rows) == expected;
    std::printf(
        "{\"k\": %d, \"n\": %d, \"dtype\": \"%s\", \"result\": \"%s\", \"rows\": %d, "
        "\"own_us\": %.2f, \"same_bits\": %s, \"library_us\": %.2f, \"any_bits_us\": %.2f}\n",
        shape.k, shape.n, DataTypeName(shape.dtype), DataTypeName(shape.result_dtype()), rows,
        time(own, rows), same ? "true" : "false", fastest, any);
    std::fflush(stdout);
  }
}

void RunProducts(Bench& bench) {
  GpuStream stream;
  Check(GpuStream::Create(bench.gpu, &stream));
  // The translator's, its vocabulary, the language model's, a reader's layer and a classifier's.
  const std::pair<int, int> shapes[] = {{512, 1536}, {512, 512},   {512, 8192},
                                        {2048, 512}, {512, 32000}, {512, 6144},
                                        {2048, 256}, {256, 1024},  {128, 384}};
  for (const auto& [k, n] : shapes) {
    for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
      // The vocabulary's logits are float32, as is what follows layers of a program.
      const bool float32_result = n == 32000 || n == 256;
      PrintProducts(bench.gpu, *stream, {k, n, dtype, float32_result});
    }
  }
}

int Main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const std::pair<const char*, std::function<void(Bench&)>> commands[] = {
      {"scan", RunScan},
      {"classify", RunClassify},
      {"systems", RunSystems},
      {"predict", RunPredict},
      {"products", RunProducts},
      {"fused", RunFused},
      {"step", [&](Bench&) { RunStep(words[1], words[2], std::atoi(words[3].c_str())); }},
      {"interactive", RunInteractive},
  };
  const auto command = std::find_if(std::begin(commands), std::end(commands), [&](const auto& c) {
    return !words.empty() && words[0] == c.first;
  });
  if (command == std::end(commands) || words.size() != (words[0] == "step" ? 4 : 1)) {
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
  Check(cudaSetDevice(devices[0]->ordinal()));
  cudaStream_t stream = nullptr;
  Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Bench bench{std::make_shared<Gpu>(std::move(devices[0]), BackendOptions()), stream, {}};
  command->second(bench);
  return 0;
}

}  // namespace
}  // namespace sru::kernels::cuda

int main(int argc, char** argv) { return sru::kernels::cuda::Main(argc, argv); }
