#include "client/bench/h2_connection.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace sru::bench {
namespace {

enum FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
constexpr uint8_t kEndStream = 0x1;
constexpr uint8_t kAck = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
constexpr uint8_t kPadded = 0x8;
constexpr uint8_t kPriority = 0x20;

constexpr size_t kFrameHeader = 9;
constexpr size_t kGrpcPrefix = 5;
constexpr int64_t kMaxWindow = 0x7fffffff;
// We never hold back the server: the connection's window is refilled long before it is used up.
constexpr int64_t kRefill = 1 << 28;

void AppendU32(std::string* out, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) out->push_back(static_cast<char>(value >> shift));
}

uint32_t ReadU32(absl::string_view bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

// HPACK strings, not Huffman-coded; ours are shorter than 127 bytes.
void AppendString(std::string* out, absl::string_view text) {
  out->push_back(static_cast<char>(text.size()));
  out->append(text.data(), text.size());
}

// HPACK integers (RFC 7541, 5.1).
bool ReadInt(absl::string_view* block, int prefix_bits, uint64_t* value) {
  if (block->empty()) return false;
  const uint64_t limit = (1u << prefix_bits) - 1;
  *value = static_cast<unsigned char>(block->front()) & limit;
  block->remove_prefix(1);
  if (*value < limit) return true;
  for (int shift = 0; shift < 28 && !block->empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(block->front());
    block->remove_prefix(1);
    *value += static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

// A Huffman-coded string comes out as its bytes: it cannot equal a name that is looked for.
bool ReadString(absl::string_view* block, absl::string_view* text) {
  uint64_t size = 0;
  if (!ReadInt(block, 7, &size) || size > block->size()) return false;
  *text = block->substr(0, size);
  block->remove_prefix(size);
  return true;
}

// grpc-message is percent-encoded.
std::string PercentDecode(absl::string_view text) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
  };
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

int ConnectTo(const SocketAddress& address) {
  const auto* socket_address = reinterpret_cast<const sockaddr*>(address.data());
  const int fd = socket(socket_address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  if (connect(fd, socket_address, static_cast<socklen_t>(address.size())) != 0) {
    close(fd);
    return -1;
  }
  const int on = 1;
  if (socket_address->sa_family != AF_UNIX) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  return fd;
}

}  // namespace

absl::StatusOr<std::unique_ptr<H2Connection>> H2Connection::Open(
    const std::vector<SocketAddress>& addresses, const std::string& method, Done done) {
  for (const SocketAddress& address : addresses) {
    const int fd = ConnectTo(address);
    if (fd < 0) continue;
    std::unique_ptr<H2Connection> connection(new H2Connection(fd, method, done));
    if (connection->Handshake()) return connection;
    return absl::UnavailableError("cannot connect: what listens there does not speak HTTP/2");
  }
  return absl::UnavailableError("cannot connect");
}

H2Connection::H2Connection(int fd, const std::string& method, Done done)
    : fd_(fd), method_(method), done_(std::move(done)) {}

H2Connection::~H2Connection() { close(fd_); }

bool H2Connection::Handshake() {
  out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  std::string settings;
  for (const auto& [id, value] : {std::pair<int, uint32_t>{1, 0},  // header table size
                                  {2, 0},                          // push
                                  {4, kMaxWindow}}) {              // window of a stream
    settings.push_back(0);
    settings.push_back(static_cast<char>(id));
    AppendU32(&settings, value);
  }
  AppendFrame(kSettings, 0, 0, settings);
  std::string increment;
  AppendU32(&increment, static_cast<uint32_t>(kMaxWindow - 65535));
  AppendFrame(kWindowUpdate, 0, 0, increment);
  const absl::Time deadline = absl::Now() + absl::Seconds(5);
  while (alive_ && !got_settings_) {
    Flush();
    pollfd descriptor = {fd_, POLLIN, 0};
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left_ms <= 0 || poll(&descriptor, 1, static_cast<int>(left_ms)) == 0) return false;
    ReadAnswers();
  }
  return alive_;
}

void H2Connection::AppendFrame(uint8_t type, uint8_t flags, uint32_t stream,
                               absl::string_view payload) {
  const size_t size = payload.size();
  out_.push_back(static_cast<char>(size >> 16));
  out_.push_back(static_cast<char>(size >> 8));
  out_.push_back(static_cast<char>(size));
  out_.push_back(static_cast<char>(type));
  out_.push_back(static_cast<char>(flags));
  AppendU32(&out_, stream);
  out_.append(payload.data(), size);
}

void H2Connection::AppendHeaders(uint32_t stream, int64_t timeout_us) {
  std::string block = "\x83\x86";  // :method POST, :scheme http
  if (indexed_) {
    block += "\xc1\xc0\xbf\xbe";  // places 65 to 62 of the server's table
  } else {
    // The first call puts its headers into the server's table (0x40), the last at place 62.
    const char literal = index_headers_ ? 0x40 : 0x00;
    block.push_back(static_cast<char>(literal | 4));  // :path
    AppendString(&block, method_);
    block.push_back(static_cast<char>(literal | 1));  // :authority
    AppendString(&block, "localhost");
    block.push_back(literal);
    AppendString(&block, "te");
    AppendString(&block, "trailers");
    block.push_back(literal);
    AppendString(&block, "content-type");
    AppendString(&block, "application/grpc");
    indexed_ = index_headers_;
  }
  if (timeout_us > 0) {
    block.push_back(0x00);
    AppendString(&block, "grpc-timeout");
    // At most 8 digits.
    AppendString(&block, timeout_us < 100000000 ? absl::StrCat(timeout_us, "u")
                                                : absl::StrCat(timeout_us / 1000, "m"));
  }
  AppendFrame(kHeaders, kEndHeaders, stream, block);
}

bool H2Connection::AppendData(PendingData* data) {
  const size_t total = kGrpcPrefix + data->message->size();
  while (data->offset < total) {
    const int64_t size =
        std::min({static_cast<int64_t>(total - data->offset), max_frame_, window_, data->window});
    if (size <= 0) return false;
    const bool last = data->offset + size == total;
    out_.push_back(static_cast<char>(size >> 16));
    out_.push_back(static_cast<char>(size >> 8));
    out_.push_back(static_cast<char>(size));
    out_.push_back(kData);
    out_.push_back(static_cast<char>(last ? kEndStream : 0));
    AppendU32(&out_, data->stream);
    size_t left = static_cast<size_t>(size);
    if (data->offset == 0) {
      // The first frame takes the whole prefix: no window is as small as that for long.
      if (left < kGrpcPrefix) {
        out_.resize(out_.size() - kFrameHeader);
        return false;
      }
      out_.push_back(0);  // not compressed
      AppendU32(&out_, static_cast<uint32_t>(data->message->size()));
      data->offset += kGrpcPrefix;
      left -= kGrpcPrefix;
    }
    out_.append(*data->message, data->offset - kGrpcPrefix, left);
    data->offset += left;
    window_ -= size;
    data->window -= size;
  }
  return true;
}

uint32_t H2Connection::Start(const std::string& message, int64_t timeout_us) {
  const uint32_t stream = next_stream_;
  next_stream_ += 2;
  if (next_stream_ >= kMaxWindow) going_away_ = true;  // out of numbers
  open_.push_back(true);
  ++open_calls_;
  AppendHeaders(stream, timeout_us);
  PendingData data = {stream, &message, 0, stream_window_};
  if (!pending_.empty() || !AppendData(&data)) pending_.push_back(data);
  return stream;
}

void H2Connection::AppendPending() {
  // One that waits for its own window does not hold up the others.
  for (auto it = pending_.begin(); it != pending_.end() && window_ > 0;) {
    it = AppendData(&*it) ? pending_.erase(it) : std::next(it);
  }
}

void H2Connection::Cancel(uint32_t stream) {
  if (!Close(stream)) return;
  std::string code;
  AppendU32(&code, 8);  // CANCEL
  AppendFrame(kRstStream, 0, stream, code);
}

bool H2Connection::Close(uint32_t stream) {
  if (stream % 2 == 0 || stream >= next_stream_) return false;
  const uint32_t index = (stream - 1) / 2;
  if (index < first_open_ || !open_[index - first_open_]) return false;
  open_[index - first_open_] = false;
  --open_calls_;
  while (!open_.empty() && !open_.front()) {
    open_.pop_front();
    ++first_open_;
  }
  if (!pending_.empty()) {
    pending_.erase(std::remove_if(pending_.begin(), pending_.end(),
                                  [&](const PendingData& data) { return data.stream == stream; }),
                   pending_.end());
  }
  return true;
}

bool H2Connection::Flush() {
  while (alive_ && out_begin_ < out_.size()) {
    const ssize_t sent =
        send(fd_, out_.data() + out_begin_, out_.size() - out_begin_, MSG_NOSIGNAL);
    if (sent > 0) {
      out_begin_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // What is out is dropped when it is worth the copy.
      if (out_begin_ > (1 << 20)) {
        out_.erase(0, out_begin_);
        out_begin_ = 0;
      }
      return true;
    } else if (errno != EINTR) {
      // The reader finds out, after it has read what the server still said.
      break;
    }
  }
  out_.clear();
  out_begin_ = 0;
  return false;
}

void H2Connection::ReadAnswers() {
  if (!alive_) return;
  char chunk[1 << 16];
  for (;;) {
    const ssize_t size = recv(fd_, chunk, sizeof(chunk), 0);
    if (size > 0) {
      in_.append(chunk, static_cast<size_t>(size));
      ParseInput();
      // The rest, if any, is read the next time, after answers were acted upon.
      return;
    }
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    Lose(size == 0 ? "the server closed the connection" : std::strerror(errno));
    return;
  }
}

void H2Connection::ParseInput() {
  size_t begin = 0;
  while (alive_ && in_.size() - begin >= kFrameHeader) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(in_[begin + i]); };
    const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
    if (size > 16384) {
      Lose("the server sent a frame that is too large");
      return;
    }
    if (in_.size() - begin < kFrameHeader + size) break;
    const uint32_t stream = ReadU32(absl::string_view(in_).substr(begin + 5, 4)) & 0x7fffffff;
    OnFrame(byte(3), byte(4), stream, absl::string_view(in_).substr(begin + kFrameHeader, size));
    begin += kFrameHeader + size;
  }
  in_.erase(0, begin);
}

