#include "server/door/native_door.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/interruption.h"
#include "server/base/retry.h"
#include "server/calls/grpc_text.h"
#include "server/transport/tls_certificates.h"
#include "tests/testing/certificates.h"
#include "tests/testing/poll.h"

namespace sru::server::door {
namespace {

using ::sru::testing::PollUntil;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Le;
using Fields = std::vector<std::pair<std::string, std::string>>;

constexpr uint8_t kEndStream = NGHTTP2_FLAG_END_STREAM;
constexpr uint8_t kEndHeaders = NGHTTP2_FLAG_END_HEADERS;

Fields GrpcPost() { return {{":method", "POST"}, {"content-type", "application/grpc"}}; }

std::string Number(uint32_t value, int bytes) {
  std::string text;
  while (bytes-- > 0) text.push_back(static_cast<char>(value >> (8 * bytes)));
  return text;
}

std::string MessageOf(absl::string_view body) {
  return absl::StrCat(absl::string_view("\0", 1), Number(static_cast<uint32_t>(body.size()), 4),
                      body);
}

std::string FrameOf(uint8_t type, uint8_t flags, uint32_t stream, absl::string_view body = "") {
  return absl::StrCat(Number(static_cast<uint32_t>(body.size()), 3), Number(type, 1),
                      Number(flags, 1), Number(stream, 4), body);
}

// A client that says exactly what a test wants. Headers are literals, so that no state is needed.
class RawClient {
 public:
  // `begins` sends the preface, after the handshake if there is `tls`. Otherwise the test does
  // both.
  explicit RawClient(int port, bool begins = true, SSL_CTX* tls = nullptr)
      : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const int at_once = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof(at_once));
    nghttp2_hd_inflate_new(&inflater_);
    if (tls != nullptr) {
      ssl_ = SSL_new(tls);
      SSL_set_fd(ssl_, socket_);
      if (begins) Handshake();
    }
    if (begins) Send(absl::StrCat("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", FrameOf(4, 0, 0)));
  }
  ~RawClient() {
    SSL_free(ssl_);
    close(socket_);
    nghttp2_hd_inflate_del(inflater_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void Handshake() { EXPECT_EQ(SSL_connect(ssl_), 1); }
  void UpdateKeys(int times) {
    for (int i = 0; i < times; ++i) {
      SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED);
      if (SSL_do_handshake(ssl_) != 1) return;
    }
  }
  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ssl_ == nullptr
                               ? send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                               : SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  static std::string HeadOf(uint32_t stream, const std::string& path, const Fields& more = {},
                            uint8_t flags = 0, const Fields& first = GrpcPost()) {
    std::string block;
    Fields fields = first;
    fields.insert(fields.begin(), {{":scheme", "http"}, {":path", path}, {":authority", "a"}});
    std::stable_partition(fields.begin(), fields.end(),
                          [](const auto& field) { return field.first[0] == ':'; });
    fields.insert(fields.end(), more.begin(), more.end());
    for (const auto& [name, value] : fields) {
      for (const std::string& text :
           {std::string(1, '\0'), Integer(name.size()), name, Integer(value.size()), value}) {
        block += text;
      }
    }
    return FrameOf(NGHTTP2_HEADERS, static_cast<uint8_t>(kEndHeaders | flags), stream, block);
  }
  void SendHead(uint32_t stream, const std::string& path, const Fields& more = {},
                uint8_t flags = 0, const Fields& first = GrpcPost()) {
    Send(HeadOf(stream, path, more, flags, first));
  }
  void SendData(uint32_t stream, absl::string_view bytes, uint8_t flags = 0) {
    Send(FrameOf(NGHTTP2_DATA, flags, stream, bytes));
  }

  // A call with one message, which is all that the client sends.
  void Call(uint32_t stream, const std::string& path, absl::string_view message,
            const Fields& more = {}) {
    SendHead(stream, path, more);
    SendData(stream, MessageOf(message), kEndStream);
  }
  // In frames of the usual size; `flags` are those of the last one.
  void SendPieces(uint32_t stream, absl::string_view bytes, uint8_t flags = 0) {
    for (size_t at = 0; at < bytes.size(); at += 16384) {
      SendData(stream, bytes.substr(at, 16384), at + 16384 >= bytes.size() ? flags : uint8_t{0});
    }
  }
  // Takes answers of any size.
  void OpenWindows() {
    Send(FrameOf(NGHTTP2_WINDOW_UPDATE, 0, 0, Number(1 << 30, 4)));
    Send(FrameOf(NGHTTP2_SETTINGS, 0, 0, Number(4, 2) + Number(1 << 30, 4)));
  }

  struct Stream {
    std::vector<Fields> heads;
    std::string data;
    bool ended = false;
    int reset = -1;
  };
  Stream& stream(uint32_t id) { return streams_[id]; }
  // The value in the last header block.
  std::string Value(uint32_t id, const std::string& name) {
    if (streams_[id].heads.empty()) return "";
    for (const auto& [field, value] : streams_[id].heads.back()) {
      if (field == name) return value;
    }
    return "";
  }
  const std::vector<uint32_t>& goaways() const { return goaways_; }  // their last stream
  int goaway_error() const { return goaway_error_; }
  int pongs() const { return pongs_; }
  bool closed() const { return closed_; }
  void set_answers_pings(bool answers) { answers_pings_ = answers; }

  // Reads frames until `done()`; false if that takes too long.
  template <typename Done>
  bool ReadUntil(const Done& done) {
    for (int i = 0; i < 1000 && !done(); ++i) {
      if (!closed_ && !ReadSome(10)) closed_ = true;
      if (closed_ && !done()) return false;
    }
    return done();
  }
  bool ReadEnd(uint32_t id) {
    return ReadUntil([&] { return streams_[id].ended || streams_[id].reset > 0; });
  }
  // The status with which a call has ended, and what it has answered.
  std::string StatusOf(uint32_t id) {
    EXPECT_TRUE(ReadEnd(id)) << id;
    return Value(id, "grpc-status");
  }
  std::string AnswerOf(uint32_t id) {
    EXPECT_TRUE(ReadEnd(id)) << id;
    return streams_[id].data;
  }
  bool ReadClose() {
    return ReadUntil([&] { return closed_; });
  }

 private:
  static std::string Integer(size_t value) {  // with a prefix of 7 bits
    if (value < 127) return std::string(1, static_cast<char>(value));
    std::string text(1, '\x7f');
    for (value -= 127; value >= 128; value >>= 7)
      text.push_back(static_cast<char>(128 | (value & 127)));
    text.push_back(static_cast<char>(value));
    return text;
  }

  bool ReadSome(int wait_ms) {
    pollfd ready{socket_, POLLIN, 0};
    const bool has_held = ssl_ != nullptr && SSL_pending(ssl_) > 0;
    if (!has_held && poll(&ready, 1, wait_ms) <= 0) return true;
    char buffer[65536];
    const ssize_t size = ssl_ == nullptr ? recv(socket_, buffer, sizeof(buffer), 0)
                                         : SSL_read(ssl_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    in_.append(buffer, static_cast<size_t>(size));
    const auto byte = [this](size_t i) {
      return static_cast<uint32_t>(static_cast<unsigned char>(in_[i]));
    };
    while (in_.size() >= 9) {
      const size_t length = byte(0) << 16 | byte(1) << 8 | byte(2);
      if (in_.size() < 9 + length) break;
      const uint32_t id = byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8);
      Handle(static_cast<uint8_t>(byte(3)), static_cast<uint8_t>(byte(4)), id,
             in_.substr(9, length));
      in_.erase(0, 9 + length);
    }
    return true;
  }
  void Handle(uint8_t type, uint8_t flags, uint32_t id, const std::string& body) {
    const auto number = [&body](size_t at) {
      uint32_t value = 0;
      for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(body[i]);
      return value;
    };
    switch (type) {
      case NGHTTP2_DATA:
        streams_[id].data += body;
        break;
      case NGHTTP2_HEADERS: {
        Fields fields;
        auto* at = reinterpret_cast<uint8_t*>(const_cast<char*>(body.data()));
        size_t left = body.size();
        for (;;) {
          nghttp2_nv field;
          int what = 0;
          const ssize_t used = nghttp2_hd_inflate_hd2(inflater_, &field, &what, at, left, 1);
          if (used < 0) break;
          at += used;
          left -= static_cast<size_t>(used);
          if ((what & NGHTTP2_HD_INFLATE_EMIT) != 0) {
            fields.emplace_back(std::string(reinterpret_cast<char*>(field.name), field.namelen),
                                std::string(reinterpret_cast<char*>(field.value), field.valuelen));
          }
          if ((what & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
        }
        nghttp2_hd_inflate_end_headers(inflater_);
        streams_[id].heads.push_back(std::move(fields));
        break;
      }
      case NGHTTP2_RST_STREAM:
        streams_[id].reset = static_cast<int>(number(0));
        break;
      case NGHTTP2_SETTINGS:
        if ((flags & 1) == 0) Send(FrameOf(4, 1, 0));
        break;
      case NGHTTP2_PING:
        if ((flags & 1) != 0) {
          ++pongs_;
        } else if (answers_pings_) {
          Send(FrameOf(6, 1, 0, body));
        }
        break;
      case NGHTTP2_GOAWAY:
        goaways_.push_back(number(0));
        goaway_error_ = static_cast<int>(number(4));
        break;
      default:
        break;
    }
    if ((type == NGHTTP2_DATA || type == NGHTTP2_HEADERS) && (flags & kEndStream) != 0) {
      streams_[id].ended = true;
    }
  }

  const int socket_;
  SSL* ssl_ = nullptr;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string in_;
  std::map<uint32_t, Stream> streams_;
  std::vector<uint32_t> goaways_;
  int goaway_error_ = -1;
  int pongs_ = 0;
  bool answers_pings_ = true;
  bool closed_ = false;
};

// A call that does what the test says, and notes what happens to it.
class PuppetCall final : public calls::CallHandler {
 public:
  struct Log {
    Mutex mutex;
    std::vector<std::string> events ABSL_GUARDED_BY(mutex);
    calls::Exchange* exchange ABSL_GUARDED_BY(mutex) = nullptr;

    void Add(std::string event) {
      MutexLock lock(&mutex);
      events.push_back(std::move(event));
    }
    std::vector<std::string> all() {
      MutexLock lock(&mutex);
      return events;
    }
    void Clear() {
      MutexLock lock(&mutex);
      events.clear();
    }
    bool Has(const std::string& event) {
      const std::vector<std::string> now = all();
      return std::find(now.begin(), now.end(), event) != now.end();
    }
    calls::Exchange& Await() {
      PollUntil([this] {
        MutexLock lock(&mutex);
        return exchange != nullptr;
      });
      MutexLock lock(&mutex);
      return *exchange;
    }
  };
  PuppetCall(Log* log, calls::Exchange* exchange) : log_(*log) {
    MutexLock lock(&log_.mutex);
    log_.exchange = exchange;
  }

  void OnMessage(std::optional<absl::Cord> message) override {
    log_.Add(message.has_value() ? absl::StrCat("message ", std::string(*message)) : "no message");
  }
  void OnWritten(bool ok) override { log_.Add(ok ? "written" : "not written"); }
  void OnCancel() override { log_.Add("cancel"); }
  void OnDone() override {
    log_.Add("done");
    delete this;
  }

 private:
  Log& log_;
};

// Answers each message with itself, and the end with the end.
class EchoCall final : public calls::CallHandler {
 public:
  EchoCall(calls::Exchange* exchange, bool is_stream)
      : exchange_(*exchange), is_stream_(is_stream) {
    if (is_stream) exchange_.Read();
  }
  void OnMessage(std::optional<absl::Cord> message) override {
    if (!is_stream_) {
      return exchange_.WriteAndFinish(message.value_or(absl::Cord("nothing")),
                                      {absl::OkStatus(), {{"x-first", "1"}}, {{"x-last", "2"}}});
    }
    if (!message.has_value()) return exchange_.Finish({absl::OkStatus(), {}, {}});
    exchange_.Write(*std::move(message));
  }
  void OnWritten(bool ok) override {
    if (ok) return exchange_.Read();
    exchange_.Finish({absl::CancelledError(), {}, {}});
  }
  void OnDone() override { delete this; }

 private:
  calls::Exchange& exchange_;
  const bool is_stream_;
};

// Does with each message what a function of the test says; deletes itself in the end.
class FunctionCall final : public calls::CallHandler {
 public:
  using Take = std::function<void(calls::Exchange&, std::optional<absl::Cord>)>;
  FunctionCall(calls::Exchange* exchange, Take take)
      : exchange_(*exchange), take_(std::move(take)) {}
  void OnMessage(std::optional<absl::Cord> message) override {
    take_(exchange_, std::move(message));
    ++uses_;  // of what OnDone() deletes
  }
  void OnDone() override { delete this; }

 private:
  calls::Exchange& exchange_;
  const Take take_;
  int uses_ = 0;
};

class NativeDoorTest : public ::testing::Test {
 protected:
  NativeDoorTest() {
    using Kind = calls::MethodKind;
    AddRow("Echo", Kind::kUnary,
           [](calls::Exchange* exchange) { return new EchoCall(exchange, false); });
    AddRow("Echoes", Kind::kBidirectional,
           [](calls::Exchange* exchange) { return new EchoCall(exchange, true); });
    AddRow("Puppet", Kind::kUnary,
           [this](calls::Exchange* exchange) { return new PuppetCall(&log_, exchange); });
    AddRow("Puppets", Kind::kBidirectional,
           [this](calls::Exchange* exchange) { return new PuppetCall(&log_, exchange); });
    options_.max_message_bytes = 1000;
    options_.metrics = &metrics_;
    options_.unknown = [](calls::Exchange* exchange) -> calls::CallHandler* {
      exchange->Finish({absl::UnimplementedError(absl::StrCat("no ", exchange->method())), {}, {}});
      return new FunctionCall(exchange, [](auto&, auto) {});
    };
    options_.on_refused = [](absl::string_view, const std::string&) {};
    options_.on_not_taken = [](absl::string_view, const std::string&) {};
  }
  template <typename Start>
  void AddRow(const char* name, calls::MethodKind kind, Start start) {
    calls::Method row;
    row.service = "t.T";
    row.name = name;
    row.kind = kind;
    row.start = std::move(start);
    rows_.push_back(std::move(row));
  }
  void Serve() {
    methods_ = std::make_unique<calls::MethodTable>(std::move(rows_));
    options_.methods = methods_.get();
    door_ = NativeDoor::Open("listen", {"127.0.0.1", 0}, options_, &loops_, &memory_).value();
    door_->Start();
  }
  int port() const { return door_->address().port; }
  // Returns how many connections have ended for this cause, and how many for this flood.
  double NumClosed(const std::string& cause) {
    return Counted("sru_door_connections_closed_total", cause);
  }
  double NumFloods(const std::string& reason) { return Counted("sru_door_floods_total", reason); }
  double Counted(const std::string& name, const std::string& cause) {
    for (const auto& family : registry_.Collect()) {
      if (family.name != name) continue;
      for (const auto& metric : family.metric) {
        if (metric.label.at(0).value == cause) return metric.counter.value;
      }
    }
    return -1;
  }
  // While one exists, the loops do nothing.
  class LoopsWait {
   public:
    explicit LoopsWait(const LoopSet& loops) {
      const std::shared_future<void> end = end_.get_future().share();
      for (const auto& loop : loops.loops()) loop->Post([end] { end.wait(); });
    }
    ~LoopsWait() { end_.set_value(); }

   private:
    std::promise<void> end_;
  };
  // The loops have looked at a few connections again by then, at least one in a turn.
  void AwaitTurns() {
    for (int i = 0; i < 10; ++i) loops_.RunOnEach([](size_t /*i*/) {});
  }
  bool Happens(const std::string& event) {
    return PollUntil([&] { return log_.Has(event); });
  }
  // Starts a call of a client whose window has no room for an answer.
  calls::Exchange& StartUnread(RawClient* client) {
    client->Send(FrameOf(NGHTTP2_SETTINGS, 0, 0, Number(4, 2) + Number(0, 4)));
    client->SendHead(1, "/t.T/Puppets");
    return log_.Await();
  }
  // Returns the exchange of the puppet that began last, and forgets it.
  calls::Exchange& Take() {
    calls::Exchange& exchange = log_.Await();
    MutexLock lock(&log_.mutex);
    log_.exchange = nullptr;
    return exchange;
  }
  void TearDown() override {
    door_->Shutdown(absl::ZeroDuration());
    EXPECT_EQ(memory_.used(), 0);
    EXPECT_EQ(door_->num_connections(), 0);
    EXPECT_EQ(door_->num_unsent(), 0);
  }

  prometheus::Registry registry_;
  DoorMetrics metrics_{&registry_};
  LoopSet loops_{2, 2, metrics_.Watch()};
  MemoryCount memory_{10 << 20};
  std::vector<calls::Method> rows_;
  DoorOptions options_;
  PuppetCall::Log log_;
  std::unique_ptr<calls::MethodTable> methods_;
  std::unique_ptr<NativeDoor> door_;
};

TEST_F(NativeDoorTest, ACallIsAnsweredHoweverItsBytesAreCut) {
  Serve();
  for (size_t cut = 0; cut <= 8; ++cut) {
    RawClient client(port());
    client.SendHead(1, "/t.T/Echo");
    const std::string bytes = MessageOf("abc");
    client.SendData(1, bytes.substr(0, cut));
    client.SendData(1, bytes.substr(cut), kEndStream);
    ASSERT_TRUE(client.ReadEnd(1)) << cut;
    EXPECT_EQ(client.stream(1).data, bytes);
    ASSERT_EQ(client.stream(1).heads.size(), 2U);
    EXPECT_THAT(
        client.stream(1).heads[0],
        ElementsAre(std::pair(":status", "200"), std::pair("content-type", "application/grpc"),
                    std::pair("x-first", "1")));
    EXPECT_THAT(client.stream(1).heads[1],
                ElementsAre(std::pair("grpc-status", "0"), std::pair("x-last", "2")));
  }
}

// A few kilobytes become megabytes of fields, and all of it would be looked at.
TEST_F(NativeDoorTest, AFieldThatComesAgainAndAgainEndsItsStreamThenItsConnection) {
  Serve();
  RawClient client(port());
  const std::string name_and_size = "\x40\x01x\x7f\xbd\x1d";  // into the table, with 3,900 bytes
  const std::string block =
      "\x83\x86\x04\x09/t.T/Echo\x01\x01z" + name_and_size + std::string(3900, 'v');
  client.Send(FrameOf(NGHTTP2_HEADERS, 5, 1, block + std::string(2000, '\xbe')));
  ASSERT_TRUE(client.ReadUntil([&] { return client.stream(1).reset != -1; }));
  // The connection goes on.
  client.Call(3, "/t.T/Echo", "a");
  EXPECT_EQ(client.StatusOf(3), "0");
  for (uint32_t id = 5; id < 1000 && !client.closed(); id += 2) {
    client.Send(FrameOf(NGHTTP2_HEADERS, 5, id, block + std::string(2000, '\xbe')));
  }
  EXPECT_TRUE(client.ReadClose());
  EXPECT_EQ(client.goaway_error(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(NativeDoorTest, MessagesMayShareAFrameAndBeEmpty) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Echoes");
  const std::string bytes = MessageOf("a") + MessageOf("") + MessageOf(std::string(900, 'x'));
  client.SendData(1, bytes, kEndStream);
  EXPECT_EQ(client.AnswerOf(1), bytes);
  EXPECT_EQ(client.Value(1, "grpc-status"), "0");
}

TEST_F(NativeDoorTest, WhatIsNoCallIsRefused) {
  Serve();
  RawClient client(port());
  uint32_t id = 1;
  const auto end_of = [&](const std::string& path, const std::string& bytes,
                          const Fields& more = {}) {
    const uint32_t stream = std::exchange(id, id + 2);
    client.SendHead(stream, path, more);
    client.SendData(stream, bytes, kEndStream);
    EXPECT_TRUE(client.ReadEnd(stream)) << path;
    return client.Value(stream, "grpc-status") + " " + client.Value(stream, "grpc-message");
  };
  EXPECT_EQ(end_of("/t.T/None", MessageOf("")), "12 no /t.T/None");
  EXPECT_EQ(end_of("/t.T/Echo", MessageOf(std::string(1001, 'x')).substr(0, 5)),
            "8 Received message larger than max (1001 vs. 1000)");
  EXPECT_THAT(end_of("/t.T/Echo", MessageOf("abc").substr(0, 7)), HasSubstr("13 "));
  EXPECT_THAT(end_of("/t.T/Echo", absl::StrCat("\x01", Number(0, 4))), HasSubstr("13 "));
  EXPECT_THAT(end_of("/t.T/Echo", MessageOf(""), {{"grpc-encoding", "gzip"}}), HasSubstr("12 "));
  EXPECT_THAT(end_of("/t.T/Echo", MessageOf(""), {{"x", std::string(9000, 'x')}}),
              HasSubstr("8 received metadata size"));
  EXPECT_EQ(client.Value(id - 4, "grpc-accept-encoding"), "identity");
  // One without a message is that of an empty one to gRPC's library too, and a second is not read.
  EXPECT_EQ(end_of("/t.T/Echo", ""), "0 ");
  EXPECT_EQ(end_of("/t.T/Echo", MessageOf("a") + MessageOf("b")), "0 ");

  client.SendHead(id, "/t.T/Echo", {}, kEndStream,
                  {{":method", "POST"}, {"content-type", "text/plain"}});
  ASSERT_TRUE(client.ReadEnd(id));
  EXPECT_EQ(client.Value(id, ":status"), "415");
  client.SendHead(id + 2, "/t.T/Echo", {}, kEndStream,
                  {{":method", "GET"}, {"content-type", "application/grpc"}});
  ASSERT_TRUE(client.ReadEnd(id + 2));
  EXPECT_EQ(client.Value(id + 2, ":status"), "405");
}

TEST_F(NativeDoorTest, ACallThatFailsBeforeItHasAHandlerIsCounted) {
  options_.bytes_timeout = absl::Milliseconds(200);
  options_.check_call = [](const transport::CallToCheck& call) {
    return transport::CallVerdict{call.headers.authorization.empty() ? nullptr : "no", nullptr};
  };
  options_.on_failed = [this](const calls::Exchange& exchange, const absl::Status& status) {
    log_.Add(absl::StrCat(exchange.method(), " ", absl::StatusCodeToString(status.code())));
    EXPECT_THAT(exchange.peer(), HasSubstr("ipv4:127.0.0.1:"));
    return calls::CallEnd{status, {}, {{"x-noted", "1"}}};
  };
  Serve();
  RawClient client(port());
  uint32_t id = 1;
  std::vector<std::string> expected;
  const auto fails = [&](const std::string& code, const std::string& bytes, uint8_t flags,
                         const Fields& more = {}) {
    client.SendHead(id, "/t.T/Echo", more);
    client.SendData(id, bytes, flags);
    EXPECT_TRUE(client.ReadEnd(id)) << code;
    if (code != "UNAUTHENTICATED") expected.push_back("/t.T/Echo " + code);
    EXPECT_EQ(log_.all(), expected);
    EXPECT_EQ(client.Value(id, "x-noted"), code == "UNAUTHENTICATED" ? "" : "1");
    id += 2;
  };
  const std::string large = MessageOf(std::string(1001, 'x')).substr(0, 5);
  const std::string half = MessageOf("abc").substr(0, 7);
  fails("RESOURCE_EXHAUSTED", large, 0);
  fails("RESOURCE_EXHAUSTED", MessageOf(""), kEndStream, {{"x", std::string(9000, 'x')}});
  fails("INTERNAL", half, kEndStream);
  fails("INTERNAL", absl::StrCat("\x01", Number(0, 4)), kEndStream);
  fails("UNIMPLEMENTED", MessageOf(""), kEndStream, {{"grpc-encoding", "gzip"}});
  EXPECT_EQ(client.Value(id - 2, "grpc-accept-encoding"), "identity");
  fails("DEADLINE_EXCEEDED", half, 0);
  fails("DEADLINE_EXCEEDED", half, 0, {{"grpc-timeout", "20m"}});
  fails("UNAUTHENTICATED", MessageOf(""), kEndStream, {{"authorization", "x"}});
  // The others' handlers count them.
  client.SendHead(id, "/t.T/Echoes");
  client.SendData(id, large, kEndStream);
  EXPECT_EQ(client.StatusOf(id), "8");
  EXPECT_EQ(log_.all(), expected);
}

TEST_F(NativeDoorTest, ACallSeesItsHeadersAndItsCallerTheEnd) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Puppets",
                  {{"x-mine", "a value"},
                   {"x-some-bin", "AAEC"},
                   {"x-other-bin", "AAE"},
                   {"grpc-timeout", "30S"},
                   {"grpc-hidden", "no"}});
  calls::Exchange& exchange = log_.Await();
  EXPECT_EQ(exchange.method(), "/t.T/Puppets");
  EXPECT_EQ(exchange.FindHeader("x-mine"), "a value");
  EXPECT_EQ(exchange.FindHeader("x-some-bin"), absl::string_view("\0\1\2", 3));
  EXPECT_EQ(exchange.FindHeader("x-other-bin"), absl::string_view("\0\1", 2));
  EXPECT_EQ(exchange.FindHeader("grpc-hidden"), "");
  EXPECT_THAT(exchange.peer(), HasSubstr("ipv4:127.0.0.1:"));
  EXPECT_LE(exchange.time_left(), absl::Seconds(30));
  const absl::Status refusal =
      RetryAfter(absl::InvalidArgumentError("50% \xC3\xA4\n"), absl::Seconds(1));
  exchange.Finish({refusal, {}, {}});
  ASSERT_TRUE(client.ReadEnd(1));
  // Nothing was written, so there is one header block, and the client need not send the rest.
  EXPECT_THAT(client.stream(1).heads,
              ElementsAre(ElementsAre(
                  std::pair(":status", "200"), std::pair("content-type", "application/grpc"),
                  std::pair("grpc-status", "3"), std::pair("grpc-message", "50%25 %C3%A4%0A"),
                  std::pair("grpc-status-details-bin",
                            calls::UnpaddedBase64(calls::StatusDetails(refusal))))));
  EXPECT_TRUE(client.ReadUntil([&] { return client.stream(1).reset == NGHTTP2_NO_ERROR; }));
  EXPECT_TRUE(PollUntil([&] { return log_.all() == std::vector<std::string>{"done"}; }));
}

TEST_F(NativeDoorTest, AResetAndADeadlineCancelACall) {
  Serve();
  RawClient client(port());
  client.Call(1, "/t.T/Puppet", "m");
  calls::Exchange& exchange = Take();
  client.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  EXPECT_TRUE(Happens("cancel"));
  EXPECT_TRUE(exchange.is_cancelled());
  exchange.Finish({absl::CancelledError(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_THAT(log_.all(), ElementsAre("message m", "cancel", "done"));

  log_.Clear();
  client.SendHead(3, "/t.T/Puppets", {{"grpc-timeout", "20m"}});
  calls::Exchange& late = log_.Await();
  late.Read();
  EXPECT_EQ(client.StatusOf(3), "4");
  EXPECT_TRUE(Happens("no message"));
  late.Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_THAT(log_.all(), ElementsAre("cancel", "no message", "done"));
}

TEST_F(NativeDoorTest, AResetAtItsDeadlineCancelsACallOnce) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Puppets", {{"grpc-timeout", "100m"}});
  calls::Exchange& exchange = log_.Await();
  exchange.Write(absl::Cord(std::string(100000, 'x')));  // more than the client's window
  EXPECT_TRUE(client.ReadUntil([&] { return client.stream(1).reset == NGHTTP2_CANCEL; }));
  exchange.Finish({absl::CancelledError(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_THAT(log_.all(), ElementsAre("cancel", "not written", "done"));
}

TEST_F(NativeDoorTest, ACallHasALongestTime) {
  options_.limits.max_call = absl::Milliseconds(100);
  Serve();
  RawClient client(port());
  client.Send(FrameOf(NGHTTP2_SETTINGS, 0, 0, Number(4, 2) + Number(0, 4)));  // no window
  client.SendHead(1, "/t.T/Puppets", {{"grpc-timeout", "60S"}});
  calls::Exchange& silent = Take();
  silent.Read();
  EXPECT_EQ(client.StatusOf(1), "4");
  EXPECT_THAT(client.Value(1, "grpc-message"), HasSubstr("--max_call_s"));
  EXPECT_TRUE(Happens("no message"));
  silent.Finish({absl::CancelledError(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_THAT(log_.all(), ElementsAre("cancel", "no message", "done"));
  // An answer that is complete in time and not taken.
  uint32_t id = 1;
  EXPECT_TRUE(PollUntil([&] {
    client.SendHead(id += 2, "/t.T/Puppets");
    Take().WriteAndFinish(absl::Cord("m"), {absl::OkStatus(), {}, {}});
    return client.ReadEnd(id) && client.stream(id).reset == NGHTTP2_CANCEL;
  }));
}

TEST_F(NativeDoorTest, AStreamWhoseMessageDoesNotComeEnds) {
  options_.bytes_timeout = absl::Milliseconds(200);
  Serve();
  RawClient client(port());
  const auto ends = [&client](uint32_t id) {
    return client.ReadEnd(id) && client.Value(id, "grpc-status") == "4";
  };
  // A unary call waits for its message, one stream reads, one does not, and one has half a message.
  client.SendHead(1, "/t.T/Echo");
  client.SendHead(3, "/t.T/Echoes");
  client.SendHead(5, "/t.T/Puppets");
  client.SendHead(7, "/t.T/Echo");
  client.SendData(7, MessageOf("abc").substr(0, 6));
  EXPECT_TRUE(ends(1));
  EXPECT_TRUE(ends(3));
  EXPECT_TRUE(ends(5));
  EXPECT_TRUE(ends(7));
  Take().Finish({absl::CancelledError(), {}, {}});
  // Bytes that no call has asked for have come in time, and so have the first ones of a stream.
  client.SendHead(9, "/t.T/Puppets");
  client.SendData(9, MessageOf("m"));
  client.SendHead(11, "/t.T/Echoes");
  client.SendData(11, MessageOf("m"));
  const auto one_ended = [&client] { return client.stream(9).ended || client.stream(11).ended; };
  const absl::Time end = SteadyNow() + 2 * options_.bytes_timeout;
  client.ReadUntil([&] { return one_ended() || SteadyNow() > end; });
  EXPECT_FALSE(one_ended());
  log_.Await().Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(client.ReadEnd(9));
}

// Nothing else can be read until the block has ended, whether a stream waits for it or not.
TEST_F(NativeDoorTest, AHeaderBlockThatDoesNotEndEndsItsConnection) {
  options_.bytes_timeout = absl::Milliseconds(200);
  Serve();
  const std::string whole = RawClient::HeadOf(1, "/t.T/Echoes");
  const std::string head = FrameOf(NGHTTP2_HEADERS, 0, 1, whole.substr(9));
  const std::string field = "\x40\x01x\x7f\xbd\x1d" + std::string(3900, 'v');  // into the table
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"a whole frame", head},
      {"half a frame", whole.substr(0, 20)},
      {"a frame whose padding is to come",
       FrameOf(NGHTTP2_HEADERS, NGHTTP2_FLAG_PADDED, 1, whole).substr(0, 9)},
      {"trailers", whole + FrameOf(NGHTTP2_HEADERS, kEndStream, 1, "\x40\x01x\x01y")},
      {"more fields than are kept",
       FrameOf(NGHTTP2_HEADERS, 0, 1, whole.substr(9) + field + std::string(2000, '\xbe'))},
  };
  int closed = 0;
  const auto is_closed = [&](const std::string& bytes) {
    {
      RawClient client(port());
      client.Send(FrameOf(NGHTTP2_PING, 0, 0, "12345678"));
      EXPECT_TRUE(client.ReadUntil([&] { return client.pongs() == 1; }));  // after the SETTINGS
      client.Send(bytes);
      EXPECT_TRUE(client.ReadClose());
    }
    return PollUntil([&] { return NumClosed("too_slow") == closed + 1; });
  };
  for (const auto& [name, bytes] : cases) {
    EXPECT_TRUE(is_closed(bytes)) << name;
    ++closed;
  }
  const int64_t taken = memory_.limit() - memory_.used();
  ASSERT_TRUE(memory_.Take(taken));
  EXPECT_TRUE(is_closed(head)) << "no memory for a stream";
  memory_.Give(taken);
}

TEST_F(NativeDoorTest, AWriteThatNobodyTakesEndsTheConnection) {
  options_.send_timeout = absl::Milliseconds(100);
  Serve();
  RawClient client(port());
  calls::Exchange& exchange = StartUnread(&client);
  exchange.Write(absl::Cord("m"));
  EXPECT_TRUE(client.ReadClose());
  EXPECT_TRUE(Happens("not written"));
  exchange.Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_THAT(log_.all(), ElementsAre("cancel", "not written", "done"));
  EXPECT_EQ(door_->num_not_taken(), 1);
}

// Each message is taken within the time-out.
TEST_F(NativeDoorTest, AnAnswerThatIsTakenTooSlowlyEndsTheConnection) {
  options_.send_timeout = absl::Milliseconds(2500);
  Serve();
  RawClient client(port());
  calls::Exchange& exchange = StartUnread(&client);
  for (size_t i = 1; i <= 3 && !client.closed(); ++i) {
    log_.Clear();
    exchange.Write(absl::Cord("m"));
    const absl::Time take = SteadyNow() + absl::Seconds(2);
    client.ReadUntil([&] { return client.closed() || SteadyNow() > take; });
    client.Send(FrameOf(NGHTTP2_WINDOW_UPDATE, 0, 1, Number(6, 4)));
    client.ReadUntil([&] { return client.closed() || client.stream(1).data.size() == 6 * i; });
    EXPECT_TRUE(PollUntil([&] { return log_.Has("written") || log_.Has("not written"); }));
  }
  EXPECT_TRUE(client.ReadClose());
  exchange.Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(Happens("done"));
  EXPECT_EQ(door_->num_not_taken(), 1);
}

TEST_F(NativeDoorTest, AnswersThatNobodyTakesHaveABound) {
  Serve();
  RawClient client(port());
  client.Send(FrameOf(NGHTTP2_SETTINGS, 0, 0, Number(4, 2) + Number(0, 4)));  // no window
  const std::string answer(6 << 20, 'x');
  client.Call(1, "/t.T/Puppet", "m");
  Take().WriteAndFinish(absl::Cord(answer), {absl::OkStatus(), {}, {}});
  EXPECT_TRUE(PollUntil([&] { return memory_.used() > 6 << 20; }));
  client.Call(3, "/t.T/Puppet", "m");
  log_.Await().WriteAndFinish(absl::Cord(answer), {absl::OkStatus(), {}, {}});
  EXPECT_EQ(client.StatusOf(3), "8");
}

TEST_F(NativeDoorTest, AConnectionHasAPartOfTheMemoryForAnswers) {
  Serve();
  const auto answers = [&](RawClient* client, uint32_t stream, size_t bytes) {
    client->Call(stream, "/t.T/Puppet", "m");
    Take().WriteAndFinish(absl::Cord(std::string(bytes, 'x')), {absl::OkStatus(), {}, {}});
  };
  RawClient client(port());
  RawClient other(port());
  const std::string no_window = FrameOf(NGHTTP2_SETTINGS, 0, 0, Number(4, 2) + Number(0, 4));
  client.Send(no_window);
  other.Send(no_window);
  answers(&client, 1, 3 << 20);  // more than the part, but alone
  EXPECT_TRUE(PollUntil([&] { return memory_.used() > 3 << 20; }));
  answers(&client, 3, 1 << 20);
  EXPECT_EQ(client.StatusOf(3), "8");
  answers(&other, 1, 1 << 20);
  EXPECT_TRUE(PollUntil([&] { return memory_.used() > 4 << 20; }));
  client.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  EXPECT_TRUE(PollUntil([&] { return memory_.used() < 2 << 20; }));
  answers(&client, 5, 1 << 20);
  answers(&client, 7, 1 << 19);  // together within the part
  EXPECT_TRUE(PollUntil([&] { return memory_.used() > 5 << 19; }));
}

TEST_F(NativeDoorTest, AStreamThatSaysNothingMoreIsEnded) {
  options_.limits.max_stream_idle = absl::Milliseconds(300);
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Echoes");
  for (int i = 0; i < 3; ++i) {
    client.SendData(1, MessageOf("a"));
    ASSERT_TRUE(client.ReadUntil([&] { return client.stream(1).data.size() == 6U * (i + 1); }));
    usleep(150000);  // together more than its time
  }
  EXPECT_FALSE(client.stream(1).ended);
  EXPECT_EQ(client.StatusOf(1), "0");
}

TEST_F(NativeDoorTest, ACallHearsOnceThatNothingMoreComesAndKeepsItsDeadline) {
  options_.limits.max_stream_idle = absl::Milliseconds(200);
  Serve();
  RawClient client(port());
  const auto begin = [&](uint32_t id, const Fields& fields) {
    client.SendHead(id, "/t.T/Puppets", fields);
    calls::Exchange& exchange = Take();
    exchange.Read();
    client.SendData(id, MessageOf("m"));
    EXPECT_TRUE(Happens("message m"));
    exchange.Read();
    return &exchange;
  };
  calls::Exchange* const ended = begin(1, {});
  client.SendData(1, "", kEndStream);
  usleep(400000);  // longer than a stream may be idle
  EXPECT_THAT(log_.all(), ElementsAre("message m", "no message"));
  ended->Finish({absl::OkStatus(), {}, {}});
  ASSERT_TRUE(client.ReadEnd(1));
  ASSERT_TRUE(Happens("done"));
  log_.Clear();
  calls::Exchange* const idle = begin(3, {{"grpc-timeout", "500m"}});
  EXPECT_EQ(client.StatusOf(3), "4");
  EXPECT_THAT(log_.all(), ElementsAre("message m", "no message", "cancel"));
  idle->Finish({absl::CancelledError(), {}, {}});
}

TEST_F(NativeDoorTest, ALongMessageIsGivenToItsCallOnAnotherThread) {
  options_.max_message_bytes = 4 << 20;
  struct Flags {
    std::atomic<bool> may_go_on{false};
    std::atomic<bool> has_begun{false};
  };
  const auto flags = std::make_shared<Flags>();  // the call reads them after the test's body
  AddRow("Slow", calls::MethodKind::kUnary, [flags](calls::Exchange* exchange) {
    return new FunctionCall(exchange, [flags](auto& call, auto message) {
      call.WriteAndFinish(absl::Cord(absl::StrCat(message->size())), {});
      flags->has_begun = true;
      while (!flags->may_go_on) usleep(1000);
    });
  });
  Serve();
  const absl::Cleanup release = [&] { flags->may_go_on = true; };  // or the door waits for its call
  RawClient client(port());
  client.SendHead(1, "/t.T/Slow");
  const std::string bytes = MessageOf(std::string(200000, 'x'));
  client.SendPieces(1, bytes, kEndStream);
  ASSERT_TRUE(PollUntil([&] { return flags->has_begun.load(); }));
  // The same connection is served meanwhile, and the answer leaves.
  client.Call(3, "/t.T/Echo", "a");
  EXPECT_TRUE(client.ReadEnd(3));
  EXPECT_EQ(client.AnswerOf(1), MessageOf("200000"));
  EXPECT_GE(memory_.used(), 200000);
}

TEST_F(NativeDoorTest, AMessageIsNotReadOnWhenItsClientHasLeft) {
  options_.max_message_bytes = 4 << 20;
  const auto state = std::make_shared<std::atomic<int>>(0);
  AddRow("Reads", calls::MethodKind::kUnary, [state](calls::Exchange* exchange) {
    return new FunctionCall(exchange, [state](auto& call, auto) {
      *state = 1;
      if (PollUntil([] { return Interruption::Asked(); })) *state = 2;
      call.Finish({absl::CancelledError(), {}, {}});
    });
  });
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Reads");
  const std::string bytes = MessageOf(std::string(100000, 'x'));
  client.SendPieces(1, bytes);
  ASSERT_TRUE(PollUntil([&] { return *state == 1; }));
  client.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  EXPECT_TRUE(PollUntil([&] { return *state == 2; }));
}

TEST_F(NativeDoorTest, ACallGetsOneLongMessageAtATime) {
  options_.max_message_bytes = 4 << 20;
  struct State {
    std::atomic<int> begun{0};
    std::atomic<bool> may_go_on{false};
  };
  const auto state = std::make_shared<State>();
  AddRow("ReadsOn", calls::MethodKind::kBidirectional, [state](calls::Exchange* exchange) {
    auto* const handler = new FunctionCall(exchange, [state](auto& call, auto message) {
      if (!message.has_value()) return call.Finish({absl::OkStatus(), {}, {}});
      call.Read();
      ++state->begun;
      while (!state->may_go_on) usleep(1000);
    });
    exchange->Read();
    return handler;
  });
  Serve();
  const absl::Cleanup release = [&] { state->may_go_on = true; };
  RawClient client(port());
  client.SendHead(1, "/t.T/ReadsOn");
  const std::string bytes =
      MessageOf(std::string(200000, 'x')) + MessageOf(std::string(99999, 'y'));
  client.SendPieces(1, bytes);
  client.SendData(1, "", kEndStream);
  EXPECT_TRUE(PollUntil([&] { return memory_.used() >= 299999; }));
  usleep(50000);
  EXPECT_EQ(state->begun, 1);
  state->may_go_on = true;
  EXPECT_EQ(client.StatusOf(1), "0");
  EXPECT_EQ(state->begun, 2);
}

TEST_F(NativeDoorTest, CallsTakeTurnsInSendingTheirAnswers) {
  Serve();
  RawClient client(port());
  client.OpenWindows();
  std::vector<calls::Exchange*> exchanges;
  for (const uint32_t id : {1U, 3U}) {
    client.Call(id, "/t.T/Puppet", "m");
    exchanges.push_back(&Take());
  }
  {
    const LoopsWait wait(loops_);
    exchanges[0]->WriteAndFinish(absl::Cord(std::string(4 << 20, 'x')), {});
    exchanges[1]->WriteAndFinish(absl::Cord("short"), {});
  }
  EXPECT_TRUE(client.ReadEnd(3));
  EXPECT_LT(client.stream(1).data.size(), 1U << 20);
  EXPECT_TRUE(client.ReadEnd(1));
  EXPECT_EQ(client.stream(1).data.size(), (4U << 20) + 5);
}

TEST_F(NativeDoorTest, AnswersAreCompressedWithinTheMemory) {
  options_.allow_compression = true;
  Serve();
  RawClient client(port());
  client.OpenWindows();
  uint32_t id = 1;
  // One address has eight of the 10 MiB.
  for (const auto& [size, status, compressed] :
       {std::tuple{size_t{1000}, "0", false}, std::tuple{size_t{5} << 20, "0", true},
        std::tuple{size_t{9} << 20, "8", false}}) {
    client.Call(id, "/t.T/Puppet", "m", {{"grpc-accept-encoding", "gzip"}});
    calls::Exchange& exchange = Take();
    exchange.AddHeader(calls::kEncodingRequest, "gzip");
    exchange.AddHeader("x-more", "1");
    exchange.WriteAndFinish(absl::Cord(std::string(size, 'x')), {absl::OkStatus(), {}, {}});
    EXPECT_EQ(client.StatusOf(id), status) << size;
    if (client.stream(id).heads.size() == 2) {
      EXPECT_THAT(client.stream(id).heads[0], ::testing::Contains(std::pair("x-more", "1")));
      EXPECT_THAT(client.stream(id).heads[0],
                  ::testing::Contains(std::pair("grpc-encoding", "gzip")));
      EXPECT_EQ(client.stream(id).data[0], compressed ? 1 : 0) << size;
    }
    if (compressed) {
      EXPECT_LT(client.stream(id).data.size(), size / 100);
    }
    id += 2;
  }
}

TEST_F(NativeDoorTest, ADrainAnswersWhatHasComeAndGoesInTwoSteps) {
  Serve();
  RawClient client(port());
  client.set_answers_pings(false);
  client.Call(1, "/t.T/Puppet", "m");
  calls::Exchange& exchange = log_.Await();
  std::thread drain([this] { door_->BeginDrain(); });
  EXPECT_TRUE(client.ReadUntil([&] { return !client.goaways().empty(); }));
  EXPECT_THAT(client.goaways(), ElementsAre(0x7fffffffU));
  // A call that was on its way.
  client.Call(3, "/t.T/Echo", "n");
  EXPECT_EQ(client.StatusOf(3), "0");
  client.Send(FrameOf(NGHTTP2_PING, 1, 0, "goodbye."));
  EXPECT_TRUE(client.ReadUntil([&] { return client.goaways().size() == 2; }));
  EXPECT_EQ(client.goaways()[1], 3U);
  drain.join();
  exchange.WriteAndFinish(absl::Cord("answer"), {absl::OkStatus(), {}, {}});
  EXPECT_EQ(client.AnswerOf(1), MessageOf("answer"));
  EXPECT_TRUE(client.ReadClose());
}

TEST_F(NativeDoorTest, AConnectionThatGoesAwayIsClosedAtItsAge) {
  options_.limits.max_age = absl::Milliseconds(400);
  options_.limits.max_age_grace = absl::Milliseconds(100);
  Serve();
  RawClient client(port());
  client.Call(1, "/t.T/Puppet", "m");
  calls::Exchange& exchange = log_.Await();
  std::thread drain([this] { door_->BeginDrain(); });
  EXPECT_TRUE(client.ReadUntil([&] { return client.goaways().size() == 2; }));
  drain.join();
  EXPECT_TRUE(client.ReadClose());
  EXPECT_TRUE(Happens("cancel"));
  exchange.Finish({absl::CancelledError(), {}, {}});
}

TEST_F(NativeDoorTest, AMessageThatIsOnItsWayAtTheEndOfADrainIsAnswered) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Echo");
  client.SendData(1, MessageOf("half of it").substr(0, 9));
  client.SendHead(3, "/t.T/Echoes");
  client.Call(5, "/t.T/Puppet", "m");
  calls::Exchange& exchange = log_.Await();
  std::thread drain([this] {
    door_->BeginDrain();
    door_->RefuseRest();
  });
  for (const uint32_t id : {1U, 3U}) {
    EXPECT_EQ(client.StatusOf(id), "14");
    EXPECT_EQ(client.Value(id, "grpc-message"), "the server is shutting down");
  }
  drain.join();
  exchange.WriteAndFinish(absl::Cord("answer"), {absl::OkStatus(), {}, {}});
  EXPECT_EQ(client.StatusOf(5), "0");
  EXPECT_TRUE(client.ReadClose());
}

TEST_F(NativeDoorTest, FloodsEndTheirConnectionAndNoOther) {
  Serve();
  RawClient honest(port());
  const std::map<std::string, std::string> floods = {
      {"pings", FrameOf(NGHTTP2_PING, 1, 0, "12345678")},
      {"settings", FrameOf(NGHTTP2_SETTINGS, 0, 0)},
      {"window updates", FrameOf(NGHTTP2_WINDOW_UPDATE, 0, 0, Number(1, 4))},
      {"priorities", FrameOf(NGHTTP2_PRIORITY, 0, 1, Number(0, 4) + "\1")},
      {"empty data", FrameOf(NGHTTP2_DATA, 0, 1)},
      {"unknown frames", FrameOf(200, 0, 0)},
      {"goodbyes", FrameOf(NGHTTP2_GOAWAY, 0, 0, Number(0, 8))},
  };
  uint32_t id = 1;
  for (const auto& [name, frame] : floods) {
    RawClient client(port());
    client.SendHead(1, "/t.T/Echo");
    for (int i = 0; i < 60000 && !client.closed(); i += 100) {
      std::string many;
      for (int j = 0; j < 100; ++j) many += frame;
      client.Send(many);
    }
    EXPECT_TRUE(client.ReadClose()) << name;
    honest.Call(id, "/t.T/Echo", "m");
    EXPECT_TRUE(honest.ReadEnd(id)) << name;
    id += 2;
  }
}

TEST_F(NativeDoorTest, HeadersInCrumbsEndTheirConnection) {
  Serve();
  RawClient client(port());
  // nghttp2 allows eight a list.
  for (uint32_t id = 1; id < 1000; id += 2) {
    std::string list =
        FrameOf(NGHTTP2_HEADERS, kEndStream, id, "\x83\x86\x04\x09/t.T/Echo\x01\x01z");
    for (int i = 0; i < 7; ++i) list += FrameOf(NGHTTP2_CONTINUATION, 0, id);
    client.Send(list + FrameOf(NGHTTP2_CONTINUATION, kEndHeaders, id));
  }
  EXPECT_TRUE(client.ReadClose());
  EXPECT_EQ(client.goaway_error(), NGHTTP2_ENHANCE_YOUR_CALM);
}

TEST_F(NativeDoorTest, AConnectionMayHaveThousandsOfStreams) {
  constexpr uint32_t kStreams = 2000;
  options_.limits.max_concurrent_streams = kStreams;
  Serve();
  RawClient client(port());
  for (uint32_t i = 0; i < kStreams; ++i) client.SendHead(1 + 2 * i, "/t.T/Echo");
  EXPECT_TRUE(PollUntil([&] { return memory_.used() == kStreams * Stream::kStreamBytes; }));
  for (uint32_t i = 0; i < kStreams; ++i) {
    client.SendData(1 + 2 * i, MessageOf(absl::StrCat(i)), kEndStream);
  }
  for (uint32_t i = 0; i < kStreams; ++i) {
    ASSERT_TRUE(client.ReadEnd(1 + 2 * i)) << i;
    EXPECT_EQ(client.stream(1 + 2 * i).data, MessageOf(absl::StrCat(i)));
    EXPECT_EQ(client.Value(1 + 2 * i, "grpc-status"), "0");
  }
  EXPECT_TRUE(PollUntil([&] { return memory_.used() == 0; }));
}

TEST_F(NativeDoorTest, AResetOfAStreamThatNeverCameIsLeftOut) {
  Serve();
  RawClient client(port());
  client.Call(1, "/t.T/Echo", "a");
  ASSERT_TRUE(client.ReadEnd(1));
  // gRPC's clients do this with a call that they give up before it has left.
  const std::string reset = FrameOf(NGHTTP2_RST_STREAM, 0, 3, Number(NGHTTP2_CANCEL, 4));
  for (const char byte : reset) client.Send(std::string(1, byte));
  client.Call(5, "/t.T/Echo", "b");
  EXPECT_EQ(client.AnswerOf(5), MessageOf("b"));

  // Also of its first.
  RawClient fresh(port());
  fresh.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  fresh.Call(3, "/t.T/Echo", "c");
  EXPECT_EQ(fresh.AnswerOf(3), MessageOf("c"));

  RawClient stranger(port());
  stranger.Send(reset);
  EXPECT_TRUE(stranger.ReadClose());
  EXPECT_EQ(stranger.goaway_error(), NGHTTP2_PROTOCOL_ERROR);
}

TEST_F(NativeDoorTest, WhatIsNotHttp2IsClosed) {
  Serve();
  RawClient client(port(), /*begins=*/false);
  client.Send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(client.ReadClose());
}

// Notes what it is given, and answers when told to.
class PuppetHttp final : public calls::HttpHandler {
 public:
  PuppetHttp(PuppetCall::Log* log, calls::HttpExchange* exchange) : log_(*log) {
    std::string fields;
    exchange->VisitHeaders([&fields](absl::string_view name, absl::string_view value) {
      absl::StrAppend(&fields, " ", name, "=", value);
    });
    log_.Add(absl::StrCat(exchange->verb(), " ", exchange->method(), fields));
    MutexLock lock(&log_.mutex);
    log_.exchange = exchange;
  }
  void OnBody(absl::StatusOr<absl::Cord> body) override {
    log_.Add(body.ok() ? absl::StrCat("body ", std::string(*body)) : body.status().ToString());
  }
  void OnWritten(bool ok) override { log_.Add(ok ? "written" : "not written"); }
  void OnCancel() override { log_.Add("cancel"); }
  void OnDone() override {
    log_.Add("done");
    delete this;
  }

 private:
  PuppetCall::Log& log_;
};

// A session of HTTP/1.1 that logs what it reads, and how it ends.
class PuppetHttp1 final : public Session {
 public:
  // Answers what it reads first, and ends; or reads on.
  PuppetHttp1(PuppetCall::Log* log, SessionHost* host, bool answers)
      : log_(*log), host_(*host), answers_(answers) {}
  void Start() override { host_.Read(this); }
  void OnRead(bool ok, absl::string_view data) override {
    if (!ok) return host_.End(CloseCause::kPeer, /*reset=*/false);
    log_.Add(absl::StrCat("http1 ", data));
    if (!answers_) return host_.Read(this);
    host_.Write("HTTP/1.1 200 OK\r\n", "");
    host_.End(CloseCause::kAnswered, /*reset=*/false);
  }
  void OnWritten(bool /*ok*/) override {}
  void Recheck(bool /*trusted*/) override {}
  void BeginStop() override {}
  void OnClosed() override { log_.Add("http1 ended"); }

 private:
  PuppetCall::Log& log_;
  SessionHost& host_;
  const bool answers_;
};

class NativeDoorHttpTest : public NativeDoorTest {
 protected:
  NativeDoorHttpTest() {
    options_.start_http = [this](calls::HttpExchange* exchange) -> calls::HttpHandler* {
      exchange->OnChecked(accepts_ ? this : nullptr, max_body_);
      return new PuppetHttp(&log_, exchange);
    };
    options_.start_http1 = [this](SessionHost* host, const PeerInfo& /*peer*/) {
      return std::make_shared<PuppetHttp1>(&log_, host, http1_answers_);
    };
  }
  calls::HttpExchange& Exchange() { return static_cast<calls::HttpExchange&>(log_.Await()); }
  static Fields Request(const std::string& method) {
    return {{":method", method}, {"content-type", "text/plain"}, {"grpc-timeout", "1S"}};
  }
  static bool IsReset(RawClient* client, uint32_t id, int code = NGHTTP2_NO_ERROR) {
    return client->ReadUntil([&] { return client->stream(id).reset == code; });
  }
  // Refuses the request that began last.
  void Refuse(RawClient* client, uint32_t id) {
    auto& exchange = static_cast<calls::HttpExchange&>(Take());
    exchange.SetHead(404, {});
    exchange.Finish({});
    EXPECT_TRUE(client->ReadEnd(id));
  }
  std::atomic<bool> accepts_{true};
  std::atomic<size_t> max_body_{1000000};
  bool http1_answers_ = true;
};

TEST_F(NativeDoorHttpTest, ARequestIsAnsweredHoweverItsBodyIsCut) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a?b=c", {}, 0, Request("POST"));
  ASSERT_TRUE(Happens("POST /a?b=c host=a content-type=text/plain grpc-timeout=1S"));
  for (const char* const piece : {"ab", "", "c"}) client.SendData(1, piece);
  client.SendData(1, "d", kEndStream);
  ASSERT_TRUE(Happens("body abcd"));
  Exchange().SetHead(201, {{"content-type", "text/html"}});
  Exchange().WriteAndFinish(absl::Cord("answer"), {});
  ASSERT_TRUE(client.ReadEnd(1));
  EXPECT_EQ(client.stream(1).heads.size(), 1U) << "no trailers";
  EXPECT_EQ(client.Value(1, ":status") + client.Value(1, "content-type"), "201text/html");
  EXPECT_EQ(client.stream(1).data, "answer");
  EXPECT_TRUE(Happens("done"));
}

TEST_F(NativeDoorHttpTest, AnAnswerMayComeInPartsOrHaveNoBody) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, kEndStream, Request("GET"));
  ASSERT_TRUE(Happens("body "));
  Exchange().SetHead(200, {});
  Exchange().Write(absl::Cord("one "));
  ASSERT_TRUE(Happens("written"));
  ASSERT_TRUE(client.ReadUntil([&] { return client.stream(1).data == "one "; }));
  Exchange().Write(absl::Cord("two"));
  ASSERT_TRUE(client.ReadUntil([&] { return client.stream(1).data == "one two"; }));
  EXPECT_FALSE(client.stream(1).ended);
  Exchange().Finish({});
  EXPECT_EQ(client.AnswerOf(1), "one two");

  client.SendHead(3, "/a", {}, kEndStream, Request("GET"));
  ASSERT_TRUE(PollUntil([this] { return log_.all().back() == "body "; }));
  Exchange().SetHead(204, {});
  Exchange().Finish({});
  ASSERT_TRUE(client.ReadEnd(3));
  EXPECT_EQ(client.Value(3, ":status"), "204");
}

TEST_F(NativeDoorHttpTest, ABodyHasABoundAndItsMemory) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, 0, Request("POST"));
  client.SendData(1, std::string(1000, 'x'));
  EXPECT_TRUE(PollUntil([this] { return memory_.used() >= 1000; }));
  client.SendData(1, "y");
  ASSERT_TRUE(Happens(
      "RESOURCE_EXHAUSTED: the body has more than 1000 bytes, which is the most that the server "
      "takes"));
  EXPECT_TRUE(PollUntil([this] { return memory_.used() < 1000 + Stream::kStreamBytes; }));
  Exchange().SetHead(413, {});
  Exchange().Finish({});
  ASSERT_TRUE(client.ReadEnd(1));
  EXPECT_EQ(client.Value(1, ":status"), "413");
}

TEST_F(NativeDoorHttpTest, HeadersHaveABound) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {{"x", std::string(9000, 'x')}}, kEndStream, Request("GET"));
  ASSERT_TRUE(client.ReadEnd(1));
  EXPECT_EQ(client.Value(1, ":status"), "431");
  client.SendHead(3, "/t.T/Echo", {{"x", std::string(9000, 'x')}}, kEndStream);
  EXPECT_EQ(client.StatusOf(3), "8");
  EXPECT_TRUE(log_.all().empty());
}

TEST_F(NativeDoorHttpTest, ARequestHasALongestTime) {
  options_.limits.max_call = absl::Milliseconds(100);
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, kEndStream, Request("GET"));
  EXPECT_THAT(client.AnswerOf(1), HasSubstr("--max_call_s"));
  EXPECT_EQ(client.Value(1, ":status"), "504");
  EXPECT_TRUE(Happens("cancel"));
  auto& late = static_cast<calls::HttpExchange&>(Take());
  late.SetHead(200, {});
  late.WriteAndFinish(absl::Cord("late"), {});
  EXPECT_TRUE(Happens("done"));
  uint32_t id = 1;
  EXPECT_TRUE(PollUntil([&] {  // an answer that has begun in time
    client.SendHead(id += 2, "/a", {}, kEndStream, Request("GET"));
    auto& half = static_cast<calls::HttpExchange&>(Take());
    half.SetHead(200, {});
    half.Write(absl::Cord("one"));
    const bool ended = client.ReadEnd(id);
    half.Finish({});
    return ended && client.stream(id).reset == NGHTTP2_CANCEL;
  }));
}

