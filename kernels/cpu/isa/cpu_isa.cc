#include "kernels/cpu/isa/cpu_isa.h"

#include <dnnl.h>

#include <cmath>
#include <random>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/mutex.h"

namespace sru::kernels::cpu {
namespace {

// What can be asked for by name, the best one of each kind of processor last.
struct IsaRow {
  const char* name;
  bool (*has)();
  const TileKernel& (*tiles)();
  bool limits;  // oneDNN and Highway, to `limit`
  dnnl_cpu_isa_t limit;
};
constexpr IsaRow kIsaRows[] = {
    {"avx2", HasAvx2, nullptr, true, dnnl_cpu_isa_avx2},
    {"avx512", HasAvx512, nullptr, true, dnnl_cpu_isa_avx512_core},
    {"avx512_bf16", HasAvx512Bf16, Avx512TileKernel, true, dnnl_cpu_isa_avx512_core_bf16},
    {"amx", HasAmx, AmxTileKernel, false, {}},
    {"neon", HasNeon, nullptr, false, {}},
};

std::string Machine() {
  std::string names;
  for (const IsaRow& row : kIsaRows) {
    if (row.has()) names += (names.empty() ? "" : ", ") + std::string(row.name);
  }
  return names.empty() ? "none of them" : names;
}

// Limits oneDNN and Highway once per process.
Status LimitProcess(const std::string& limit, dnnl_cpu_isa_t isa) {
  static Mutex& mutex = *new Mutex;
  static std::string& chosen = *new std::string;
  const MutexLock lock(&mutex);
  if (limit == chosen) return OkStatus();
  if (!chosen.empty() || dnnl_set_max_cpu_isa(isa) != dnnl_success) {
    return Status(StatusCode::kUnavailable, "cpu_isa: '", limit,
                  "' has to be chosen before the process computes with ",
                  chosen.empty() ? "another instruction set" : "'" + chosen + "'");
  }
  if (limit == "avx2") hwy::DisableTargets(HWY_AVX2 - 1);  // better ones have lower bits
  chosen = limit;
  return OkStatus();
}

void ChooseRow(const IsaRow& row, CpuIsa* isa) {
  isa->name = row.name;
  if (row.tiles == nullptr) return;
  isa->multiplies_bfloat16 = true;
  isa->tiles = &row.tiles();
  if (isa->tiles->unit == TileUnit::kAmx && !MultipliesRight(*isa->tiles)) {
    isa->tiles = &Avx512TileKernel();
    isa->note = "AMX tiles multiply wrongly";
  }
}

const TileKernel* emulated_tiles = nullptr;

// x w, w being as TileWeights stores it.
std::vector<float> PlainProduct(const TileProductCall& call) {
  const TileWeights& w = call.weights;
  std::vector<float> y(call.rows * w.row_size());
  for (size_t i = 0; i < y.size(); ++i) {
    const BFloat16* const x = call.x + i / w.row_size() * call.x_stride;
    const size_t panel = i % w.row_size() / kTileColumns;
    const BFloat16* const column = w.values + panel / w.matrices * w.block_size() +
                                   panel % w.matrices * kTilePair + i % kTileColumns * 2;
    for (int k = 0; k < w.k; ++k) {
      y[i] += ToFloat(x[k]) * ToFloat(column[k / 2 * w.matrices * kTilePair + k % 2]);
    }
  }
  return y;
}

}  // namespace

void AddEmulatedTiles(const TileKernel& kernel) { emulated_tiles = &kernel; }

bool MultipliesRight(const TileKernel& kernel) {
  constexpr int kRows = 45;  // two full groups of rows and a part
  constexpr int kK = 3 * kTileDepth;
  constexpr int kBlocks = 3;  // a pair and a single one
  std::minstd_rand random(1);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int matrices : {3, 4}) {
    const size_t columns = static_cast<size_t>(kBlocks) * matrices * kTileColumns;
    AlignedArray<BFloat16> x(static_cast<size_t>(kRows + kTileSpareRows) * kK);
    AlignedArray<BFloat16> w(columns * kK);
    for (size_t i = 0; i < x.size(); ++i) x.data()[i] = ToBFloat16(uniform(random));
    for (size_t i = 0; i < w.size(); ++i) w.data()[i] = ToBFloat16(uniform(random));
    TileProductCall call;
    call.weights = {kK, kBlocks, matrices, w.data()};
    call.x = x.data();
    call.x_stride = kK;
    call.rows = kRows;
    call.y_stride = columns;
    const std::vector<float> expected = PlainProduct(call);
    for (bool two_blocks : {false, true}) {
      std::vector<float> found(expected.size());
      call.two_blocks = two_blocks;
      call.y = found.data();
      kernel.product(call);
      // Sums of kK products below 1; another order of adding changes the last bits only.
      constexpr float kTolerance = 1e-5f * kK;
      for (size_t i = 0; i < found.size(); ++i) {
        if (!(std::abs(found[i] - expected[i]) <= kTolerance)) return false;
      }
    }
  }
  return true;
}

Status ChooseCpuIsa(const std::string& name, CpuIsa* isa) {
  *isa = CpuIsa();
  if (name == "amx_emulated" && emulated_tiles != nullptr) {
    isa->name = name;
    isa->tiles = emulated_tiles;
    isa->multiplies_bfloat16 = HasAvx512Bf16();
    return OkStatus();
  }
  const IsaRow* chosen = nullptr;
  for (const IsaRow& row : kIsaRows) {
    if (name == row.name || (name == "auto" && row.has())) chosen = &row;
  }
  if (chosen == nullptr && name == "auto") {
    isa->name = "baseline";
    return OkStatus();
  }
  if (chosen == nullptr) {
    return InvalidArgument(
        "cpu_isa: expected auto, avx2, avx512, avx512_bf16, amx or neon; found '", name, "'");
  }
  if (!chosen->has()) {
    return Status(StatusCode::kUnavailable, "cpu_isa: this machine has no '", name, "'; it has ",
                  Machine());
  }
  if (name != "auto" && chosen->limits) {
    SRU_RETURN_IF_ERROR(LimitProcess(name, chosen->limit));
  }
  ChooseRow(*chosen, isa);
  return OkStatus();
}

}  // namespace sru::kernels::cpu