void H2Connection::OnFrame(uint8_t type, uint8_t flags, uint32_t stream,
                           absl::string_view payload) {
  switch (type) {
    case kData:
      unacknowledged_ += static_cast<int64_t>(payload.size());
      if (unacknowledged_ >= kRefill) {
        std::string increment;
        AppendU32(&increment, static_cast<uint32_t>(unacknowledged_));
        AppendFrame(kWindowUpdate, 0, 0, increment);
        unacknowledged_ = 0;
      }
      if ((flags & kEndStream) != 0) {
        End(stream, absl::StatusCode::kInternal, "the answer ended without a status");
      }
      return;
    case kHeaders: {
      // Only the last header block of a call says anything that is needed.
      if ((flags & kEndStream) == 0) return;
      size_t padding = 0;
      if ((flags & kPadded) != 0 && !payload.empty()) {
        padding = static_cast<unsigned char>(payload.front());
        payload.remove_prefix(1);
      }
      if ((flags & kPriority) != 0) payload.remove_prefix(std::min<size_t>(5, payload.size()));
      payload.remove_suffix(std::min(padding, payload.size()));
      if ((flags & kEndHeaders) != 0) {
        OnTrailers(stream, payload);
      } else {
        trailers_.assign(payload.data(), payload.size());
        trailers_stream_ = stream;
      }
      return;
    }
    case kContinuation:
      if (trailers_stream_ == 0 || trailers_stream_ != stream) return;
      trailers_.append(payload.data(), payload.size());
      if ((flags & kEndHeaders) != 0) {
        trailers_stream_ = 0;
        OnTrailers(stream, trailers_);
      }
      return;
    case kRstStream: {
      const uint32_t code = payload.size() == 4 ? ReadU32(payload) : 0;
      const absl::StatusCode status = code == 7   ? absl::StatusCode::kUnavailable
                                      : code == 8 ? absl::StatusCode::kCancelled
                                                  : absl::StatusCode::kInternal;
      End(stream, status, absl::StrCat("the server reset the call with HTTP/2 error ", code));
      return;
    }
    case kSettings:
      if ((flags & kAck) == 0) OnSettings(payload);
      return;
    case kPing:
      if ((flags & kAck) == 0) AppendFrame(kPing, kAck, 0, payload);
      return;
    case kGoAway: {
      going_away_ = true;
      if (payload.size() < 8) return;
      // The server has not looked at calls after this one.
      const uint32_t last = ReadU32(payload) & 0x7fffffff;
      for (uint32_t open = last + 1 + last % 2; open < next_stream_; open += 2) {
        End(open, absl::StatusCode::kUnavailable, "the server is going away");
      }
      return;
    }
    case kWindowUpdate:
      if (payload.size() == 4) OnWindowUpdate(stream, ReadU32(payload) & 0x7fffffff);
      return;
    default:
      return;
  }
}

