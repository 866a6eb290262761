#include "server/http/http_server.h"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/optional.hpp>
#include <boost/system/error_code.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <list>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "server/base/mutex.h"

namespace sru::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
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
// Handlers limit their own time; this is for a call whose reply was lost for lack of memory.
constexpr absl::Duration kHandlingTimeout = absl::Seconds(60);
// How much of an answer in parts may wait to be sent.
constexpr size_t kMaxUnsentBytes = 64 << 10;
// How much a client may still send while it does not take its answer.
constexpr size_t kMaxIgnoredBytes = 256 << 10;

// The address that a connection counts for: an IPv4 address, or the first half of an IPv6 address,
// since one machine has many that share it.
using AddressKey = std::array<unsigned char, 16>;

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

std::shared_ptr<const PageResponse> ErrorResponse(int status, absl::string_view text) {
  auto response = std::make_shared<PageResponse>();
  response->status = status;
  response->body = absl::StrCat(text, "\n");
  return response;
}

// `in_parts`: the body follows in chunks of RFC 9112, section 7.1.
std::string HeadOf(const PageResponse& response, bool in_parts = false) {
  const auto reason = http::obsolete_reason(http::int_to_status(response.status));
  std::string head = absl::StrCat(
      "HTTP/1.1 ", response.status, " ", absl::string_view(reason.data(), reason.size()),
      "\r\nContent-Type: ", response.content_type,
      in_parts ? "\r\nTransfer-Encoding: chunked"
               : absl::StrCat("\r\nContent-Length: ", response.body.size()));
  for (const auto& [name, value] : response.headers) {
    absl::StrAppend(&head, "\r\n", name, ": ", value);
  }
  absl::StrAppend(&head, "\r\nConnection: close\r\n\r\n");
  return head;
}

class Connection;

// The server as its connections see it. Used on its one thread only.
class Owner {
 public:
  virtual ~Owner() = default;
  virtual const HttpServer::Limits& limits() const = 0;
  virtual std::weak_ptr<asio::io_context> io() = 0;
  virtual bool stopping() const = 0;
  virtual void Handle(const std::shared_ptr<HttpCall>& call) = 0;
  virtual void Remove(Connection* connection) = 0;
};

class Call;

// One connection, used on the server's thread only. The server owns it until it is closed, and so
// does every operation under way.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class State { kReading, kHandling, kWriting, kClosing };

  Connection(tcp::socket socket, const asio::ip::address& address, Owner* owner)
      : owner_(*owner),
        socket_(std::move(socket)),
        address_(address),
        key_(KeyOf(address)),
        buffer_(owner->limits().max_header_bytes + 4096) {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(owner->limits().max_header_bytes));
    // The handler refuses a body that is too long.
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
  }

  void Start() {
    EndsIn(owner_.limits().header_timeout);
    http::async_read_header(
        socket_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->OnHeader(error); });
  }

  void Reply(std::shared_ptr<const PageResponse> response);

  // An answer in parts: its head, then any number of parts, then the end.
  void BeginParts(std::string head);
  void AddPart(const std::string& part);
  void EndParts();

  // Closes the connection. With `reset`, an answer that the client has not taken yet is dropped;
  // otherwise the kernel keeps it and goes on sending it.
  void Close(bool reset);

  void OnDeadline();

  State state() const { return state_; }
  SteadyTime deadline() const { return deadline_; }
  const AddressKey& key() const { return key_; }

 private:
  void EndsIn(absl::Duration duration) {
    deadline_ = duration == absl::InfiniteDuration()
                    ? SteadyTime::max()
                    : std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(duration);
  }
  void OnHeader(error_code error);
  void ReadBody();
  void OnBody(error_code error);
  // Makes the request and hands it to the handler.
  void Dispatch(absl::StatusOr<std::string> body);
  void Write(std::shared_ptr<const PageResponse> response);
  // Sends the next of what waits in parts_.
  void WritePart();
  // After the answer: reads until the client closes too. If this closed at once and more data came,
  // the kernel would reset the connection, and the client might lose the answer.
  void AwaitEnd();

  Owner& owner_;
  tcp::socket socket_;
  const asio::ip::address address_;
  const AddressKey key_;
  boost::beast::flat_buffer buffer_;
  boost::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<Call> call_;
  State state_ = State::kReading;
  bool closed_ = false;
  bool reading_body_ = false;
  bool body_timed_out_ = false;
  SteadyTime deadline_ = SteadyTime::max();
  std::string head_;  // of the answer that is being written
  std::shared_ptr<const PageResponse> response_;
  std::deque<std::string> parts_;    // of an answer in parts; the first one is being written
  std::deque<size_t> unsent_sizes_;  // of parts_, as they were added
  bool parts_ended_ = false;
  size_t ignored_bytes_ = 0;
  std::array<char, 1024> ignored_{};
};

