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

std::string Machine() {
  std::string names;
  const auto add = [&](bool has, const char* name) {
    if (has) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(HasAvx2(), "avx2");
  add(HasAvx512(), "avx512");
  add(HasAvx512Bf16(), "avx512_bf16");
  add(HasAmx(), "amx");
  add(HasNeon(), "neon");
  return names.empty() ? "none of them" : names;
}

// Limits oneDNN and Highway once per process.
class ProcessLimit {
 public:
  // `limit` is "avx2", "avx512", "avx512_bf16" or empty for none.
  Status Set(const std::string& limit, dnnl_cpu_isa_t isa) {
    const MutexLock lock(&mutex_);
    if (limit.empty() || limit == limit_) return OkStatus();
    if (!limit_.empty() || dnnl_set_max_cpu_isa(isa) != dnnl_success) {
      return Status(StatusCode::kUnavailable, "cpu_isa: '", limit,
                    "' has to be chosen before the process computes with ",
                    limit_.empty() ? "another instruction set" : "'" + limit_ + "'");
    }
    if (limit == "avx2") hwy::DisableTargets(HWY_AVX2 - 1);  // better ones have lower bits
    limit_ = limit;
    return OkStatus();
  }

 private:
  Mutex mutex_;
  std::string limit_ SRU_GUARDED_BY(mutex_);
};

ProcessLimit& Limit() {
  static ProcessLimit limit;
  return limit;
}

void ChooseBest(CpuIsa* isa) {
  if (HasAmx()) {
    isa->name = "amx";
    isa->products = BFloat16Products::kOneDnn;
    if (MultipliesRight(AmxTileKernel())) {
      isa->tiles = &AmxTileKernel();
    } else {
      isa->note = "bfloat16 by oneDNN: AMX tiles multiply wrongly";
    }
  } else if (HasAvx512Bf16()) {
    isa->name = "avx512_bf16";
    isa->products = BFloat16Products::kOneDnn;
    isa->tiles = &Avx512TileKernel();
  } else {
    isa->name = HasAvx512() ? "avx512" : HasAvx2() ? "avx2" : HasNeon() ? "neon" : "baseline";
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
  if (name == "auto") {
    ChooseBest(isa);
    return OkStatus();
  }
  const auto require = [&](bool has) {
    if (has) return OkStatus();
    return Status(StatusCode::kUnavailable, "cpu_isa: this machine has no '", name, "'; it has ",
                  Machine());
  };
  isa->name = name;
  Status status;
  if (name == "avx2") {
    status = require(HasAvx2());
    if (status.ok()) status = Limit().Set(name, dnnl_cpu_isa_avx2);
  } else if (name == "avx512") {
    status = require(HasAvx512());
    if (status.ok()) status = Limit().Set(name, dnnl_cpu_isa_avx512_core);
  } else if (name == "avx512_bf16" || name == "onednn_bf16") {
    status = require(HasAvx512Bf16());
    if (status.ok()) status = Limit().Set("avx512_bf16", dnnl_cpu_isa_avx512_core_bf16);
    isa->products = BFloat16Products::kOneDnn;
    if (name == "avx512_bf16") isa->tiles = &Avx512TileKernel();
  } else if (name == "amx") {
    status = require(HasAmx());
    if (status.ok()) ChooseBest(isa);
  } else if (name == "neon") {
    status = require(HasNeon());
  } else if (name == "amx_emulated" && emulated_tiles != nullptr) {
    isa->tiles = emulated_tiles;
    if (HasAvx512Bf16()) isa->products = BFloat16Products::kOneDnn;
  } else {
    status = InvalidArgument(
        "cpu_isa: expected auto, avx2, avx512, avx512_bf16, amx, neon or onednn_bf16; found '",
        name, "'");
  }
  return status;
}

}  // namespace sru::kernels::cpu
