#include "server/http/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/socket_base.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
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
#include "server/base/turn_work.h"
#include "server/http/exchange_call.h"
#include "server/http/http_connection.h"
#include "server/http/http_socket.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/byte_stream.h"

namespace sru::server::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using SteadyTime = std::chrono::steady_clock::time_point;

// How often the server looks for connections whose time is up.
constexpr std::chrono::milliseconds kTick(50);
// The time for answers that are being written when the server stops.
constexpr std::chrono::milliseconds kStopGrace(500);
// Descriptors that are left for the rest of the process, for instance to read a model's files.
constexpr rlim_t kFilesLeft = 32;
// How much of an unread answer the kernel keeps. By default it would be megabytes.
constexpr int kSendBufferBytes = 64 << 10;
// What is read at a time.
constexpr size_t kScratchBytes = 64 << 10;
// How many connections are looked at for one that may be closed to make room.
constexpr int kMaxCandidates = 1000;

using transport::AddressKey;
using transport::ByteStream;

asio::ip::address Unmapped(const asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  const auto bytes = address.to_v6().to_bytes();
  return asio::ip::address_v4({bytes[12], bytes[13], bytes[14], bytes[15]});
}

AddressKey KeyOf(const asio::ip::address& address) {
  AddressKey key{};
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    std::copy(bytes.begin(), bytes.end(), key.begin() + 8);
  } else {
    const auto bytes = address.to_v6().to_bytes();
    std::copy(bytes.begin(), bytes.begin() + 8, key.begin());
  }
  return key;
}

bool IsOutOfFiles(int fd) {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
         static_cast<rlim_t>(fd) + kFilesLeft >= limit.rlim_cur;
}

PageResponse ErrorResponse(int status, absl::string_view text) {
  PageResponse response;
  response.status = status;
  response.body = absl::StrCat(text, "\n");
  return response;
}

// Runs jobs on the thread of one io_context. Posting while others wait costs no system call.
class Jobs final : public HttpJobs, public std::enable_shared_from_this<Jobs> {
 public:
  explicit Jobs(asio::io_context* io) : io_(io) {}

  void Post(std::function<void()> job) override {
    MutexLock lock(&mutex_);
    if (io_ == nullptr) return;
    jobs_.push_back(std::move(job));
    if (jobs_.size() == 1) asio::post(*io_, [self = shared_from_this()] { self->Run(); });
  }

  // The io_context goes.
  void Stop() {
    std::vector<std::function<void()>> dropped;
    MutexLock lock(&mutex_);
    io_ = nullptr;
    dropped.swap(jobs_);
  }

 private:
  void Run() {
    std::vector<std::function<void()>> jobs;
    {
      MutexLock lock(&mutex_);
      jobs.swap(jobs_);
    }
    for (const std::function<void()>& job : jobs) {
      // Only a lack of memory throws here. The connection concerned stays as it is until its time
      // is up.
      try {
        job();
      } catch (const std::exception&) {
      }
    }
  }

  Mutex mutex_;
  asio::io_context* io_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
};

class Loop;

// The connections of all threads, by address. Thread-safe.
class ConnectionTable {
 public:
  struct Entry {
    std::shared_ptr<HttpConnection> connection;
    Loop* loop = nullptr;
    AddressKey key{};
    // Guarded by the table's mutex; the others are constant once it is added.
    std::list<Entry*>::iterator place;
    bool listed = false;
  };

  void Add(Entry* entry) {
    MutexLock lock(&mutex_);
    Address& address = addresses_[entry->key];
    by_count_.erase({address.entries.size(), entry->key});
    entry->place = address.entries.insert(address.entries.end(), entry);
    by_count_.insert({address.entries.size(), entry->key});
    entry->listed = true;
    ++size_;
  }

  void Remove(Entry* entry) {
    MutexLock lock(&mutex_);
    if (entry->listed) Unlist(entry);
  }

