#include "server/door/message_reader.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/inflater.h"
#include "server/base/retry.h"

namespace sru::server::door {
namespace {

// Up to this size a message that comes in one piece is copied into the cord, which is one
// allocation.
constexpr uint32_t kCopiedBytes = 4 << 10;
// Bytes are charged in parts of this size.
constexpr int64_t kChargeStep = 64 << 10;

absl::Status TooLarge(int64_t bytes, uint32_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("Received message larger than max (", bytes, " vs. ", limit, ")"));
}

}  // namespace

absl::Status NoMemoryToReceive() {
  return RetryAfter(
      absl::ResourceExhaustedError("there is no memory for what is arriving; try again"),
      kMemoryRetryAfter);
}

MessageReader::MessageReader(uint32_t max_bytes, MemoryCount* memory)
    : max_bytes_(max_bytes), memory_(memory) {}

MessageReader::~MessageReader() { Release(); }

void MessageReader::Release() { memory_->Give(std::exchange(charged_, 0)); }

absl::Status MessageReader::Charge(int64_t bytes) {
  if (bytes <= charged_) return absl::OkStatus();
  const int64_t more = std::max(bytes - charged_, kChargeStep);
  if (!memory_->Take(more)) {
    return NoMemoryToReceive();
  }
  charged_ += more;
  return absl::OkStatus();
}

absl::Status MessageReader::BeginMessage() {
  const bool packed = prefix_[0] == 1;
  if (prefix_[0] > 1) {
    return absl::InternalError(absl::StrCat("Bad GRPC frame type ", prefix_[0]));
  }
  size_ = static_cast<uint32_t>(prefix_[1]) << 24 | static_cast<uint32_t>(prefix_[2]) << 16 |
          static_cast<uint32_t>(prefix_[3]) << 8 | static_cast<uint32_t>(prefix_[4]);
  got_ = 0;
  if (size_ > max_bytes_) return TooLarge(size_, max_bytes_);
  if (!packed) return absl::OkStatus();
  if (encoding_ != Encoding::kGzip && encoding_ != Encoding::kDeflate) {
    return absl::InternalError("a message is marked as compressed, and there is no grpc-encoding");
  }
  if (absl::Status status = Charge(Inflater::kStateBytes); !status.ok()) return status;
  inflater_ = std::make_unique<Inflater>(encoding_ == Encoding::kGzip);
  return absl::OkStatus();
}

absl::Status MessageReader::Take(absl::string_view bytes, size_t* taken) {
  *taken = 0;
  if (prefix_bytes_ < prefix_.size()) {
    const size_t part = std::min(prefix_.size() - prefix_bytes_, bytes.size());
    std::memcpy(prefix_.data() + prefix_bytes_, bytes.data(), part);
    prefix_bytes_ += static_cast<uint32_t>(part);
    *taken = part;
    if (prefix_bytes_ < prefix_.size()) return absl::OkStatus();
    if (absl::Status status = BeginMessage(); !status.ok()) return status;
  }
  const absl::string_view body = bytes.substr(*taken, size_ - got_);
  *taken += body.size();
  if (body.empty() && size_ > 0) return absl::OkStatus();
  return TakeBody(body);
}

absl::Status MessageReader::TakeBody(absl::string_view bytes) {
  const bool at_once = got_ == 0 && bytes.size() == size_;
  got_ += static_cast<uint32_t>(bytes.size());
  complete_ = got_ == size_;
  if (inflater_ != nullptr) {
    while (!bytes.empty() || inflater_->has_more()) {
      absl::Status status = inflater_->Add(&bytes, &message_);
      const auto unpacked = static_cast<int64_t>(message_.size());
      if (status.ok() && unpacked > max_bytes_) status = TooLarge(unpacked, max_bytes_);
      if (status.ok()) {
        status = Charge(Inflater::kStateBytes + unpacked);
      }
      if (!status.ok()) return status;
    }
    if (!complete_) return absl::OkStatus();
    const bool ended = inflater_->ended();
    inflater_.reset();
    if (ended) return absl::OkStatus();
    return absl::InternalError("a compressed message ends too early");
  }
  if (at_once && size_ <= kCopiedBytes) {
    message_ = absl::Cord(bytes);
    return absl::OkStatus();
  }
  if (absl::Status status = Charge(got_); !status.ok()) return status;
  if (buffer_ == nullptr) {
    buffer_.reset(new (std::nothrow) char[size_]);
    if (buffer_ == nullptr) {
      return RetryAfter(
          absl::ResourceExhaustedError("there is no memory for the message; try again"),
          kMemoryRetryAfter);
    }
  }
  if (!bytes.empty()) std::memcpy(buffer_.get() + got_ - bytes.size(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

absl::Cord MessageReader::TakeMessage() {
  absl::Cord message;
  if (buffer_ != nullptr) {
    const absl::string_view view(buffer_.get(), size_);
    message = absl::MakeCordFromExternal(
        view, [data = buffer_.release()](absl::string_view) { delete[] data; });
  } else {
    message.swap(message_);
  }
  Release();
  prefix_bytes_ = 0;
  complete_ = false;
  return message;
}

}  // namespace sru::server::door
