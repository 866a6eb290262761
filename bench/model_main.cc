// sru_bench model: measures a model of a repository on given lengths and batches, without a server.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/report.h"
#include "client/text_table.h"
#include "kernels/backend.h"
#include "kernels/bench/measure.h"
#include "kernels/bench/stack_run.h"
#include "models/config.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "models/repository.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

using client::TextTable;

constexpr char kModelUsage[] =
    R"(sru_bench model times a model of a repository on one thread, without a server: random input in, what a
call would get out. It prints the median time of a batch for each combination of --length and --batch.

examples:
  sru_bench model                                          the bundled classifier
  sru_bench model --model_repository=/srv/models --model=intent --dtype=bfloat16
  sru_bench model --length=16 --batch=1,4,16,64 --json
)";

struct ModelFlags {
  std::string backend = "cpu";
  std::string cpu_isa = "auto";
  int rounds = 51;
  double seconds = 1;
  bool json = false;
  std::string model_repository = "models/pretrained";
  std::string model;
  int64_t version = 0;
  kernels::DataType dtype = kernels::DataType::kFloat32;
  std::vector<int> length = {8, 32, 128};
  std::vector<int> batch = {1, 8, 32};
};

constexpr int kWarmUp = 3;
constexpr int kMaxTokens = 1 << 20;  // of a batch

