#include "server/http/http_server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "prometheus/registry.h"
#include "server/door/door_metrics.h"
#include "server/door/memory_count.h"
#include "server/door/native_door.h"
#include "server/door/session.h"
#include "server/http/http_call.h"
#include "server/http/http_connection.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/connection_table.h"
#include "server/transport/loop.h"

namespace sru::server::http {
namespace {

using transport::AddressKey;
using transport::ConnectionTable;
using transport::Loop;
using transport::LoopSet;

// The memory of all bodies. When one does not fit, the oldest of those that have not come whole
// makes way, of the address whose such bodies hold the most. An address that is alone with such
// bodies keeps them, and the one that does not fit is refused. Thread-safe.
class BodyTable {
 public:
  explicit BodyTable(size_t limit) : limit_(limit) {}  // 0: none

  bool Reserve(BodyPlace* place, size_t bytes, bool whole) {
    std::vector<std::shared_ptr<HttpConnection>> make_way;  // outlives the lock
    MutexLock lock(&mutex_);
    if (place->made_way) return false;
    Set(place, bytes, /*coming=*/true);
    while (limit_ > 0 && total_ > limit_) {
      BodyPlace* const last =
          by_bytes_.size() == 1 ? place : addresses_[by_bytes_.rbegin()->second].bodies.front();
      Set(last, 0, /*coming=*/false);
      last->made_way = true;
      if (last == place) return false;
      if (auto connection = last->connection.lock()) {
        connection->OnBodyMadeWay();
        make_way.push_back(std::move(connection));
      }
    }
    if (whole) Set(place, bytes, /*coming=*/false);
    return true;
  }
  void Release(BodyPlace* place) {
    MutexLock lock(&mutex_);
    Set(place, 0, /*coming=*/false);
    place->made_way = false;
  }
  size_t total() const {
    MutexLock lock(&mutex_);
    return total_;
  }

 private:
  struct Address {
    size_t bytes = 0;
    std::list<BodyPlace*> bodies;  // the oldest first
  };

  void Set(BodyPlace* place, size_t bytes, bool coming) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    total_ = total_ - place->bytes + bytes;
    if (coming || place->coming) {
      Address& address = addresses_[place->key];
      by_bytes_.erase({address.bytes, place->key});
      address.bytes = address.bytes - (place->coming ? place->bytes : 0) + (coming ? bytes : 0);
      if (!place->coming) place->at = address.bodies.insert(address.bodies.end(), place);
      if (!coming) address.bodies.erase(place->at);
      if (!address.bodies.empty()) {
        by_bytes_.insert({address.bytes, place->key});
      } else {
        addresses_.erase(place->key);
      }
    }
    place->bytes = bytes;
    place->coming = coming;
  }

  const size_t limit_;
  mutable Mutex mutex_;
  size_t total_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<AddressKey, Address> addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, AddressKey>> by_bytes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

// The connections on all loops share this.
struct HttpServer::Shared {
  explicit Shared(HttpServer::Options given)
      : options(std::move(given)), bodies(options.limits.max_total_body_bytes) {}

  calls::HttpHandler* Answer(calls::HttpExchange* exchange) {
    const std::shared_ptr<HttpCall> call = options.start(exchange, RequestOf(*exchange));
    call->Begin(&answers);
    return call.get();
  }

  const HttpServer::Options options;
  BodyTable bodies;
  std::atomic<bool> draining{false};
  AnswerCounts answers{};
  std::atomic<int64_t> not_taken{0};
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> requests{0};  // over HTTP/1.1
};

// What the connections on one loop share.
class HttpServer::Shelf final : private HttpConnection::Owner {
 public:
  Shelf(Shared* shared, Loop* loop) : shared_(*shared), loop_(*loop) {}

  Loop& loop() { return loop_; }
  std::shared_ptr<door::Session> Add(door::SessionHost* host, const door::PeerInfo& peer) {
    Owner* const owner = this;
    auto connection = std::make_shared<HttpConnection>(host, peer, owner);
    shared_.connections.fetch_add(1, std::memory_order_relaxed);
    return connection;
  }

