#include "kernels/bench/scan_alone.h"

#include <algorithm>
#include <random>

#include "kernels/common/highway.h"
#include "kernels/cpu/base/row_layout.h"

namespace sru::kernels {
namespace {

using cpu::AlignedBuffer;
using cpu::RowLayout;
using cpu::ScanParameters;
using cpu::ScanSteps;

constexpr int kPlanes = 4;

void FillNormal(AlignedBuffer& buffer, unsigned seed) {
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  std::generate_n(buffer.data(), buffer.size(), [&] { return normal(random); });
}

}  // namespace

ScanAlone::ScanAlone(const StackSpec& spec, const std::vector<int>& lengths) : lengths_(lengths) {
  int widest = 0;
  for (const LayerSpec& layer : spec.layers) {
    widest = std::max(widest, RowLayout::RoundUp(layer.hidden_size));
  }
  constants_ = AlignedBuffer(static_cast<size_t>(4) * widest);
  u_ = AlignedBuffer(static_cast<size_t>(kRows) * kPlanes * widest);
  x_ = AlignedBuffer(static_cast<size_t>(kRows) * widest);
  h_ = AlignedBuffer(static_cast<size_t>(kRows) * widest);
  c_ = AlignedBuffer(widest);
  FillNormal(constants_, 1);
  FillNormal(u_, 2);
  FillNormal(x_, 3);
  for (const LayerSpec& layer : spec.layers) {
    const int padded = RowLayout::RoundUp(layer.hidden_size);
    ScanParameters parameters;
    parameters.padded = padded;
    parameters.highway = HighwayOf(layer);
    parameters.activation = layer.activation;
    parameters.alpha = layer.alpha;
    parameters.v_f = constants_.data();
    parameters.v_r = constants_.data() + padded;
    parameters.b_f = constants_.data() + 2 * padded;
    parameters.b_r = constants_.data() + 3 * padded;
    layers_.push_back({parameters, layer.directions});
  }
}

void ScanAlone::Run() {
  for (const LayerScan& layer : layers_) {
    for (int d = 0; d < layer.directions; ++d) RunDirection(layer.parameters);
  }
}

void ScanAlone::RunDirection(const ScanParameters& parameters) {
  const ptrdiff_t planes = parameters.highway == Highway::kMatrix ? 4 : 3;
  // Sequences lie one after the other and are cut where the buffer ends, as in a batch.
  int row = 0;
  for (const int length : lengths_) {
    std::fill_n(c_.data(), parameters.padded, 0.0f);
    for (int done = 0; done < length;) {
      ScanSteps steps;
      steps.steps = std::min(length - done, kRows - row);
      steps.u_stride = planes * parameters.padded;
      steps.u = u_.data() + row * steps.u_stride;
      steps.x_stride = steps.h_stride = parameters.padded;
      steps.x = x_.data() + row * steps.x_stride;
      steps.h = h_.data() + row * steps.h_stride;
      steps.c = c_.data();
      cpu::Scan(parameters, steps);
      done += steps.steps;
      row = (row + steps.steps) % kRows;
    }
  }
}

}  // namespace sru::kernels