TEST_F(NativeDoorHttpTest, AResetCancelsARequest) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, 0, Request("POST"));
  calls::HttpExchange& exchange = Exchange();
  client.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  ASSERT_TRUE(Happens("cancel"));
  exchange.SetHead(200, {});
  exchange.WriteAndFinish(absl::Cord("late"), {});
  EXPECT_TRUE(Happens("done"));
}

TEST_F(NativeDoorHttpTest, ARequestThatIsResetBeforeItsBodyHasComeCanEnd) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, 0, Request("POST"));
  client.SendData(1, "half");
  client.Send(FrameOf(NGHTTP2_RST_STREAM, 0, 1, Number(NGHTTP2_CANCEL, 4)));
  ASSERT_TRUE(Happens("CANCELLED: the client is gone"));
  Exchange().SetHead(503, {});
  Exchange().Finish({});
  EXPECT_TRUE(Happens("done"));
}

TEST_F(NativeDoorHttpTest, TheRestOfARequestThatIsAnsweredEarlyIsTakenIfItIsShort) {
  options_.bytes_timeout = absl::Minutes(1);
  Serve();
  RawClient client(port());
  for (const uint32_t id : {1U, 3U, 5U}) {
    client.SendHead(id, "/a", {}, 0, Request("POST"));
    Refuse(&client, id);
  }
  client.SendData(1, "short", kEndStream);
  client.SendData(3, std::string(10000, 'x'));
  client.SendData(3, std::string(10000, 'x'));
  EXPECT_TRUE(IsReset(&client, 3));
  EXPECT_TRUE(IsReset(&client, 5)) << "nothing comes";
  EXPECT_EQ(client.stream(1).reset, -1);
}

