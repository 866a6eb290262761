#include "bench/capacity_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sru::bench {
namespace {

absl::Status OutOfRange(const char* flag, const std::string& expected, const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected ", expected, ", found ", found));
}

}  // namespace

void CapacityFlags::AddFlags(client::FlagSet* flags) {
  flags->Add("model", &model.path,
             "directory of a classifier or an encoder, or of a version of it");
  flags->Add("backend", &model.backend, "cpu, cuda or reference");
  flags->Add("cpu_isa", &model.cpu_isa, "instruction set of the CPU backend, as sru_server's");
  flags->Add("dtype", &model.dtype, "float32 or bfloat16");
  flags->Add("server", &server, "the sru_server that is run to measure what calls cost");
  flags->Add("speed", &speed, "file with a machine's speed, in place of a measurement");
  flags->Add("save_speed", &save_speed, "file to write the speed to; without --rate that is all");
  flags->Add("measure_s", &measure_s, "seconds for each of the three parts of the measurement");
  flags->Add("cores", &cores, "of each server; 0 = as measured");
  flags->Add("call_us", &call_us,
             "processor time of a call outside of its batch; -1 = as measured");
  flags->Add("sequence_us", &sequence_us, "the same of each sequence; -1 = as measured");
  flags->Add("turn_us", &turn_us,
             "the same of each time that a thread takes up work; -1 = as measured");
  flags->Add("wake_us", &wake_us, "until a woken thread runs; -1 = as measured");
  flags->Add(
      "crowd_us", &crowd_us,
      absl::StrCat("what a call costs besides while ", kCrowdCalls, " are open; -1 = as measured"));
  flags->Add("pauses", &pauses, "whether cores pause as they did when they were measured");

  flags->Add("rate", &rate, "calls per second, of all servers together, Poisson arrivals");
  flags->Add("sequences", &sequences, "in each call");
  flags->Add("lengths", &lengths,
             "of sequences, in tokens: fixed:N, uniform:MIN:MAX, exponential:MEAN:MAX, "
             "geometric:MEAN:MAX or lognormal:MEDIAN:SIGMA:MAX");
  flags->Add("length_file", &length_file, "file with one length per line");
  flags->Add("input", &input, "file with one text per line, which the model cuts into tokens");
  flags->Add("low", &low,
             "share of the calls that have PRIORITY_LOW; the objective is for the others");
  flags->Add("deadline", &deadline, "of each call; inf = none");
  flags->Add("p99", &p99, "objective: 99% of the calls are answered within this time");
  flags->Add("refused", &refused, "share of the calls that may be refused or late");
  flags->Add("spare", &spare, "servers beyond those that are needed: so many may be lost");
  flags->Add("servers", &servers, "say what so many servers make of the load; 0 = search");
  flags->Add("client_on_machine", &client_on_machine,
             "with --servers=1: sru_bench load runs on the server's cores");
  flags->Add("calls", &calls, "of each simulation of the search; four times as many of the result");
  flags->Add("seed", &seed, "the same seed gives the same result");
  flags->Add("json", &json, "print one JSON object");

  flags->Add("instances", &instances,
             "list: flag of the server; empty = its cores, and half of them");
  flags->Add("max_batch_tokens", &max_batch_tokens,
             "list: flag of the server; empty = 512 to 8192, as far as the longest fits");
  flags->Add("max_queue_delay_us", &max_queue_delay_us, "list: flag of the server");
  flags->Add("max_batch_sequences", &max_batch_sequences, "flag of the server");
  flags->Add("max_queue_tokens", &max_queue_tokens, "flag of the server, where no plan chooses it");
  flags->Add("max_queue_sequences", &max_queue_sequences, "flag of the server");
  flags->Add("admission", &admission, "flag of the server: deadline or none");
  flags->Add("compute_turn_us", &compute_turn_us, "flag of the server");
  flags->Add("read_pause_us", &read_pause_us, "flag of the server");
  flags->Add("max_concurrent_streams", &max_concurrent_streams, "flag of the server");
  flags->Add("connections", &connections, "that calls come to each server on");

  flags->Add("events", &events,
             "what happens to a fleet: lose@TIME, drain@TIME and rate=CALLS@TIME with commas "
             "between them");
  flags->Add("autoscale", &autoscale,
             "the autoscaler of deploy/kubernetes acts on the fleet, with these five values:");
  flags->Add("min_servers", &autoscaler.min_servers, "minReplicas");
  flags->Add("max_servers", &autoscaler.max_servers, "maxReplicas");
  flags->Add("queue_target", &autoscaler.queue_tokens, "averageValue of sru_queue_tokens");
  flags->Add("cpu_target", &autoscaler.busy,
             "averageUtilization of the processors, such as 0.75; 0 = does not count");
  flags->Add("startup", &startup, "from the autoscaler's decision until a new server serves");
  flags->Add("discover", &discover, "within which clients find a new server");
  flags->Add("duration", &duration, "of a fleet's simulation");
  flags->Add("clients", &clients, "of a fleet, each with a round robin of its own");
  flags->Add("network", &network, "from a client to a server of a fleet, one way");
  flags->Add("drain_delay", &drain_delay, "--drain_delay_s of the fleet's servers");
  flags->Add("sample", &sample,
             "simulate one server of a fleet in so many, with its share of the calls; an event "
             "then concerns "
             "so many servers");
  flags->Add("windows", &windows, "rows of a fleet's time line");
  flags->Add("svg", &svg, "file to draw a fleet's time line into");
}