  // Takes out the oldest connection of the address that has the most; one whose request is being
  // answered only if there is no other. Null and no loop if there is none.
  std::pair<std::shared_ptr<HttpConnection>, Loop*> TakeOldest() {
    MutexLock lock(&mutex_);
    Entry* chosen = nullptr;
    int looked_at = 0;
    for (auto it = by_count_.rbegin(); it != by_count_.rend() && looked_at < kMaxCandidates; ++it) {
      for (Entry* entry : addresses_[it->second].entries) {
        if (chosen == nullptr) chosen = entry;
        if (++looked_at >= kMaxCandidates) break;
        if (entry->connection->is_handling()) continue;
        chosen = entry;
        looked_at = kMaxCandidates;
        break;
      }
    }
    if (chosen == nullptr) return {};
    Unlist(chosen);
    return {chosen->connection, chosen->loop};
  }

  size_t size() const {
    MutexLock lock(&mutex_);
    return size_;
  }

 private:
  struct Address {
    std::list<Entry*> entries;  // the oldest first
  };

  void Unlist(Entry* entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto found = addresses_.find(entry->key);
    by_count_.erase({found->second.entries.size(), entry->key});
    found->second.entries.erase(entry->place);
    if (found->second.entries.empty()) {
      addresses_.erase(found);
    } else {
      by_count_.insert({found->second.entries.size(), entry->key});
    }
    entry->listed = false;
    --size_;
  }

  mutable Mutex mutex_;
  std::map<AddressKey, Address> addresses_ ABSL_GUARDED_BY(mutex_);
  std::set<std::pair<size_t, AddressKey>> by_count_ ABSL_GUARDED_BY(mutex_);
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
};

// What the threads share.
struct Shared {
  Shared(HttpServer::Options given, HttpServer::Handler given_handler)
      : options(std::move(given)), handler(std::move(given_handler)) {}

  void Handle(const std::shared_ptr<HttpCall>& call) const {
    try {
      handler(call);
    } catch (const std::bad_alloc&) {
      call->Reply(ErrorResponse(503, "no memory to answer; try again"));
    } catch (const std::exception& error) {
      call->Reply(ErrorResponse(500, error.what()));
    }
  }
  // Counts an answer.
  void OnAnswer(int status) {
    const auto digit = static_cast<size_t>(status / 100);
    if (digit < answers.size()) answers[digit].fetch_add(1, std::memory_order_relaxed);
  }

  const HttpServer::Options options;
  const HttpServer::Handler handler;
  ConnectionTable table;
  std::atomic<bool> draining{false};
  std::atomic<int64_t> body_bytes{0};
  std::array<std::atomic<int64_t>, 6> answers{};
};

// One thread with its connections.
class Loop final : private HttpConnection::Owner {
 public:
  explicit Loop(Shared* shared) : shared_(*shared) {}
  ~Loop() override {
    jobs_->Stop();
    entries_.clear();
  }

  asio::io_context& io() { return io_; }
  size_t connections() const { return num_connections_.load(std::memory_order_relaxed); }

  void StartThread() {
    thread_ = std::thread([this] { Run(); });
  }
  // From any thread.
  void Post(std::function<void()> job) { jobs_->Post(std::move(job)); }
  void Join() {
    if (thread_.joinable()) thread_.join();
  }

  // The rest is for the loop's own thread.

  // With null `bytes`, the connection has just been accepted.
  void Add(HttpSocket socket, std::unique_ptr<ByteStream> bytes, std::string received,
           const tcp::endpoint& peer) {
    const asio::ip::address address = Unmapped(peer.address());
    std::string text = address.to_string();
    if (bytes == nullptr) {
      bytes = shared_.options.tls_context == nullptr
                  ? transport::MakePlainStream(socket.native_handle())
                  : transport::MakeTlsStream(socket.native_handle(),
                                             shared_.options.tls_context().get(),
                                             transport::AlpnOffer::kNothing);
      if (bytes == nullptr) return;
    }
    const std::string name = address.is_v6() ? absl::StrCat("ipv6:[", text, "]:", peer.port())
                                             : absl::StrCat("ipv4:", text, ":", peer.port());
    std::unique_ptr<HttpTransport> transport =
        MakeTransport(std::move(socket), std::move(bytes), std::move(received),
                      absl::MakeSpan(scratch_), [this, name](const std::string& detail) {
                        if (shared_.options.on_handshake_failure != nullptr) {
                          shared_.options.on_handshake_failure(detail, name);
                        }
                      });
    Owner* const owner = this;
    auto connection =
        std::make_shared<HttpConnection>(std::move(transport), std::move(text), peer.port(), owner);
    auto entry = std::make_unique<ConnectionTable::Entry>();
    entry->connection = connection;
    entry->loop = this;
    entry->key = KeyOf(address);
    shared_.table.Add(entry.get());
    entries_.emplace(connection.get(), std::move(entry));
    num_connections_.store(entries_.size(), std::memory_order_relaxed);
    StartTicking();
    connection->Start();
  }