// A client that is reset at once may not show the answer. The rest has a second, whoever sends it.
TEST_F(NativeDoorHttpTest, TheRestOfARefusedRequestHasASecond) {
  Serve();
  RawClient client(port());
  for (const bool accepts : {false, true}) {
    const int id = accepts ? 3 : 1;
    accepts_ = accepts;
    client.SendHead(id, "/a", {}, 0, Request("POST"));
    Refuse(&client, id);
    EXPECT_EQ(client.stream(id).reset, -1);
    EXPECT_TRUE(IsReset(&client, id));
  }
}

// Waits for its body, and ends when its client has left.
class WaitingHttp final : public calls::HttpHandler {
 public:
  WaitingHttp(PuppetCall::Log* log, calls::HttpExchange* exchange)
      : log_(*log), exchange_(*exchange) {}
  void OnBody(absl::StatusOr<absl::Cord> body) override {
    log_.Add(body.ok() ? absl::StrCat("body ", std::string(*body)) : body.status().ToString());
  }
  void OnCancel() override { exchange_.Finish({}); }
  void OnDone() override { delete this; }

 private:
  PuppetCall::Log& log_;
  calls::HttpExchange& exchange_;
};

// What is not known to be a caller's has an eighth of the memory, and of one address a quarter of
// that.
TEST_F(NativeDoorHttpTest, StrangersHaveTheirPartOfTheMemory) {
  options_.asks_for_tokens = true;
  options_.check_call = [this](const transport::CallToCheck& /*call*/) {
    return transport::CallVerdict{accepts_ ? nullptr : "no", nullptr};
  };
  options_.start_http = [this](calls::HttpExchange* exchange) -> calls::HttpHandler* {
    exchange->OnChecked(accepts_ ? this : nullptr, max_body_);
    return new WaitingHttp(&log_, exchange);
  };
  Serve();
  const auto most = static_cast<uint32_t>(memory_.limit() / 8 / 4 / Stream::kStreamBytes);
  RawClient client(port());
  accepts_ = false;
  const auto num_reset = [&client] {
    uint32_t count = 0;
    for (uint32_t id = 1; id < 400; id += 2) {
      count += client.stream(id).reset == NGHTTP2_REFUSED_STREAM ? 1 : 0;
    }
    return count;
  };
  uint32_t id = 1;
  for (uint32_t i = 0; i < most + 20; ++i, id += 2) {
    client.SendHead(id, "/a", {}, 0, Request("POST"));
  }
  EXPECT_TRUE(client.ReadUntil([&] { return num_reset() == 20; }));
  EXPECT_TRUE(PollUntil([&] { return memory_.used() == most * Stream::kStreamBytes; }));
  // Neither has a call without a token a place, whose answer may not be taken.
  client.SendHead(id, "/t.T/Echo", {}, kEndStream);
  EXPECT_TRUE(IsReset(&client, id, NGHTTP2_REFUSED_STREAM));
  // Callers are not touched, whatever the headers of others claim.
  accepts_ = true;
  for (int i = 0; i < 2; ++i) {
    client.SendHead(id += 2, i == 0 ? "/t.T/Echo" : "/a", {}, 0,
                    i == 0 ? GrpcPost() : Request("POST"));
    client.SendData(id, i == 0 ? MessageOf("a") : std::string(900, 'x'), kEndStream);
    EXPECT_TRUE(i == 0 ? client.ReadEnd(id) : Happens("body " + std::string(900, 'x')));
  }
}

