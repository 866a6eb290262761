#include "bench/capacity_speed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

constexpr int kTerms = 4;
using Row = std::array<double, kTerms>;

Row TermsOf(const BatchSample& sample) {
  return {1.0, static_cast<double>(sample.tokens), static_cast<double>(sample.sequences),
          static_cast<double>(sample.longest)};
}

// Least squares over the terms in `used` by the normal equations, which Gauss and Jordan solve. False if
// the samples do not tell the terms apart.
bool Solve(const std::vector<BatchSample>& samples, unsigned used, Row* solution) {
  std::vector<int> terms;
  for (int i = 0; i < kTerms; ++i) {
    if ((used >> i & 1) != 0) terms.push_back(i);
  }
  const size_t n = terms.size();
  std::array<std::array<double, kTerms + 1>, kTerms> a{};
  for (const BatchSample& sample : samples) {
    Row row = TermsOf(sample);
    for (double& value : row) value /= sample.us;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) a[i][j] += row[terms[i]] * row[terms[j]];
      a[i][n] += row[terms[i]];
    }
  }
  Row scale{};  // of the diagonal, as the terms differ by orders of magnitude
  for (size_t i = 0; i < n; ++i) scale[i] = a[i][i];
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t i = column + 1; i < n; ++i) {
      if (std::abs(a[i][column]) > std::abs(a[pivot][column])) pivot = i;
    }
    if (std::abs(a[pivot][column]) < 1e-9 * scale[column]) return false;
    std::swap(a[column], a[pivot]);
    for (size_t i = 0; i < n; ++i) {
      if (i == column) continue;
      const double factor = a[i][column] / a[column][column];
      for (size_t j = column; j <= n; ++j) a[i][j] -= factor * a[column][j];
    }
  }
  *solution = {};
  for (size_t i = 0; i < n; ++i) (*solution)[terms[i]] = a[i][n] / a[i][i];
  return true;
}

double RelativeError(const BatchTime& time, const BatchSample& sample) {
  return time.Us(sample.tokens, sample.sequences, sample.longest) / sample.us - 1;
}

// One line per field: its path in the file, and where it is kept.
struct NumberField {
  const char* group;
  const char* name;
  double* value;
  bool optional = false;  // files that were written before there was one do not have it
};

std::vector<NumberField> Numbers(MachineSpeed* speed) {
  std::vector<NumberField> fields = {{"batch", "fixed_us", &speed->batch.fixed_us},
                                     {"batch", "token_us", &speed->batch.token_us},
                                     {"batch", "sequence_us", &speed->batch.sequence_us},
                                     {"batch", "step_us", &speed->batch.step_us},
                                     {"batch", "largest_error", &speed->batch_error},
                                     {"pauses", "per_s", &speed->pauses.per_s}};
  for (const auto& [group, cost] :
       {std::pair<const char*, CallCost*>{"call", &speed->call}, {"client", &speed->client}}) {
    fields.push_back({group, "wake_us", &cost->wake_us});
    fields.push_back({group, "turn_us", &cost->turn_us});
    fields.push_back({group, "call_us", &cost->call_us});
    fields.push_back({group, "sequence_us", &cost->sequence_us});
  }
  fields.push_back({"call", "crowd_us", &speed->call.crowd_us, /*optional=*/true});
  return fields;
}

}  // namespace

absl::StatusOr<BatchTime> FitBatchTime(const std::vector<BatchSample>& samples) {
  if (samples.empty()) return absl::InvalidArgumentError("no batch was measured");
  for (const BatchSample& sample : samples) {
    if (!(sample.us > 0) || sample.tokens < 1 || sample.sequences < 1 || sample.longest < 1) {
      return absl::InvalidArgumentError("a batch and its time must be positive");
    }
  }
  // With four terms the best fit without negative parts can be had by trying all choices of terms.
  Row best{};
  double least = -1;
  for (unsigned used = 1; used < 1U << kTerms; ++used) {
    Row row{};
    if (!Solve(samples, used, &row)) continue;
    if (*std::min_element(row.begin(), row.end()) < 0) continue;
    double error = 0;
    for (const BatchSample& sample : samples) {
      error += std::pow(RelativeError({row[0], row[1], row[2], row[3]}, sample), 2);
    }
    if (least >= 0 && error >= least) continue;
    least = error;
    best = row;
  }
  return BatchTime{best[0], best[1], best[2], best[3]};
}

