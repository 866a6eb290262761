// sru_bench model: measures a model of a repository on given lengths and batches, without a server.
#include <algorithm>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/engine_flags.h"
#include "bench/load_flags.h"
#include "bench/model_timer.h"
#include "bench/report.h"
#include "bench/shape_list.h"
#include "client/text_table.h"
#include "kernels/bench/bare_product.h"
#include "kernels/bench/measure.h"
#include "models/config.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "models/repository.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

using client::TextTable;

constexpr char kModelUsage[] =
    R"(sru_bench model times a model of a repository on one core, without a server: random input in, what a
call would get out. Medians of measurements that alternate; ratios hold on a machine whose speed moves,
times do not.

It measures three things (--what chooses):
  batches   each combination of --length and --batch: microseconds per batch, tokens per second
  ragged    lengths drawn uniformly from 1..2L against a dense batch (all of length L) with as many
            sequences and tokens; without padding the ratio is near 1
  lengths   cost per token as sequences get longer, --tokens tokens in each batch: near 1 when the cost
            is linear; with the workspace and the most memory that the process had meanwhile

examples:
  sru_bench model                                          the bundled classifier
  sru_bench model --model_repository=/srv/models --model=intent --dtype=bfloat16
  sru_bench model --what=batches --length=16 --batch=1,4,16,64 --json
  sru_bench model --what=lengths --tokens=8192

--stdin turns it into a tool for other programs, such as kernels/bench/compare_pytorch.py: it reads
commands, one per line, and answers each with one line of JSON.
  time LENGTH BATCH REPEAT           {"us": time of one of REPEAT runs in a row}
  products LENGTH BATCH REPEAT       the same of oneDNN's matrix products alone (see sru_bench layer)
  encode LENGTH BATCH INPUT OUTPUT   runs the features in the file INPUT ([batch][length][input_size],
                                     float32) and writes the token vectors to OUTPUT: {"ok": true}
An error is {"error": message}. The end of the input ends the program.
)";

struct ModelFlags {
  EngineFlags engine;
  std::string model_repository = "models/pretrained";
  std::string model;
  int64_t version = 0;
  std::string dtype = "float32";
  std::string output = "auto";
  std::string what = "batches,ragged,lengths";
  std::string length = "8,32,128";
  std::string batch = "1,8,32";
  int tokens = 4096;
  bool from_stdin = false;
};

// The flags, checked.
struct Plan {
  kernels::DataType dtype = kernels::DataType::kFloat32;
  OutputKind output = OutputKind::kAuto;
  bool batches = false;
  bool ragged = false;
  bool lengths = false;
  std::vector<int> length;
  std::vector<int> batch;
  std::vector<int> growing;  // lengths of the section "lengths"
  kernels::Rounds rounds;
};

absl::StatusOr<Plan> MakePlan(const ModelFlags& flags) {
  Plan plan;
  SRU_ASSIGN_OR_RETURN(plan.dtype, ParseDataType(flags.dtype));
  SRU_ASSIGN_OR_RETURN(plan.output, ParseOutputKind(flags.output));
  for (absl::string_view name : absl::StrSplit(flags.what, ',')) {
    if (name == "batches") {
      plan.batches = true;
    } else if (name == "ragged") {
      plan.ragged = true;
    } else if (name == "lengths") {
      plan.lengths = true;
    } else {
      return InvalidArgument(
          "--what: expected batches, ragged and lengths with commas between them, found '", name,
          "'");
    }
  }
  SRU_ASSIGN_OR_RETURN(plan.length, ParseNumbers("length", flags.length, 1, 1 << 16));
  SRU_ASSIGN_OR_RETURN(plan.batch, ParseNumbers("batch", flags.batch, 1, 1 << 16));
  const int64_t most = int64_t{*std::max_element(plan.length.begin(), plan.length.end())} *
                       *std::max_element(plan.batch.begin(), plan.batch.end());
  if (most > 1 << 20) {
    return InvalidArgument("--length, --batch: expected at most ", 1 << 20,
                           " tokens in a batch, found ", most);
  }
  if (flags.tokens < 64 || flags.tokens > 1 << 20) {
    return InvalidArgument("--tokens: expected 64 to ", 1 << 20, ", found ", flags.tokens);
  }
  for (int l = 8; l <= flags.tokens; l *= 2) plan.growing.push_back(l);
  SRU_ASSIGN_OR_RETURN(plan.rounds, flags.engine.Rounds());
  return plan;
}