  void BeginStop() {
    stopping_ = true;
    stop_at_ = std::chrono::steady_clock::now() + kStopGrace;
    for (const auto& connection : Open()) {
      if (!connection->is_writing()) connection->Close(/*reset=*/false);
    }
    if (entries_.empty()) return io_.stop();
    StartTicking();
  }

  void Recheck() {
    const auto context =
        shared_.options.tls_context == nullptr ? nullptr : shared_.options.tls_context();
    for (const auto& connection : Open()) connection->Recheck(context.get());
  }

  // Runs at the next tick, once.
  void AtTick(std::function<void()> job) {
    at_tick_ = std::move(job);
    StartTicking();
  }

 private:
  void Run() {
    // OpenSSL writes to sockets that may be closed.
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    turn_work_.SetForThisThread();
    while (!io_.stopped()) {
      // Only a lack of memory can throw here. The affected connection stays as it is until its time
      // is up.
      try {
        StartTicking();
        while (io_.run_one() > 0) {
          if (turn_work_.empty()) continue;
          io_.poll();  // what has come meanwhile belongs to the same batch
          turn_work_.RunAll(/*in_time=*/true);
        }
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kTick);
      }
    }
  }

  std::vector<std::shared_ptr<HttpConnection>> Open() const {
    std::vector<std::shared_ptr<HttpConnection>> open;
    open.reserve(entries_.size());
    for (const auto& entry : entries_) open.push_back(entry.second->connection);
    return open;
  }

  // Runs while there are connections whose time may run out.
  void StartTicking() {
    if (ticking_ || (entries_.empty() && at_tick_ == nullptr && !stopping_)) return;
    timer_.expires_after(kTick);
    timer_.async_wait([this](error_code error) {
      ticking_ = false;
      if (!error) Tick();
      StartTicking();
    });
    ticking_ = true;
  }

  void Tick() {
    const SteadyTime now = std::chrono::steady_clock::now();
    const bool give_up = stopping_ && now >= stop_at_;
    std::vector<std::shared_ptr<HttpConnection>> late;
    for (const auto& [connection, entry] : entries_) {
      if (give_up || now >= connection->deadline()) late.push_back(entry->connection);
    }
    for (const auto& connection : late) {
      if (give_up) {
        connection->Close(/*reset=*/false);
      } else {
        connection->OnDeadline();
      }
    }
    if (stopping_ && entries_.empty()) return io_.stop();
    if (at_tick_ != nullptr) std::exchange(at_tick_, nullptr)();
  }

  // HttpConnection::Owner:
  const HttpServer::Options& options() const override { return shared_.options; }
  std::weak_ptr<HttpJobs> jobs() override { return jobs_; }
  bool draining() const override { return stopping_ || shared_.draining; }
  void Handle(const std::shared_ptr<HttpCall>& call) override { shared_.Handle(call); }
  void OnAnswer(int status) override { shared_.OnAnswer(status); }
  bool ReserveBody(size_t bytes) override {
    const auto amount = static_cast<int64_t>(bytes);
    const auto limit = static_cast<int64_t>(shared_.options.limits.max_total_body_bytes);
    const int64_t total = shared_.body_bytes.fetch_add(amount, std::memory_order_relaxed) + amount;
    if (limit == 0 || total <= limit) return true;
    shared_.body_bytes.fetch_sub(amount, std::memory_order_relaxed);
    return false;
  }
  void ReleaseBody(size_t bytes) override {
    shared_.body_bytes.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  }
  void OnClosed(HttpConnection* connection) override {
    const auto found = entries_.find(connection);
    if (found == entries_.end()) return;
    shared_.table.Remove(found->second.get());
    entries_.erase(found);
    num_connections_.store(entries_.size(), std::memory_order_relaxed);
    if (stopping_ && entries_.empty()) io_.stop();
  }

  Shared& shared_;
  std::vector<char> scratch_ = std::vector<char>(kScratchBytes);
  asio::io_context io_{1};
  TurnWorkList turn_work_;
  const std::shared_ptr<Jobs> jobs_ = std::make_shared<Jobs>(&io_);
  asio::steady_timer timer_{io_};
  std::unordered_map<HttpConnection*, std::unique_ptr<ConnectionTable::Entry>> entries_;
  std::atomic<size_t> num_connections_{0};
  std::function<void()> at_tick_;
  bool ticking_ = false;
  bool stopping_ = false;
  SteadyTime stop_at_;
  std::thread thread_;
};

