// A whole server in this process, with small models, and what a stranger can write to its ports.
//
// http2: a list of what is done on one connection. Its entries begin with a byte, of which the
// lowest two bits say
//   0, 1  a call: the path of its method; headers; the message
//   2     a frame with any type, flags, stream and payload
//   3     bytes as they are
// gateway: a request as a person would write it, with \n for \r\n; Host and Content-Length are
// added.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "grpcpp/grpcpp.h"
#include "nlohmann/json.hpp"
#include "server/base/log.h"
#include "server/calls/method_info.h"
#include "server/server.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/script.h"

namespace sru::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

// How long the server may take for anything, on a machine that is busy.
constexpr int kPatienceMs = 30000;
// How long what need not come is waited for.
constexpr int kMomentMs = 20;
// An honest caller asks after so many connections of strangers.
constexpr int kConnectionsPerCheck = 64;

// A connection to 127.0.0.1.
class Connection {
 public:
  explicit Connection(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    const int on = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    // Closed by a reset: otherwise a port would be taken for a minute after each input.
    const linger now{1, 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Require(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
            "the server accepts connections");
  }
  ~Connection() { close(socket_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // What the server does not take, because it has closed the connection, is lost.
  void Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  void EndSending() const { shutdown(socket_, SHUT_WR); }

  enum class Event { kBytes, kEnd, kNothing };
  // Appends what comes within `wait_ms`.
  Event Receive(int wait_ms, std::string* received) const {
    pollfd ready{socket_, POLLIN, 0};
    if (poll(&ready, 1, wait_ms) <= 0) return Event::kNothing;
    char buffer[16384];
    const ssize_t size = recv(socket_, buffer, sizeof(buffer), 0);
    if (size <= 0) return Event::kEnd;  // by a reset, too
    received->append(buffer, static_cast<size_t>(size));
    return Event::kBytes;
  }
  // Whether the server ends the connection in time.
  bool ReceiveAll(int patience_ms, std::string* received) const {
    const Clock::time_point end = Clock::now() + std::chrono::milliseconds(patience_ms);
    for (;;) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      const Event event = Receive(std::max(0, static_cast<int>(left.count())), received);
      if (event != Event::kBytes) return event == Event::kEnd;
    }
  }

 private:
  const int socket_;
};

class TestedServer {
 public:
  TestedServer() {
    server::Options options;
    options.models.repository = "tests/data/models";
    options.listen = {"127.0.0.1", 0};
    options.http.metrics_listen = {"127.0.0.1", 0};
    options.http.http_listen = server::ListenAddress{"127.0.0.1", 0};
    options.http.allow_origins = {"https://app.example"};
    options.batching.backend = "reference";
    options.batching.state_memory_mb = 16;
    options.batching.engine.instances = 1;
    options.rpc.limits.max_new_tokens = 16;
    // Every line is made, and only what must not happen is written.
    options.logging.access.requests = server::telemetry::LogRequests::kAll;
    options.logging.access.max_lines_per_second = 0;
    options.logging.access.content = true;
    server::SetLogOptions({server::LogFormat::kJson, server::LogLevel::kError});
    auto started = server::Server::Start(options);
    if (!started.ok()) std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
    Require(started.ok(), "a server starts");
    server_ = *std::move(started);
    stub_ = v1::InferenceService::NewStub(
        grpc::CreateChannel(server_->address().ToString(), grpc::InsecureChannelCredentials()));
    request_.set_model("old_classifier");
    request_.add_sequences()->set_text("who wrote the book");
    Require(Classify(&expected_), "an honest call is answered");
  }

  // The server lives until the process ends, whose threads and sockets end with it.
  static TestedServer& Get() {
    static auto* const server = new TestedServer;
    return *server;
  }

  int grpc_port() const { return server_->address().port; }
  int http_port() const { return server_->http_address()->port; }
  int metrics_port() const { return server_->metrics_address().port; }

  // To be called once per connection of a stranger.
  void CountConnection() {
    if (++connections_ % kConnectionsPerCheck != 0) return;
    v1::ClassifyResponse response;
    Require(Classify(&response), "an honest call is answered whatever strangers do");
    Require(response.classifications(0).labels(0).probability() ==
                expected_.classifications(0).labels(0).probability(),
            "an honest call is answered as before");
  }

 private:
  bool Classify(v1::ClassifyResponse* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(kPatienceMs));
    const grpc::Status status = stub_->Classify(&context, request_, response);
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.error_message().c_str());
    return status.ok() && response->classifications_size() == 1 &&
           response->classifications(0).labels_size() > 0;
  }

