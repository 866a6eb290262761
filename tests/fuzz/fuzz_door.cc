// The native transport: a whole connection against a service of puppets, and its reader of
// messages.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/door/native_door.h"
#include "server/http/http_server.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/require.h"

namespace sru::fuzz {
namespace {

namespace calls = server::calls;
namespace door = server::door;
namespace http = server::http;
namespace transport = server::transport;

constexpr int kDoorPatienceMs = 30000;
constexpr int64_t kDoorMemory = 8 << 20;

// Answers each message with itself, on a thread of its own now and then, as a worker does.
class EchoingCall final : public calls::CallHandler {
 public:
  EchoingCall(calls::Exchange* exchange, bool is_stream)
      : exchange_(*exchange), is_stream_(is_stream) {
    if (is_stream) exchange_.Read();
  }
  void OnMessage(std::optional<absl::Cord> message) override {
    Require(!done_, "nothing happens to a call that has ended");
    if (is_stream_ && message.has_value()) return exchange_.Write(*std::move(message));
    if (is_stream_) return exchange_.Finish({absl::OkStatus(), {}, {}});
    exchange_.WriteAndFinish(message.value_or(absl::Cord()), {absl::OkStatus(), {}, {}});
  }
  void OnWritten(bool ok) override {
    Require(!done_ && is_stream_, "a write is answered before its call ends");
    if (ok) return exchange_.Read();
    exchange_.Finish({absl::CancelledError(), {}, {}});
  }
  void OnCancel() override {
    Require(!std::exchange(cancelled_, true), "a call is cancelled once");
  }
  void OnDone() override {
    Require(!std::exchange(done_, true), "a call is done once");
    delete this;
  }

 private:
  calls::Exchange& exchange_;
  const bool is_stream_;
  bool cancelled_ = false;
  bool done_ = false;
};

class FuzzedDoor {
 public:
  FuzzedDoor() {
    server::SetLogOptions({server::LogFormat::kJson, server::LogLevel::kError});
    std::vector<calls::Method> rows(2);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].service = "t";
      rows[i].name = i == 0 ? "u" : "s";
      rows[i].kind = i == 0 ? calls::MethodKind::kUnary : calls::MethodKind::kBidirectional;
      rows[i].start = [i](calls::Exchange* exchange) { return new EchoingCall(exchange, i == 1); };
    }
    methods_ = std::make_unique<calls::MethodTable>(std::move(rows));
    door::DoorOptions options;
    options.methods = methods_.get();
    options.metrics = &metrics_;
    options.max_message_bytes = 1 << 20;
    options.allow_compression = true;
    options.unknown = [](calls::Exchange* exchange) {
      return new EchoingCall(exchange, /*is_stream=*/true);
    };
    options.start_http = [this](calls::HttpExchange* exchange) { return http_->Answer(exchange); };
    options.start_http1 = [this](door::SessionHost* host, const door::PeerInfo& peer) {
      return http_->StartSession(host, peer);
    };
    options.on_refused = [](absl::string_view, const std::string&) {};
    options.on_not_taken = [](absl::string_view, const std::string&) {};
    auto opened =
        door::NativeDoor::Open("listen", {"127.0.0.1", 0}, std::move(options), &loops_, &memory_);
    Require(opened.ok(), "a door opens");
    door_ = *std::move(opened);
    door_->Start();
  }

  static FuzzedDoor& Get() {
    static auto* const door = new FuzzedDoor;
    return *door;
  }

