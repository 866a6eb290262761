#include "bench/capacity_calls.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sru::bench {
namespace {

constexpr int kMaxLength = 100000;

// One step of SplitMix64 (Steele, Lea, Flood 2014): a generator without a state to set up for each call.
uint64_t Mix(uint64_t* state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

}  // namespace

double CallMix::mean_tokens() const {
  const double sum = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  return sequences * sum / static_cast<double>(lengths.size());
}

int CallMix::longest() const { return *std::max_element(lengths.begin(), lengths.end()); }

absl::StatusOr<std::vector<int>> ReadLengths(const std::string& path, absl::string_view flag) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat("--", flag, ": ", path, ": cannot be read"));
  std::vector<int> lengths;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text.empty()) continue;
    int length = 0;
    if (!absl::SimpleAtoi(text, &length) || length < 1 || length > kMaxLength) {
      return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, ":", number,
                                                     ": expected a length from 1 to ", kMaxLength,
                                                     ", found '", text.substr(0, 40), "'"));
    }
    lengths.push_back(length);
  }
  if (lengths.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, ": has no lengths"));
  }
  return lengths;
}

SimulatedCall CallSource::Draw(int64_t due_ns) {
  SimulatedCall call;
  call.due_ns = due_ns;
  if (mix_->deadline_ns > 0) call.deadline_ns = due_ns + mix_->deadline_ns;
  if (mix_->low_share > 0 && std::uniform_real_distribution<>()(random_) < mix_->low_share) {
    call.priority = server::Priority::kLow;
  }
  call.seed = random_();
  return call;
}

std::vector<server::SequenceTask> SequencesOf(const CallMix& mix, const SimulatedCall& call) {
  std::vector<server::SequenceTask> tasks(mix.sequences);
  uint64_t state = call.seed;
  for (server::SequenceTask& task : tasks) {
    task.num_tokens = mix.lengths[Mix(&state) % mix.lengths.size()];
  }
  return tasks;
}

}  // namespace sru::bench
