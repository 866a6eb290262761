#include "server/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <list>
#include <map>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/http/exchange_call.h"
#include "server/http/http_connection.h"
#include "server/http/http_socket.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/byte_stream.h"
#include "server/transport/connection_table.h"
#include "server/transport/listening_sockets.h"
#include "server/transport/loop.h"

namespace sru::server::http {
namespace {

using transport::AcceptedSocket;
using transport::AddressKey;
using transport::ByteStream;
using transport::ConnectionTable;
using transport::Loop;
using transport::LoopSet;

// The time for answers that are being written when the server stops.
constexpr std::chrono::milliseconds kStopGrace(500);
// Descriptors that are left for the rest of the process, for instance to read a model's files.
constexpr rlim_t kFilesLeft = 32;
// How much of an unread answer the kernel keeps. By default it would be megabytes.
constexpr int kSendBufferBytes = 64 << 10;

bool IsOutOfFiles(int fd) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         static_cast<rlim_t>(fd) + kFilesLeft >= limit.rlim_cur;
}

// Runs jobs on a loop, until Stop().
class Jobs final : public HttpJobs, public std::enable_shared_from_this<Jobs> {
 public:
  explicit Jobs(Loop* loop) : loop_(loop) {}

  void Post(std::function<void()> job) override {
    MutexLock lock(&mutex_);
    if (loop_ != nullptr) loop_->Post(std::move(job));
  }
  // The loop may go, once it has run what was posted.
  void Stop() {
    MutexLock lock(&mutex_);
    loop_ = nullptr;
  }

 private:
  Mutex mutex_;
  Loop* loop_ ABSL_GUARDED_BY(mutex_);
};

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
  Shared(HttpServer::Options given, HttpServer::Handler given_handler)
      : options(std::move(given)),
        handler(std::move(given_handler)),
        own_table(static_cast<size_t>(options.limits.max_connections), /*keeps_calls=*/false),
        table(options.connections == nullptr ? own_table : *options.connections),
        bodies(options.limits.max_total_body_bytes) {
    exchange_hooks.check_headers = options.check_headers;
    exchange_hooks.handle = [this](const std::shared_ptr<HttpCall>& call) { Handle(call); };
    exchange_hooks.on_answer = [this](int status) { OnAnswer(status); };
  }

  void Handle(const std::shared_ptr<HttpCall>& call) const {
    try {
      handler(call);
    } catch (const std::bad_alloc&) {
      call->Reply(TextResponse(503, "no memory to answer; try again\n"));
    } catch (const std::exception& error) {
      call->Reply(TextResponse(500, absl::StrCat(error.what(), "\n")));
    }
  }
  // Counts an answer.
  void OnAnswer(int status) {
    const auto digit = static_cast<size_t>(status / 100);
    if (digit < answers.size()) answers[digit].fetch_add(1, std::memory_order_relaxed);
  }

  void OnRefused(absl::string_view reason, const std::string& peer) const {
    if (options.on_refused != nullptr) options.on_refused(reason, peer);
  }

  const HttpServer::Options options;
  const HttpServer::Handler handler;
  ConnectionTable own_table;
  ConnectionTable& table;
  BodyTable bodies;
  std::atomic<bool> draining{false};
  std::array<std::atomic<int64_t>, 6> answers{};
  std::atomic<int64_t> not_taken{0};
  ExchangeHooks exchange_hooks;
};

// The connections on one loop.
class HttpServer::Shelf final : private HttpConnection::Owner {
 public:
  Shelf(Shared* shared, Loop* loop)
      : shared_(*shared), loop_(*loop), jobs_(std::make_shared<Jobs>(loop)) {}

  Loop& loop() { return loop_; }
  // Connections that are open or on their way. Thread-safe, like Post().
  int64_t size() const { return size_.load() + on_their_way_.load(); }
  int64_t num_entered() const { return size_.load(); }
  int64_t num_on_their_way() const { return on_their_way_.load(); }
  void Post(AcceptedSocket socket) {
    Count(&on_their_way_, 1);
    loop_.TakeIn(
        std::move(socket),
        [this](AcceptedSocket taken) {
          Add(std::move(taken), nullptr, "");
          Count(&on_their_way_, -1);
        },
        [this](const std::string& peer) {
          shared_.OnRefused(transport::kTooManyWaiting, peer);
          Count(&on_their_way_, -1);
        });
  }
  void StopJobs() { jobs_->Stop(); }

