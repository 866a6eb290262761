#include "bench/capacity_fleet.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "bench/arrivals.h"

namespace sru::bench {
namespace {

int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

class Fleet : private EventQueue::Handler, private SimulatedServer::Observer {
 public:
  Fleet(const MachineSpeed& speed, const FleetOptions& options)
      : speed_(speed),
        options_(options),
        source_(&options_.mix, options.seed),
        random_(options.seed + 1),
        begin_(Ns(options.warmup_s)),
        end_(Ns(options.warmup_s + options.duration_s)),
        window_ns_(Ns(options.duration_s) / options.windows) {
    if (options_.autoscaler.has_value()) autoscaler_.emplace(*options_.autoscaler);
  }

  absl::StatusOr<FleetResult> Run() {
    MakeStretches();
    for (int i = 0; i < std::max(1, options_.servers / options_.sample); ++i) {
      servers_.push_back({});
      if (absl::Status status = Start(i); !status.ok()) return status;
    }
    for (int i = 0; i < std::max(1, options_.clients / options_.sample); ++i) {
      clients_.emplace_back(options_.retry);
      for (size_t server = 0; server < servers_.size(); ++server) {
        clients_.back().servers.push_back(static_cast<int>(server));
      }
      Shuffle(clients_.back());
    }
    SetRate(options_.rate);
    events_.At(begin_, this, Argument(kBegin, 0));
    // Counted before what happens at the same time.
    for (size_t i = 0; i < result_.windows.size(); ++i) {
      events_.At(begin_ + static_cast<int64_t>(i + 1) * window_ns_, this, Argument(kWindow, i));
    }
    for (size_t i = 0; i < result_.phases.size(); ++i) {
      events_.At(begin_ + Ns(result_.phases[i].to_s), this, Argument(kPhase, i));
    }
    for (size_t i = 0; i < options_.events.size(); ++i) {
      events_.At(begin_ + Ns(options_.events[i].at_s), this, Argument(kPlanned, i));
    }
    if (autoscaler_.has_value()) {
      events_.At(Ns(options_.autoscaler->scrape_s), this, Argument(kScrape, 0));
      events_.At(Ns(options_.autoscaler->period_s), this, Argument(kScale, 0));
    }
    while ((events_.now() < end_ || open_ > 0) && status_.ok() && events_.RunNext()) {
    }
    if (!status_.ok()) return status_;
    return std::move(result_);
  }

 private:
  enum Kind {
    kArrival,
    kReach,
    kRetry,
    kPlanned,
    kWindow,
    kPhase,
    kScrape,
    kScale,
    kReady,
    kForget,
    kClose,
    kFind,
    kBegin
  };
  enum class State { kStarting, kServing, kLeaving, kGone };

  struct Server {
    std::unique_ptr<SimulatedServer> simulated;
    State state = State::kStarting;
    std::deque<double> queue;  // of tokens, by scrape
    int64_t busy_ns = 0;       // at the last Scale()
  };
  struct Client {
    explicit Client(const RetryOptions& options) : retry(options) {}
    std::vector<int> servers;
    size_t next = 0;
    RetryRule retry;
  };
  struct Entry : SimulatedCall {
    int64_t index = 0;
    int server = 0;
  };

  static int64_t Argument(Kind kind, size_t index, int64_t client = 0) {
    return static_cast<int64_t>(kind) | static_cast<int64_t>(index) << 4 | client << 36;
  }

  void OnEvent(int64_t argument) override {
    const auto index = static_cast<size_t>(argument >> 4 & 0xFFFFFFFF);
    switch (static_cast<Kind>(argument & 15)) {
      case kArrival:
        // Of an earlier rate.
        if (index == rates_) Arrive();
        break;
      case kReach:
        servers_[entries_[index].server].simulated->Arrive(&entries_[index]);
        break;
      case kRetry:
        Send(&entries_[index]);
        break;
      case kPlanned:
        Happen(options_.events[index]);
        break;
      case kBegin:
        window_busy_ns_ = phase_busy_ns_ = BusyNs();
        break;
      case kWindow:
        Close(&result_.windows[index], &window_busy_ns_);
        break;
      case kPhase:
        Close(&result_.phases[index], &phase_busy_ns_);
        break;
      case kScrape:
        Scrape();
        break;
      case kScale:
        Scale();
        break;
      case kReady:
        if (servers_[index].state == State::kStarting) status_.Update(Serve(index));
        break;
      case kForget:
        Forget(static_cast<int>(index));
        break;
      case kClose:
        if (servers_[index].state != State::kGone) servers_[index].simulated->Close();
        break;
      case kFind:
        Find(clients_[argument >> 36], static_cast<int>(index));
        break;
    }
  }