// Loads the one classifier or encoder that the flags name, in its highest version if they name none.
absl::StatusOr<std::shared_ptr<const models::Model>> LoadModel(const ModelFlags& flags,
                                                               const Plan& plan) {
  std::unique_ptr<kernels::Backend> backend;
  if (kernels::Status status =
          kernels::CreateBackend(flags.engine.backend, flags.engine.Hardware(), &backend);
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
  compile.dtype = plan.dtype;
  return models::Model::Load(found[0].path(), found[0].name, found[0].version, *backend, compile);
}

// Measures and prints one row per combination: the medians of runs that alternate.
class Measurement {
 public:
  Measurement(const models::Model& model, const Plan& plan, bool print)
      : model_(model), plan_(plan), print_(print) {}

  absl::Status Run() {
    const size_t cells = plan_.length.size() * plan_.batch.size();
    MeasureProgress progress(static_cast<int>(cells * (plan_.batches + plan_.ragged)) +
                             plan_.lengths);
    progress_ = &progress;
    absl::Status status;
    if (plan_.batches) status.Update(Batches());
    if (plan_.ragged) status.Update(Ragged());
    if (plan_.lengths) status.Update(Lengths());
    return status;
  }

  nlohmann::ordered_json TakeJson() { return std::move(json_); }

 private:
  ModelTimer NewTimer() const { return {model_.executable(), model_.spec(), plan_.output}; }

  // The median time of one batch of each timer; the timers run in turn.
  absl::StatusOr<std::vector<double>> Time(std::vector<ModelTimer>& timers, int* rounds) {
    absl::Status status;
    std::vector<std::function<void()>> bodies;
    for (ModelTimer& timer : timers) bodies.push_back([&] { status.Update(timer.Run()); });
    std::vector<double> medians = kernels::AlternatingMedians(plan_.rounds, bodies, rounds);
    if (!status.ok()) return status;
    return medians;
  }

  absl::Status Batches() {
    TextTable table({{"length", true},
                     {"batch", true},
                     {"us per batch", true},
                     {"tokens/s", true},
                     {"us per token", true},
                     {"rounds", true}},
                    &std::cout);
    if (print_) std::cout << "\nBatches\n";
    for (int length : plan_.length) {
      for (int batch : plan_.batch) {
        progress_->Begin(absl::StrCat("batches: length ", length, ", batch ", batch));
        std::vector<ModelTimer> timers;
        timers.push_back(NewTimer());
        SRU_RETURN_UNLESS_OK(timers[0].Prepare(std::vector<int>(batch, length)));
        int rounds = 0;
        SRU_ASSIGN_OR_RETURN(auto us, Time(timers, &rounds));
        const double tokens = timers[0].num_tokens();
        const double rate = tokens / us[0] * 1e6;
        json_["batches"].push_back({{"length", length},
                                    {"batch", batch},
                                    {"rounds", rounds},
                                    {"batch_us", us[0]},
                                    {"tokens_per_s", rate}});
        Print(table, {absl::StrCat(length), absl::StrCat(batch), absl::StrFormat("%.1f", us[0]),
                      FormatCount(static_cast<int64_t>(rate)),
                      absl::StrFormat("%.3f", us[0] / tokens), absl::StrCat(rounds)});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Ragged() {
    TextTable table({{"length", true},
                     {"batch", true},
                     {"dense us", true},
                     {"ragged us", true},
                     {"ragged / dense", true},
                     {"rounds", true}},
                    &std::cout);
    if (print_) std::cout << "\nRagged (lengths uniform in 1..2L) against dense, as many tokens\n";
    for (int length : plan_.length) {
      for (int batch : plan_.batch) {
        if (batch == 1) continue;  // one sequence with the same number of tokens is the same batch
        progress_->Begin(absl::StrCat("ragged: length ", length, ", batch ", batch));
        std::vector<ModelTimer> timers;
        timers.push_back(NewTimer());
        timers.push_back(NewTimer());
        absl::Status status = timers[0].Prepare(std::vector<int>(batch, length));
        status.Update(timers[1].Prepare(RaggedLengths(batch, length, /*seed=*/1)));
        if (!status.ok()) return status;
        int rounds = 0;
        SRU_ASSIGN_OR_RETURN(auto us, Time(timers, &rounds));
        const double ratio = us[1] / us[0];
        json_["ragged"].push_back({{"length", length},
                                   {"batch", batch},
                                   {"rounds", rounds},
                                   {"dense_us", us[0]},
                                   {"ragged_us", us[1]},
                                   {"ratio", ratio}});
        Print(table, {absl::StrCat(length), absl::StrCat(batch), absl::StrFormat("%.1f", us[0]),
                      absl::StrFormat("%.1f", us[1]), absl::StrFormat("%.3f", ratio),
                      absl::StrCat(rounds)});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Lengths() {
    progress_->Begin("lengths");
    const int tokens = plan_.growing.back();
    // Memory is measured first, one length at a time: later all of them hold their workspaces at
    // once.
    std::vector<int64_t> peaks;
    std::vector<ModelTimer> timers;
    std::vector<size_t> workspaces;
    for (int length : plan_.growing) {
      const bool reset = kernels::ResetPeakMemory();
      ModelTimer timer = NewTimer();
      absl::Status status = timer.Prepare(std::vector<int>(tokens / length, length));
      if (status.ok()) status = timer.Run();
      if (!status.ok()) return status;
      peaks.push_back(reset ? kernels::PeakMemoryBytes() : 0);
      workspaces.push_back(timer.workspace_bytes());
    }
    for (int length : plan_.growing) {
      timers.push_back(NewTimer());
      SRU_RETURN_UNLESS_OK(timers.back().Prepare(std::vector<int>(tokens / length, length)));
    }
    int rounds = 0;
    SRU_ASSIGN_OR_RETURN(auto us, Time(timers, &rounds));

    size_t base = 0;  // the length that the others are compared with
    while (base + 1 < plan_.growing.size() && plan_.growing[base] < 64) ++base;
    TextTable table({{"length", true},
                     {"batch", true},
                     {"us per token", true},
                     {absl::StrCat("/ length ", plan_.growing[base]), true},
                     {"workspace MiB", true},
                     {"peak memory MiB", true}},
                    &std::cout);
    if (print_) {
      std::cout << "\nCost and memory by length, " << tokens << " tokens in each batch, " << rounds
                << " rounds\n";
    }
    for (size_t i = 0; i < plan_.growing.size(); ++i) {
      const double per_token = us[i] / tokens;
      const double ratio = us[i] / us[base];
      json_["lengths"].push_back({{"length", plan_.growing[i]},
                                  {"batch", tokens / plan_.growing[i]},
                                  {"rounds", rounds},
                                  {"token_us", per_token},
                                  {"ratio", ratio},
                                  {"workspace_bytes", workspaces[i]},
                                  {"peak_bytes", peaks[i]}});
      constexpr double kMiB = 1 << 20;
      Print(table,
            {absl::StrCat(plan_.growing[i]), absl::StrCat(tokens / plan_.growing[i]),
             absl::StrFormat("%.3f", per_token), absl::StrFormat("%.3f", ratio),
             absl::StrFormat("%.1f", static_cast<double>(workspaces[i]) / kMiB),
             peaks[i] == 0 ? "-" : absl::StrFormat("%.1f", static_cast<double>(peaks[i]) / kMiB)});
    }
    return absl::OkStatus();
  }

  void Print(TextTable& table, std::vector<std::string> row) {
    if (!print_) return;
    progress_->Clear();
    table.AddRow(std::move(row));
    table.Flush();
  }

  const models::Model& model_;
  const Plan& plan_;
  const bool print_;
  MeasureProgress* progress_ = nullptr;
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

// --stdin ----------------------------------------------------------------------------------------

class CommandLoop {
 public:
  CommandLoop(const models::Model& model, OutputKind output)
      : spec_(model.spec()),
        dtype_(model.dtype()),
        timer_(model.executable(), model.spec(), output) {}

  void Run() {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << Answer(line).dump() << std::endl;  // flushed, because the caller waits for it
    }
  }

 private:
  nlohmann::json Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    int length = 0;
    int batch = 0;
    words >> command >> length >> batch;
    if (!words || (command != "time" && command != "products" && command != "encode")) {
      return Error(
          "expected 'time LENGTH BATCH REPEAT', 'products LENGTH BATCH REPEAT' or 'encode LENGTH "
          "BATCH INPUT OUTPUT'");
    }
    if (length < 1 || batch < 1 || int64_t{length} * batch > 1 << 20) {
      return Error(absl::StrCat("LENGTH, BATCH: expected 1 to ", 1 << 20, " tokens, found ", length,
                                " x ", batch));
    }
    if (length != length_ || batch != batch_) {
      if (absl::Status status = timer_.Prepare(std::vector<int>(batch, length)); !status.ok()) {
        length_ = batch_ = 0;
        return Error(status.message());
      }
      length_ = length;
      batch_ = batch;
      products_.reset();
    }
    if (command == "encode") return Encode(words);
    return command == "time" ? TimeRuns(words) : TimeProducts(words);
  }

  nlohmann::json TimeRuns(std::istream& words) {
    int repeat = 0;
    words >> repeat;
    if (!words || repeat < 1) return Error("REPEAT: expected a positive number");
    absl::Status status;
    const double us = kernels::Microseconds([&] {
      for (int i = 0; i < repeat; ++i) status.Update(timer_.Run());
    });
    if (!status.ok()) return Error(status.message());
    return {{"us", us / repeat}};
  }

  nlohmann::json TimeProducts(std::istream& words) {
    int repeat = 0;
    words >> repeat;
    if (!words || repeat < 1) return Error("REPEAT: expected a positive number");
    try {
      if (!products_.has_value()) {
        products_.emplace(dtype_).Add(timer_.num_tokens(), spec_);
        products_->Run();  // touches the pages
      }
      const double us = kernels::Microseconds([&] {
        for (int i = 0; i < repeat; ++i) products_->Run();
      });
      return {{"us", us / repeat}};
    } catch (const std::exception& e) {  // of oneDNN
      products_.reset();
      return Error(e.what());
    }
  }

  nlohmann::json Encode(std::istream& words) {
    std::string input;
    std::string output;
    words >> input >> output;
    std::vector<float>& features = timer_.features();
    if (features.empty()) return Error("encode: the model takes words, not features");
    if (timer_.token_vectors().empty()) return Error("encode: needs --output=tokens or states");
    const auto bytes = static_cast<std::streamsize>(features.size() * sizeof(float));
    std::ifstream in(input, std::ios::binary);
    in.read(reinterpret_cast<char*>(features.data()), bytes);
    if (in.gcount() != bytes || in.peek() != EOF) {
      return Error(absl::StrCat(input, ": expected a file of ", bytes, " bytes: ", batch_, " x ",
                                length_, " x ", spec_.input_size, " float32"));
    }
    if (absl::Status status = timer_.Run(); !status.ok()) return Error(status.message());
    const std::vector<float>& h = timer_.token_vectors();
    std::ofstream out(output, std::ios::binary);
    out.write(reinterpret_cast<const char*>(h.data()),
              static_cast<std::streamsize>(h.size() * sizeof(float)));
    out.close();
    if (!out) return Error(absl::StrCat(output, ": cannot be written"));
    return {{"ok", true}};
  }

  static nlohmann::json Error(absl::string_view message) {
    return {{"error", std::string(message)}};
  }

  const kernels::StackSpec& spec_;
  const kernels::DataType dtype_;
  ModelTimer timer_;
  std::optional<kernels::BareProductList>
      products_;  // for the last shape, made when first asked for
  int length_ = 0;
  int batch_ = 0;
};

}  // namespace

int ModelMain(const std::vector<std::string>& args) {
  ModelFlags options;
  client::FlagSet flags;
  flags.Add("model_repository", &options.model_repository, "directory with the models");
  flags.Add("model", &options.model, "name; empty when there is one");
  flags.Add("version", &options.version, "0 = the latest");
  flags.Add("dtype", &options.dtype, kernels::ListNames<kernels::DataTypeName>());
  flags.Add("output", &options.output,
            "auto (probabilities, else the pooled vector, else token vectors), tokens, or states "
            "(token vectors and final states)");
  flags.Add("what", &options.what, "list of what to measure");
  flags.Add("length", &options.length, "list: tokens per sequence");
  flags.Add("batch", &options.batch, "list: sequences per batch");
  flags.Add("tokens", &options.tokens, "tokens per batch, and the longest, in 'lengths'");
  flags.Add("stdin", &options.from_stdin, "answer commands, see above");
  options.engine.AddFlags(&flags);
  if (std::optional<int> code = ParseFlags("model", kModelUsage, args, &flags)) return *code;
  const auto fail = [](const absl::Status& status) {
    std::cerr << "sru_bench model: " << status.message() << "\n";
    return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
  };
  const auto plan = MakePlan(options);
  if (!plan.ok()) return fail(plan.status());
  int core = 0;
  if (kernels::Status status = kernels::PinToCore(options.engine.core, &core); !status.ok()) {
    return fail(models::ToAbslStatus(status));
  }
  auto model = LoadModel(options, *plan);
  if (!model.ok()) return fail(model.status());
  if (options.from_stdin) {
    CommandLoop(**model, plan->output).Run();
    return kExitOk;
  }

  if (!options.engine.json) {
    std::cout << "model " << (*model)->name() << " version " << (*model)->version() << ", "
              << FormatCount((*model)->parameter_count()) << " parameters, "
              << kernels::DataTypeName(plan->dtype) << ", " << (*model)->backend_description()
              << ", core " << core << ", medians\n";
  }
  Measurement measurement(**model, *plan, !options.engine.json);
  if (absl::Status status = measurement.Run(); !status.ok()) return fail(status);
  if (options.engine.json) {
    nlohmann::ordered_json json = {{"model", (*model)->name()},
                                   {"version", (*model)->version()},
                                   {"backend", (*model)->backend_name()},
                                   {"description", (*model)->backend_description()},
                                   {"dtype", kernels::DataTypeName(plan->dtype)},
                                   {"core", core},
                                   {"weight_bytes", (*model)->executable().weight_bytes()}};
    json.update(measurement.TakeJson());
    std::cout << json.dump() << "\n";
  }
  return kExitOk;
}

}  // namespace sru::bench
