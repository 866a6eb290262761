#include "bench/load_generator.h"

#include <poll.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/host_port.h"
#include "base/mutex.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/h2_connection.h"
#include "bench/loopback.h"
#include "client/channel_security.h"

namespace sru::bench {
namespace {

// Most calls that are started before answers are read again.
constexpr int kMaxBurst = 256;
// How long the end of a run waits for answers if calls have no deadline.
constexpr int64_t kDrainNs = 30000000000;
constexpr int64_t kDrainStoppedNs = 1000000000;
// How often a waiting loop checks whether it was told to stop.
constexpr int64_t kMaxWaitNs = 100000000;

int64_t NowNs() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Counters {
  std::atomic<int64_t> sent{0};
  std::atomic<int64_t> ok{0};
  std::atomic<int64_t> not_ok{0};
};

// The state that the workers share.
struct Run {
  const LoadOptions* options = nullptr;
  const std::vector<std::string>* requests = nullptr;
  int64_t deadline_ns = 0;  // per call; 0 = none
  int64_t send_interval_ns = 0;
  int64_t start_ns = 0;
  int64_t measure_ns = 0;  // calls meant for after this are counted
  int64_t end_ns = 0;      // nothing is sent after this
  H2Connection::Tls tls;
  std::atomic<int64_t> tickets{0};  // counted calls, when `calls` bounds them

  // Whether a call meant for `time_ns` may be sent, and whether it is a counted one.
  bool Admit(int64_t time_ns, bool* counted) {
    if (time_ns >= end_ns || options->Stopped()) return false;
    *counted = time_ns >= measure_ns;
    return !*counted || options->calls == 0 || tickets.fetch_add(1) < options->calls;
  }
};

// One thread's connections, and the calls on them.
class Worker {
 public:
  Worker(Run* run, int in_flight, double rate, int max_outstanding, uint64_t seed)
      : run_(run),
        open_loop_(rate > 0),
        to_start_(in_flight),
        max_outstanding_(max_outstanding),
        arrivals_(open_loop_ ? rate : 1, seed) {}

  absl::Status Connect(const std::vector<SocketAddress>& addresses) {
    const size_t number = links_.size();
    auto connection = H2Connection::Open(
        addresses, run_->options->method,
        [this, number](uint32_t stream, absl::StatusCode code, absl::string_view text) {
          End(number, stream, code, text);
        },
        /*keep_answers=*/false, run_->options->token, run_->tls);
    if (!connection.ok()) return connection.status();
    links_.push_back({*std::move(connection), {}});
    return absl::OkStatus();
  }

  // Runs until everything was sent and answered.
  void Loop() {
    // The kernel may wake a sleeper 50 us late unless told otherwise.
    prctl(PR_SET_TIMERSLACK, 1);
    std::vector<pollfd> descriptors(links_.size());
    next_arrival_ns_ = run_->start_ns + (open_loop_ ? arrivals_.Next() : 0);
    int64_t drain_end_ns = 0;
    for (;;) {
      int64_t now = NowNs();
      if (sending_) Send(now);
      Expire(now);
      if (!sending_) {
        if (outstanding_ == 0) return;
        if (drain_end_ns == 0)
          drain_end_ns = now + (run_->options->Stopped() ? kDrainStoppedNs : kDrainNs);
        if (now >= drain_end_ns) {
          GiveUp();
          return;
        }
      }
      for (size_t i = 0; i < links_.size(); ++i) {
        const bool left = links_[i].connection->Flush();
        descriptors[i] = {links_[i].connection->lost() ? -1 : links_[i].connection->fd(),
                          static_cast<short>(POLLIN | (left ? POLLOUT : 0)), 0};
      }
      now = NowNs();
      if (open_loop_ && sending_ && run_->send_interval_ns > 0) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(run_->send_interval_ns));
        now = NowNs();
      }
      const int64_t wait_ns = std::max<int64_t>(0, NextEventNs(now) - now);
      const timespec wait = {static_cast<time_t>(wait_ns / 1000000000), wait_ns % 1000000000};
      if (ppoll(descriptors.data(), descriptors.size(), &wait, nullptr) <= 0) continue;
      for (size_t i = 0; i < links_.size(); ++i) {
        if ((descriptors[i].revents & ~POLLOUT) != 0) links_[i].connection->ReadAnswers();
      }
    }
  }

  const Counters& counters() const { return counters_; }
  // Call it after the thread was joined.
  const LoadResult& result() const { return result_; }
  int64_t last_answer_ns() const { return last_answer_ns_; }

 private:
  struct Call {
    int64_t intended_ns;
    bool counted;
  };
  struct Link {
    std::unique_ptr<H2Connection> connection;
    std::unordered_map<uint32_t, Call> calls;  // that are on their way, by their streams
  };
  struct Expiry {
    int64_t time_ns;
    size_t link;
    uint32_t stream;
  };

