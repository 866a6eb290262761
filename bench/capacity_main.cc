// sru_bench capacity: how many servers, with which flags?
#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "bench/capacity_calibrate.h"
#include "bench/capacity_flags.h"
#include "bench/capacity_fleet.h"
#include "bench/capacity_fleet_report.h"
#include "bench/capacity_measure.h"
#include "bench/capacity_plan.h"
#include "bench/capacity_report.h"
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/report.h"
#include "bench/requests.h"
#include "bench/shape_list.h"
#include "server/base/cores.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {
namespace {

constexpr char kCapacityUsage[] =
    R"(sru_bench capacity says how many servers a load needs, and with which flags of sru_server.

It measures this machine for some seconds: the engine's time for batches, the pauses of the cores, and what
calls cost around their batches, by a short run of the sru_server beside this program. Then it simulates
servers with the batcher of sru_server itself, a million calls in seconds, and looks for the flags with which
one takes most calls within the objective.

examples:
  sru_bench capacity --model=models/pretrained/trec --rate=20000 --p99=20ms
  sru_bench capacity --rate=500 --sequences=32 --lengths=lognormal:40:0.6:512 --p99=50ms --spare=2
  sru_bench capacity --rate=3000 --input=questions.txt --low=0.3      a third of it may wait

Measure once, on the machine that will serve, and plan elsewhere:
  sru_bench capacity --model=models/pretrained/trec --save_speed=speed.json
  sru_bench capacity --speed=speed.json --lengths=uniform:5:60 --rate=20000 --p99=20ms

With --servers it searches for nothing and says what so many servers make of the load:
  sru_bench capacity --speed=speed.json --lengths=fixed:20 --servers=3 --rate=60000 --max_batch_tokens=1024

What happens to a fleet: a server is lost, another is drained, the load grows, the autoscaler acts:
  sru_bench capacity --speed=speed.json --servers=5 --rate=90000 --events=lose@10s,drain@20s --svg=fleet.svg
  sru_bench capacity --speed=speed.json --servers=2 --rate=20000 --events=rate=80000@60s --autoscale --duration=10m

Lists, such as --max_batch_tokens=512,1024, are what the search chooses from. Latencies are those at the
server: the network comes on top. Without --lengths, --length_file and --input sequences are as long as the
questions that sru_bench load sends.
)";

// Everything that a run works with. The stages follow each other; each returns the first error.
class CapacityCommand {
 public:
  explicit CapacityCommand(CapacityFlags flags) : flags_(std::move(flags)) {}

  absl::Status Run() {
    if (absl::Status status = flags_.Check(); !status.ok()) return status;
    if (absl::Status status = PrepareMix(); !status.ok()) return status;
    if (absl::Status status = PrepareServer(); !status.ok()) return status;
    if (absl::Status status = PrepareSpeed(); !status.ok()) return status;
    text_ += SpeedText(speed_);
    json_["speed"] = SpeedJson(speed_);
    if (flags_.rate > 0) {
      json_["mean_tokens"] = mix_.mean_tokens() / mix_.sequences;
      text_ += "\n" + MixText(mix_, flags_.rate);
      const absl::Status status = flags_.has_fleet()   ? SimulateFleet()
                                  : flags_.servers > 0 ? Predict()
                                                       : Search();
      if (!status.ok()) return status;
    }
    if (flags_.json) {
      text_ = json_.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    }
    std::cout << text_;
    return absl::OkStatus();
  }

 private:
  absl::Status LoadModelOnce() {
    if (model_.model != nullptr) return absl::OkStatus();
    auto model = LoadCapacityModel(flags_.model);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    return absl::OkStatus();
  }

  // The texts of the calls that sru_bench load would send.
  absl::StatusOr<std::vector<int>> LengthsOfCalls() {
    if (absl::Status status = LoadModelOnce(); !status.ok()) return status;
    RequestOptions options;
    options.input = flags_.input;
    const auto requests = MakeRequests(options, v1::ModelInfo());
    if (!requests.ok()) return requests.status();
    std::vector<std::string> texts;
    for (const std::string& bytes : *requests) {
      v1::ClassifyRequest request;
      if (!request.ParseFromString(bytes)) return absl::InternalError("a request is no request");
      for (const v1::Sequence& sequence : request.sequences()) texts.push_back(sequence.text());
    }
    return LengthsOfTexts(*model_.model, texts);
  }

