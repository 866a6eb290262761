#include "bench/generate_load.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <queue>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "bench/commands.h"
#include "bench/loopback.h"
#include "client/channel_security.h"
#include "google/rpc/retry.pb.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_callback.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::bench {
namespace {

using Stub = v1::InferenceService::Stub;

constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
// A session that was refused comes back after the time that the server asks for, but not sooner.
constexpr absl::Duration kLeastWait = absl::Milliseconds(10);

int64_t Nanoseconds(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }

absl::Duration RetryDelay(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return kLeastWait;
  for (const google::protobuf::Any& detail : details.details()) {
    google::rpc::RetryInfo info;
    if (!detail.UnpackTo(&info)) continue;
    return std::max(kLeastWait, absl::Seconds(info.retry_delay().seconds()) +
                                    absl::Nanoseconds(info.retry_delay().nanos()));
  }
  return kLeastWait;
}

absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::StatusOr<std::unique_ptr<Stub>> Connect(const RunOptions& options, int number) {
  grpc::ChannelArguments args;
  // By default, channels to one address share a connection.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt("sru.bench.connection", number);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  SRU_ASSIGN_OR_RETURN(const auto credentials, client::MakeChannelCredentials(options));
  if (!options.tls_server_name.empty()) args.SetSslTargetNameOverride(options.tls_server_name);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(options.address, credentials, args);
  if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + kConnectTimeout))) {
    return absl::UnavailableError(absl::StrCat("cannot connect to ", options.address));
  }
  return v1::InferenceService::NewStub(channel);
}

void ShowToken(const std::string& token, grpc::ClientContext* context) {
  if (!token.empty()) context->AddMetadata("authorization", absl::StrCat("Bearer ", token));
}

// Each text once, one after the other.
absl::StatusOr<std::vector<std::vector<int32_t>>> RunInTurn(
    Stub* stub, const std::vector<v1::GenerateRequest>& requests,
    const GenerateLoadOptions& options) {
  std::vector<std::vector<int32_t>> texts;
  for (const v1::GenerateRequest& request : requests) {
    if (options.Stopped()) {
      return absl::CancelledError("ended before the check had begun");
    }
    grpc::ClientContext context;
    ShowToken(options.token, &context);
    const auto reader = stub->Generate(&context, request);
    v1::GenerateResponse response;
    std::vector<int32_t>& ids = texts.emplace_back();
    while (reader->Read(&response)) {
      ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    }
    const grpc::Status status = reader->Finish();
    if (!status.ok()) return FromGrpc(status);
  }
  return texts;
}

class GenerateRun {
 public:
  GenerateRun(const GenerateLoadOptions& options, const std::vector<v1::GenerateRequest>& requests,
              std::vector<std::unique_ptr<Stub>> stubs, std::vector<std::vector<int32_t>> expected)
      : options_(options),
        requests_(requests),
        stubs_(std::move(stubs)),
        expected_(std::move(expected)) {}

  GenerateLoadResult Measure() ABSL_LOCKS_EXCLUDED(mu_) {
    begin_ = absl::Now();
    {
      MutexLock lock(&mu_);
      measured_from_ = begin_ + options_.warmup;
      measured_to_ = measured_from_ + options_.duration;
    }
    if (options_.rate > 0) {
      ArriveByRate();
    } else {
      KeepSessions();
    }
    const absl::Time end = absl::Now();
    MutexLock lock(&mu_);
    // The tokens of texts that are now cut off count until here.
    measured_to_ = std::min(measured_to_, end);
    result_.elapsed_s = std::max(0.0, absl::ToDoubleSeconds(measured_to_ - measured_from_));
    closed_ = true;
    for (Text* text : running_) text->Cancel();
    while (!running_.empty()) changed_.Wait(&mu_);
    return std::move(result_);
  }

