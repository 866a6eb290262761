// sru_bench layer: compares SRU layers with their bare matrix products, without a server.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/engine_flags.h"
#include "bench/load_flags.h"
#include "bench/shape_list.h"
#include "client/text_table.h"
#include "kernels/bench/layer_bench.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

constexpr char kLayerUsage[] =
    R"(sru_bench layer times SRU layers on one core and, alternating with them in the same run, oneDNN's
products of the same shapes alone, which is the least that a layer can cost. Medians; ratios hold on a
machine whose speed moves, times do not.

Every flag that says "list" takes numbers with commas between them; each combination is one row.

columns:
  layer us      one forward pass that writes all token vectors
  products us   oneDNN's matmul alone: all rows, gates and directions of a layer in one call, same dtype
  ratio         layer / products
  scan us       the recurrences alone, one sequence after the other, float32, U in the cache
  GFLOP/s       of the products alone

examples:
  sru_bench layer                                  32 sequences of 32 tokens, 2 x 128
  sru_bench layer --hidden=128,256 --batch=1,32 --directions=1,2
  sru_bench layer --grid --dtype=float32           all 128 shapes, minutes
  sru_bench layer --hidden=256 --dtype=float32,bfloat16 --json
)";

struct LayerFlags {
  EngineFlags engine;
  std::string dtype = "float32";
  std::string length = "32";
  std::string batch = "32";
  std::string hidden = "128";
  std::string directions = "2";
  int input = 0;
  int layers = 1;
  bool grid = false;
};

// One row per combination.
absl::StatusOr<std::vector<kernels::LayerBenchOptions>> Cells(const LayerFlags& flags) {
  std::vector<kernels::DataType> dtypes;
  for (absl::string_view name : absl::StrSplit(flags.dtype, ',')) {
    SRU_ASSIGN_OR_RETURN(dtypes.emplace_back(), ParseDataType(name));
  }
  auto hidden = ParseNumbers("hidden", flags.grid ? "64,128,256,512" : flags.hidden, 1, 1 << 14);
  auto length = ParseNumbers("length", flags.grid ? "8,32,128,512" : flags.length, 1, 1 << 16);
  auto batch = ParseNumbers("batch", flags.grid ? "1,8,32,128" : flags.batch, 1, 1 << 16);
  auto directions = ParseNumbers("directions", flags.grid ? "2,1" : flags.directions, 1, 2);
  for (const auto* list : {&hidden, &length, &batch, &directions}) {
    if (!list->ok()) return list->status();
  }
  std::vector<kernels::LayerBenchOptions> cells;
  kernels::LayerBenchOptions cell;
  cell.backend = flags.engine.backend;
  cell.hardware = flags.engine.Hardware();
  cell.input = flags.input;
  cell.layers = flags.grid ? 2 : flags.layers;
  SRU_ASSIGN_OR_RETURN(cell.rounds, flags.engine.Rounds());
  for (kernels::DataType dtype : dtypes) {
    for (int d : *directions) {
      for (int h : *hidden) {
        for (int l : *length) {
          for (int b : *batch) {
            cell.dtype = dtype;
            cell.directions = d;
            cell.hidden = h;
            cell.length = l;
            cell.batch = b;
            cells.push_back(cell);
          }
        }
      }
    }
  }
  return cells;
}

nlohmann::ordered_json CellJson(const kernels::LayerBenchOptions& cell,
                                const kernels::LayerBenchResult& result) {
  return {{"dtype", kernels::DataTypeName(cell.dtype)},
          {"directions", cell.directions},
          {"hidden", cell.hidden},
          {"length", cell.length},
          {"batch", cell.batch},
          {"input", cell.input > 0 ? cell.input : cell.directions * cell.hidden},
          {"layers", cell.layers},
          {"rounds", result.rounds},
          {"layer_us", result.layer_us},
          {"products_us", result.products_us},
          {"ratio", result.ratio},
          {"scan_us", result.scan_us},
          {"products_gflops", result.gflops}};
}

std::vector<std::string> CellRow(const kernels::LayerBenchOptions& cell,
                                 const kernels::LayerBenchResult& result) {
  return {kernels::DataTypeName(cell.dtype),
          absl::StrCat(cell.directions, " x ", cell.hidden),
          absl::StrCat(cell.layers),
          absl::StrCat(cell.length),
          absl::StrCat(cell.batch),
          absl::StrFormat("%.1f", result.layer_us),
          absl::StrFormat("%.1f", result.products_us),
          absl::StrFormat("%.3f", result.ratio),
          absl::StrFormat("%.1f", result.scan_us),
          absl::StrFormat("%.0f", result.gflops),
          absl::StrCat(result.rounds)};
}

}  // namespace

int LayerMain(const std::vector<std::string>& args) {
  LayerFlags options;
  client::FlagSet flags;
  flags.Add("dtype", &options.dtype, "list of float32 and bfloat16");
  flags.Add("hidden", &options.hidden, "list: hidden size per direction");
  flags.Add("directions", &options.directions, "list of 1 and 2");
  flags.Add("length", &options.length, "list: tokens per sequence");
  flags.Add("batch", &options.batch, "list: sequences");
  flags.Add("layers", &options.layers, "layers of the stack");
  flags.Add("input", &options.input, "features per token; 0 = as many as a layer puts out");
  flags.Add("grid", &options.grid,
            "all of hidden 64,128,256,512, length 8,32,128,512, batch 1,8,32,128, directions 2,1, "
            "with 2 layers");
  options.engine.AddFlags(&flags);
  if (std::optional<int> code = ParseFlags("layer", kLayerUsage, args, &flags)) return *code;
  const auto cells = Cells(options);
  if (!cells.ok()) {
    std::cerr << "sru_bench layer: " << cells.status().message() << "\n";
    return kExitUsage;
  }
  const auto fail = [](const kernels::Status& status) {
    std::cerr << "sru_bench layer: " << status.message() << "\n";
    return status.code() == kernels::StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  };
  int core = 0;
  if (kernels::Status status = kernels::PinToCore(options.engine.core, &core); !status.ok()) {
    return fail(status);
  }

  nlohmann::ordered_json json = {{"backend", options.engine.backend}, {"core", core}};
  const std::vector<client::TextTable::Column> columns = {
      {"dtype"},         {"width", true},    {"layers", true},      {"length", true},
      {"batch", true},   {"layer us", true}, {"products us", true}, {"ratio", true},
      {"scan us", true}, {"GFLOP/s", true},  {"rounds", true}};
  client::TextTable table(columns, &std::cout);
  MeasureProgress progress(static_cast<int>(cells->size()));
  bool first = true;
  for (const kernels::LayerBenchOptions& cell : *cells) {
    progress.Begin(absl::StrFormat("%s, %d x %d, length %d, batch %d",
                                   kernels::DataTypeName(cell.dtype), cell.directions, cell.hidden,
                                   cell.length, cell.batch));
    kernels::LayerBenchResult result;
    const kernels::Status status = kernels::RunLayerBench(cell, &result);
    if (!status.ok()) return fail(status);
    json["description"] = result.description;
    json["cells"].push_back(CellJson(cell, result));
    if (options.engine.json) continue;
    progress.Clear();
    if (first) std::cout << result.description << ", core " << core << ", medians\n";
    first = false;
    table.AddRow(CellRow(cell, result));
    table.Flush();
  }
  if (options.engine.json) std::cout << json.dump() << "\n";
  return kExitOk;
}

}  // namespace sru::bench