  // Returns the next connection, in turn, that can take a call; -1 if there is none now.
  int PickLink() {
    for (size_t tries = 0; tries < links_.size(); ++tries) {
      next_link_ = (next_link_ + 1) % links_.size();
      if (links_[next_link_].connection->usable()) return static_cast<int>(next_link_);
    }
    return -1;
  }

  bool AllLost() const {
    return std::none_of(links_.begin(), links_.end(),
                        [](const Link& link) { return link.connection->alive(); });
  }

  // Starts the calls that are due. Ends the sending at the end of the run.
  void Send(int64_t now) {
    if (AllLost()) {
      result_.connection_lost = true;
      sending_ = false;
      return;
    }
    for (int burst = 0; burst < kMaxBurst; ++burst) {
      if (open_loop_ ? next_arrival_ns_ > now : to_start_ == 0) return;
      const int link = PickLink();
      full_ = link < 0;
      if (full_) return;
      const int64_t intended = open_loop_ ? next_arrival_ns_ : now;
      bool counted = false;
      if (!run_->Admit(intended, &counted)) {
        sending_ = false;
        return;
      }
      if (open_loop_) {
        next_arrival_ns_ = run_->start_ns + arrivals_.Next();
        const bool late = run_->deadline_ns > 0 && now >= intended + run_->deadline_ns;
        if (late || outstanding_ >= max_outstanding_) {
          result_.unsent += counted ? 1 : 0;
          continue;
        }
      } else {
        --to_start_;
      }
      Start(static_cast<size_t>(link), intended, counted, now);
    }
  }

  void Start(size_t link, int64_t intended, bool counted, int64_t now) {
    Link& owner = links_[link];
    const int64_t deadline = run_->deadline_ns > 0 ? intended + run_->deadline_ns : 0;
    const size_t request = next_request_++ % run_->requests->size();
    const uint32_t stream =
        owner.connection->Start((*run_->requests)[request],
                                deadline > 0 ? std::max<int64_t>(1, (deadline - now) / 1000) : 0);
    owner.calls[stream] = {intended, counted};
    if (deadline > 0) expiries_.push_back({deadline, link, stream});
    ++outstanding_;
    counters_.sent.fetch_add(1, std::memory_order_relaxed);
  }

  // Deadlines pass in the order in which calls were meant to be sent.
  void Expire(int64_t now) {
    while (!expiries_.empty()) {
      const Expiry expiry = expiries_.front();
      if (links_[expiry.link].calls.count(expiry.stream) != 0) {
        if (expiry.time_ns > now) return;
        links_[expiry.link].connection->Cancel(expiry.stream);
        End(expiry.link, expiry.stream, absl::StatusCode::kDeadlineExceeded,
            "no answer within the deadline");
      }
      expiries_.pop_front();
    }
  }

  void GiveUp() {
    for (size_t link = 0; link < links_.size(); ++link) {
      while (!links_[link].calls.empty()) {
        End(link, links_[link].calls.begin()->first, absl::StatusCode::kDeadlineExceeded,
            "no answer after the end");
      }
    }
  }

  // While no connection takes a call, nothing can be sent until an answer comes, and asking again
  // and again would take the core from the server.
  int64_t NextEventNs(int64_t now) const {
    int64_t next = now + kMaxWaitNs;
    if (sending_ && !full_ && open_loop_) next = std::min(next, next_arrival_ns_);
    if (sending_ && !full_ && !open_loop_ && to_start_ > 0) next = now;
    if (!expiries_.empty()) next = std::min(next, expiries_.front().time_ns);
    return next;
  }

  // `text` as in H2Connection::Done.
  void End(size_t link, uint32_t stream, absl::StatusCode code, absl::string_view text) {
    const bool ok = code == absl::StatusCode::kOk;
    const auto found = links_[link].calls.find(stream);
    const Call call = found->second;
    links_[link].calls.erase(found);
    --outstanding_;
    if (!open_loop_) ++to_start_;
    (ok ? counters_.ok : counters_.not_ok).fetch_add(1, std::memory_order_relaxed);
    if (!call.counted) return;
    const int64_t now = NowNs();
    const int64_t latency = now - call.intended_ns;
    last_answer_ns_ = now;
    ++result_.calls;
    if (ok) {
      ++result_.ok;
      if (run_->deadline_ns == 0 || latency <= run_->deadline_ns) ++result_.good;
      result_.latency.Add(latency);
      return;
    }
    (RunResult::IsRefusal(code) ? result_.refused : result_.failed).Add(latency);
    ++result_.codes[code];
    result_.first_error.try_emplace(code, text);
  }