class Call final : public HttpCall, public std::enable_shared_from_this<Call> {
 public:
  Call(PageRequest request, std::weak_ptr<Connection> connection,
       std::weak_ptr<asio::io_context> io)
      : request_(std::move(request)), connection_(std::move(connection)), io_(std::move(io)) {}

  const PageRequest& request() const override { return request_; }
  bool gone() const override { return gone_; }
  void set_gone() {
    MutexLock lock(&mutex_);
    gone_ = true;
    changed_.SignalAll();
  }

  void Reply(std::shared_ptr<const PageResponse> response) override {
    const std::shared_ptr<asio::io_context> io = io_.lock();
    if (io == nullptr || gone_) return;
    asio::post(*io, [connection = connection_, response = std::move(response)]() mutable {
      if (const auto open = connection.lock()) open->Reply(std::move(response));
    });
  }

  std::unique_ptr<PageStream> ReplyInParts(const PageResponse& head) override {
    Post([text = HeadOf(head, /*in_parts=*/true)](Connection* open) { open->BeginParts(text); });
    return std::make_unique<Stream>(shared_from_this());
  }

  // Some more of an answer in parts. False if nobody reads it.
  bool Send(std::string part) {
    {
      MutexLock lock(&mutex_);
      while (unsent_bytes_ >= kMaxUnsentBytes && !gone_) changed_.Wait(&mutex_);
      if (gone_) return false;
      unsent_bytes_ += part.size();
    }
    return Post([part = std::move(part)](Connection* open) { open->AddPart(part); });
  }
  // The connection has written so much of what Send() had added.
  void OnSent(size_t bytes) {
    MutexLock lock(&mutex_);
    unsent_bytes_ -= bytes;
    changed_.SignalAll();
  }

 private:
  class Stream final : public PageStream {
   public:
    explicit Stream(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Stream() override {
      call_->Post([](Connection* open) { open->EndParts(); });
    }
    bool Write(std::string part) override {
      // A chunk without bytes would be the last one.
      return part.empty() ? !call_->gone() : call_->Send(std::move(part));
    }

   private:
    const std::shared_ptr<Call> call_;
  };

  // Runs `job` on the server's thread if the connection is still open; false if it is not.
  template <typename Job>
  bool Post(Job job) {
    const std::shared_ptr<asio::io_context> io = io_.lock();
    if (io == nullptr || gone_) return false;
    asio::post(*io, [connection = connection_, job = std::move(job)] {
      if (const auto open = connection.lock()) job(open.get());
    });
    return true;
  }

