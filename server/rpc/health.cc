#include "server/rpc/health.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/wire_reader.h"
#include "server/base/retry.h"
#include "server/callers/trusted_proxies.h"

namespace sru::server::rpc {
namespace {

// As long as a model's name may be.
constexpr size_t kMaxServiceName = 128;

// The name in a HealthCheckRequest.
absl::StatusOr<std::string> ServiceOf(const absl::Cord& message) {
  const std::string bytes(message);
  absl::string_view service;
  WireReader reader(bytes);
  while (reader.Next()) {
    if (reader.tag() == WireTag(1, kWireBytes)) {
      service = reader.Bytes();
    } else {
      reader.Skip();
    }
  }
  if (!reader.ok()) return absl::InvalidArgumentError("could not parse request");
  if (service.size() > kMaxServiceName) {
    return absl::InvalidArgumentError(absl::StrCat("service: expected at most ", kMaxServiceName,
                                                   " bytes, found ", service.size()));
  }
  return std::string(service);
}

calls::CallEnd HealthEnd(absl::Status status) { return {std::move(status), {}, {}}; }

}  // namespace

class Health::CheckCall final : public calls::CallHandler {
 public:
  CheckCall(const Health* health, calls::Exchange* exchange)
      : health_(*health), exchange_(*exchange) {}

  static absl::Cord ResponseOf(State state) {
    return absl::Cord(absl::string_view(std::string({'\x08', static_cast<char>(state)})));
  }

 private:
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    const absl::StatusOr<std::string> service = ServiceOf(message.value_or(absl::Cord()));
    if (!service.ok()) return exchange_.Finish(HealthEnd(service.status()));
    const State state = health_.StateOf(*service);
    if (state == State::kServiceUnknown) {
      return exchange_.Finish(HealthEnd(absl::NotFoundError("service name unknown")));
    }
    exchange_.WriteAndFinish(ResponseOf(state), HealthEnd(absl::OkStatus()));
  }
  void OnDone() override { delete this; }

  const Health& health_;
  calls::Exchange& exchange_;
};

// Has one write on its way at a time, and then looks whether the state is another one by now.
class Health::WatchCall final : public calls::CallHandler,
                                public std::enable_shared_from_this<WatchCall> {
 public:
  WatchCall(Health* health, calls::Exchange* exchange)
      : health_(*health),
        exchange_(*exchange),
        address_(callers::TrustedProxies().CallerAddress(exchange->peer(), "")) {}

  calls::CallHandler* Start() {
    self_ = shared_from_this();
    return this;
  }

  // Thread-safe.
  void Look() { Go(/*written=*/false); }

 private:
  void OnMessage(std::optional<absl::Cord> message) noexcept override {
    absl::StatusOr<std::string> service = ServiceOf(message.value_or(absl::Cord()));
    if (!service.ok()) return exchange_.Finish(HealthEnd(service.status()));
    {
      MutexLock lock(&health_.mutex_);
      is_listed_ = health_.watches_.size() < kMaxWatches &&
                   health_.addresses_.count(address_) < kMaxWatchesOfAddress;
      if (is_listed_) {
        health_.watches_.insert(self_);
        health_.addresses_.insert(address_);
      }
    }
    if (!is_listed_) {
      return exchange_.Finish(
          HealthEnd(RetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                                   "there are ", kMaxWatches, " calls of Watch already, or ",
                                   kMaxWatchesOfAddress, " of one address")),
                               kStreamRetryAfter)));
    }
    service_ = *std::move(service);
    {
      MutexLock lock(&mutex_);
      begun_ = true;
    }
    Go(/*written=*/false);
  }
  void OnWritten(bool ok) noexcept override {
    if (!ok) EndSoon();
    Go(/*written=*/true);
  }
  void OnCancel() noexcept override {
    EndSoon();
    Go(/*written=*/false);
  }
  void OnDone() override {
    if (is_listed_) {
      MutexLock lock(&health_.mutex_);
      health_.watches_.erase(self_);
      health_.addresses_.erase(health_.addresses_.find(address_));
    }
    self_.reset();
  }

  void EndSoon() {
    MutexLock lock(&mutex_);
    ends_ = true;
  }

  void Go(bool written) {
    State state = State::kServiceUnknown;
    bool ends = false;
    {
      MutexLock lock(&mutex_);
      if (written) writing_ = false;
      if (!begun_ || writing_ || ended_) return;
      state = health_.StateOf(service_);
      ends = ended_ = ends_;
      if (!ends && told_ == state) return;
      told_ = state;
      writing_ = true;
    }
    if (ends) {
      exchange_.Finish(HealthEnd(absl::CancelledError("the caller has ended the call")));
    } else {
      exchange_.Write(CheckCall::ResponseOf(state));
    }
  }

  Health& health_;
  calls::Exchange& exchange_;
  const std::string address_;
  std::shared_ptr<WatchCall> self_;  // until OnDone()
  // Set by the message, before begun_.
  std::string service_;
  bool is_listed_ = false;

  Mutex mutex_;
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ends_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<State> told_ ABSL_GUARDED_BY(mutex_);
};

Health::Health() { serving_[""] = true; }

Health::~Health() = default;

std::vector<calls::Method> Health::Methods() {
  calls::Method check;
  check.service = kHealthService;
  check.name = "Check";
  check.needs_token = false;
  check.start = [this](calls::Exchange* exchange) { return new CheckCall(this, exchange); };
  calls::Method watch;
  watch.service = kHealthService;
  watch.name = "Watch";
  watch.kind = calls::MethodKind::kServerStream;
  watch.needs_token = false;
  watch.start = [this](calls::Exchange* exchange) {
    return std::make_shared<WatchCall>(this, exchange)->Start();
  };
  return {std::move(check), std::move(watch)};
}

Health::State Health::StateOf(const std::string& service) const {
  MutexLock lock(&mutex_);
  const auto found = serving_.find(service);
  if (found == serving_.end()) return State::kServiceUnknown;
  return found->second && !shut_down_ ? State::kServing : State::kNotServing;
}

void Health::Tell() {
  std::set<std::shared_ptr<WatchCall>> told;
  {
    MutexLock lock(&mutex_);
    told = watches_;
  }
  for (const std::shared_ptr<WatchCall>& watch : told) watch->Look();
}

void Health::Set(const std::string& service, bool serving) {
  {
    MutexLock lock(&mutex_);
    serving_[service] = serving;
  }
  Tell();
}

void Health::Shutdown() {
  {
    MutexLock lock(&mutex_);
    shut_down_ = true;
  }
  Tell();
}

}  // namespace sru::server::rpc