  // The rest is for the loop's thread.

  // Without `bytes`, the connection has just been accepted.
  void Add(AcceptedSocket socket, std::unique_ptr<ByteStream> bytes, std::string received) {
    if (stopping_) return;
    const int fd = socket.fd();
    if (bytes == nullptr) bytes = transport::MakePlainStream(fd);
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSendBufferBytes, sizeof(kSendBufferBytes));
    std::unique_ptr<HttpTransport> transport =
        MakeTransport(&loop_, socket.release(), std::move(bytes), std::move(received));
    Owner* const owner = this;
    const auto connection =
        std::make_shared<HttpConnection>(std::move(transport), socket.peer(), owner);
    *connection->body_place() = {socket.key(), connection};
    connections_.emplace(connection.get(), connection);
    const ConnectionTable::Entry entry =
        shared_.table.Enter(connection->place(), connection, socket.key());
    if (entry != ConnectionTable::Entry::kEntered) {
      shared_.OnRefused(transport::kTooManyOpen, socket.peer());
    }
    if (entry == ConnectionTable::Entry::kFull) {
      connections_.erase(connection.get());
      return;
    }
    Count(&size_, 1);
    connection->Start();
  }

  void BeginStop() {
    stopping_ = true;
    for (const auto& connection : All()) connection->BeginStop();
  }
  void CloseAll() {
    for (const auto& connection : All()) connection->Close(/*reset=*/false);
  }
  // In turns: it takes a tenth of a millisecond to check a certificate.
  void Recheck(const std::shared_ptr<ssl_ctx_st>& tls_context) {
    for (const auto& connection : All()) {
      loop_.RunInTurn({AddressKey{}, this}, [weak = connection->weak_from_this(), tls_context] {
        if (const auto open = weak.lock()) open->Recheck(tls_context.get());
      });
    }
  }

 private:
  void Count(std::atomic<int64_t>* number, int change) {
    number->fetch_add(change);
    loop_.CountConnection(change);
  }
  std::vector<std::shared_ptr<HttpConnection>> All() const {
    std::vector<std::shared_ptr<HttpConnection>> all;
    all.reserve(connections_.size());
    for (const auto& [key, connection] : connections_) all.push_back(connection);
    return all;
  }

  // HttpConnection::Owner:
  const HttpServer::Options& options() const override { return shared_.options; }
  std::weak_ptr<HttpJobs> jobs() override { return jobs_; }
  transport::TimerSet& timers() override { return loop_.timers(); }
  bool draining() const override { return stopping_ || shared_.draining; }
  void Handle(const std::shared_ptr<HttpCall>& call) override { shared_.Handle(call); }
  void OnAnswer(int status) override { shared_.OnAnswer(status); }
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
  void OnClosed(HttpConnection* connection) override {
    const auto found = connections_.find(connection);
    if (found == connections_.end()) return;
    shared_.table.Leave(connection->place());
    connections_.erase(found);
    Count(&size_, -1);
  }

  Shared& shared_;
  Loop& loop_;
  const std::shared_ptr<Jobs> jobs_;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  std::atomic<int64_t> size_{0};  // open
  std::atomic<int64_t> on_their_way_{0};
  bool stopping_ = false;
};

HttpServer::HttpServer(Options options, Handler handler)
    : shared_(std::make_unique<Shared>(std::move(options), std::move(handler))),
      own_loops_(shared_->options.loops == nullptr ? std::make_unique<LoopSet>(1, 0) : nullptr),
      loops_(own_loops_ == nullptr ? *shared_->options.loops : *own_loops_) {
  for (const auto& loop : loops_.loops()) {
    shelves_.push_back(std::make_unique<Shelf>(shared_.get(), loop.get()));
  }
}

