#include "bench/capacity_calibrate.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/capacity_process.h"
#include "bench/capacity_run.h"
#include "bench/load_flags.h"
#include "bench/load_generator.h"
#include "bench/requests.h"

namespace sru::bench {
namespace {

constexpr int kConnections = 2;
constexpr int kSteps = 25;  // of the fit, each of which leaves a fraction of the difference
constexpr int64_t kSimulatedCalls = 6000;

struct Shape {
  int in_flight;
  int sequences;
};
constexpr Shape kShapes[] = {{1, 1}, {64, 1}, {16, 32}, {kCrowdCalls, 1}};

double MedianOf(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Samples {
  std::vector<double> server_us;
  std::vector<double> client_us;
  std::vector<double> p50_us;
  std::vector<double> calls_per_s;
};

absl::Status RunLoop(const ServerProcess& server, const LoadOptions& load,
                     const std::vector<std::string>& requests, Samples* samples) {
  const double server_before = server.cpu_seconds();
  const double client_before = OwnCpuSeconds();
  auto result = RunLoad(load, requests);
  if (!result.ok()) return result.status();
  if (result->ok == 0 || result->ok < result->calls) {
    return absl::UnavailableError(
        absl::StrCat("of ", result->calls, " calls of the measurement ", result->ok, " were OK"));
  }
  const auto calls = static_cast<double>(result->calls);
  samples->server_us.push_back((server.cpu_seconds() - server_before) * 1e6 / calls);
  samples->client_us.push_back((OwnCpuSeconds() - client_before) * 1e6 / calls);
  samples->p50_us.push_back(static_cast<double>(result->latency.Percentile(50)) / 1000);
  samples->calls_per_s.push_back(result->throughput());
  return absl::OkStatus();
}

// Moves a cost by a part of what is missing.
void Move(double missing, double* cost) { *cost = std::max(0.0, *cost + 0.7 * missing); }

}  // namespace

absl::StatusOr<std::vector<LoopMeasurement>> MeasureLoops(const CalibrateOptions& options) {
  std::vector<std::string> flags = options.flags;
  for (const char* flag : {"--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                           "--http_listen=", "--log_requests=none"}) {
    flags.push_back(flag);
  }
  auto server = ServerProcess::Start(options.server, flags);
  if (!server.ok()) return server.status();

  constexpr size_t kNumShapes = std::size(kShapes);
  LoadOptions load;
  load.address = (*server)->address();
  load.connections = kConnections;
  load.duration = options.duration;
  load.stop = nullptr;
  std::vector<std::vector<std::string>> requests;
  for (const Shape& shape : kShapes) {
    RequestOptions request;
    request.model = options.model;
    request.input = options.input;
    request.lengths = options.lengths;
    request.sequences = shape.sequences;
    auto made = PrepareRequests(request, &load);
    if (!made.ok()) return made.status();
    requests.push_back(*std::move(made));
  }
  std::vector<Samples> samples(kNumShapes);
  for (int round = -1; round < options.rounds; ++round) {
    for (size_t i = 0; i < kNumShapes; ++i) {
      load.in_flight = kShapes[i].in_flight;
      // Processor time counts from the start of the loop, hence so do calls; a round before them warms up.
      load.warmup = absl::ZeroDuration();
      Samples warm;
      absl::Status status = RunLoop(**server, load, requests[i], round < 0 ? &warm : &samples[i]);
      if (!status.ok()) return status;
    }
  }
  std::vector<LoopMeasurement> loops;
  for (size_t i = 0; i < kNumShapes; ++i) {
    loops.push_back({kShapes[i].in_flight, kShapes[i].sequences, MedianOf(samples[i].server_us),
                     MedianOf(samples[i].client_us), MedianOf(samples[i].p50_us),
                     MedianOf(samples[i].calls_per_s)});
  }
  return loops;
}

absl::StatusOr<LoopMeasurement> SimulateLoop(const MachineSpeed& speed, const CallMix& mix,
                                             const LoopMeasurement& loop) {
  ServerRunOptions run;
  run.mix = mix;
  run.mix.sequences = loop.sequences;
  run.mix.deadline_ns = 0;
  run.mix.low_share = 0;
  run.in_flight = loop.in_flight;
  run.server.connections = std::min(kConnections, loop.in_flight);
  run.calls = kSimulatedCalls / loop.sequences * (loop.in_flight == 1 ? 1 : 4);
  // What is open when it begins to count is finished besides, and must not weigh.
  run.calls = std::max<int64_t>(run.calls, 100 * loop.in_flight);
  run.warmup = run.calls / 10;
  run.client_on_machine = true;
  run.server.batcher.max_batch_tokens =
      std::max(run.server.batcher.max_batch_tokens, mix.longest());
  run.server.batcher.max_queue_tokens = int64_t{1} << 40;
  auto result = RunServer(speed, run);
  if (!result.ok()) return result.status();
  return LoopMeasurement{loop.in_flight,
                         loop.sequences,
                         result->server_us,
                         result->client_us,
                         static_cast<double>(result->latency.Percentile(50)) / 1000,
                         result->throughput()};
}

absl::Status FitCallCosts(const std::vector<LoopMeasurement>& loops, const CallMix& mix,
                          MachineSpeed* speed) {
  if (loops.size() != std::size(kShapes)) {
    return absl::InvalidArgumentError("expected one measurement of each loop");
  }
  const LoopMeasurement& alone = loops[0];
  const LoopMeasurement& many = loops[1];
  const LoopMeasurement& large = loops[2];
  const LoopMeasurement& crowd = loops[3];
  CallCost& call = speed->call;
  CallCost& client = speed->client;
  call = {0, 1, many.server_us / 2, 0};
  client = {0, 1, many.client_us, 0};
  for (int step = 0; step < kSteps; ++step) {
    auto one = SimulateLoop(*speed, mix, alone);
    auto full = SimulateLoop(*speed, mix, many);
    auto wide = SimulateLoop(*speed, mix, large);
    auto crowded = SimulateLoop(*speed, mix, crowd);
    for (const auto* loop : {&one, &full, &wide, &crowded}) {
      if (!loop->ok()) return loop->status();
    }
    // A lone call has a turn of a connection and one of a worker, and two of the client.
    Move((alone.server_us - one->server_us - (many.server_us - full->server_us)) / 2,
         &call.turn_us);
    Move(many.server_us - full->server_us, &call.call_us);
    Move((large.server_us - wide->server_us) / large.sequences, &call.sequence_us);
    Move(crowd.server_us - crowded->server_us - (many.server_us - full->server_us), &call.crowd_us);
    Move((alone.client_us - one->client_us - (many.client_us - full->client_us)) / 2,
         &client.turn_us);
    Move(many.client_us - full->client_us, &client.call_us);
    // Three threads wake one after the other: the connection's, a worker's, the client's.
    Move((alone.p50_us - one->p50_us) / 3, &call.wake_us);
  }
  return absl::OkStatus();
}

}  // namespace sru::bench