  absl::Status PrepareMix() {
    constexpr int kDrawn = 20000;
    auto lengths = !flags_.lengths.empty()       ? DrawLengths(flags_.lengths, kDrawn, flags_.seed)
                   : !flags_.length_file.empty() ? ReadLengths(flags_.length_file, "length_file")
                                                 : LengthsOfCalls();
    if (!lengths.ok()) return lengths.status();
    mix_.lengths = *std::move(lengths);
    mix_.sequences = flags_.sequences;
    mix_.low_share = flags_.low;
    if (flags_.deadline < absl::Hours(24))
      mix_.deadline_ns = absl::ToInt64Nanoseconds(flags_.deadline);
    return absl::OkStatus();
  }

  absl::Status PrepareServer() {
    constexpr int kMostTokens = 1 << 20;
    auto tokens = ParseNumbers(
        "max_batch_tokens",
        flags_.max_batch_tokens.empty() ? "512,1024,2048,4096,8192" : flags_.max_batch_tokens, 1,
        kMostTokens);
    if (!tokens.ok()) return tokens.status();
    for (int choice : *tokens) {
      if (choice >= mix_.longest()) batch_tokens_.push_back(choice);
    }
    if (batch_tokens_.empty() && !flags_.max_batch_tokens.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("--max_batch_tokens: expected at least ",
                                                     mix_.longest(),
                                                     ", which the longest sequence has"));
    }
    if (batch_tokens_.empty()) batch_tokens_.push_back(mix_.longest());
    auto delays = ParseNumbers("max_queue_delay_us", flags_.max_queue_delay_us, 0, 10'000'000);
    if (!delays.ok()) return delays.status();
    delays_ = *std::move(delays);
    if (!flags_.instances.empty()) {
      auto instances = ParseNumbers("instances", flags_.instances, 1, 4096);
      if (!instances.ok()) return instances.status();
      instances_ = *std::move(instances);
    }
    server::BatcherOptions& batcher = server_.batcher;
    batcher.max_batch_sequences = flags_.max_batch_sequences;
    batcher.max_queue_tokens = flags_.max_queue_tokens;
    batcher.max_queue_sequences = flags_.max_queue_sequences;
    batcher.admission_by_deadline = flags_.admission == "deadline";
    server_.compute_turn_us = flags_.compute_turn_us;
    server_.read_pause_us = flags_.read_pause_us;
    server_.max_concurrent_streams = flags_.max_concurrent_streams;
    server_.connections = flags_.connections;
    return absl::OkStatus();
  }

  absl::Status PrepareSpeed() {
    if (!flags_.speed.empty()) {
      auto speed = LoadSpeed(flags_.speed);
      if (!speed.ok()) return speed.status();
      speed_ = *std::move(speed);
    } else if (absl::Status status = Measure(); !status.ok()) {
      return status;
    }
    if (flags_.cores > 0) speed_.cores = flags_.cores;
    const std::pair<double, double*> costs[] = {{flags_.call_us, &speed_.call.call_us},
                                                {flags_.sequence_us, &speed_.call.sequence_us},
                                                {flags_.turn_us, &speed_.call.turn_us},
                                                {flags_.wake_us, &speed_.call.wake_us},
                                                {flags_.crowd_us, &speed_.call.crowd_us}};
    for (const auto& [given, cost] : costs) {
      if (given >= 0) *cost = given;
    }
    if (!flags_.pauses) speed_.pauses = Pauses();
    if (!flags_.save_speed.empty()) {
      if (absl::Status status = SaveSpeed(speed_, flags_.save_speed); !status.ok()) return status;
    }
    if (instances_.empty()) {
      instances_.push_back(speed_.cores);
      if (speed_.cores > 1) instances_.push_back(speed_.cores / 2);
    }
    return absl::OkStatus();
  }

  // Whether flags have what the run of a server would tell; without one, a crowd costs nothing unless --crowd_us says so.
  bool HasCallCosts() const {
    return flags_.call_us >= 0 && flags_.sequence_us >= 0 && flags_.turn_us >= 0 &&
           flags_.wake_us >= 0;
  }

  absl::Status Measure() {
    if (!HasCallCosts() && flags_.server.empty()) {
      return absl::NotFoundError(
          "--server: there is no sru_server beside this program; name one, or give --speed, or "
          "--call_us, "
          "--sequence_us, --turn_us and --wake_us");
    }
    if (absl::Status status = LoadModelOnce(); !status.ok()) return status;
    const models::Model& model = *model_.model;
    speed_.machine = MachineName();
    speed_.model = absl::StrCat(model.name(), " version ", model.version());
    speed_.backend = model.backend_description();
    speed_.dtype = flags_.model.dtype;
    speed_.cores = server::NumCores();
    Say("measures batches");
    const int most = *std::max_element(batch_tokens_.begin(), batch_tokens_.end());
    auto samples = MeasureBatches(model, mix_.lengths, most, flags_.max_batch_sequences,
                                  speed_.cores, flags_.measure_s);
    if (!samples.ok()) return samples.status();
    auto batch = FitBatchTime(*samples);
    if (!batch.ok()) return batch.status();
    speed_.batch = *batch;
    speed_.batch_error = LargestError(speed_.batch, *samples);
    for (const BatchSample& sample : *samples) {
      json_["batches"].push_back(
          {{"sequences", sample.sequences},
           {"tokens", sample.tokens},
           {"longest", sample.longest},
           {"us", sample.us},
           {"fit_us", speed_.batch.Us(sample.tokens, sample.sequences, sample.longest)}});
    }
    Say("measures the pauses of the cores");
    speed_.pauses = MeasurePauses(speed_.cores, flags_.measure_s);
    if (HasCallCosts()) return absl::OkStatus();
    Say("measures calls to a server");
    CalibrateOptions calibrate;
    calibrate.server = flags_.server;
    calibrate.model = model.name();
    calibrate.flags = {absl::StrCat("--model_repository=", model_.repository),
                       "--model_control=explicit", absl::StrCat("--load_models=", model.name()),
                       absl::StrCat("--backend=", flags_.model.backend),
                       absl::StrCat("--dtype=", flags_.model.dtype)};
    if (flags_.model.backend == "cpu")
      calibrate.flags.push_back(absl::StrCat("--cpu_isa=", flags_.model.cpu_isa));
    calibrate.input = flags_.input;
    calibrate.lengths = flags_.lengths;
    if (!flags_.length_file.empty()) {
      calibrate.lengths = absl::StrCat(
          "fixed:", std::max(1, static_cast<int>(mix_.mean_tokens() / mix_.sequences)));
    }
    // Four loops, each warmed up once.
    calibrate.rounds = 3;
    calibrate.duration = absl::Seconds(flags_.measure_s / 4 / (calibrate.rounds + 1));
    auto loops = MeasureLoops(calibrate);
    if (!loops.ok()) return loops.status();
    if (absl::Status status = FitCallCosts(*loops, mix_, &speed_); !status.ok()) return status;
    std::vector<LoopMeasurement> simulated;
    for (const LoopMeasurement& loop : *loops) {
      auto same = SimulateLoop(speed_, mix_, loop);
      if (!same.ok()) return same.status();
      simulated.push_back(*same);
    }
    json_["loops"] = LoopsJson(*loops, simulated);
    text_ += LoopsText(*loops, simulated);
    return absl::OkStatus();
  }

  // Where nothing is searched for: the first of each list.
  SimulatedServerOptions GivenServer() const {
    SimulatedServerOptions server = server_;
    server.instances = instances_.front();
    server.batcher.max_batch_tokens =
        flags_.max_batch_tokens.empty()
            ? std::max(server::BatcherOptions().max_batch_tokens, mix_.longest())
            : batch_tokens_.front();
    server.batcher.max_queue_tokens =
        std::max<int64_t>(server.batcher.max_queue_tokens, server.batcher.max_batch_tokens);
    server.batcher.max_queue_delay = absl::Microseconds(delays_.front());
    return server;
  }

  absl::Status Predict() {
    ServerRunOptions run;
    run.server = GivenServer();
    run.mix = mix_;
    run.rate = flags_.rate / flags_.servers;
    run.calls = 4 * flags_.calls;
    run.warmup = run.calls / 20;
    run.seed = flags_.seed;
    run.client_on_machine = flags_.client_on_machine;
    auto result = RunServer(speed_, run);
    if (!result.ok()) return result.status();
    std::vector<PlanRow> rows;
    rows.push_back({flags_.client_on_machine ? "with the client on the machine" : "all servers",
                    flags_.servers, run.rate, *std::move(result)});
    json_["rows"] = RowsJson(rows);
    text_ += "\n" + RowsText(rows);
    return absl::OkStatus();
  }

  absl::Status SimulateFleet() {
    auto events = ParseFleetEvents(flags_.events);
    if (!events.ok()) return events.status();
    FleetOptions fleet;
    fleet.server = GivenServer();
    fleet.mix = mix_;
    fleet.servers = flags_.servers;
    fleet.rate = flags_.rate;
    fleet.clients = flags_.clients;
    fleet.network_s = absl::ToDoubleSeconds(flags_.network);
    fleet.duration_s = absl::ToDoubleSeconds(flags_.duration);
    fleet.events = *std::move(events);
    fleet.drain_delay_s = absl::ToDoubleSeconds(flags_.drain_delay);
    if (flags_.autoscale) fleet.autoscaler = flags_.autoscaler;
    fleet.startup_s = absl::ToDoubleSeconds(flags_.startup);
    fleet.discover_s = absl::ToDoubleSeconds(flags_.discover);
    fleet.sample = flags_.sample;
    fleet.windows = flags_.windows;
    fleet.seed = flags_.seed;
    const absl::Time start = absl::Now();
    const auto result = RunFleet(speed_, fleet);
    if (!result.ok()) return result.status();
    const double took_s = absl::ToDoubleSeconds(absl::Now() - start);
    if (!flags_.svg.empty()) {
      std::ofstream out(flags_.svg);
      out << FleetSvg(*result);
      out.close();
      if (!out) return absl::UnavailableError(absl::StrCat(flags_.svg, ": cannot be written"));
    }
    json_["fleet"] = FleetJson(*result, took_s);
    text_ += FleetText(*result, took_s);
    return absl::OkStatus();
  }

  absl::Status Search() {
    PlanOptions plan;
    plan.mix = mix_;
    plan.rate = flags_.rate;
    plan.p99_us = absl::ToDoubleMicroseconds(flags_.p99);
    plan.refused_share = flags_.refused;
    plan.spare = flags_.spare;
    plan.server = server_;
    plan.instances = instances_;
    plan.max_batch_tokens = batch_tokens_;
    plan.max_queue_delay_us = delays_;
    plan.calls = flags_.calls;
    plan.seed = flags_.seed;
    MeasureProgress progress(
        static_cast<int>(instances_.size() * batch_tokens_.size() * delays_.size()));
    plan.on_progress = [&](const std::string& what) { progress.Begin("simulates " + what); };
    auto made = MakePlan(speed_, plan);
    progress.Clear();
    if (!made.ok()) return made.status();
    json_["plan"] = PlanJson(plan, *made);
    text_ += PlanText(plan, *made);
    return absl::OkStatus();
  }

  static void Say(const char* what) { std::cerr << "sru_bench capacity: " << what << "\n"; }

  const CapacityFlags flags_;
  CapacityModel model_;
  CallMix mix_;
  SimulatedServerOptions server_;
  std::vector<int> instances_;
  std::vector<int> batch_tokens_;
  std::vector<int> delays_;
  MachineSpeed speed_;
  // What is printed in the end, one of them.
  std::string text_;
  nlohmann::ordered_json json_;
};

}  // namespace

int CapacityMain(const std::vector<std::string>& args) {
  CapacityFlags options;
  client::FlagSet flags;
  options.AddFlags(&flags);
  if (auto exit_code = ParseFlags("capacity", kCapacityUsage, args, &flags)) return *exit_code;
  const absl::Status status = CapacityCommand(std::move(options)).Run();
  if (status.ok()) return kExitOk;
  std::cerr << "sru_bench capacity: " << status.message() << "\n";
  return absl::IsInvalidArgument(status) ? kExitUsage : kExitFailed;
}

}  // namespace sru::bench