absl::Status CapacityFlags::Check() const {
  const CapacityFlags& flags = *this;
  const struct {
    const char* name;
    double value;
    double low;
    double high;
  } ranges[] = {
      {"rate", flags.rate, 0, 1e7},
      {"sequences", static_cast<double>(flags.sequences), 1, 10000},
      {"low", flags.low, 0, 1},
      {"refused", flags.refused, 0, 1},
      {"spare", static_cast<double>(flags.spare), 0, 1000},
      {"servers", static_cast<double>(flags.servers), 0, 100000},
      {"cores", static_cast<double>(flags.cores), 0, 4096},
      {"calls", static_cast<double>(flags.calls), 1000, 1e9},
      {"connections", static_cast<double>(flags.connections), 1, 10000},
      {"max_concurrent_streams", static_cast<double>(flags.max_concurrent_streams), 1, 1 << 30},
      {"measure_s", flags.measure_s, 0.01, 600},
      {"compute_turn_us", flags.compute_turn_us, 0, 1e6},
      {"read_pause_us", flags.read_pause_us, 0, 1e6},
      {"call_us", flags.call_us, -1, 1e6},
      {"sequence_us", flags.sequence_us, -1, 1e6},
      {"turn_us", flags.turn_us, -1, 1e6},
      {"wake_us", flags.wake_us, -1, 1e6},
      {"crowd_us", flags.crowd_us, -1, 1e6},
      {"clients", static_cast<double>(flags.clients), 1, 100000},
      {"sample", static_cast<double>(flags.sample), 1, 100000},
      {"windows", static_cast<double>(flags.windows), 1, 10000},
      {"min_servers", static_cast<double>(flags.autoscaler.min_servers), 1, 100000},
      {"max_servers", static_cast<double>(flags.autoscaler.max_servers), 1, 100000},
      {"queue_target", flags.autoscaler.queue_tokens, 1, 1e12},
      {"cpu_target", flags.autoscaler.busy, 0, 1}};
  for (const auto& range : ranges) {
    if (range.value >= range.low && range.value <= range.high) continue;
    return OutOfRange(range.name, absl::StrCat(range.low, " to ", range.high),
                      absl::StrCat(range.value));
  }
  for (const auto& [name, value] :
       {std::make_pair("deadline", flags.deadline), {"p99", flags.p99}}) {
    if (value > absl::ZeroDuration()) continue;
    return OutOfRange(name, "more than 0", absl::FormatDuration(value));
  }
  if (flags.p99 > absl::Hours(1))
    return OutOfRange("p99", "at most 1h", absl::FormatDuration(flags.p99));
  for (const auto& [name, value] : {std::make_pair("duration", flags.duration),
                                    {"network", flags.network},
                                    {"drain_delay", flags.drain_delay},
                                    {"startup", flags.startup},
                                    {"discover", flags.discover}}) {
    if (value >= absl::ZeroDuration() && value <= absl::Hours(24)) continue;
    return OutOfRange(name, "0 to 24h", absl::FormatDuration(value));
  }
  if (flags.autoscaler.min_servers > flags.autoscaler.max_servers) {
    return OutOfRange("max_servers", absl::StrCat("at least ", flags.autoscaler.min_servers),
                      absl::StrCat(flags.autoscaler.max_servers));
  }
  if (flags.has_fleet() && (flags.servers == 0 || flags.client_on_machine)) {
    return absl::InvalidArgumentError(
        "--events, --autoscale: expected with --servers, and without --client_on_machine");
  }
  if (flags.admission != "deadline" && flags.admission != "none") {
    return OutOfRange("admission", "deadline or none", absl::StrCat("'", flags.admission, "'"));
  }
  if ((flags.lengths.empty() ? 0 : 1) + (flags.length_file.empty() ? 0 : 1) +
          (flags.input.empty() ? 0 : 1) >
      1) {
    return absl::InvalidArgumentError("--lengths, --length_file, --input: expected one of them");
  }
  if (flags.client_on_machine && flags.servers != 1) {
    return absl::InvalidArgumentError("--client_on_machine: expected with --servers=1");
  }
  if (flags.rate == 0 && flags.save_speed.empty()) {
    return absl::InvalidArgumentError(
        "--rate: expected calls per second, such as --rate=20000, or --save_speed=FILE to only "
        "measure");
  }
  if (flags.rate == 0 && !flags.speed.empty()) {
    return absl::InvalidArgumentError("--speed: expected with --rate");
  }
  return absl::OkStatus();
}

}  // namespace sru::bench