  Run* const run_;
  const bool open_loop_;
  int to_start_;  // closed loop: number of calls that are not on their way
  const int max_outstanding_;
  PoissonArrivals arrivals_;
  std::vector<Link> links_;
  size_t next_link_ = 0;
  size_t next_request_ = 0;
  int64_t next_arrival_ns_ = 0;
  std::deque<Expiry> expiries_;
  int64_t outstanding_ = 0;
  bool sending_ = true;
  bool full_ = false;  // whether no connection took the last call that was due
  Counters counters_;
  LoadResult result_;
  int64_t last_answer_ns_ = 0;
};

}  // namespace

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options,
                                   const std::vector<std::string>& requests) {
  SRU_RETURN_UNLESS_OK(CheckRunOptions(options));
  if (options.send_interval < absl::ZeroDuration() || options.send_interval > absl::Seconds(1)) {
    return InvalidArgument("--send_interval: expected 0s to 1s, found ",
                           absl::FormatDuration(options.send_interval));
  }
  if (requests.empty()) return absl::InvalidArgumentError("requests: expected at least one");

  SRU_ASSIGN_OR_RETURN(auto addresses, ResolveLoopback(options.address));

  Run run;
  SRU_ASSIGN_OR_RETURN(run.tls.context, client::MakeTlsContext(options));
  run.tls.server_name = options.tls_server_name;
  if (run.tls.server_name.empty()) {
    const auto host = SplitHostPort(options.address);
    run.tls.server_name = host.has_value() ? std::string(host->host) : "localhost";  // unix:
  }
  run.options = &options;
  run.requests = &requests;
  if (options.deadline != absl::InfiniteDuration()) {
    run.deadline_ns = absl::ToInt64Nanoseconds(options.deadline);
  }
  run.send_interval_ns = absl::ToInt64Nanoseconds(options.send_interval);
  int threads = std::min(options.threads, options.connections);
  if (options.rate == 0) threads = std::min(threads, options.in_flight);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < threads; ++i) {
    // Independent Poisson processes add up to one.
    workers.push_back(std::make_unique<Worker>(
        &run, options.in_flight / threads + (i < options.in_flight % threads ? 1 : 0),
        options.rate / threads, std::max(1, options.max_outstanding / threads),
        options.seed + static_cast<uint64_t>(i)));
  }
  for (int i = 0; i < options.connections; ++i) {
    if (absl::Status status = workers[i % threads]->Connect(addresses); !status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), " (", options.address, ")"));
    }
  }

  run.start_ns = NowNs();
  run.measure_ns = run.start_ns + absl::ToInt64Nanoseconds(options.warmup);
  run.end_ns = run.measure_ns + absl::ToInt64Nanoseconds(options.duration);
  Mutex mu;
  CondVar ended;
  int running = threads;  // guarded by mu; a local variable takes no annotation
  std::vector<std::thread> threads_running;
  for (const auto& worker : workers) {
    threads_running.emplace_back([&] {
      worker->Loop();
      MutexLock lock(&mu);
      --running;
      ended.SignalAll();
    });
  }
  while (!WaitUntil(&mu, &ended, absl::Seconds(1), [&] { return running == 0; })) {
    if (options.on_progress == nullptr) continue;
    Progress progress;
    int64_t sent = 0;
    const int64_t now = NowNs();
    progress.elapsed_s = static_cast<double>(now - run.start_ns) * 1e-9;
    progress.warming_up = now < run.measure_ns;
    for (const auto& worker : workers) {
      sent += worker->counters().sent.load(std::memory_order_relaxed);
      progress.ok += worker->counters().ok.load(std::memory_order_relaxed);
      progress.not_ok += worker->counters().not_ok.load(std::memory_order_relaxed);
    }
    progress.done = progress.ok;
    progress.running = sent - progress.ok - progress.not_ok;
    options.on_progress(progress);
  }
  for (std::thread& thread : threads_running) thread.join();

  LoadResult result;
  int64_t last_ns = run.measure_ns;
  for (const auto& worker : workers) {
    const LoadResult& part = worker->result();
    result.calls += part.calls;
    result.ok += part.ok;
    result.good += part.good;
    result.unsent += part.unsent;
    result.connection_lost = result.connection_lost || part.connection_lost;
    result.latency.Merge(part.latency);
    result.refused.Merge(part.refused);
    result.failed.Merge(part.failed);
    for (const auto& [code, count] : part.codes) result.codes[code] += count;
    for (const auto& [code, text] : part.first_error) result.first_error.try_emplace(code, text);
    last_ns = std::max(last_ns, worker->last_answer_ns());
  }
  const bool to_the_end = options.calls == 0 && !options.Stopped() && !result.connection_lost;
  if (to_the_end) last_ns = std::max(last_ns, run.end_ns);
  if (result.ok > 0) result.codes[absl::StatusCode::kOk] = result.ok;
  result.elapsed_s = static_cast<double>(last_ns - run.measure_ns) * 1e-9;
  return result;
}

}  // namespace sru::bench