 private:
  // One call. Deletes itself when it has ended.
  class Text : public grpc::ClientReadReactor<v1::GenerateResponse> {
   public:
    Text(GenerateRun* run, size_t index, absl::Time due) : index(index), due(due), run_(run) {}

    void Start(Stub* stub, const v1::GenerateRequest& request, absl::Duration deadline) {
      if (deadline != absl::InfiniteDuration()) {
        context_.set_deadline(absl::ToChronoTime(due + deadline));
      }
      ShowToken(run_->options_.token, &context_);
      stub->async()->Generate(&context_, &request, this);
      StartRead(&response_);
      StartCall();
    }
    void Cancel() { context_.TryCancel(); }

    void OnReadDone(bool ok) override {
      if (!ok) return;
      run_->OnMessage(this, response_);
      StartRead(&response_);
    }
    void OnDone(const grpc::Status& status) override { run_->OnEnd(this, status); }

    const size_t index;
    const absl::Time due;

    // Guarded by the run's mu_.
    size_t position = 0;  // tokens so far
    absl::Time last;      // when the last of them came
    bool has_state = false;

   private:
    GenerateRun* const run_;
    grpc::ClientContext context_;
    v1::GenerateResponse response_;
  };

  bool Measured(absl::Time time) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return time >= measured_from_ && time < measured_to_;
  }

  void StartText(absl::Time due) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const size_t number = started_++;
    const size_t index = number % requests_.size();
    auto* text = new Text(this, index, due);
    running_.insert(text);
    text->Start(stubs_[number % stubs_.size()].get(), requests_[index], options_.deadline);
  }

  void OnMessage(Text* text, const v1::GenerateResponse& response) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time now = absl::Now();
    MutexLock lock(&mu_);
    const int count = response.token_ids_size();
    if (count > 0) {
      if (Measured(now)) {
        result_.tokens += count;
        if (text->position == 0) {
          result_.first_token.Add(Nanoseconds(now - text->due));
        } else {
          result_.between_tokens.Add(Nanoseconds(now - text->last));
        }
      }
      text->last = now;
      progress_.done += count;
    }
    if (!expected_.empty()) {
      const std::vector<int32_t>& expected = expected_[text->index];
      for (int i = 0; i < count; ++i) {
        const size_t at = text->position + static_cast<size_t>(i);
        ++result_.checked_tokens;
        if (at >= expected.size() || expected[at] != response.token_ids(i)) ++result_.wrong_tokens;
      }
    }
    text->position += static_cast<size_t>(count);
    text->has_state = !response.state().empty();
  }

  void OnEnd(Text* text, const grpc::Status& status) ABSL_LOCKS_EXCLUDED(mu_) {
    const absl::Time now = absl::Now();
    const auto code = static_cast<absl::StatusCode>(status.error_code());
    MutexLock lock(&mu_);
    running_.erase(text);
    changed_.SignalAll();
    if (!closed_) {
      Count(*text, code, status.error_message(), now);
      if (options_.rate <= 0) {
        const bool refused = code != absl::StatusCode::kOk;
        restarts_.push(refused ? now + RetryDelay(status) : now);
      }
    }
    delete text;
  }

  void Count(const Text& text, absl::StatusCode code, const std::string& message, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const bool ok = code == absl::StatusCode::kOk;
    ++(ok ? progress_.ok : progress_.not_ok);
    if (text.due >= measured_from_) ++ended_;
    if (ok && !expected_.empty() && text.position < expected_[text.index].size()) {
      result_.wrong_tokens += static_cast<int64_t>(expected_[text.index].size() - text.position);
    }
    if (!Measured(now)) return;
    ++result_.calls;
    ++result_.codes[code];
    if (ok) {
      ++result_.ok;
      result_.text.Add(Nanoseconds(now - text.due));
      return;
    }
    result_.first_error.emplace(code, message);
    if (text.position == 0) {
      if (RunResult::IsRefusal(code)) result_.refused.Add(Nanoseconds(now - text.due));
    } else if (code != absl::StatusCode::kDeadlineExceeded && !text.has_state) {
      ++result_.lost;
    }
  }

  // Whether the run goes on; waits until `next` at the latest, and tells the progress.
  bool WaitUntil(absl::Time next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Time now = absl::Now();
    if (now >= measured_to_ || options_.Stopped() ||
        (options_.texts > 0 && ended_ >= options_.texts)) {
      return false;
    }
    if (now >= next_progress_) {
      next_progress_ = now + absl::Seconds(1);
      if (options_.on_progress != nullptr) {
        progress_.elapsed_s = absl::ToDoubleSeconds(now - begin_);
        progress_.warming_up = now < measured_from_;
        progress_.running = static_cast<int64_t>(running_.size());
        options_.on_progress(progress_);
      }
    }
    // A signal only sets a flag.
    changed_.WaitFor(&mu_, std::min({next - now, measured_to_ - now, absl::Milliseconds(100)}));
    return true;
  }

  void KeepSessions() ABSL_LOCKS_EXCLUDED(mu_) {
    MutexLock lock(&mu_);
    for (int i = 0; i < options_.sessions; ++i) StartText(absl::Now());
    do {
      while (!restarts_.empty() && restarts_.top() <= absl::Now()) {
        restarts_.pop();
        StartText(absl::Now());
      }
    } while (WaitUntil(restarts_.empty() ? absl::InfiniteFuture() : restarts_.top()));
  }

  void ArriveByRate() ABSL_LOCKS_EXCLUDED(mu_) {
    PoissonArrivals arrivals(options_.rate, options_.seed);
    MutexLock lock(&mu_);
    absl::Time next = begin_ + absl::Nanoseconds(arrivals.Next());
    do {
      for (; next <= absl::Now(); next = begin_ + absl::Nanoseconds(arrivals.Next())) {
        if (static_cast<int64_t>(running_.size()) < options_.max_outstanding) {
          StartText(next);
        } else if (Measured(next)) {
          ++result_.unsent;
        }
      }
    } while (WaitUntil(next));
  }

  const GenerateLoadOptions& options_;
  const std::vector<v1::GenerateRequest>& requests_;
  const std::vector<std::unique_ptr<Stub>> stubs_;
  const std::vector<std::vector<int32_t>> expected_;  // by request; none = no check
  absl::Time begin_;                                  // of the thread that measures

  Mutex mu_;
  CondVar changed_;
  absl::Time measured_from_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time measured_to_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time next_progress_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  size_t started_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t ended_ ABSL_GUARDED_BY(mu_) = 0;  // texts that began after the warm-up
  std::set<Text*> running_ ABSL_GUARDED_BY(mu_);
  // Closed loop: when the next texts begin, the earliest first.
  std::priority_queue<absl::Time, std::vector<absl::Time>, std::greater<>> restarts_
      ABSL_GUARDED_BY(mu_);
  Progress progress_ ABSL_GUARDED_BY(mu_);
  GenerateLoadResult result_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<GenerateLoadResult> RunGenerateLoad(
    const GenerateLoadOptions& options, const std::vector<v1::GenerateRequest>& requests) {
  SRU_RETURN_UNLESS_OK(CheckRunOptions(options));
  SRU_RETURN_UNLESS_OK(ResolveLoopback(options.address).status());
  std::vector<std::unique_ptr<Stub>> stubs;
  for (int i = 0; i < options.connections; ++i) {
    SRU_ASSIGN_OR_RETURN(stubs.emplace_back(), Connect(options, i));
  }
  std::vector<std::vector<int32_t>> expected;
  if (options.check) {
    SRU_ASSIGN_OR_RETURN(expected, RunInTurn(stubs[0].get(), requests, options));
  }
  return GenerateRun(options, requests, std::move(stubs), std::move(expected)).Measure();
}

}  // namespace sru::bench
