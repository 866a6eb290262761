#include "kernels/bench/measure.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

namespace sru::kernels {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<double> AlternatingMedians(const Rounds& rounds,
                                       const std::vector<std::function<void()>>& bodies,
                                       int* rounds_run) {
  constexpr int kWarmUp = 3;
  std::vector<std::vector<double>> times(bodies.size());
  double spent = 0;
  const auto run_all = [&] {
    for (size_t i = 0; i < bodies.size(); ++i) {
      times[i].push_back(Microseconds(bodies[i]));
      spent += times[i].back() * 1e-6;
    }
  };
  for (int i = 0; i < kWarmUp && spent < 0.1 * rounds.seconds; ++i) run_all();
  if (spent < rounds.seconds) {
    for (std::vector<double>& series : times) series.clear();
  }
  int round = static_cast<int>(times.front().size());
  while (round < rounds.least || (round < rounds.most && spent < rounds.seconds)) {
    run_all();
    ++round;
  }
  if (rounds_run != nullptr) *rounds_run = round;
  std::vector<double> medians;
  for (std::vector<double>& series : times) medians.push_back(Median(std::move(series)));
  return medians;
}

Status PinToCore(int core, int* pinned) {
  if (core == -1) core = sched_getcpu();
  if (core < 0 || core >= CPU_SETSIZE) {
    return InvalidArgument("core: expected -1 (the present one) to ", CPU_SETSIZE - 1, ", found ",
                           core);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) {
    return InvalidArgument("core: this process may not run on core ", core, ": ",
                           std::strerror(errno));
  }
  if (pinned != nullptr) *pinned = core;
  return OkStatus();
}

int64_t PeakMemoryBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

bool ResetPeakMemory() {
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;  // proc(5): resets the peak resident set size
  return clear.good();
}

}  // namespace sru::kernels