  std::unique_ptr<server::Server> server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  v1::ClassifyRequest request_;
  v1::ClassifyResponse expected_;
  long connections_ = 0;
};

// --- http2

// Whether gRPC must answer a call without headers.
bool IsMethod(std::string_view path) {
  for (const server::calls::MethodInfo& info : server::calls::method_table::kRows) {
    if (path == absl::StrCat("/", info.service, "/", info.name)) return true;
  }
  return path == "/grpc.health.v1.Health/Check" ||
         path == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
}

constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kReset = 3;
constexpr uint8_t kSettings = 4;
constexpr uint8_t kPing = 6;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr std::string_view kPingBytes = "sru fuzz";

std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(payload.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame.append(payload);
}

// A string of HPACK (RFC 7541, 5.2), without Huffman's code.
void AppendHpackString(std::string_view text, std::string* block) {
  constexpr size_t kPrefix = 127;
  if (text.size() < kPrefix) {
    *block += static_cast<char>(text.size());
  } else {
    *block += static_cast<char>(kPrefix);
    size_t rest = text.size() - kPrefix;
    for (; rest >= 128; rest >>= 7) *block += static_cast<char>(rest | 128);
    *block += static_cast<char>(rest);
  }
  block->append(text);
}

void AppendHeader(std::string_view name, std::string_view value, std::string* block) {
  *block += '\0';  // a literal that no table gets
  AppendHpackString(name, block);
  AppendHpackString(value, block);
}

// What a client writes, and what it may expect then.
struct Conversation {
  std::string bytes;
  std::set<uint32_t> owed;   // streams of whole calls
  std::set<uint32_t> hoped;  // those that gRPC may not answer
  bool is_plain = true;      // nothing but calls
  bool is_framed = true;     // nothing that may swallow the frames after it
};

void AddCall(size_t kind, Script* script, uint32_t stream, Conversation* conversation) {
  const std::string_view path = script->Bytes(script->Byte());
  std::string block;
  AppendHeader(":method", "POST", &block);
  AppendHeader(":scheme", "http", &block);
  AppendHeader(":path", path, &block);
  AppendHeader(":authority", "localhost", &block);
  AppendHeader("te", "trailers", &block);
  AppendHeader("content-type", "application/grpc", &block);
  const size_t headers = script->Byte() % 8;
  for (size_t i = 0; i < headers; ++i) {
    const std::string_view name = script->Bytes(script->Byte());
    AppendHeader(name, script->Bytes(script->Byte()), &block);
  }
  const bool ends = (kind & 4) == 0;
  const bool lies = (kind & 8) != 0;
  std::string message(1, '\0');  // not compressed
  const std::string_view payload = script->Bytes(script->Word());
  const size_t length = lies ? script->Word() : payload.size();
  for (const int shift : {24, 16, 8, 0}) message += static_cast<char>(length >> shift);
  message.append(payload);
  conversation->bytes += Frame(kHeaders, kEndHeaders, stream, block);
  conversation->bytes += Frame(kData, ends ? kEndStream : 0, stream, message);
  if (!ends || lies) return;
  // gRPC decides about headers of its own.
  const bool is_certain = headers == 0 && IsMethod(path);
  (is_certain ? conversation->owed : conversation->hoped).insert(stream);
}

Conversation MakeConversation(Script script) {
  constexpr int kMaxEntries = 12;
  Conversation conversation;
  conversation.bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "");
  uint32_t stream = 1;
  for (int i = 0; i < kMaxEntries && !script.empty(); ++i) {
    const size_t kind = script.Byte();
    switch (kind % 4) {
      case 0:
      case 1:
        AddCall(kind, &script, stream, &conversation);
        stream += 2;
        break;
      case 2: {
        const auto type = static_cast<uint8_t>(script.Byte());
        const auto flags = static_cast<uint8_t>(script.Byte());
        const auto of_stream = static_cast<uint32_t>(script.Byte());
        conversation.bytes += Frame(type, flags, of_stream, script.Bytes(script.Word()));
        conversation.is_plain = false;
        break;
      }
      case 3:
        conversation.bytes.append(script.Bytes(script.Word()));
        conversation.is_plain = false;
        conversation.is_framed = false;
        break;
    }
  }
  return conversation;
}