// "8,32,128" -> {8, 32, 128}
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view flag, absl::string_view text) {
  constexpr int kMost = 1 << 16;
  std::vector<int> numbers;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < 1 || number > kMost) {
      return InvalidArgument("--", flag, ": expected numbers from 1 to ", kMost,
                             " with commas between them, such as 8,32, found '", text, "'");
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::pair<std::string, kernels::DataType>> DataTypes() {
  std::vector<std::pair<std::string, kernels::DataType>> choices;
  for (const kernels::DataType dtype : kernels::kAllDataTypes) {
    choices.emplace_back(kernels::DataTypeName(dtype), dtype);
  }
  return choices;
}

// Loads the one classifier or encoder that the flags name, in its highest version if they name
// none.
absl::StatusOr<std::shared_ptr<const models::Model>> LoadModel(const ModelFlags& flags) {
  kernels::BackendOptions hardware;
  hardware.cpu_isa = flags.cpu_isa;
  hardware.cpu_threads = 1;
  std::unique_ptr<kernels::Backend> backend;
  if (kernels::Status status = kernels::CreateBackend(flags.backend, hardware, &backend);
      !status.ok()) {
    return models::ToAbslStatus(status);
  }
  SRU_ASSIGN_OR_RETURN(auto list,
                       models::ListRepository(flags.model_repository,
                                              flags.version == 0 ? models::VersionPolicy::Latest(1)
                                                                 : models::VersionPolicy::All()));
  std::vector<models::ModelLocation> found;
  std::vector<std::string> names;
  for (const models::ModelLocation& location : list) {
    names.push_back(absl::StrCat(location.name, " version ", location.version));
    if (!flags.model.empty() && location.name != flags.model) continue;
    if (flags.version != 0 && location.version != flags.version) continue;
    const auto config = models::ReadModelConfig(location.path() / "config.json");
    if (config.ok() && config->task != models::Task::kClassifier &&
        config->task != models::Task::kEncoder) {
      if (flags.model.empty()) continue;
      return InvalidArgument("--model: expected a classifier or an encoder, found '", location.name,
                             "', which is a ", models::TaskName(config->task));
    }
    found.push_back(location);
  }
  if (found.size() != 1) {
    return InvalidArgument(found.empty() ? "--model, --version: there is no such model"
                                         : "--model: expected a name, as there are several models",
                           "; the repository has ", absl::StrJoin(names, ", "));
  }
  kernels::CompileOptions compile;
  compile.dtype = flags.dtype;
  return models::Model::Load(found[0].path(), found[0].name, found[0].version, *backend, compile);
}

// Measures one row per combination and prints it unless --json; returns the rows.
absl::StatusOr<nlohmann::ordered_json> Measure(const models::Model& model,
                                               const ModelFlags& flags) {
  TextTable table({{"length", true},
                   {"batch", true},
                   {"us per batch", true},
                   {"tokens/s", true},
                   {"us per token", true},
                   {"rounds", true}},
                  &std::cout);
  nlohmann::ordered_json rows;
  for (const int length : flags.length) {
    for (const int batch : flags.batch) {
      kernels::StackRun run(model.spec(), model.executable(), length, batch);
      // The first runs warm up the caches.
      for (int i = 0; i < kWarmUp; ++i) run.Run();
      std::vector<double> rounds;
      double spent_us = 0;
      while (rounds.empty() ||
             (spent_us < 1e6 * flags.seconds && static_cast<int>(rounds.size()) < flags.rounds)) {
        rounds.push_back(kernels::Microseconds([&] { run.Run(); }));
        spent_us += rounds.back();
      }
      SRU_RETURN_UNLESS_OK(models::ToAbslStatus(run.status()));
      const double us = kernels::Median(rounds);
      const double tokens = 1.0 * length * batch;
      rows.push_back({{"length", length},
                      {"batch", batch},
                      {"rounds", rounds.size()},
                      {"batch_us", us},
                      {"tokens_per_s", tokens / us * 1e6}});
      if (flags.json) continue;
      table.AddRow({absl::StrCat(length), absl::StrCat(batch), absl::StrFormat("%.1f", us),
                    FormatCount(static_cast<int64_t>(tokens / us * 1e6)),
                    absl::StrFormat("%.3f", us / tokens), absl::StrCat(rounds.size())});
      table.Flush();
    }
  }
  return rows;
}

int Model(const Command& command, const std::vector<std::string>& args) {
  ModelFlags options;
  Flags flags;
  flags.Add("model_repository", &options.model_repository, "directory with the models");
  flags.Add("model", &options.model, "name; empty when there is one");
  flags.Add("version", &options.version, "0 = the latest");
  flags.AddChoice("dtype", &options.dtype, DataTypes(), "as which weights are stored");
  flags.AddParsed("length", &options.length, "8,32,128", ParseNumbers, "list: tokens per sequence");
  flags.AddParsed("batch", &options.batch, "1,8,32", ParseNumbers, "list: sequences per batch");
  flags.Add("backend", &options.backend, "cpu, cuda or reference");
  flags.Add("cpu_isa", &options.cpu_isa, "instruction set of the CPU backend, as sru_server's");
  flags.Add("rounds", &options.rounds, {1, 1 << 20}, "most measurements of each row");
  flags.Add("seconds", &options.seconds, "per row, after which no further round is begun");
  flags.Add("json", &options.json, "print one JSON object");
  if (std::optional<int> code = ParseFlags(command, args, &flags)) return *code;
  const auto fail = [](const absl::Status& status) {
    std::cerr << "sru_bench model: " << status.message() << "\n";
    return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
  };
  const int64_t most = int64_t{*std::max_element(options.length.begin(), options.length.end())} *
                       *std::max_element(options.batch.begin(), options.batch.end());
  if (most > kMaxTokens) {
    return fail(InvalidArgument("--length, --batch: expected at most ", kMaxTokens,
                                " tokens in a batch, found ", most));
  }
  auto model = LoadModel(options);
  if (!model.ok()) return fail(model.status());
  if (!options.json) {
    std::cout << "model " << (*model)->name() << " version " << (*model)->version() << ", "
              << FormatCount((*model)->parameter_count()) << " parameters, "
              << kernels::DataTypeName(options.dtype) << ", " << (*model)->backend_description()
              << ", medians\n";
  }
  const auto rows = Measure(**model, options);
  if (!rows.ok()) return fail(rows.status());
  if (options.json) {
    const nlohmann::ordered_json json = {{"model", (*model)->name()},
                                         {"version", (*model)->version()},
                                         {"backend", (*model)->backend_name()},
                                         {"description", (*model)->backend_description()},
                                         {"dtype", kernels::DataTypeName(options.dtype)},
                                         {"weight_bytes", (*model)->executable().weight_bytes()},
                                         {"batches", *rows}};
    std::cout << json.dump() << "\n";
  }
  return kExitOk;
}

}  // namespace

constexpr Command kModel = {"model",
                            "time a model of a repository by length and batch, without a server",
                            kModelUsage, Model};

}  // namespace sru::bench