  // Calls --------------------------------------------------------------------------------------

  void SetRate(double rate) {
    ++rates_;
    rate_begin_ = events_.now();
    arrivals_.emplace(std::max(1e-9, rate / options_.sample), options_.seed + 100 + rates_);
    events_.At(rate_begin_ + arrivals_->Next(), this, Argument(kArrival, rates_));
  }

  void Arrive() {
    if (events_.now() >= end_) return;
    Entry* entry = nullptr;
    if (free_.empty()) {
      entry = &entries_.emplace_back();
      entry->index = static_cast<int64_t>(entries_.size()) - 1;
    } else {
      entry = free_.back();
      free_.pop_back();
    }
    static_cast<SimulatedCall&>(*entry) = source_.Draw(events_.now());
    entry->client = static_cast<int>(random_() % clients_.size());
    entry->connection = entry->client;
    ++open_;
    Send(entry);
    events_.At(rate_begin_ + arrivals_->Next(), this, Argument(kArrival, rates_));
  }

  // An attempt.
  void Send(Entry* entry) {
    ++entry->attempts;
    Client& client = clients_[entry->client];
    if (client.servers.empty()) {
      Fail(entry);
      return;
    }
    if (++client.next >= client.servers.size()) client.next = 0;
    entry->server = client.servers[client.next];
    events_.At(events_.now() + Ns(options_.network_s), this, Argument(kReach, entry->index));
  }

  void OnAnswer(SimulatedServer* /*server*/, SimulatedCall* call, absl::StatusCode code) override {
    auto* const entry = static_cast<Entry*>(call);
    if (code == absl::StatusCode::kUnavailable) {
      Fail(entry);
      return;
    }
    clients_[entry->client].retry.Succeeded();
    End(entry, code);
  }

  // The attempt met UNAVAILABLE.
  void Fail(Entry* entry) {
    const auto wait = clients_[entry->client].retry.Failed(entry->attempts, random_);
    if (!wait.has_value()) {
      End(entry, absl::StatusCode::kUnavailable);
      return;
    }
    const int64_t again = events_.now() + Ns(options_.network_s) + *wait;
    if (entry->deadline_ns > 0 && again > entry->deadline_ns) {
      End(entry, absl::StatusCode::kDeadlineExceeded);
    } else {
      events_.At(again, this, Argument(kRetry, entry->index));
    }
  }

  void End(Entry* entry, absl::StatusCode code) {
    --open_;
    const int64_t latency = events_.now() + Ns(options_.network_s) - entry->due_ns;
    if (code == absl::StatusCode::kOk && entry->deadline_ns > 0 &&
        entry->due_ns + latency > entry->deadline_ns) {
      code = absl::StatusCode::kDeadlineExceeded;
    }
    const int64_t since = entry->due_ns - begin_;
    if (since >= 0) {
      ++result_.calls;
      const auto window = static_cast<size_t>(since / window_ns_);
      Count(*entry, code, latency, &result_.windows[std::min(window, result_.windows.size() - 1)]);
      size_t phase = 0;
      while (phase + 1 < result_.phases.size() && since >= Ns(result_.phases[phase].to_s)) ++phase;
      Count(*entry, code, latency, &result_.phases[phase]);
    }
    free_.push_back(entry);
  }

  static void Count(const Entry& entry, absl::StatusCode code, int64_t latency,
                    FleetCounts* counts) {
    ++counts->calls;
    if (entry.attempts > 1) ++counts->retried;
    switch (code) {
      case absl::StatusCode::kOk:
        ++counts->ok;
        counts->latency.Add(latency);
        break;
      case absl::StatusCode::kResourceExhausted:
        ++counts->refused;
        break;
      case absl::StatusCode::kUnavailable:
        ++counts->lost;
        break;
      default:
        ++counts->late;
    }
  }

  // Servers ------------------------------------------------------------------------------------

  absl::Status Start(size_t index) {
    SimulatedServerOptions server = options_.server;
    // It bounds the calls of one client, of which there are many.
    server.max_concurrent_streams = std::numeric_limits<int>::max();
    auto made = SimulatedServer::Create(server, &speed_, &options_.mix,
                                        options_.seed + 1000 + index, &events_, this);
    if (!made.ok()) return made.status();
    servers_[index].simulated = *std::move(made);
    servers_[index].state = State::kServing;
    return absl::OkStatus();
  }