// Takes whole frames off the front of `received`. True for the answer to the ping. Streams that end
// are no longer waited for.
bool TakeFrames(std::string* received, Conversation* conversation) {
  constexpr size_t kFrameHeader = 9;
  bool pinged = false;
  size_t at = 0;
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>((*received)[at + i]));
  };
  while (received->size() >= at + kFrameHeader) {
    const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (received->size() < at + kFrameHeader + size) break;
    const uint32_t type = byte(3);
    const uint32_t flags = byte(4);
    const uint32_t stream = (byte(5) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)) & 0x7fffffffu;
    const std::string_view payload = std::string_view(*received).substr(at + kFrameHeader, size);
    if (type == kPing && (flags & kAck) != 0 && payload == kPingBytes) pinged = true;
    const bool ends = (type == kHeaders || type == kData) && (flags & kEndStream) != 0;
    if (ends || type == kReset) {
      conversation->owed.erase(stream);
      conversation->hoped.erase(stream);
    }
    at += kFrameHeader + size;
  }
  received->erase(0, at);
  return pinged;
}

// --- gateway

bool IsForMetricsPort(absl::string_view request_line) {
  for (const char* path : {" /metrics", " /healthz", " /readyz", " /status"}) {
    if (absl::StrContains(request_line, path)) return true;
  }
  return false;
}

bool IsAboutFraming(absl::string_view head) {
  const std::string lower = absl::AsciiStrToLower(head);
  for (const char* name :
       {"transfer-encoding", "content-length", "connection", "expect", "upgrade"}) {
    if (absl::StrContains(lower, name)) return true;
  }
  return false;
}

}  // namespace

void FuzzHttp2(std::string_view bytes) {
  TestedServer& server = TestedServer::Get();
  Conversation conversation = MakeConversation(Script(bytes));
  const Connection connection(server.grpc_port());
  connection.Send(conversation.bytes);
  std::string received;
  if (!conversation.is_framed) {
    connection.EndSending();
    Require(connection.ReceiveAll(kPatienceMs, &received),
            "a connection whose client has gone is closed");
  } else {
    connection.Send(Frame(kPing, 0, 0, kPingBytes));
    bool pinged = false;
    for (;;) {
      if (TakeFrames(&received, &conversation)) pinged = true;
      if (pinged && conversation.owed.empty() && conversation.hoped.empty()) break;
      // With other frames a client can see to it that no answer can be sent.
      const bool must_come = !pinged || (conversation.is_plain && !conversation.owed.empty());
      const Connection::Event event =
          connection.Receive(must_come ? kPatienceMs : kMomentMs, &received);
      if (event == Connection::Event::kBytes) continue;
      Require(event == Connection::Event::kEnd || !must_come,
              "a connection is answered or closed, and every whole call gets an answer");
      break;
    }
  }
  server.CountConnection();
}

void FuzzGateway(std::string_view bytes) {
  TestedServer& server = TestedServer::Get();
  const size_t head_end = std::min(bytes.find("\n\n"), bytes.size());
  const absl::string_view head(bytes.data(), head_end);
  const std::string_view body = bytes.substr(std::min(head_end + 2, bytes.size()));
  const std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  std::string request =
      absl::StrCat(lines[0], " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                   "Content-Length: ", body.size(), "\r\n");
  for (size_t i = 1; i < lines.size(); ++i) absl::StrAppend(&request, lines[i], "\r\n");
  request += "\r\n";
  request.append(body);

  const Connection connection(IsForMetricsPort(lines[0]) ? server.metrics_port()
                                                         : server.http_port());
  connection.Send(request);
  std::string answer;
  // A watch ends with its client.
  if (IsAboutFraming(head) || absl::StrContains(head, "/Watch")) {
    connection.ReceiveAll(kMomentMs, &answer);
    connection.EndSending();
    Require(connection.ReceiveAll(kPatienceMs, &answer),
            "a connection whose client has gone is closed");
  } else {
    Require(connection.ReceiveAll(kPatienceMs, &answer), "a request is answered");
    Require(absl::StartsWith(answer, "HTTP/1.1 "), "an answer is HTTP");
    Require(!absl::StartsWith(answer, "HTTP/1.1 500"), "no request is a fault of the server");
    const size_t answer_head = answer.find("\r\n\r\n");
    Require(answer_head != std::string::npos, "an answer has a head");
    const std::string lower = absl::AsciiStrToLower(answer.substr(0, answer_head));
    const bool is_json = absl::StrContains(lower, "\r\ncontent-type: application/json") &&
                         absl::StrContains(lower, "\r\ncontent-length: ") &&
                         !absl::StartsWith(head, "HEAD ");
    if (is_json) {
      Require(nlohmann::json::accept(answer.substr(answer_head + 4)), "the answer is JSON");
    }
  }
  server.CountConnection();
}

}  // namespace sru::fuzz