TEST_F(NativeDoorHttpTest, ABodyThatNobodyWantsIsNotRead) {
  Serve();
  RawClient client(port());
  max_body_ = 0;
  client.SendHead(1, "/a", {}, 0, Request("POST"));
  ASSERT_TRUE(Happens("body "));
  client.SendData(1, std::string(900, 'x'));
  Refuse(&client, 1);
  EXPECT_EQ(client.Value(1, ":status"), "404");
  max_body_ = 10;
  client.SendHead(3, "/a", {}, 0, Request("POST"));
  client.SendData(3, "12345678901");
  EXPECT_TRUE(
      Happens("RESOURCE_EXHAUSTED: the body has more than 10 bytes, which is the most that the "
              "server takes"));
  Refuse(&client, 3);
}

TEST_F(NativeDoorHttpTest, AnAnswerThatWasTakenIsNotWaitedForThoughItsRequestGoesOn) {
  options_.bytes_timeout = absl::Seconds(20);
  options_.send_timeout = absl::Milliseconds(200);
  Serve();
  RawClient client(port());
  client.SendHead(1, "/a", {}, 0, Request("POST"));
  Exchange().SetHead(404, {});
  Exchange().Finish({});
  ASSERT_TRUE(client.ReadEnd(1));
  EXPECT_TRUE(PollUntil([this] { return door_->num_unsent() == 0; }));
  usleep(400000);
  client.Call(3, "/t.T/Echo", "a");
  EXPECT_EQ(client.StatusOf(3), "0");
  EXPECT_EQ(door_->num_not_taken(), 0);
}