  absl::Status Serve(size_t index) {
    if (absl::Status status = Start(index); !status.ok()) return status;
    for (size_t client = 0; client < clients_.size(); ++client) {
      const double after_s = std::uniform_real_distribution<>(0, 1)(random_) * options_.discover_s;
      events_.At(events_.now() + Ns(after_s), this,
                 Argument(kFind, index, static_cast<int64_t>(client)));
    }
    return absl::OkStatus();
  }

  // gRPC begins anywhere in a new list.
  void Shuffle(Client& client) {
    if (!client.servers.empty()) client.next = random_() % client.servers.size();
  }
  void Find(Client& client, int server) {
    if (servers_[server].state != State::kServing) return;
    client.servers.push_back(server);
    Shuffle(client);
  }
  void Forget(int server) {
    for (Client& client : clients_) {
      const auto found = std::find(client.servers.begin(), client.servers.end(), server);
      if (found == client.servers.end()) continue;
      client.servers.erase(found);
      Shuffle(client);
    }
  }

  void Drain(size_t index) {
    Server& server = servers_[index];
    if (server.state == State::kStarting) {
      server.state = State::kGone;
      return;
    }
    server.state = State::kLeaving;
    events_.At(events_.now() + Ns(options_.network_s), this, Argument(kForget, index));
    events_.At(events_.now() + Ns(options_.drain_delay_s), this, Argument(kClose, index));
  }

  void Happen(const FleetEvent& event) {
    if (event.kind == FleetEvent::Kind::kRate) {
      SetRate(event.rate);
      return;
    }
    for (size_t i = 0; i < servers_.size(); ++i) {
      if (servers_[i].state != State::kServing) continue;
      if (event.kind == FleetEvent::Kind::kLose) {
        servers_[i].state = State::kGone;
        Forget(static_cast<int>(i));
        servers_[i].simulated->Kill();
      } else {
        Drain(i);
      }
      return;
    }
  }

  // Autoscaling --------------------------------------------------------------------------------

  void Scrape() {
    const auto most = static_cast<size_t>(
        std::max(1.0, options_.autoscaler->metric_s / options_.autoscaler->scrape_s));
    for (Server& server : servers_) {
      if (server.state != State::kServing) continue;
      server.queue.push_back(static_cast<double>(server.simulated->queued_tokens()));
      if (server.queue.size() > most) server.queue.pop_front();
    }
    Again(options_.autoscaler->scrape_s, kScrape);
  }

  void Scale() {
    const double period_s = options_.autoscaler->period_s;
    FleetMetrics metrics;
    for (Server& server : servers_) {
      if (server.state == State::kStarting) ++metrics.starting;
      if (server.state != State::kServing) continue;
      ++metrics.ready;
      double sum = 0;
      for (double tokens : server.queue) sum += tokens;
      if (!server.queue.empty())
        metrics.queue_tokens += sum / static_cast<double>(server.queue.size());
      Cores& cores = server.simulated->cores();
      metrics.busy +=
          static_cast<double>(cores.busy_ns() - server.busy_ns) * 1e-9 / (period_s * cores.count());
      server.busy_ns = cores.busy_ns();
    }
    metrics.ready *= options_.sample;
    metrics.starting *= options_.sample;
    metrics.queue_tokens *= options_.sample;
    metrics.busy *= options_.sample;
    const int current = (metrics.ready + metrics.starting) / options_.sample;
    const int wanted =
        static_cast<int>(std::ceil(static_cast<double>(autoscaler_->Decide(
                                       static_cast<double>(events_.now()) * 1e-9, metrics)) /
                                   options_.sample));
    for (int i = current; i < wanted; ++i) {
      servers_.push_back({});
      events_.At(events_.now() + Ns(options_.startup_s), this,
                 Argument(kReady, servers_.size() - 1));
    }
    int surplus = current - wanted;
    for (size_t i = servers_.size(); i-- > 0 && surplus > 0;) {
      if (servers_[i].state != State::kServing && servers_[i].state != State::kStarting) continue;
      Drain(i);
      --surplus;
    }
    Again(period_s, kScale);
  }

  void Again(double seconds, Kind kind) {
    if (events_.now() < end_) events_.At(events_.now() + Ns(seconds), this, Argument(kind, 0));
  }

  // Counts -------------------------------------------------------------------------------------

