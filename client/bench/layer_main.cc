// sru_bench layer: one SRU layer against its bare matrix products. No server takes part.
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "client/bench/commands.h"
#include "client/bench/load_flags.h"
#include "kernels/bench/layer_bench.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

constexpr char kUsage[] =
    R"(sru_bench layer times one SRU layer on one core and, alternating with it in the same run, oneDNN's
product of the same shapes alone, which is the least that a layer can cost. Medians; the ratio holds on a
machine whose speed moves, the times do not.

examples:
  sru_bench layer --length=32 --batch=32 --input=256 --hidden=128 --bidirectional
  sru_bench layer --hidden=256 --input=512 --bidirectional --json
)";

bool ParseDataType(const std::string& name, kernels::DataType* dtype) {
  for (kernels::DataType known : {kernels::DataType::kFloat32, kernels::DataType::kBFloat16}) {
    if (name != kernels::DataTypeName(known)) continue;
    *dtype = known;
    return true;
  }
  return false;
}

}  // namespace

int LayerMain(const std::vector<std::string>& args) {
  kernels::LayerBenchOptions options;
  std::string dtype = kernels::DataTypeName(options.dtype);
  options.bidirectional = false;
  bool json = false;
  client::FlagSet flags;
  flags.Add("backend", &options.backend, "cpu, cuda or reference");
  flags.Add("dtype", &dtype, "float32 or bfloat16");
  flags.Add("length", &options.length, "tokens per sequence");
  flags.Add("batch", &options.batch, "sequences");
  flags.Add("input", &options.input, "features per token");
  flags.Add("hidden", &options.hidden, "hidden size per direction");
  flags.Add("bidirectional", &options.bidirectional, "both directions");
  flags.Add("rounds", &options.rounds, "measurements of each, alternating");
  flags.Add("json", &json, "print one JSON object");
  if (std::optional<int> code = ParseFlags("layer", kUsage, args, &flags)) return *code;
  if (!ParseDataType(dtype, &options.dtype)) {
    std::cerr << "sru_bench layer: --dtype: expected float32 or bfloat16, found '" << dtype
              << "'\n";
    return kExitUsage;
  }

  kernels::LayerBenchResult result;
  const kernels::Status status = kernels::RunLayerBench(options, &result);
  if (!status.ok()) {
    std::cerr << "sru_bench layer: " << status.message() << "\n";
    return status.code() == kernels::StatusCode::kInvalidArgument ? kExitUsage : kExitFailed;
  }
  if (json) {
    std::cout << nlohmann::json{{"backend", options.backend},
                                {"description", result.description},
                                {"dtype", dtype},
                                {"length", options.length},
                                {"batch", options.batch},
                                {"input", options.input},
                                {"hidden", options.hidden},
                                {"bidirectional", options.bidirectional},
                                {"rounds", options.rounds},
                                {"layer_us", result.layer_us},
                                {"products_us", result.products_us},
                                {"ratio", result.ratio},
                                {"products_gflops", result.gflops}}
                     .dump()
              << "\n";
    return kExitOk;
  }
  std::cout << absl::StrFormat(
      "%s, %s, %d sequences of %d tokens, %d -> %s%d\n"
      "  layer            %10.1f us\n"
      "  products alone   %10.1f us  (%.0f GFLOP/s)\n"
      "  ratio            %10.3f     median of %d\n",
      result.description, dtype, options.batch, options.length, options.input,
      options.bidirectional ? "2 x " : "", options.hidden, result.layer_us, result.products_us,
      result.gflops, result.ratio, options.rounds);
  return kExitOk;
}

}  // namespace sru::bench
