// Broken variants of the kernels, to see that the shim's modes show what is broken. The waits and
// barriers of the kernels are compiled as macros here, each with a number: its site. A fault breaks
// a site: a wait or barrier is left out, a wait lets one group of copies too many be on its way, or
// a cluster's barrier is one of the block.
// Then a run in some mode must end in other bits, or not at all; each run is a process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

// First the shim: it defines CUDA's words for the kernels.
// clang-format off
#include "tests/kernels/cuda_host/launch_shim.h"
// clang-format on
#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/running_pool.cuh"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/cuda/kernels/tensor_core.cuh"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {
namespace {

enum class Kind { kWait, kRoleBarrier, kWarpBarrier, kBlockBarrier, kClusterBarrier };
enum class Break { kNothing, kMissing, kOneGroupTooFew, kOfBlockOnly };

struct Fault {
  Break how = Break::kNothing;
  std::set<int> sites;
};
Fault fault;
std::map<int, Kind> sites_seen;

bool IsBroken(int site, Kind kind, Break how) {
  sites_seen[site] = kind;
  return fault.how == how && fault.sites.count(site) > 0;
}

template <int kSite>
struct CheckedWait {
  template <int kPending>
  static void Wait() {
    if (IsBroken(kSite, Kind::kWait, Break::kMissing)) return;
    const bool too_few = IsBroken(kSite, Kind::kWait, Break::kOneGroupTooFew);
    WaitForCopies(kPending + (too_few ? 1 : 0));
  }
};
template <int kSite>
struct CheckedSyncBlocks {
  template <int kBlocks>
  static void Sync() {
    const Kind kind = kBlocks == 1 ? Kind::kBlockBarrier : Kind::kClusterBarrier;
    if (IsBroken(kSite, kind, Break::kMissing)) return;
    IsBroken(kSite, kind, Break::kOfBlockOnly) ? __syncthreads() : SyncBlocks<kBlocks>();
  }
};
void CheckedRoleBarrier(int site, int threads) {
  if (!IsBroken(site, Kind::kRoleBarrier, Break::kMissing)) RoleBarrier(threads);
}
void CheckedSyncWarp(int site) {
  if (!IsBroken(site, Kind::kWarpBarrier, Break::kMissing)) SyncWarp();
}
void CheckedSyncThreads(int site) {
  if (!IsBroken(site, Kind::kBlockBarrier, Break::kMissing)) __syncthreads();
}

}  // namespace
}  // namespace sru::kernels::cuda

// NOLINTBEGIN: macros are the point.
#define WaitForCopies CheckedWait<SRU_FAULT_FILE + __LINE__>::Wait
#define SyncBlocks CheckedSyncBlocks<SRU_FAULT_FILE + __LINE__>::Sync
#define RoleBarrier(threads) CheckedRoleBarrier(SRU_FAULT_FILE + __LINE__, threads)
#define SyncWarp() CheckedSyncWarp(SRU_FAULT_FILE + __LINE__)
#define __syncthreads() CheckedSyncThreads(SRU_FAULT_FILE + __LINE__)
// clang-format off
#define SRU_FAULT_FILE 10000
#include "kernels/cuda/kernels/scan.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 20000
#include "kernels/cuda/kernels/fused.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 30000
#include "kernels/cuda/kernels/head.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 40000
#include "kernels/cuda/kernels/block_math.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 50000
#include "kernels/cuda/kernels/pick.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 60000
#include "kernels/cuda/kernels/predict.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 70000
#include "kernels/cuda/kernels/attend.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 80000
#include "kernels/cuda/kernels/skinny.cuh"
#undef SRU_FAULT_FILE
#define SRU_FAULT_FILE 90000
// clang-format on
namespace sru::kernels::cuda {
namespace {

// Each thread hands a value down to the one before it; none of the kernels has threads that wait
// for later ones alone.
__global__ void HandDownKernel(int* from, int* to, int threads) {
  const int thread = static_cast<int>(threadIdx.x);
  from[thread] = thread + 1;
  __syncthreads();
  if (thread + 1 < threads) to[thread] = from[thread + 1];
}
// The other way.
__global__ void HandUpKernel(int* from, int* to) {
  const int thread = static_cast<int>(threadIdx.x);
  from[thread] = thread + 1;
  __syncthreads();
  if (thread > 0) to[thread] = from[thread - 1];
}

// Each thread reads its neighbour's place, which is then filled again by a copy that lands some
// time before it is waited for.
__global__ void RefillKernel(const int* from, int* to, int threads) {
  const int thread = static_cast<int>(threadIdx.x);
  const int other = (thread + 1) % threads;
  int* const place = reinterpret_cast<int*>(DynamicShared());
  int* const handed = place + threads;
  const SharedAddress own = SharedAddressOf(place + thread);
  BeginCopy<sizeof(int)>(own, from + thread);
  CommitCopies();
  WaitForCopies<0>();
  __syncthreads();
  to[thread] = place[other];
  __syncthreads();  // all have read
  BeginCopy<sizeof(int)>(own, from + threads + thread);
  CommitCopies();
  handed[thread] = thread + 1;
  __syncthreads();
  to[threads + thread] = handed[other];
  WaitForCopies<0>();
  __syncthreads();
  to[2 * threads + thread] = place[other];
}

}  // namespace
}  // namespace sru::kernels::cuda
#undef SRU_FAULT_FILE
#undef WaitForCopies
#undef RoleBarrier
#undef SyncWarp
#undef __syncthreads
// NOLINTEND