void H2Connection::OnSettings(absl::string_view payload) {
  for (; payload.size() >= 6; payload.remove_prefix(6)) {
    const int id =
        static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]);
    const int64_t value = ReadU32(payload.substr(2));
    switch (id) {
      case 1:
        if (value < 4096) index_headers_ = indexed_ = false;
        break;
      case 3:
        max_concurrent_ = value;
        break;
      case 4:
        for (PendingData& data : pending_) data.window += value - stream_window_;
        stream_window_ = value;
        break;
      case 5:
        max_frame_ = value;
        break;
      default:
        break;
    }
  }
  got_settings_ = true;
  AppendFrame(kSettings, kAck, 0, "");
  AppendPending();
}

void H2Connection::OnWindowUpdate(uint32_t stream, int64_t increment) {
  if (stream == 0) {
    window_ += increment;
  } else {
    for (PendingData& data : pending_) {
      if (data.stream == stream) data.window += increment;
    }
  }
  AppendPending();
}

void H2Connection::OnTrailers(uint32_t stream, absl::string_view block) {
  absl::string_view message;
  int code = -1;
  while (!block.empty()) {
    const auto first = static_cast<unsigned char>(block.front());
    uint64_t index = 0;
    if ((first & 0x80) != 0) {  // indexed: none of gRPC's is in the static table
      if (!ReadInt(&block, 7, &index)) break;
      continue;
    }
    if ((first & 0xe0) == 0x20) {  // size of the table
      if (!ReadInt(&block, 5, &index)) break;
      continue;
    }
    absl::string_view name;
    absl::string_view value;
    if (!ReadInt(&block, (first & 0x40) != 0 ? 6 : 4, &index)) break;
    if ((index == 0 && !ReadString(&block, &name)) || !ReadString(&block, &value)) break;
    if (name == "grpc-status" && !absl::SimpleAtoi(value, &code)) code = -1;
    if (name == "grpc-message") message = value;
  }
  if (code == 0) {
    End(stream, absl::StatusCode::kOk, "");
  } else if (code < 0 || code > 16) {
    End(stream, absl::StatusCode::kUnknown,
        "the answer has no grpc-status that this client can read; is it a gRPC server?");
  } else {
    End(stream, static_cast<absl::StatusCode>(code), PercentDecode(message));
  }
}

void H2Connection::End(uint32_t stream, absl::StatusCode code, absl::string_view message) {
  if (Close(stream)) done_(stream, code, message);
}

void H2Connection::Lose(const std::string& why) {
  alive_ = false;
  const std::string message = absl::StrCat("the connection is lost: ", why);
  for (uint32_t stream = 2 * first_open_ + 1; stream < next_stream_; stream += 2) {
    End(stream, absl::StatusCode::kUnavailable, message);
  }
}

}  // namespace sru::bench