  const PageRequest request_;
  const std::weak_ptr<Connection> connection_;
  const std::weak_ptr<asio::io_context> io_;  // expires with the server
  std::atomic<bool> gone_{false};  // set under the lock, so that a wait for it misses nothing
  Mutex mutex_;
  CondVar changed_;
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

void Connection::OnHeader(error_code error) {
  if (closed_) return;
  if (error) {
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Write(ErrorResponse(431, absl::StrCat("the headers have more than ",
                                                   owner_.limits().max_header_bytes, " bytes")));
    }
    const bool is_http =
        error.category() == http::make_error_code(http::error::bad_method).category();
    if (!is_http || error == http::error::end_of_stream || error == http::error::partial_message) {
      return Close(/*reset=*/false);
    }
    return Write(ErrorResponse(400, absl::StrCat("not an HTTP/1.1 request: ", error.message())));
  }
  const boost::optional<std::uint64_t> length = parser_->content_length();
  if (!length.has_value()) {
    return Dispatch(absl::InvalidArgumentError("Content-Length: expected the size of the body"));
  }
  if (*length > owner_.limits().max_body_bytes) {
    return Dispatch(absl::ResourceExhaustedError(absl::StrCat(
        "the body has ", *length, " bytes, expected at most ", owner_.limits().max_body_bytes)));
  }
  reading_body_ = true;
  EndsIn(owner_.limits().body_timeout);
  const auto expect = parser_->get()[http::field::expect];
  if (!absl::EqualsIgnoreCase(absl::string_view(expect.data(), expect.size()), "100-continue")) {
    return ReadBody();
  }
  head_ = "HTTP/1.1 100 Continue\r\n\r\n";
  asio::async_write(socket_, asio::buffer(head_),
                    [self = shared_from_this()](error_code write_error, size_t) {
                      if (self->closed_) return;
                      if (write_error) return self->OnBody(write_error);
                      self->ReadBody();
                    });
}

void Connection::ReadBody() {
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, size_t) { self->OnBody(error); });
}

void Connection::OnBody(error_code error) {
  if (closed_) return;
  reading_body_ = false;
  if (!error) return Dispatch(std::move(parser_->get().body()));
  if (body_timed_out_ || error == http::error::partial_message) {
    return Dispatch(absl::DeadlineExceededError(
        absl::StrCat("the body did not come whole within ",
                     absl::FormatDuration(owner_.limits().body_timeout))));
  }
  Close(/*reset=*/false);
}

void Connection::Dispatch(absl::StatusOr<std::string> body) {
  const auto& message = parser_->get();
  PageRequest request;
  request.method = std::string(message.method_string().data(), message.method_string().size());
  const absl::string_view target(message.target().data(), message.target().size());
  request.path = std::string(target.substr(0, target.find_first_of("?#")));
  request.remote_address = address_.to_string();
  for (const auto& field : message) {
    const absl::string_view name(field.name_string().data(), field.name_string().size());
    std::string& value = request.headers[absl::AsciiStrToLower(name)];
    absl::StrAppend(&value, value.empty() ? "" : ", ",
                    absl::string_view(field.value().data(), field.value().size()));
  }
  request.read_body = [body = std::move(body)] { return body; };
  parser_.reset();
  call_ = std::make_shared<Call>(std::move(request), weak_from_this(), owner_.io());
  state_ = State::kHandling;
  EndsIn(kHandlingTimeout);
  owner_.Handle(call_);
}

void Connection::Reply(std::shared_ptr<const PageResponse> response) {
  if (!closed_ && state_ == State::kHandling) Write(std::move(response));
}

void Connection::Write(std::shared_ptr<const PageResponse> response) {
  head_ = HeadOf(*response);
  response_ = std::move(response);
  const bool has_body = call_ == nullptr || call_->request().method != "HEAD";
  state_ = State::kWriting;
  EndsIn(owner_.limits().answer_timeout);
  const std::array<asio::const_buffer, 2> parts = {
      asio::buffer(head_), has_body ? asio::buffer(response_->body) : asio::const_buffer()};
  asio::async_write(socket_, parts, [self = shared_from_this()](error_code error, size_t) {
    if (self->closed_) return;
    error_code ignored;
    if (!error) self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
    if (error || self->owner_.stopping()) return self->Close(/*reset=*/false);
    self->response_ = nullptr;
    self->state_ = State::kClosing;
    self->AwaitEnd();
  });
}

void Connection::BeginParts(std::string head) {
  if (closed_ || state_ != State::kHandling) return;
  state_ = State::kWriting;
  EndsIn(owner_.limits().stream_timeout);
  head_ = std::move(head);
  asio::async_write(socket_, asio::buffer(head_),
                    [self = shared_from_this()](error_code error, size_t) {
                      if (self->closed_) return;
                      if (error) return self->Close(/*reset=*/false);
                      self->head_.clear();
                      self->WritePart();
                    });
}