TEST_F(NativeDoorHttpTest, ADrainAnswersWhatHasComeBeforeTheDoorHasLooked) {
  Serve();
  RawClient silent(port(), /*begins=*/false);
  RawClient begun(port());
  begun.Call(1, "/t.T/Echo", "a");
  ASSERT_TRUE(begun.ReadEnd(1));
  std::unique_ptr<RawClient> client;
  std::thread drain;
  {
    const LoopsWait wait(loops_);
    client = std::make_unique<RawClient>(port());
    client->Call(1, "/t.T/Echo", "a");
    drain = std::thread([this] { door_->BeginDrain(); });
    usleep(50000);  // it waits for the loops
  }
  EXPECT_EQ(client->StatusOf(1), "0");
  EXPECT_TRUE(silent.ReadClose());
  EXPECT_TRUE(begun.ReadClose());
  EXPECT_TRUE(client->ReadClose());
  drain.join();
}

// Each goes to the loop that has fewest.
TEST_F(NativeDoorHttpTest, ConnectionsOfHttp1Count) {
  std::atomic<int> on_first{0};
  std::atomic<int> all{0};
  options_.start_http1 = [&](SessionHost* host, const PeerInfo& /*peer*/) {
    if (loops_.loops()[0]->IsThisThread()) ++on_first;
    ++all;
    return std::make_shared<PuppetHttp1>(&log_, host, /*answers=*/false);
  };
  Serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 1; i <= 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(port(), /*begins=*/false));
    clients.back()->Send("GET / HTTP/1.1\r\n");
    ASSERT_TRUE(PollUntil([&] { return all == i; }));
  }
  EXPECT_EQ(on_first, 4);
  EXPECT_EQ(door_->num_connections(), 0) << "those of HTTP/1.1 are counted apart";
}