 private:
  // HttpConnection::Owner:
  const HttpServer::Options& options() const override { return shared_.options; }
  void Wake(transport::LoopWork* work) override { loop_.Wake(work); }
  void Post(std::function<void()> job) override { loop_.Post(std::move(job)); }
  transport::TimerSet& timers() override { return loop_.timers(); }
  bool draining() const override { return shared_.draining; }
  calls::HttpHandler* Start(calls::HttpExchange* exchange) override {
    return shared_.Answer(exchange);
  }
  void CountRequests(int change) override { shared_.requests.fetch_add(change); }
  void OnAnswer(int status) override { CountAnswer(status, &shared_.answers); }
  void OnNotTaken(absl::string_view path, const std::string& peer) override {
    shared_.not_taken.fetch_add(1, std::memory_order_relaxed);
    if (shared_.options.on_not_taken != nullptr) shared_.options.on_not_taken(path, peer);
  }
  bool ReserveBody(BodyPlace* place, size_t bytes, bool whole) override {
    return shared_.bodies.Reserve(place, bytes, whole);
  }
  void ReleaseBody(BodyPlace* place) override { shared_.bodies.Release(place); }
  void RunInTurn(const transport::TurnKey& key, std::function<void()> job) override {
    loop_.RunInTurn(key, std::move(job));
  }
  void OnClosed() override { shared_.connections.fetch_sub(1, std::memory_order_relaxed); }

  Shared& shared_;
  Loop& loop_;
};

// A port of its own.
struct HttpServer::Port {
  explicit Port(const Limits& limits)
      : connections(static_cast<size_t>(limits.max_connections), /*keeps_calls=*/false) {}

  prometheus::Registry registry;  // nobody reads it
  door::DoorMetrics metrics{&registry};
  door::MemoryCount memory{0};  // is that of HTTP/2
  ConnectionTable connections;
  std::unique_ptr<door::NativeDoor> door;
};

HttpServer::HttpServer(Options options)
    : shared_(std::make_unique<Shared>(std::move(options))),
      own_loops_(shared_->options.loops == nullptr ? std::make_unique<LoopSet>(1, 0) : nullptr),
      loops_(own_loops_ == nullptr ? *shared_->options.loops : *own_loops_) {
  for (const auto& loop : loops_.loops()) {
    shelves_.push_back(std::make_unique<Shelf>(shared_.get(), loop.get()));
  }
}

HttpServer::~HttpServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view flag,
                                                              const ListenAddress& address,
                                                              Options options) {
  auto server = std::make_unique<HttpServer>(std::move(options));
  SRU_RETURN_UNLESS_OK(server->Listen(flag, address));
  return server;
}

absl::Status HttpServer::Listen(absl::string_view flag, const ListenAddress& address) {
  port_ = std::make_unique<Port>(shared_->options.limits);
  door::DoorOptions options;
  options.metrics = &port_->metrics;
  options.connections = &port_->connections;
  options.start_http1 = [this](door::SessionHost* host, const door::PeerInfo& peer) {
    return StartSession(host, peer);
  };
  // Callers' connections leave more, so that probes are answered beside them, and beside others.
  options.files_left = transport::kReservedFiles / 2;
  options.waits_for_files = true;
  options.on_refused = [this](absl::string_view reason, const std::string& peer) {
    if (shared_->options.on_refused != nullptr) shared_->options.on_refused(reason, peer);
  };
  SRU_ASSIGN_OR_RETURN(port_->door, door::NativeDoor::Open(flag, address, std::move(options),
                                                           &loops_, &port_->memory));
  port_->door->Start();
  return absl::OkStatus();
}

door::NativeDoor& HttpServer::door() const { return *port_->door; }

const ListenAddress& HttpServer::address() const { return door().address(); }

std::shared_ptr<door::Session> HttpServer::StartSession(door::SessionHost* host,
                                                        const door::PeerInfo& peer) {
  const auto shelf = std::find_if(shelves_.begin(), shelves_.end(), [](const auto& candidate) {
    return candidate->loop().IsThisThread();
  });
  return (*shelf)->Add(host, peer);
}

calls::HttpHandler* HttpServer::Answer(calls::HttpExchange* exchange) {
  return shared_->Answer(exchange);
}

void HttpServer::BeginDrain() { shared_->draining = true; }

void HttpServer::Stop() {
  if (std::exchange(stopped_, true)) return;
  shared_->draining = true;
  if (port_ != nullptr && port_->door != nullptr) port_->door->Shutdown(absl::ZeroDuration());
  // Their clients are gone. Who has a call learns that, and who gives its answer in parts ends it.
  while (shared_->requests.load() > 0) absl::SleepFor(absl::Milliseconds(1));
  // The ends of what connections waited for have run by then, as they were queued before.
  loops_.RunOnEach([](size_t /*i*/) {});
}

HttpServer::Stats HttpServer::stats() const {
  Stats stats;
  stats.connections = shared_->connections.load(std::memory_order_relaxed);
  for (size_t i = 0; i < stats.answers.size(); ++i) {
    stats.answers[i] = shared_->answers[i].load(std::memory_order_relaxed);
  }
  stats.body_bytes = static_cast<int64_t>(shared_->bodies.total());
  stats.not_taken = shared_->not_taken.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace sru::server::http