namespace sru::kernels::cuda {
namespace {

using ::sru::testing::kShimModes;
using ::sru::testing::Launch;
using ::sru::testing::LaunchIndependent;
using ::sru::testing::SetShimMode;
using ::sru::testing::ShimMode;

using Bytes = std::vector<uint8_t>;

template <typename T>
std::vector<T> Random(size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<T> values(size);
  for (T& value : values) value = FromFloat<T>(0.2f * normal(random));
  return values;
}

template <typename T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Sequences of these lengths, the longest first, one after the other.
std::vector<SequenceEntry> Sequences(const std::vector<int>& lengths) {
  std::vector<SequenceEntry> entries;
  int begin = 0;
  for (int length : lengths) {
    const int index = static_cast<int>(entries.size());
    entries.push_back({begin, length, index, Pooling::kNone, -1, -1, -1, -1});
    begin += length;
  }
  return entries;
}
int NumTokens(const std::vector<SequenceEntry>& entries) {
  return entries.back().begin + entries.back().length;
}

// More steps than a ring has places, and sequences shorter than it.
template <typename T, int kDims, bool kByToken>
Bytes RunScan() {
  const std::vector<SequenceEntry> entries = Sequences({70, 33, 9});
  constexpr int kPadded = 16;
  constexpr int kDirections = 2;
  constexpr int kVocabulary = 50;
  const int tokens = NumTokens(entries);
  const size_t rows = kByToken ? kVocabulary : tokens;
  ScanArgs args{};
  args.sequences = entries.data();
  args.num_sequences = static_cast<int>(entries.size());
  args.directions = kDirections;
  args.padded = kPadded;
  args.matrices = 3;
  args.u_stride = kDirections * 3 * kPadded;
  const auto u = Random<T>(rows * args.u_stride, 1);
  args.u = u.data();
  args.highway_stride = kDirections * kPadded;
  args.highway_direction_stride = kPadded;
  args.highway_scale = 1.0f;
  const auto highway = Random<T>(rows * args.highway_stride, 2);
  args.highway = highway.data();
  const auto constants = Random<float>(kDirections * 4 * kPadded, 3);
  args.constants = constants.data();
  std::vector<int32_t> ids(tokens);
  for (int t = 0; t < tokens; ++t) ids[t] = t * 7 % kVocabulary;
  if (kByToken) args.token_ids = ids.data();
  std::vector<T> h(static_cast<size_t>(tokens) * kDirections * kPadded);
  args.h = h.data();
  LaunchIndependent(
      ScanBlocks(args, kDims), kScanThreads,
      [&] { ScanKernel<T, kDims, kByToken, ScanOutput::kRows, Activation::kIdentity>(args); },
      ScanSharedBytes(kDims * static_cast<int>(sizeof(T)), kByToken));
  return BytesOf(h);
}

// With three matrices, since with four the scanners copy nothing. A block does several groups; the
// last chunk of some is the first half, of others the second.
template <int kInput, int kMatrices>
Bytes RunFused() {
  const std::vector<SequenceEntry> entries = Sequences({70, 40, 33, 30, 15, 9});
  constexpr int kPadded = 32;
  constexpr int kDirections = 2;
  const int tokens = NumTokens(entries);
  const int slices = kFusedMaxSlices;
  FusedArgs args{};
  args.k = kInput;
  const auto x = Random<BFloat16>(static_cast<size_t>(tokens) * kInput, 1);
  args.x = x.data();
  const auto weights = Random<BFloat16>(size_t{kDirections} * kMatrices * kPadded * kInput, 2);
  args.weights = weights.data();
  ScanArgs& scan = args.scan;
  scan.sequences = entries.data();
  scan.num_sequences = static_cast<int>(entries.size());
  scan.directions = kDirections;
  scan.padded = kPadded;
  scan.matrices = kMatrices;
  if (kMatrices == 3) scan.highway = x.data();
  scan.highway_stride = kInput;
  scan.highway_direction_stride = kPadded;
  scan.highway_scale = 1.0f;
  const auto constants = Random<float>(kDirections * 4 * kPadded, 3);
  scan.constants = constants.data();
  std::vector<BFloat16> h(static_cast<size_t>(tokens) * kDirections * kPadded);
  scan.h = h.data();
  const int blocks = FusedParts(scan, slices);
  Launch(
      blocks, FusedThreads(kMatrices, slices),
      [&] { FusedKernel<kInput, kMatrices>(args, slices, blocks); },
      FusedSharedBytes(kInput, kMatrices, slices));
  return BytesOf(h);
}

// More chunks than the ring has stages, in two blocks of four warps.
template <typename T>
Bytes RunSkinny() {
  constexpr int kRows = 9;
  constexpr int kWidth = 13 * kSkinnyChunk;
  constexpr int kColumns = 6 * SkinnyColumns(sizeof(T));
  const auto x = Random<T>(size_t{kRows} * kWidth, 1);
  const auto weights = Random<T>(size_t{kColumns} * kWidth, 2);
  std::vector<float> y(size_t{kRows} * kColumns);
  const SkinnyArgs args{kRows, kWidth, kColumns, x.data(), weights.data(), y.data()};
  const SkinnyLaunch launch = SkinnyLaunchOf(args, false, sizeof(T), 16, 1, size_t{227} << 10);
  Launch(
      launch.blocks, launch.threads,
      [&] { SkinnyKernel<T, float, 16, SkinnyArgs>(args, launch.warps); }, launch.shared_bytes);
  return BytesOf(y);
}

// With rows that are sums, which memory gets too.
template <typename T>
Bytes RunNormalizedSkinny() {
  constexpr int kRows = 17;  // one warp has three, the others two
  constexpr int kWidth = 3 * kSkinnyChunk;
  constexpr int kColumns = 6 * SkinnyColumns(sizeof(T));
  AxisHeader axis{};
  axis.rows.num_tokens = kRows;
  const auto a = Random<float>(size_t{kRows} * kWidth, 1);
  const auto b = Random<float>(size_t{kRows} * kWidth, 2);
  const auto norm_weight = Random<float>(kWidth, 3);
  const auto weights = Random<T>(size_t{kColumns} * kWidth, 4);
  std::vector<float> sums(size_t{kRows} * kWidth);
  std::vector<float> y(size_t{kRows} * kColumns);
  NormalizedProductArgs args{};
  static_cast<SkinnyArgs&>(args) = {kRows, kWidth, kColumns, nullptr, weights.data(), y.data()};
  args.norm.header = &axis.rows;
  args.norm.max_rows = kRows;
  args.norm.segments = 1;
  args.norm.size = args.norm.padded = kWidth;
  args.norm.sum = {a.data(), b.data(), nullptr};
  args.norm.x = sums.data();
  args.norm.weight = args.norm.bias = norm_weight.data();
  args.norm.epsilon = 1e-5f;
  args.append.axis = &axis;
  const SkinnyLaunch launch = SkinnyLaunchOf(args, true, sizeof(T), 32, 1, size_t{227} << 10);
  Launch(
      launch.blocks, launch.threads,
      [&] { SkinnyKernel<T, float, 32, NormalizedProductArgs>(args, launch.warps); },
      launch.shared_bytes);
  Bytes results = BytesOf(y);
  const Bytes more = BytesOf(sums);
  results.insert(results.end(), more.begin(), more.end());
  return results;
}

Bytes RunHead() {
  std::vector<SequenceEntry> entries = Sequences({1});
  entries[0].pool_row = entries[0].label_row = 0;
  HeadArgs args{};
  args.sequences = entries.data();
  args.num_sequences = 1;
  args.stride = 64;
  args.labels = 40;
  const auto pooled = Random<float>(args.stride, 1);
  const auto weight = Random<float>(static_cast<size_t>(args.labels) * args.stride, 2);
  const auto bias = Random<float>(args.labels, 3);
  args.pooled = pooled.data();
  args.weight = weight.data();
  args.bias = bias.data();
  std::vector<float> results(size_t{2} * args.labels);
  args.label_results = results.data();
  Launch(args.num_sequences, kRowThreads, [&] { HeadKernel<float>(args); });
  return BytesOf(results);
}

// Targets, candidates and picks of a row: greedy, and with as many as can be of equal logits at the
// borders of top_k and top_p.
template <int kThreads, int kBlocks, bool kPicks, bool kKeepsRow>
Bytes RunPredict() {
  constexpr int kWords = 5 * kThreads + 100;
  constexpr int kRows = 4;
  std::vector<float> logits(size_t{kRows} * kWords);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7919 % 97 % 12) / 4;
  // Candidates of every block of a cluster.
  for (int row = 0; row < kRows; ++row) {
    for (int k = 0; k < 5; ++k) {
      logits[row * kWords + (k + 1) * kWords / 6] = 5.0f - static_cast<float>(k) / 4;
    }
  }
  const std::vector<Sampling> sampling = {{0.0f, 0, 0, 0, 1},
                                          {1.0f, kWords / 3, 0.6f, 0.01f, ~0ULL / 3},
                                          {2.0f, 77, 0, 0, ~0ULL},
                                          {0.5f, 0, 0.9f, 0, ~0ULL / 2}};
  std::vector<Adjustment> adjustments;
  std::vector<int32_t> offsets = {0};
  for (int row = 0; row < kRows; ++row) {
    // Threads adjust logits that are other threads', of warps before and after theirs.
    for (int i = 0; i < 300 * ((row + 1) % 3); ++i) {
      adjustments.push_back({300 + 2 * i, 2.0f, 0.1f * static_cast<float>(i)});
    }
    offsets.push_back(static_cast<int32_t>(adjustments.size()));
  }
  std::vector<float> unadjusted(adjustments.size());
  const std::vector<int32_t> targets = {580, 300 + 2 * (kThreads - 1), 0, -1};
  const std::vector<int32_t> counts = {5, 0, 3, 0};
  std::vector<float> log_prob(kRows);
  std::vector<Candidate> candidates(size_t{kRows} * 5);
  const PredictHeader header = {{kRows, {}}, 5, 0, candidates.data()};
  std::vector<Candidate> picked(kRows);
  PredictArgs args{};
  args.header = &header;
  args.max_rows = kRows;
  args.logits = logits.data();
  args.logit_stride = args.vocabulary_size = kWords;
  std::vector<float> bias(kWords);
  for (int v = 0; v < kWords; ++v) bias[v] = static_cast<float>(v % 5) / 4;
  args.bias = bias.data();
  args.targets = targets.data();
  args.counts = counts.data();
  args.log_prob = log_prob.data();
  args.sampling = sampling.data();
  args.adjustment_offsets = offsets.data();
  args.adjustments = adjustments.data();
  args.unadjusted = unadjusted.data();
  args.picked = picked.data();
  Launch(
      int64_t{kRows} * kBlocks, kThreads,
      [&] { PredictKernel<kThreads, kBlocks, kPicks, kKeepsRow>(args); },
      PredictSharedBytes<kThreads, kBlocks>(kKeepsRow, kWords), kBlocks);
  Bytes results = BytesOf(log_prob);
  for (const Bytes& more : {BytesOf(candidates), BytesOf(picked)}) {
    results.insert(results.end(), more.begin(), more.end());
  }
  return results;
}

// Two heads, wider than a warp takes at a time, and more keys than it takes twice, with the weights
// of the first head.
Bytes RunAttend() {
  constexpr int kRows = 3;
  constexpr int kKeys = 70;
  constexpr int kWidth = 160;
  AxisHeader axis{};
  axis.rows.num_tokens = kRows;
  axis.num_sequences = 1;
  const std::vector<int32_t> row_sequence(kRows);
  const std::vector<int32_t> offsets = {0, kRows};
  const std::vector<int32_t> key_offsets = {0, kKeys};
  const std::vector<int64_t> attention_begin = {0};
  const auto q = Random<float>(size_t{kRows} * kWidth, 1);
  const auto keys = Random<float>(size_t{kKeys} * kWidth, 2);
  const auto values = Random<float>(size_t{kKeys} * kWidth, 3);
  std::vector<float> y(size_t{kRows} * kWidth);
  std::vector<float> attention(size_t{kRows} * kKeys);
  AttendArgs args{};
  args.axis = &axis;
  args.max_rows = kRows;
  args.heads = 2;
  args.key_width = args.value_width = kWidth;
  args.scale = 3.0f;
  args.row_sequence = row_sequence.data();
  args.offsets = offsets.data();
  args.q = q.data();
  args.y = y.data();
  args.keys = keys.data();
  args.values = values.data();
  args.q_stride = args.y_stride = args.key_stride = args.value_stride = kWidth;
  args.key_offsets = key_offsets.data();
  args.attention_begin = attention_begin.data();
  args.attention = attention.data();
  Launch(
      Blocks(kRows * args.heads * kWarpSize), kRowThreads, [&] { AttendKernel<float, true>(args); },
      kAttendSharedBytes);
  Bytes results = BytesOf(y);
  const Bytes weights = BytesOf(attention);
  results.insert(results.end(), weights.begin(), weights.end());
  return results;
}

constexpr int kHanded = 64;
Bytes RunHandDown() {
  std::vector<int> from(kHanded);
  std::vector<int> to(kHanded);
  Launch(1, kHanded, [&] { HandDownKernel(from.data(), to.data(), kHanded); });
  return BytesOf(to);
}
Bytes RunHandUp() {
  std::vector<int> from(kHanded);
  std::vector<int> to(kHanded);
  Launch(1, kHanded, [&] { HandUpKernel(from.data(), to.data()); });
  return BytesOf(to);
}

Bytes RunRefill() {
  std::vector<int> from(size_t{2} * kHanded);
  std::iota(from.begin(), from.end(), 1);
  std::vector<int> to(size_t{3} * kHanded);
  Launch(
      1, kHanded, [&] { RefillKernel(from.data(), to.data(), kHanded); },
      2 * kHanded * sizeof(int));
  return BytesOf(to);
}

struct KernelCase {
  const char* name;
  Bytes (*run)();
  // Barriers that no mode shows, and those of a cluster of which none shows that they are one of
  // the block.
  int hidden_barriers = 0;
  int hidden_clusters = 0;
};
constexpr KernelCase kCases[] = {
    {"scan", RunScan<float, 4, false>},
    {"scan_bfloat16", RunScan<BFloat16, 2, false>},
    {"scan_by_token", RunScan<float, 2, true>},
    {"fused", RunFused<64, 3>},
    {"skinny", RunSkinny<float>},
    {"skinny_bfloat16", RunSkinny<BFloat16>},
    // In either order the warps that only make layer norms run before those that multiply go on
    // (1).
    {"skinny_normalized", RunNormalizedSkinny<float>, 1},
    {"skinny_normalized_bfloat16", RunNormalizedSkinny<BFloat16>, 1},
    {"head", RunHead},
    // Before shared memory is used again there is always a shuffle, for which the shim's warps wait
    // for each other (2). Without one of those around the best keys more candidates are sorted than
    // need be, or one after the other (3). Parts of a row are summed anew only when the sum before
    // has been read, unless logits are no numbers (1).
    {"predict", RunPredict<kLargePredictThreads, 1, true, false>, 5},
    {"predict_kept", RunPredict<kLargePredictThreads, 1, true, true>, 5},
    // Best keys of another block that come too late are as above. Before a block ends that picks,
    // the cluster waits for other reasons (1).
    {"predict_cluster", RunPredict<kLargePredictThreads, kPredictCluster, true, true>, 5, 2},
    {"predict_cluster_scores", RunPredict<kLargePredictThreads, kPredictCluster, false, false>, 3,
     1},
    // The weights of the keys are replaced after a shuffle (1).
    {"attend", RunAttend, 1},
    {"hand_down", RunHandDown},
    {"hand_up", RunHandUp},
    {"refill", RunRefill},
};

// Whether the kernel ends with `expected`, in a process of its own.
bool Ends(const KernelCase& kernel, const ShimMode& mode, const Fault& with,
          const Bytes& expected) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    // A run that cannot go on says so, and dies.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(2);
    SetShimMode(mode);
    fault = with;
    _exit(kernel.run() == expected ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// In how many modes a fault shows, by the mode's number.
std::vector<bool> Shows(const KernelCase& kernel, const Fault& with, const Bytes& expected) {
  std::vector<bool> shows;
  for (const ShimMode& mode : kShimModes) shows.push_back(!Ends(kernel, mode, with, expected));
  return shows;
}

bool Any(const std::vector<bool>& shows) {
  return std::find(shows.begin(), shows.end(), true) != shows.end();
}

class CudaFaultsTest : public ::testing::TestWithParam<KernelCase> {
 protected:
  CudaFaultsTest() {
    sites_seen.clear();
    expected_ = GetParam().run();
    sites_ = sites_seen;
  }

  std::vector<int> Sites(Kind kind) const {
    std::vector<int> found;
    for (const auto& [site, of_kind] : sites_) {
      if (of_kind == kind) found.push_back(site);
    }
    return found;
  }
  void ExpectShown(const Fault& with) const {
    std::string sites;
    for (int site : with.sites) sites += " " + std::to_string(site);
    EXPECT_TRUE(Any(Shows(GetParam(), with, expected_))) << "in no mode:" << sites;
  }

  Bytes expected_;
  std::map<int, Kind> sites_;
};

TEST_P(CudaFaultsTest, WithoutAFaultAllModesGiveTheSameBits) {
  EXPECT_FALSE(sites_.empty());
  for (bool shows : Shows(GetParam(), Fault(), expected_)) EXPECT_FALSE(shows);
}

TEST_P(CudaFaultsTest, AMissingWaitShows) {
  for (int site : Sites(Kind::kWait)) ExpectShown({Break::kMissing, {site}});
}

TEST_P(CudaFaultsTest, AWaitForOneGroupTooFewShows) {
  for (int site : Sites(Kind::kWait)) ExpectShown({Break::kOneGroupTooFew, {site}});
}

TEST_P(CudaFaultsTest, AMissingBarrierShows) {
  std::vector<int> barriers = Sites(Kind::kWarpBarrier);
  for (int site : Sites(Kind::kBlockBarrier)) barriers.push_back(site);
  for (int site : Sites(Kind::kClusterBarrier)) barriers.push_back(site);
  if (GetParam().hidden_barriers == 0) {
    for (int site : barriers) ExpectShown({Break::kMissing, {site}});
  } else {
    const auto hidden = std::count_if(barriers.begin(), barriers.end(), [this](int site) {
      return !Any(Shows(GetParam(), {Break::kMissing, {site}}, expected_));
    });
    EXPECT_EQ(hidden, GetParam().hidden_barriers) << "of " << barriers.size();
  }
  const std::vector<int> roles = Sites(Kind::kRoleBarrier);
  for (int site : roles) ExpectShown({Break::kMissing, {site}});
  if (roles.empty()) return;
  if (roles.size() == 2) {  // the copying warp's and the others', in each chunk
    ExpectShown({Break::kMissing, {roles[0], roles[1]}});
    return;
  }
  // In the order of the source: the multipliers' in each chunk and after the last, then the
  // scanners' before the first chunk and in each. Without one of each role the others still match.
  ASSERT_EQ(roles.size(), 4u);
  ExpectShown({Break::kMissing, {roles[0], roles[3]}});
  ExpectShown({Break::kMissing, {roles[1], roles[2]}});
}

TEST_P(CudaFaultsTest, ABarrierOfTheBlockInPlaceOfTheClustersShows) {
  int hidden = 0;
  for (int site : Sites(Kind::kClusterBarrier)) {
    if (!Any(Shows(GetParam(), {Break::kOfBlockOnly, {site}}, expected_))) ++hidden;
  }
  EXPECT_EQ(hidden, GetParam().hidden_clusters);
}

enum class Misuse { kNone, kNoBarrierBefore, kNoBarrierAfter, kOneThreadElsewhere, kOtherMemory };

// Each thread of a cluster of two blocks reads what its twin has written.
__global__ void ExchangeKernel(int* to, Misuse misuse) {
  const int thread = static_cast<int>(threadIdx.x);
  const int block = static_cast<int>(blockIdx.x);
  int* const own = reinterpret_cast<int*>(DynamicShared()) + thread;
  *own = block + 1;
  if (misuse == Misuse::kOneThreadElsewhere && thread == 5) __syncthreads();
  if (misuse != Misuse::kNoBarrierBefore) SyncCluster();
  const void* const place = misuse == Misuse::kOtherMemory ? to : own;
  to[block * kHanded + thread] = *static_cast<int*>(SharedOfBlock(place, 1 - block % 2));
  if (misuse != Misuse::kNoBarrierAfter) SyncCluster();
}
std::vector<int> RunExchange(Misuse misuse, int blocks = 4) {
  std::vector<int> to(size_t{4} * kHanded);
  Launch(
      blocks, kHanded, [&] { ExchangeKernel(to.data(), misuse); }, kHanded * sizeof(int), 2);
  return to;
}

TEST(CudaFaultsDeathTest, MisuseOfAClusterShows) {
  const std::vector<int> to = RunExchange(Misuse::kNone);
  for (int block = 0; block < 4; ++block) {
    EXPECT_EQ(to[block * kHanded + 7], 1 + (block ^ 1)) << "of block " << block;
  }
  EXPECT_DEATH(RunExchange(Misuse::kNoBarrierBefore), "a block that may not have begun");
  EXPECT_DEATH(RunExchange(Misuse::kNoBarrierAfter), "a block that may have ended");
  EXPECT_DEATH(RunExchange(Misuse::kOneThreadElsewhere), "all threads wait, for different things");
  EXPECT_DEATH(RunExchange(Misuse::kOtherMemory), "a place that is not in shared memory");
  EXPECT_DEATH(RunExchange(Misuse::kNone, 3), "a grid that is not made of whole clusters");
}

// Which is why there are several: what no thread overtakes, or what comes late, hides a fault.
TEST(CudaFaultsModesTest, EachModeShowsWhatAnotherHides) {
  constexpr size_t kDefault = 0;
  constexpr size_t kEarly = 1;
  constexpr size_t kReversed = 2;
  bool only_early = false;
  bool only_late = false;
  bool only_reversed = false;
  bool only_in_order = false;
  for (const KernelCase& kernel : kCases) {
    sites_seen.clear();
    const Bytes expected = kernel.run();
    const std::map<int, Kind> sites = sites_seen;
    std::vector<Fault> faults;
    std::vector<int> roles;
    for (const auto& [site, kind] : sites) {
      faults.push_back({Break::kMissing, {site}});
      if (kind == Kind::kWait) faults.push_back({Break::kOneGroupTooFew, {site}});
      if (kind == Kind::kRoleBarrier) roles.push_back(site);
    }
    if (roles.size() == 4) {
      faults.push_back({Break::kMissing, {roles[0], roles[3]}});
      faults.push_back({Break::kMissing, {roles[1], roles[2]}});
    }
    for (const Fault& with : faults) {
      const std::vector<bool> shows = Shows(kernel, with, expected);
      only_early = only_early || (shows[kEarly] && !shows[kDefault]);
      only_late = only_late || (!shows[kEarly] && shows[kDefault]);
      only_reversed = only_reversed || (shows[kReversed] && !shows[kDefault]);
      only_in_order = only_in_order || (!shows[kReversed] && shows[kDefault]);
    }
  }
  EXPECT_TRUE(only_early);
  EXPECT_TRUE(only_late);
  EXPECT_TRUE(only_reversed);
  EXPECT_TRUE(only_in_order);
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaFaultsTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace sru::kernels::cuda