TEST_F(NativeDoorHttpTest, TheFirstBytesTellWhoSpeaksHttp1) {
  Serve();
  for (const std::string request : {"GET / HTTP/1.1\r\n", "P", "PR", "PRI"}) {
    RawClient client(port(), /*begins=*/false);
    client.Send(request);
    if (request.size() < 4) client.Send("X /\r\n");  // together or apart
    EXPECT_TRUE(PollUntil([&] {
      const std::vector<std::string> events = log_.all();
      return events.size() > 1 && absl::StartsWith(events[events.size() - 2], "http1 " + request);
    })) << request;
    EXPECT_TRUE(client.ReadClose());
  }
  RawClient client(port(), false);
  for (const absl::string_view piece : {"P", "RI", " * HTTP/2.0\r\n\r\nSM\r\n\r\n"}) {
    client.Send(piece);
    usleep(1000);
  }
  client.Send(FrameOf(4, 0, 0));
  client.Call(1, "/t.T/Echo", "a");
  EXPECT_EQ(client.StatusOf(1), "0");
}

TEST_F(NativeDoorTest, SilentConnectionsMakeWayForOthers) {
  options_.limits.max_connections = 3;
  std::atomic<int> refused{0};
  options_.on_refused = [&refused](absl::string_view reason, const std::string& peer) {
    EXPECT_EQ(reason, transport::kTooManyOpen);
    EXPECT_THAT(peer, HasSubstr("ipv4:127.0.0.1:"));
    ++refused;
  };
  Serve();
  RawClient busy(port());
  busy.Call(1, "/t.T/Puppet", "m");
  calls::Exchange& exchange = log_.Await();
  std::vector<std::unique_ptr<RawClient>> silent;
  for (int i = 0; i < 5; ++i)
    silent.push_back(std::make_unique<RawClient>(port(), /*begins=*/false));
  EXPECT_TRUE(silent[0]->ReadClose());
  EXPECT_TRUE(PollUntil([&] { return refused > 0; }));  // counted by another loop
  RawClient client(port());
  client.Call(1, "/t.T/Echo", "a");
  EXPECT_TRUE(client.ReadEnd(1));
  exchange.WriteAndFinish(absl::Cord("answer"), {absl::OkStatus(), {}, {}});
  EXPECT_TRUE(busy.ReadEnd(1));
}