void Connection::AddPart(const std::string& part) {
  if (closed_ || state_ != State::kWriting) return;
  parts_.push_back(absl::StrFormat("%x\r\n%s\r\n", part.size(), part));
  unsent_sizes_.push_back(part.size());
  if (head_.empty() && parts_.size() == 1) WritePart();
}

void Connection::EndParts() {
  if (closed_ || state_ != State::kWriting) return;
  parts_ended_ = true;
  parts_.push_back("0\r\n\r\n");
  unsent_sizes_.push_back(0);
  if (head_.empty() && parts_.size() == 1) WritePart();
}

void Connection::WritePart() {
  if (parts_.empty()) return;
  asio::async_write(socket_, asio::buffer(parts_.front()),
                    [self = shared_from_this()](error_code error, size_t) {
                      if (self->closed_) return;
                      if (error) return self->Close(/*reset=*/false);
                      self->call_->OnSent(self->unsent_sizes_.front());
                      self->parts_.pop_front();
                      self->unsent_sizes_.pop_front();
                      if (!self->parts_.empty() || !self->parts_ended_) return self->WritePart();
                      error_code ignored;
                      self->socket_.shutdown(tcp::socket::shutdown_send, ignored);
                      if (self->owner_.stopping()) return self->Close(/*reset=*/false);
                      self->state_ = State::kClosing;
                      self->EndsIn(self->owner_.limits().answer_timeout);
                      self->AwaitEnd();
                    });
}

void Connection::AwaitEnd() {
  socket_.async_read_some(asio::buffer(ignored_),
                          [self = shared_from_this()](error_code error, size_t size) {
                            if (self->closed_) return;
                            self->ignored_bytes_ += size;
                            if (error) return self->Close(/*reset=*/false);
                            if (self->ignored_bytes_ > kMaxIgnoredBytes) {
                              return self->Close(/*reset=*/true);
                            }
                            self->AwaitEnd();
                          });
}

void Connection::OnDeadline() {
  if (reading_body_) {
    // The handler tells the client. The deadline stays in the past, so that an operation that began
    // meanwhile is cancelled at the next look.
    body_timed_out_ = true;
    error_code ignored;
    socket_.cancel(ignored);
    return;
  }
  Close(/*reset=*/true);
}

void Connection::Close(bool reset) {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  if (call_ != nullptr) call_->set_gone();
  error_code ignored;
  if (reset) socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  socket_.close(ignored);
  owner_.Remove(this);
}

class BeastServer final : public HttpServer, private Owner {
 public:
  BeastServer(const Limits& limits, Handler handler)
      : limits_(limits), handler_(std::move(handler)) {}

  ~BeastServer() override { Stop(); }

  absl::Status Listen(const ListenAddress& address) {
    error_code error;
    tcp::resolver resolver(*io_);
    const auto found =
        resolver.resolve(address.host, absl::StrCat(address.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (!error && found.empty()) error = asio::error::host_not_found;
    if (!error) {
      const tcp::endpoint endpoint = found.begin()->endpoint();
      acceptor_.open(endpoint.protocol(), error);
      if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
      if (!error) acceptor_.bind(endpoint, error);
      if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    }
    if (!error) address_ = {address.host, acceptor_.local_endpoint(error).port()};
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address.ToString(), ": ", error.message()));
    }
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Stop() override {
    if (!thread_.joinable()) return;
    asio::post(*io_, [this] { BeginStop(); });
    thread_.join();
  }

  const ListenAddress& address() const override { return address_; }