  // Sends bytes in pieces, reads what comes, and leaves.
  void Connect(std::string_view bytes, size_t piece) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(door_->address().port));
    const linger now{1, 0};  // no port is taken for a minute after each input
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    Require(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
            "the door accepts connections");
    char buffer[65536];
    const auto receive = [&](int wait_ms) {
      pollfd ready{fd, POLLIN, 0};
      return poll(&ready, 1, wait_ms) <= 0 || recv(fd, buffer, sizeof(buffer), 0) > 0;
    };
    bool open = true;
    while (open && !bytes.empty()) {
      const std::string_view some = bytes.substr(0, piece);
      open = send(fd, some.data(), some.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(some.size());
      bytes.remove_prefix(some.size());
      open = open && receive(0);
    }
    if (open) receive(2);
    close(fd);
  }

  void RequireNothingLeft() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kDoorPatienceMs);
    while (memory_.used() != 0 || door_->num_connections() != 0 || door_->num_unsent() != 0 ||
           http_->stats().connections != 0) {
      Require(std::chrono::steady_clock::now() < end, "a connection that is gone leaves nothing");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  prometheus::Registry registry_;
  door::DoorMetrics metrics_{&registry_};
  transport::LoopSet loops_{1, 1};
  door::MemoryCount memory_{kDoorMemory};
  std::unique_ptr<calls::MethodTable> methods_;
  http::HttpServer::Options HttpOptions() {
    http::HttpServer::Options options;
    options.loops = &loops_;
    options.start = [](calls::HttpExchange* exchange, http::PageRequest request) {
      return std::make_shared<http::PageCall>(exchange, std::move(request), Echo);
    };
    return options;
  }
  static void Echo(const std::shared_ptr<http::HttpCall>& call) {
    absl::StatusOr<std::string> body = call->TakeBody();
    http::PageResponse response =
        http::TextResponse(200, body.ok() ? *std::move(body) : body.status().ToString());
    if (call->request().query.empty()) return call->Reply(std::move(response));
    call->ReplyInParts(response)->AsyncWrite(response.body, [](bool) {});
  }
  std::unique_ptr<http::HttpServer> http_ = std::make_unique<http::HttpServer>(HttpOptions());
  std::unique_ptr<door::NativeDoor> door_;
};

// How reading the bytes in pieces ends, and the messages before.
std::pair<absl::StatusCode, std::vector<std::string>> ReadMessages(std::string_view bytes,
                                                                   size_t piece) {
  door::MemoryCount memory(1 << 20);
  std::pair<absl::StatusCode, std::vector<std::string>> result{absl::StatusCode::kOk, {}};
  {
    door::MessageReader reader(100000, &memory);
    reader.set_encoding(door::Encoding::kGzip);
    while (!bytes.empty() && result.first == absl::StatusCode::kOk) {
      absl::string_view some(bytes.data(), std::min(piece, bytes.size()));
      bytes.remove_prefix(some.size());
      while (!some.empty() && result.first == absl::StatusCode::kOk) {
        size_t taken = 0;
        result.first = reader.Take(some, &taken).code();
        Require(taken > 0 || result.first != absl::StatusCode::kOk, "a reader takes bytes");
        some.remove_prefix(taken);
        if (result.first == absl::StatusCode::kOk && reader.has_message()) {
          result.second.emplace_back(reader.TakeMessage());
          Require(result.second.back().size() <= 100000, "a message has its bound");
        }
      }
    }
  }
  Require(memory.used() == 0, "a reader gives its memory back");
  return result;
}

}  // namespace

void FuzzDoor(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t piece = 1 + static_cast<unsigned char>(bytes[0]);
  const std::string_view frames = bytes.substr(1);
  // Most inputs are to get past the preface.
  const std::string sent =
      absl::StrCat(absl::string_view("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33),
                   absl::string_view(frames.data(), frames.size()));
  FuzzedDoor& door = FuzzedDoor::Get();
  door.Connect(sent, piece);
  door.Connect(frames, piece);
  door.RequireNothingLeft();
}

void FuzzMessages(std::string_view bytes) {
  if (bytes.empty()) return;
  const size_t piece = 1 + static_cast<unsigned char>(bytes[0]);
  const std::string_view sent = bytes.substr(1);
  Require(ReadMessages(sent, sent.size() + 1) == ReadMessages(sent, piece),
          "messages do not depend on the pieces in which they come");
}

}  // namespace sru::fuzz