TEST_F(NativeDoorTest, CallersTakeTurnsInWhatIsRead) {
  const RealClock clock;
  const auto caller = [&clock](const char* name) {
    return std::make_shared<callers::Caller>(name, name, /*proven=*/true, callers::CallerLimits(),
                                             std::make_shared<callers::CallerCounts>(), &clock);
  };
  const std::map<std::string, callers::CallerPtr> known = {{"many", caller("many")},
                                                           {"few", caller("few")}};
  Mutex mutex;
  std::map<std::thread::id, std::vector<std::string>> begun;  // whose calls each loop has begun
  options_.check_call = [&](const transport::CallToCheck& call) {
    const std::string name(call.headers.authorization);
    MutexLock lock(&mutex);
    begun[std::this_thread::get_id()].push_back(name);
    return transport::CallVerdict{nullptr, known.at(name)};
  };
  Serve();
  const auto send = [](RawClient* client, uint32_t id, const char* name) {
    client->Call(id, "/t.T/Echo", std::string(900, 'x'), {{"authorization", name}});
  };
  std::vector<std::unique_ptr<RawClient>> clients;
  for (const char* name : {"many", "many", "many", "many", "few", "few"}) {
    clients.push_back(std::make_unique<RawClient>(port()));
    send(clients.back().get(), 1, name);
    ASSERT_TRUE(clients.back()->ReadEnd(1));
  }
  // While the loops can read nothing, more comes than they read at a time.
  std::promise<void> all_sent;
  const std::shared_future<void> sent = all_sent.get_future().share();
  std::atomic<size_t> held{0};
  for (const auto& loop : loops_.loops()) {
    loop->Post([&held, sent] {
      ++held;
      sent.wait();
    });
  }
  ASSERT_TRUE(PollUntil([&] { return held == loops_.loops().size(); }));
  {
    MutexLock lock(&mutex);
    begun.clear();
  }
  constexpr uint32_t kCalls = 60;
  for (size_t i = 0; i < clients.size(); ++i) {
    const bool many = i < 4;
    for (uint32_t call = 1; call <= (many ? kCalls : 1); ++call) {
      send(clients[i].get(), 1 + 2 * call, many ? "many" : "few");
    }
  }
  all_sent.set_value();
  for (size_t i = 0; i < clients.size(); ++i) {
    ASSERT_TRUE(clients[i]->ReadEnd(i < 4 ? 1 + 2 * kCalls : 3));
  }
  MutexLock lock(&mutex);
  ASSERT_EQ(begun.size(), 2U);
  for (const auto& [loop, names] : begun) {
    const auto first = std::find(names.begin(), names.end(), "few") - names.begin();
    EXPECT_EQ(names.size(), 2 * kCalls + 1);
    EXPECT_LE(first, 2 * 18);  // two portions of 16 KiB
  }
}

TEST_F(NativeDoorTest, ManyLargeMessagesGoBothWays) {
  options_.max_message_bytes = 4 << 20;
  Serve();
  RawClient client(port());
  client.OpenWindows();
  const std::string bytes = MessageOf(std::string(60000, 'y'));
  for (uint32_t id = 1; id < 40; id += 2) {
    client.SendHead(id, "/t.T/Echo");
    client.SendPieces(id, bytes, kEndStream);
  }
  for (uint32_t id = 1; id < 40; id += 2) {
    EXPECT_EQ(client.AnswerOf(id), bytes);
  }
}

// A client that stays ahead of its call never lets what is held become empty.
TEST_F(NativeDoorTest, WhatACallHasReadTakesNoMemory) {
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Puppets");
  calls::Exchange& exchange = log_.Await();
  const std::string message = MessageOf(std::string(900, 'x'));
  std::string all;
  for (int i = 0; i < 30; ++i) all += message;
  client.SendData(1, absl::string_view(all).substr(0, 16000));
  client.SendData(1, absl::string_view(all).substr(16000));
  const auto held = static_cast<int64_t>(all.size());
  ASSERT_TRUE(PollUntil([&] { return memory_.used() == Stream::kStreamBytes + held; }));
  for (size_t i = 1; i <= 29; ++i) {
    exchange.Read();
    ASSERT_TRUE(PollUntil([&] { return log_.all().size() == i; }));
    const auto left = static_cast<int64_t>((30 - i) * message.size());
    EXPECT_TRUE(PollUntil([&] { return memory_.used() <= Stream::kStreamBytes + 2 * left; })) << i;
  }
  exchange.Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(client.ReadEnd(1));
}

TEST_F(NativeDoorTest, ACallHearsThatItsMessageIsWrittenThoughOthersHaveMoreToWrite) {
  Serve();
  RawClient client(port());
  client.OpenWindows();
  client.SendHead(1, "/t.T/Puppets");
  calls::Exchange& small = Take();
  client.Call(3, "/t.T/Puppet", "m");
  calls::Exchange& large = Take();
  {
    const LoopsWait wait(loops_);  // both are framed in one turn
    small.Write(absl::Cord("m"));
    large.WriteAndFinish(absl::Cord(std::string(7 << 20, 'x')), {absl::OkStatus(), {}, {}});
  }
  // The client reads nothing, and the kernel does not take all of it.
  EXPECT_TRUE(Happens("written"));
  EXPECT_FALSE(log_.Has("done"));
  small.Finish({absl::OkStatus(), {}, {}});
  EXPECT_TRUE(client.ReadEnd(3));
  EXPECT_EQ(client.stream(3).data.size(), (7U << 20) + 5);
}

TEST_F(NativeDoorTest, ALongMessageIsNotLostToWhoTakesTheMemoryMeanwhile) {
  options_.max_message_bytes = 4 << 20;
  int64_t taken = 0;
  AddRow("Greedy", calls::MethodKind::kUnary,
         [&](calls::Exchange* exchange) {  // when the reader no longer holds the message
           taken = memory_.limit() - memory_.used();
           EXPECT_TRUE(memory_.Take(taken));
           return new PuppetCall(&log_, exchange);
         });
  Serve();
  RawClient client(port());
  client.SendHead(1, "/t.T/Greedy");
  const std::string bytes = MessageOf(std::string(100000, 'x'));
  client.SendPieces(1, bytes, kEndStream);
  calls::Exchange& exchange = log_.Await();
  EXPECT_TRUE(PollUntil([&] { return !log_.all().empty(); }));
  EXPECT_EQ(log_.all()[0].size(), strlen("message ") + 100000);
  exchange.Finish({absl::OkStatus(), {}, {}});
  EXPECT_EQ(client.StatusOf(1), "0");
  memory_.Give(taken);
}

