#include "bench/capacity_measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/model_timer.h"
#include "bench/shape_list.h"
#include "kernels/bench/measure.h"
#include "models/kernel_status.h"
#include "models/repository.h"

namespace sru::bench {
namespace {

constexpr double kLeastPauseS = 100e-6;

int TotalOf(const std::vector<int>& lengths) {
  int total = 0;
  for (int length : lengths) total += length;
  return total;
}

// `count` of the lengths, evenly over the sorted distribution and times `factor`.
std::vector<int> Spread(const std::vector<int>& sorted, int count, double factor) {
  std::vector<int> lengths(count);
  for (int i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>((i + 0.5) / count * static_cast<double>(sorted.size()));
    lengths[i] = std::max(1, static_cast<int>(sorted[at] * factor + 0.5));
  }
  return lengths;
}

}  // namespace

absl::StatusOr<CapacityModel> LoadCapacityModel(const CapacityModelOptions& options) {
  auto dtype = ParseDataType(options.dtype);
  if (!dtype.ok()) return dtype.status();
  std::filesystem::path path(options.path);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  std::error_code error;
  path = std::filesystem::absolute(path, error).lexically_normal();
  int64_t version = 0;
  if (std::filesystem::exists(path / "config.json", error) &&
      absl::SimpleAtoi(path.filename().string(), &version)) {
    path = path.parent_path();
  }
  const std::string name = path.filename().string();
  CapacityModel found;
  found.repository = path.parent_path().string();
  auto listing = models::ScanModel(found.repository, name);
  if (!listing.ok() || listing->versions.empty()) {
    return absl::NotFoundError(
        absl::StrCat("--model: ", options.path,
                     ": expected the directory of a model, such as models/pretrained/trec, or of a "
                     "version in it",
                     listing.ok() ? "" : absl::StrCat(" (", listing.status().message(), ")")));
  }
  models::ModelLocation location = listing->versions.back();
  for (const models::ModelLocation& other : listing->versions) {
    if (other.version == version) location = other;
  }
  kernels::BackendOptions hardware;
  hardware.cpu_isa = options.cpu_isa;
  hardware.cpu_threads = 1;
  std::unique_ptr<kernels::Backend> backend;
  if (kernels::Status status = kernels::CreateBackend(options.backend, hardware, &backend);
      !status.ok()) {
    return models::ToAbslStatus(status);
  }
  kernels::CompileOptions compile;
  compile.dtype = *dtype;
  auto model =
      models::Model::Load(location.directory, location.name, location.version, *backend, compile);
  if (!model.ok()) return model.status();
  found.model = *std::move(model);
  const models::Task task = found.model->task();
  if (task != models::Task::kClassifier && task != models::Task::kEncoder) {
    return absl::InvalidArgumentError(
        absl::StrCat("--model: expected a classifier or an encoder, found '", name,
                     "', which is a ", models::TaskName(task)));
  }
  return found;
}

absl::StatusOr<std::vector<BatchSample>> MeasureBatches(const models::Model& model,
                                                        const std::vector<int>& lengths,
                                                        int max_batch_tokens,
                                                        int max_batch_sequences, int threads,
                                                        double seconds) {
  std::vector<int> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::vector<int>> shapes;
  for (const double factor : {1.0, 0.5, 2.0}) {
    for (int count = 1; count <= max_batch_sequences; count *= 2) {
      std::vector<int> shape = Spread(sorted, count, factor);
      if (TotalOf(shape) > max_batch_tokens) break;
      shapes.push_back(std::move(shape));
    }
  }
  if (shapes.empty()) shapes.push_back({max_batch_tokens});

  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  const absl::Cleanup join = [&] {
    stop = true;
    for (std::thread& thread : others) thread.join();
  };
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&] {
      ModelTimer timer(model.executable(), model.spec(), OutputKind::kAuto);
      if (!timer.Prepare(shapes[shapes.size() / 6]).ok()) return;
      while (!stop.load(std::memory_order_relaxed) && timer.Run().ok()) {
      }
    });
  }

  std::vector<ModelTimer> timers;
  timers.reserve(shapes.size());
  std::vector<std::function<void()>> bodies;
  absl::Status status;
  for (const std::vector<int>& shape : shapes) {
    ModelTimer& timer = timers.emplace_back(model.executable(), model.spec(), OutputKind::kAuto);
    status.Update(timer.Prepare(shape));
    bodies.push_back([&status, &timer] { status.Update(timer.Run()); });
  }
  if (!status.ok()) return status;
  kernels::Rounds rounds;
  rounds.most = 201;
  rounds.seconds = seconds;
  const std::vector<double> medians = kernels::AlternatingMedians(rounds, bodies);
  if (!status.ok()) return status;
  std::vector<BatchSample> samples;
  for (size_t i = 0; i < shapes.size(); ++i) {
    samples.push_back({TotalOf(shapes[i]), static_cast<int64_t>(shapes[i].size()),
                       *std::max_element(shapes[i].begin(), shapes[i].end()), medians[i]});
  }
  return samples;
}

Pauses MeasurePauses(int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  Pauses pauses;
  std::mutex mutex;  // guards `pauses` until the readers have ended
  std::vector<std::thread> readers;
  for (int i = 0; i < threads; ++i) {
    readers.emplace_back([&] {
      std::vector<double> found;
      const auto start = Clock::now();
      auto last = start;
      while (std::chrono::duration<double>(last - start).count() < seconds) {
        const auto now = Clock::now();
        const double gap_s = std::chrono::duration<double>(now - last).count();
        if (gap_s > kLeastPauseS) found.push_back(gap_s * 1e6);
        last = now;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      pauses.us.insert(pauses.us.end(), found.begin(), found.end());
    });
  }
  for (std::thread& reader : readers) reader.join();
  pauses.per_s = static_cast<double>(pauses.us.size()) / (seconds * threads);
  std::sort(pauses.us.begin(), pauses.us.end());
  return pauses;
}

absl::StatusOr<std::vector<int>> LengthsOfTexts(const models::Model& model,
                                                const std::vector<std::string>& texts) {
  if (model.tokenizer() == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--input: model ", model.name(),
                     " takes no text; say how long its sequences are by --lengths"));
  }
  std::vector<int> lengths;
  for (const std::string& text : texts) {
    const auto ids = model.tokenizer()->Encode(text);
    if (!ids.ok()) return ids.status();
    if (!ids->empty()) lengths.push_back(static_cast<int>(ids->size()));
  }
  if (lengths.empty()) return absl::InvalidArgumentError("--input: no text has a token");
  return lengths;
}

std::string MachineName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (absl::StartsWith(line, "model name")) {
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    }
  }
  return "unknown processor";
}

}  // namespace sru::bench