double LargestError(const BatchTime& time, const std::vector<BatchSample>& samples) {
  double largest = 0;
  for (const BatchSample& sample : samples) {
    largest = std::max(largest, std::abs(RelativeError(time, sample)));
  }
  return largest;
}

double MeanPauseUs(const Pauses& pauses) {
  if (pauses.us.empty()) return 0;
  return std::accumulate(pauses.us.begin(), pauses.us.end(), 0.0) /
         static_cast<double>(pauses.us.size());
}

absl::Status CheckSpeed(const MachineSpeed& speed) {
  if (speed.cores < 1 || speed.cores > 4096) {
    return absl::InvalidArgumentError(
        absl::StrCat("cores: expected 1 to 4096, found ", speed.cores));
  }
  MachineSpeed copy = speed;
  for (const NumberField& field : Numbers(&copy)) {
    if (!(*field.value >= 0 && *field.value <= 1e9)) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.group, ".", field.name, ": expected 0 to 1e9, found ", *field.value));
    }
  }
  for (double us : speed.pauses.us) {
    if (!(us >= 0 && us <= 1e9)) {
      return absl::InvalidArgumentError(absl::StrCat("pauses.us: expected 0 to 1e9, found ", us));
    }
  }
  if (speed.batch.Us(1, 1, 1) <= 0) {
    return absl::InvalidArgumentError("batch: expected a time of more than 0");
  }
  return absl::OkStatus();
}

absl::Status SaveSpeed(const MachineSpeed& speed, const std::string& path) {
  nlohmann::ordered_json json = {{"machine", speed.machine},
                                 {"model", speed.model},
                                 {"backend", speed.backend},
                                 {"dtype", speed.dtype},
                                 {"cores", speed.cores}};
  MachineSpeed copy = speed;
  for (const NumberField& field : Numbers(&copy)) json[field.group][field.name] = *field.value;
  json["pauses"]["us"] = speed.pauses.us;
  std::ofstream out(path);
  out << json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::StatusOr<MachineSpeed> LoadSpeed(const std::string& path) {
  std::ifstream in(path);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  const nlohmann::json json = nlohmann::json::parse(in, nullptr, /*allow_exceptions=*/false);
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
  };
  if (!json.is_object()) return wrong("expected a JSON object, as --save_speed writes it");
  MachineSpeed speed;
  for (const auto& [name, text] : {std::pair<const char*, std::string*>{"machine", &speed.machine},
                                   {"model", &speed.model},
                                   {"backend", &speed.backend},
                                   {"dtype", &speed.dtype}}) {
    if (!json.contains(name) || !json[name].is_string()) {
      return wrong(absl::StrCat(name, ": expected a text"));
    }
    *text = json[name].get<std::string>();
  }
  if (!json.contains("cores") || !json["cores"].is_number_integer()) {
    return wrong("cores: expected a whole number");
  }
  speed.cores = json["cores"].get<int>();
  for (const NumberField& field : Numbers(&speed)) {
    const auto group = json.find(field.group);
    if (field.optional && group != json.end() && group->is_object() &&
        !group->contains(field.name)) {
      continue;
    }
    if (group == json.end() || !group->is_object() || !group->contains(field.name) ||
        !(*group)[field.name].is_number()) {
      return wrong(absl::StrCat(field.group, ".", field.name, ": expected a number"));
    }
    *field.value = (*group)[field.name].get<double>();
  }
  const nlohmann::json lengths = json["pauses"].value("us", nlohmann::json::array());
  const bool all_numbers =
      lengths.is_array() && std::all_of(lengths.begin(), lengths.end(),
                                        [](const nlohmann::json& us) { return us.is_number(); });
  if (!all_numbers) return wrong("pauses.us: expected a list of numbers");
  speed.pauses.us = lengths.get<std::vector<double>>();
  if (absl::Status status = CheckSpeed(speed); !status.ok()) return wrong(status.message());
  return speed;
}

}  // namespace sru::bench