class BeastServer final : public HttpServer {
 public:
  BeastServer(Options options, Handler handler) : shared_(std::move(options), std::move(handler)) {
    exchange_hooks_.check_headers = shared_.options.check_headers;
    exchange_hooks_.handle = [this](const std::shared_ptr<HttpCall>& call) {
      shared_.Handle(call);
    };
    exchange_hooks_.on_answer = [this](int status) { shared_.OnAnswer(status); };
    exchange_hooks_.post = [this](std::function<void()> job) {
      const size_t next = next_loop_.fetch_add(1, std::memory_order_relaxed);
      loops_[next % loops_.size()]->Post(std::move(job));
    };
    for (int i = 0; i < std::max(1, shared_.options.threads); ++i) {
      loops_.push_back(std::make_unique<Loop>(&shared_));
    }
  }

  ~BeastServer() override { Stop(); }

  absl::Status Listen(const ListenAddress& address) {
    acceptor_ = std::make_unique<tcp::acceptor>(loops_[0]->io());
    error_code error;
    tcp::resolver resolver(loops_[0]->io());
    const auto found =
        resolver.resolve(address.host, absl::StrCat(address.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (!error && found.empty()) error = asio::error::host_not_found;
    if (!error) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor_->open(endpoint.protocol(), error);
      if (!error) acceptor_->set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_->bind(endpoint, error);
      if (!error) acceptor_->listen(asio::socket_base::max_listen_connections, error);
    }
    if (!error) address_ = {address.host, acceptor_->local_endpoint(error).port()};
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address.ToString(), ": ", error.message()));
    }
    return absl::OkStatus();
  }

  void Run() {
    for (const auto& loop : loops_) KeepRunning(loop.get());
    if (acceptor_ != nullptr) asio::post(loops_[0]->io(), [this] { Accept(); });
    running_ = true;
  }

  void Adopt(transport::AcceptedSocket socket, std::unique_ptr<ByteStream> bytes,
             std::string received) override {
    auto moved = std::make_shared<transport::AcceptedSocket>(std::move(socket));
    asio::post(loops_[0]->io(),
               [this, moved, bytes = std::move(bytes), received = std::move(received)]() mutable {
                 if (stopping_) return;
                 Loop* const loop = LeastLoop();
                 HttpSocket own(loop->io(), tcp::v4(), moved->release());
                 Add(loop, std::move(own), std::move(bytes), std::move(received));
               });
  }

  calls::HttpHandler* Answer(calls::HttpExchange* exchange) override {
    return StartExchangeCall(exchange, exchange_hooks_);
  }

  void BeginDrain() override { shared_.draining = true; }

  void Recheck() override {
    for (const auto& loop : loops_) loop->Post([loop = loop.get()] { loop->Recheck(); });
  }

  void Stop() override {
    if (!running_) return;
    running_ = false;
    asio::post(loops_[0]->io(), [this] {
      stopping_ = true;
      error_code ignored;
      if (acceptor_ != nullptr) acceptor_->close(ignored);
      // Connections that were given to the other threads before are theirs by now, since what is
      // posted runs in its order.
      for (const auto& loop : loops_) {
        asio::post(loop->io(), [loop = loop.get()] { loop->BeginStop(); });
      }
    });
    for (const auto& loop : loops_) loop->Join();
  }

  const ListenAddress& address() const override { return address_; }

  Stats stats() const override {
    Stats stats;
    stats.connections = static_cast<int64_t>(shared_.table.size());
    for (size_t i = 0; i < stats.answers.size(); ++i) {
      stats.answers[i] = shared_.answers[i].load(std::memory_order_relaxed);
    }
    stats.body_bytes = shared_.body_bytes.load(std::memory_order_relaxed);
    return stats;
  }

 private:
  // An io_context without work would end; a wait that nothing ends keeps it.
  void KeepRunning(Loop* loop) {
    work_.push_back(std::make_unique<asio::steady_timer>(loop->io()));
    work_.back()->expires_at(SteadyTime::max());
    work_.back()->async_wait([](error_code) {});
    loop->StartThread();
  }

  Loop* LeastLoop() const {
    Loop* least = loops_[0].get();
    for (const auto& loop : loops_) {
      if (loop->connections() < least->connections()) least = loop.get();
    }
    return least;
  }

  // On the first thread, as what follows.
  void Accept() {
    Loop* const next = LeastLoop();
    acceptor_->async_accept(next->io(), [this, next](error_code error, HttpSocket socket) {
      if (stopping_) return;
      if (error == asio::error::no_descriptors ||
          error == error_code(ENFILE, boost::system::system_category()) ||
          error == asio::error::no_memory || error == asio::error::no_buffer_space) {
        MakeRoom();
        loops_[0]->AtTick([this] {
          if (!stopping_) Accept();
        });
        return;
      }
      // Whatever this lacks memory for, the next connection is accepted.
      try {
        if (!error) Add(next, std::move(socket), nullptr, "");
      } catch (const std::exception&) {
      }
      Accept();
    });
  }

  void Add(Loop* loop, HttpSocket socket, std::unique_ptr<ByteStream> bytes, std::string received) {
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // it is closed already
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), error);
    const int most = shared_.options.limits.max_connections;
    if ((most > 0 && shared_.table.size() >= static_cast<size_t>(most)) ||
        IsOutOfFiles(socket.native_handle())) {
      MakeRoom();
    }
    if (loop == loops_[0].get()) {
      return loop->Add(std::move(socket), std::move(bytes), std::move(received), peer);
    }
    asio::post(loop->io(), [loop, peer, socket = std::move(socket), bytes = std::move(bytes),
                            received = std::move(received)]() mutable {
      loop->Add(std::move(socket), std::move(bytes), std::move(received), peer);
    });
  }

  void MakeRoom() {
    auto [connection, loop] = shared_.table.TakeOldest();
    if (connection == nullptr) return;
    if (shared_.options.on_refused != nullptr) shared_.options.on_refused();
    if (loop == loops_[0].get()) return connection->Close(/*reset=*/true);
    loop->Post([connection = std::move(connection)] { connection->Close(/*reset=*/true); });
  }

  Shared shared_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<asio::steady_timer>> work_;
  std::unique_ptr<tcp::acceptor> acceptor_;
  ListenAddress address_;
  ExchangeHooks exchange_hooks_;
  std::atomic<size_t> next_loop_{0};
  bool running_ = false;
  bool stopping_ = false;  // on the first thread
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ListenAddress& address,
                                                              Options options, Handler handler) {
  auto server = std::make_unique<BeastServer>(std::move(options), std::move(handler));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  server->Run();
  return std::unique_ptr<HttpServer>(std::move(server));
}

std::unique_ptr<HttpServer> HttpServer::StartWithoutPort(Options options, Handler handler) {
  auto server = std::make_unique<BeastServer>(std::move(options), std::move(handler));
  server->Run();
  return server;
}

}  // namespace sru::server::http