 private:
  void Run() {
    while (!io_->stopped()) {
      // Only a lack of memory can throw here. The affected connection stays as it is until its time
      // is up.
      try {
        if (!stopping_ && !accepting_ && !accept_paused_) Accept();
        StartTicking();
        io_->run();
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kTick);
      }
    }
  }

  void Accept() {
    accepting_ = true;
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      accepting_ = false;
      if (stopping_) return;
      if (error == asio::error::no_descriptors ||
          error == error_code(ENFILE, boost::system::system_category()) ||
          error == asio::error::no_memory || error == asio::error::no_buffer_space) {
        MakeRoom();
        accept_paused_ = true;
        StartTicking();
        return;
      }
      if (!error) Add(std::move(socket));
      Accept();
    });
  }

  void Add(tcp::socket socket) {
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;  // it is closed already
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(asio::socket_base::send_buffer_size(kSendBufferBytes), error);
    if (connections_.size() >= static_cast<size_t>(limits_.max_connections) ||
        IsOutOfFiles(socket.native_handle())) {
      MakeRoom();
    }
    Owner* const owner = this;
    auto connection =
        std::make_shared<Connection>(std::move(socket), Unmapped(peer.address()), owner);
    int& count = counts_[connection->key()];
    connections_.push_back(connection);
    ++count;
    StartTicking();
    connection->Start();
  }

  // Closes the oldest connection of the address that has the most; one whose request is being
  // answered only if there is no other.
  void MakeRoom() {
    std::shared_ptr<Connection> chosen;
    int most = 0;
    bool chosen_waits = false;
    for (const auto& connection : connections_) {
      const bool waits = connection->state() != Connection::State::kHandling;
      const int count = counts_[connection->key()];
      if (chosen == nullptr || (waits && !chosen_waits) ||
          (waits == chosen_waits && count > most)) {
        chosen = connection;
        most = count;
        chosen_waits = waits;
      }
    }
    if (chosen != nullptr) chosen->Close(/*reset=*/true);
  }

  // Runs while there are connections whose time may run out.
  void StartTicking() {
    if (ticking_ || (connections_.empty() && !accept_paused_ && !stopping_)) return;
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
    for (auto it = connections_.begin(); it != connections_.end();) {
      const std::shared_ptr<Connection> connection = *it++;  // which this may remove
      if (give_up) {
        connection->Close(/*reset=*/false);
      } else if (now >= connection->deadline()) {
        connection->OnDeadline();
      }
    }
    if (stopping_ && connections_.empty()) return io_->stop();
    if (accept_paused_ && !stopping_) {
      accept_paused_ = false;
      Accept();
    }
  }

  void BeginStop() {
    stopping_ = true;
    stop_at_ = std::chrono::steady_clock::now() + kStopGrace;
    error_code ignored;
    acceptor_.close(ignored);
    for (auto it = connections_.begin(); it != connections_.end();) {
      const std::shared_ptr<Connection> connection = *it++;
      if (connection->state() != Connection::State::kWriting) connection->Close(/*reset=*/false);
    }
    if (connections_.empty()) return io_->stop();
    StartTicking();
  }

  // Owner:
  const Limits& limits() const override { return limits_; }
  std::weak_ptr<asio::io_context> io() override { return io_; }
  bool stopping() const override { return stopping_; }
  void Handle(const std::shared_ptr<HttpCall>& call) override {
    try {
      handler_(call);
    } catch (const std::bad_alloc&) {
      call->Reply(ErrorResponse(503, "no memory to answer; try again"));
    } catch (const std::exception& error) {
      call->Reply(ErrorResponse(500, error.what()));
    }
  }
  void Remove(Connection* connection) override {
    const auto count = counts_.find(connection->key());
    if (count != counts_.end() && --count->second <= 0) counts_.erase(count);
    connections_.remove_if([connection](const auto& other) { return other.get() == connection; });
    if (stopping_ && connections_.empty()) io_->stop();
  }

  const Limits limits_;
  const Handler handler_;
  // Replies that come too late find that it has expired.
  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  ListenAddress address_;

  // Used by the thread only, once it runs.
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer timer_{*io_};
  std::list<std::shared_ptr<Connection>> connections_;  // the oldest first
  std::map<AddressKey, int> counts_;
  bool accepting_ = false;
  bool accept_paused_ = false;  // until the next tick, because no descriptor was left
  bool ticking_ = false;
  bool stopping_ = false;
  SteadyTime stop_at_;

  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const ListenAddress& address,
                                                              const Limits& limits,
                                                              Handler handler) {
  auto server = std::make_unique<BeastServer>(limits, std::move(handler));
  if (absl::Status status = server->Listen(address); !status.ok()) return status;
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace sru::server