HttpServer::~HttpServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(absl::string_view flag,
                                                              const ListenAddress& address,
                                                              Options options, Handler handler) {
  auto server = std::make_unique<HttpServer>(std::move(options), std::move(handler));
  SRU_RETURN_UNLESS_OK(server->Listen(flag, address));
  return server;
}

absl::Status HttpServer::Listen(absl::string_view flag, ListenAddress address) {
  SRU_ASSIGN_OR_RETURN(std::vector<int> sockets, transport::OpenListeningSockets(flag, &address));
  SRU_ASSIGN_OR_RETURN(acceptor_, transport::Acceptor::Create(
                                      std::move(sockets), address.ToString(),
                                      // On the acceptor's thread.
                                      [this](int fd, const sockaddr_storage& from) {
                                        AcceptedSocket socket(fd, from);
                                        if (IsOutOfFiles(fd) && !MakeWay(socket.peer())) return;
                                        shelves_[loops_.Least()]->Post(std::move(socket));
                                      },
                                      [this] { MakeWay(""); }));
  address_ = std::move(address);
  acceptor_->Start();
  return absl::OkStatus();
}

void HttpServer::Adopt(AcceptedSocket socket, std::unique_ptr<ByteStream> bytes,
                       std::string received) {
  for (const auto& shelf : shelves_) {
    if (!shelf->loop().IsThisThread()) continue;
    return shelf->Add(std::move(socket), std::move(bytes), std::move(received));
  }
}

calls::HttpHandler* HttpServer::Answer(calls::HttpExchange* exchange) {
  return StartExchangeCall(exchange, shared_->exchange_hooks);
}

void HttpServer::BeginDrain() { shared_->draining = true; }

void HttpServer::Recheck(const std::shared_ptr<ssl_ctx_st>& tls_context) {
  for (const auto& shelf : shelves_) {
    shelf->loop().Post([shelf = shelf.get(), tls_context] { shelf->Recheck(tls_context); });
  }
}

void HttpServer::Stop() {
  if (std::exchange(stopped_, true)) return;
  if (acceptor_ != nullptr) acceptor_->Stop();
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  loops_.RunOnEach([this](size_t i) { shelves_[i]->BeginStop(); });
  const auto end = std::chrono::steady_clock::now() + kStopGrace;
  while (num_open() > 0 && std::chrono::steady_clock::now() < end) pause();
  loops_.RunOnEach([this](size_t i) { shelves_[i]->CloseAll(); });
  while (num_open() > 0) pause();
  loops_.RunOnEach([this](size_t i) { shelves_[i]->StopJobs(); });
  // The ends of what connections waited for have run by then, as they were queued before.
  loops_.RunOnEach([](size_t /*i*/) {});
}

HttpServer::Stats HttpServer::stats() const {
  Stats stats;
  for (const auto& shelf : shelves_) stats.connections += shelf->num_entered();
  for (size_t i = 0; i < stats.answers.size(); ++i) {
    stats.answers[i] = shared_->answers[i].load(std::memory_order_relaxed);
  }
  stats.body_bytes = static_cast<int64_t>(shared_->bodies.total());
  stats.not_taken = shared_->not_taken.load(std::memory_order_relaxed);
  return stats;
}

int64_t HttpServer::num_open() const {
  int64_t open = 0;
  for (const auto& shelf : shelves_) open += shelf->size();
  return open;
}

// Lets another connection make way for that of `peer` when the process runs out of descriptors. On
// the acceptor's thread, which waits for it. False: none can.
bool HttpServer::MakeWay(const std::string& peer) {
  // The first wait lets the loops enter earlier connections into the table, or none could make way.
  // The last one lets a loop close the connection that does: without it this thread would accept
  // more of them while the descriptors run out.
  do {
    loops_.RunOnEach([](size_t /*i*/) {});
  } while (std::any_of(shelves_.begin(), shelves_.end(),
                       [](const auto& shelf) { return shelf->num_on_their_way() > 0; }));
  shared_->OnRefused(transport::kTooManyOpen, peer);
  if (!shared_->table.MakeRoom()) return false;
  loops_.RunOnEach([](size_t /*i*/) {});
  return true;
}

}  // namespace sru::server::http