  void MakeStretches() {
    result_.windows.resize(options_.windows);
    for (int i = 0; i < options_.windows; ++i) {
      result_.windows[i].from_s = options_.duration_s * i / options_.windows;
      result_.windows[i].to_s = options_.duration_s * (i + 1) / options_.windows;
    }
    result_.phases.resize(1);
    result_.phases[0].name = "as it begins";
    for (const FleetEvent& event : options_.events) {
      result_.phases.back().to_s = event.at_s;
      FleetCounts& next = result_.phases.emplace_back();
      next.from_s = event.at_s;
      next.name = event.kind == FleetEvent::Kind::kLose ? "one lost"
                  : event.kind == FleetEvent::Kind::kDrain
                      ? "one drained"
                      : absl::StrFormat("%.0f calls/s", event.rate);
    }
    result_.phases.back().to_s = options_.duration_s;
  }

  // The work of all servers.
  int64_t BusyNs() {
    int64_t sum = 0;
    for (const Server& server : servers_) {
      if (server.simulated != nullptr) sum += server.simulated->cores().busy_ns();
    }
    return sum;
  }

  void Close(FleetCounts* counts, int64_t* busy_before_ns) {
    double tokens = 0;
    int serving = 0;
    for (const Server& server : servers_) {
      if (server.state != State::kServing) continue;
      ++serving;
      tokens += static_cast<double>(server.simulated->queued_tokens());
    }
    counts->servers = serving * options_.sample;
    counts->queue_tokens = serving > 0 ? tokens / serving : 0;
    const int64_t busy_ns = BusyNs();
    const double of_ns =
        (counts->to_s - counts->from_s) * 1e9 * speed_.cores * std::max(1, serving);
    counts->busy = of_ns > 0 ? static_cast<double>(busy_ns - *busy_before_ns) / of_ns : 0;
    *busy_before_ns = busy_ns;
  }

  const MachineSpeed& speed_;
  const FleetOptions& options_;
  EventQueue events_;
  CallSource source_;
  std::mt19937_64 random_;
  const int64_t begin_;
  const int64_t end_;
  const int64_t window_ns_;
  std::optional<PoissonArrivals> arrivals_;
  size_t rates_ = 0;  // that were set
  int64_t rate_begin_ = 0;
  std::deque<Server> servers_;
  std::vector<Client> clients_;
  std::deque<Entry> entries_;
  std::vector<Entry*> free_;
  int64_t open_ = 0;
  std::optional<Autoscaler> autoscaler_;
  int64_t window_busy_ns_ = 0;
  int64_t phase_busy_ns_ = 0;
  absl::Status status_;
  FleetResult result_;
};

}  // namespace

absl::StatusOr<std::vector<FleetEvent>> ParseFleetEvents(absl::string_view text) {
  std::vector<FleetEvent> events;
  for (absl::string_view part : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const auto wrong = [&] {
      return absl::InvalidArgumentError(
          absl::StrCat("--events: expected lose@TIME, drain@TIME and rate=CALLS@TIME in the order "
                       "of time with commas "
                       "between them, such as lose@10s,rate=30000@30s, found '",
                       part, "'"));
    };
    const std::vector<absl::string_view> halves = absl::StrSplit(part, '@');
    absl::Duration at;
    if (halves.size() != 2 || !absl::ParseDuration(halves[1], &at) || at < absl::ZeroDuration())
      return wrong();
    FleetEvent event;
    event.at_s = absl::ToDoubleSeconds(at);
    absl::string_view what = absl::StripAsciiWhitespace(halves[0]);
    if (what == "lose") {
      event.kind = FleetEvent::Kind::kLose;
    } else if (what == "drain") {
      event.kind = FleetEvent::Kind::kDrain;
    } else if (absl::ConsumePrefix(&what, "rate=")) {
      event.kind = FleetEvent::Kind::kRate;
      if (!absl::SimpleAtod(what, &event.rate) || !(event.rate >= 0 && event.rate <= 1e7))
        return wrong();
    } else {
      return wrong();
    }
    if (!events.empty() && event.at_s < events.back().at_s) return wrong();
    events.push_back(event);
  }
  return events;
}

absl::StatusOr<FleetResult> RunFleet(const MachineSpeed& speed, const FleetOptions& options) {
  const bool late_event =
      !options.events.empty() && options.events.back().at_s >= options.duration_s;
  if (late_event) {
    return absl::InvalidArgumentError("--events: expected before the end, which --duration says");
  }
  if (options.servers < 1 || options.clients < 1 || !(options.rate > 0) || options.sample < 1 ||
      options.windows < 1 || !(options.duration_s > 0) || options.warmup_s < 0 ||
      options.network_s < 0 || options.mix.lengths.empty() || options.mix.sequences < 1 ||
      options.server.connections < 1) {
    return absl::InvalidArgumentError(
        "a fleet needs at least one server, client, window and sequence, a rate and a duration");
  }
  return Fleet(speed, options).Run();
}

}  // namespace sru::bench