TEST_F(NativeDoorTest, AClientThatSaysGoodbyeIsNoFault) {
  Serve();
  RawClient client(port());
  client.Call(1, "/t.T/Echo", "a");
  ASSERT_TRUE(client.ReadEnd(1));
  client.Send(FrameOf(NGHTTP2_GOAWAY, 0, 0, Number(0, 4) + Number(NGHTTP2_NO_ERROR, 4)));
  EXPECT_TRUE(client.ReadClose());
  EXPECT_TRUE(PollUntil([this] { return NumClosed("peer") == 1; }));
  EXPECT_EQ(NumClosed("protocol"), 0);
  RawClient other(port());
  other.Send(FrameOf(NGHTTP2_GOAWAY, 0, 0, Number(0, 4) + Number(NGHTTP2_INTERNAL_ERROR, 4)));
  EXPECT_TRUE(other.ReadClose());
  EXPECT_TRUE(PollUntil([this] { return NumClosed("protocol") == 1; }));
}

TEST_F(NativeDoorTest, ALoopDoesOtherThingsBetweenConnectionsThatAreCheckedAgain) {
  Mutex mutex;
  std::map<std::thread::id, int> checks;
  options_.check_call = [&](const transport::CallToCheck& /*call*/) {
    usleep(1000);
    MutexLock lock(&mutex);
    ++checks[std::this_thread::get_id()];
    return transport::CallVerdict();
  };
  Serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<calls::Exchange*> exchanges;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->SendHead(1, "/t.T/Puppets");
    exchanges.push_back(&Take());
  }
  std::vector<int> before;  // the checks until a loop does something else
  {
    MutexLock lock(&mutex);
    checks.clear();
    const LoopsWait wait(loops_);
    door_->Recheck();
    for (const auto& loop : loops_.loops()) {
      loop->Post([&] {
        MutexLock noted(&mutex);
        before.push_back(checks[std::this_thread::get_id()]);
      });
    }
  }
  EXPECT_TRUE(PollUntil([&] {
    MutexLock lock(&mutex);
    return checks.size() == 2 && checks.begin()->second + checks.rbegin()->second == 8 &&
           before.size() == 2;
  }));
  for (calls::Exchange* const exchange : exchanges) exchange->Finish({absl::OkStatus(), {}, {}});
  MutexLock lock(&mutex);
  EXPECT_THAT(before, ElementsAre(Le(1), Le(1)));
}

TEST_F(NativeDoorHttpTest, AStreamOfEventsDoesNotBeginForACallerThatIsNoLongerAccepted) {
  std::atomic<bool> accepts{true};
  options_.check_call = [&accepts](const transport::CallToCheck& /*call*/) {
    return transport::CallVerdict{accepts ? nullptr : "no", nullptr};
  };
  Serve();
  RawClient client(port());
  const auto recheck = [&](bool accepted) {
    accepts = accepted;
    door_->Recheck();
    AwaitTurns();
  };
  for (const uint32_t id : {1U, 3U, 5U}) {
    client.SendHead(id, "/a", {}, kEndStream, Request("GET"));
    auto& exchange = static_cast<calls::HttpExchange&>(Take());
    recheck(false);
    if (id == 5) recheck(true);
    exchange.SetHead(200, {});
    if (id == 3) {  // one answer is that of a request that was accepted
      exchange.WriteAndFinish(absl::Cord("answer"), {});
    } else {
      exchange.Write(absl::Cord("part"));
      ASSERT_TRUE(PollUntil([&] { return log_.all().back() != "body "; }));
      EXPECT_TRUE(log_.Has(id == 1 ? "not written" : "written"));
      exchange.Finish({});
    }
    ASSERT_TRUE(client.ReadEnd(id));
    EXPECT_EQ(client.Value(id, ":status"), id == 1 ? "401" : "200");
    recheck(true);
    log_.Clear();
  }
}

class NativeDoorTlsTest : public NativeDoorHttpTest {
 protected:
  NativeDoorTlsTest() {
    context_ = ContextFor(authority_);
    options_.tls_context = [this] {
      MutexLock lock(&mutex_);
      ++num_asked_;
      return context_;
    };
    options_.on_handshake_failure = [this](const std::string& detail, const std::string&) {
      log_.Add(absl::StrCat("failure: ", detail));
    };
    const auto load = [](const std::string& pem) {
      return std::unique_ptr<BIO, int (*)(BIO*)>(
          BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
    };
    const sru::testing::Certificate own({"client"}, &authority_);
    const std::unique_ptr<X509, void (*)(X509*)> certificate(
        PEM_read_bio_X509(load(own.pem()).get(), nullptr, nullptr, nullptr), X509_free);
    const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
        PEM_read_bio_PrivateKey(load(own.key_pem()).get(), nullptr, nullptr, nullptr),
        EVP_PKEY_free);
    SSL_CTX_use_certificate(client_.get(), certificate.get());
    SSL_CTX_use_PrivateKey(client_.get(), key.get());
    OfferHttp2(true);
  }
  void OfferHttp2(bool offers) {
    const unsigned char name[] = {2, 'h', '2'};
    SSL_CTX_set_alpn_protos(client_.get(), offers ? name : nullptr, offers ? sizeof(name) : 0);
  }
  std::shared_ptr<ssl_ctx_st> ContextFor(const sru::testing::Certificate& authority) {
    auto made =
        transport::CheckTlsCertificates({own_.pem(), own_.key_pem(), authority.pem()}, absl::Now())
            .value();
    return made.context;
  }
  // The client's authority is no longer one.
  void Revoke() {
    {
      MutexLock lock(&mutex_);
      context_ = ContextFor(other_);
    }
    door_->Recheck();
    AwaitTurns();
  }
  int num_asked() {
    MutexLock lock(&mutex_);
    return num_asked_;
  }

  const sru::testing::Certificate authority_{{"authority", 0, true}};
  const sru::testing::Certificate other_{{"other", 0, true}};
  const sru::testing::Certificate own_{{"localhost"}};
  Mutex mutex_;
  std::shared_ptr<ssl_ctx_st> context_ ABSL_GUARDED_BY(mutex_);
  int num_asked_ ABSL_GUARDED_BY(mutex_) = 0;
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> client_{SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free};
};

TEST_F(NativeDoorTlsTest, AHandshakeThatBeganUnderAnotherAuthorityFails) {
  Serve();
  RawClient client(port(), /*begins=*/false, client_.get());
  ASSERT_TRUE(PollUntil([this] { return num_asked() == 1; }));
  Revoke();
  client.Handshake();  // its own part
  EXPECT_TRUE(Happens("failure: the client's certificate is no longer accepted"));
  EXPECT_TRUE(client.ReadClose());
}

TEST_F(NativeDoorTlsTest, AConnectionThatHasSaidNothingIsClosedWithItsAuthority) {
  Serve();
  OfferHttp2(false);
  RawClient client(port(), /*begins=*/false, client_.get());
  client.Handshake();
  ASSERT_TRUE(PollUntil([this] { return num_asked() == 2; }));  // at its begin and its end
  Revoke();
  EXPECT_TRUE(PollUntil([this] { return door_->num_connections() == 0; }));
  EXPECT_EQ(NumClosed("revoked"), 1);
}

TEST_F(NativeDoorTlsTest, AConnectionWhoseCertificateIsRevokedIsNotHandedOver) {
  Serve();
  OfferHttp2(false);
  RawClient client(port(), /*begins=*/false, client_.get());
  client.Handshake();
  ASSERT_TRUE(PollUntil([this] { return num_asked() == 2; }));  // at its begin and its end
  {
    MutexLock lock(&mutex_);
    context_ = ContextFor(other_);
  }
  client.Send("GET / HTTP/1.1\r\n");
  EXPECT_TRUE(client.ReadClose());
  EXPECT_TRUE(PollUntil([this] { return NumClosed("revoked") == 1; }));
  EXPECT_TRUE(log_.all().empty());
}

TEST_F(NativeDoorTlsTest, NoCallBeginsOnceTheCertificateIsRevoked) {
  Serve();
  RawClient client(port(), /*begins=*/true, client_.get());
  client.set_answers_pings(false);
  client.Call(1, "/t.T/Puppet", "m");
  calls::Exchange& exchange = Take();
  Revoke();
  client.Call(3, "/t.T/Echo", "a");
  EXPECT_TRUE(client.ReadUntil([&] { return client.stream(3).reset == NGHTTP2_REFUSED_STREAM; }));
  exchange.WriteAndFinish(absl::Cord("answer"), {absl::OkStatus(), {}, {}});
  EXPECT_EQ(client.AnswerOf(1), MessageOf("answer"));
  EXPECT_TRUE(client.ReadClose());
}

// Each costs the server the next key. They are few, and end no connection then.
TEST_F(NativeDoorTlsTest, RecordsWithoutDataAreAFloodWhenTheyAreMany) {
  signal(SIGPIPE, SIG_IGN);
  http1_answers_ = false;
  Serve();
  RawClient client(port(), /*begins=*/true, client_.get());
  client.UpdateKeys(20);
  client.Call(1, "/t.T/Echo", "a");
  EXPECT_EQ(client.AnswerOf(1), MessageOf("a"));
  client.UpdateKeys(60);
  EXPECT_TRUE(client.ReadClose());
  EXPECT_TRUE(PollUntil([this] { return NumClosed("flood") == 1; }));
  OfferHttp2(false);
  RawClient http1(port(), /*begins=*/false, client_.get());
  http1.Handshake();
  http1.Send("GET / HTTP/1.1\r\n");
  http1.UpdateKeys(80);
  EXPECT_TRUE(Happens("http1 ended"));
  EXPECT_EQ(NumFloods("empty_records"), 2);
}

// A read takes a part of a record of TLS, and the rest is not in the socket any more.
TEST_F(NativeDoorTlsTest, TheRestOfARecordIsRead) {
  options_.allow_compression = true;
  AddRow("Full", calls::MethodKind::kBidirectional, [this](calls::Exchange* exchange) {
    exchange->Finish({absl::ResourceExhaustedError("full"), {}, {}});
    return new PuppetCall(&log_, exchange);
  });
  Serve();
  RawClient client(port(), /*begins=*/true, client_.get());
  client.Call(1, "/t.T/Echo", "a");
  ASSERT_TRUE(client.ReadEnd(1));
  uint32_t id = 3;
  std::string record = RawClient::HeadOf(id, "/t.T/Full");
  while (record.size() < 15000) {
    id += 2;
    record += RawClient::HeadOf(id, "/t.T/Echo");
    record += FrameOf(NGHTTP2_DATA, kEndStream, id, MessageOf(std::string(900, 'x')));
  }
  client.Send(record);
  EXPECT_TRUE(client.ReadEnd(3));
  EXPECT_TRUE(client.ReadEnd(id));
}

}  // namespace
}  // namespace sru::server::door
