#include "server/calls/kinds/open_streams.h"

#include <arpa/inet.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::calls {
namespace {

// The part of a peer's address that its owner cannot change at will; 0 if it has none.
uint64_t AddressOf(absl::string_view peer) {
  const bool is_v4 = absl::ConsumePrefix(&peer, "ipv4:");
  if (!is_v4 && !absl::ConsumePrefix(&peer, "ipv6:")) return 0;
  std::string host(peer.substr(0, peer.rfind(':')));
  uint64_t address = 0;
  if (is_v4) {
    in_addr v4{};
    if (inet_pton(AF_INET, host.c_str(), &v4) != 1) return 0;
    std::memcpy(&address, &v4, sizeof(v4));
    return address;
  }
  // "[2001:db8::1]", or the same with escapes; a zone may follow the address.
  absl::string_view inner = host;
  if (!absl::ConsumePrefix(&inner, "%5B")) absl::ConsumePrefix(&inner, "[");
  host = std::string(inner.substr(0, inner.find_first_of("%]")));
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return 0;
  const unsigned char* const begin = v6.s6_addr + (IN6_IS_ADDR_V4MAPPED(&v6) ? 12 : 0);
  std::memcpy(&address, begin, IN6_IS_ADDR_V4MAPPED(&v6) ? 4 : 8);
  return address;
}

}  // namespace

bool OpenStreams::TakeShare(uint64_t address) {
  if (address == 0) return true;
  MutexLock lock(&address_mutex_);
  int& count = by_address_[address];
  if (count >= share_) return false;
  ++count;
  return true;
}

absl::Status OpenStreams::Add(OpenStream* stream, absl::string_view peer) {
  const uint64_t address = AddressOf(peer);
  {
    MutexLock lock(&mutex_);
    const bool has_place = !draining_ && count_ < limit_;
    if (has_place && !TakeShare(address)) {
      return batching::MakeRefusal(
          batching::RejectReason::kStreams,
          absl::StrCat("streams: ", share_, " of your address are open, which is its part of ",
                       limit_, " (--max_streams); retry later"));
    }
    if (has_place) {
      stream->address_ = address;
      stream->next_ = first_;
      if (first_ != nullptr) first_->previous_ = stream;
      first_ = stream;
      stream->listed_ = true;
      stream->counted_ = true;
      ++count_;
      return absl::OkStatus();
    }
    if (draining_)
      return batching::MakeRefusal(batching::RejectReason::kDraining,
                                   "the server is shutting down");
  }
  return batching::MakeRefusal(
      batching::RejectReason::kStreams,
      absl::StrCat("streams: ", limit_,
                   " are open, which is the limit (--max_streams); retry later"));
}

void OpenStreams::Leave(OpenStream* stream) {
  if (!stream->counted_.exchange(false)) return;
  --count_;
  if (stream->address_ == 0) return;
  MutexLock lock(&address_mutex_);
  const auto found = by_address_.find(stream->address_);
  if (--found->second == 0) by_address_.erase(found);
}

void OpenStreams::Remove(OpenStream* stream) {
  Leave(stream);
  MutexLock lock(&mutex_);
  if (!stream->listed_) return;
  (stream->previous_ == nullptr ? first_ : stream->previous_->next_) = stream->next_;
  if (stream->next_ != nullptr) stream->next_->previous_ = stream->previous_;
  stream->listed_ = false;
}

void OpenStreams::Drain() {
  MutexLock lock(&mutex_);
  if (draining_) return;
  draining_ = true;
  for (OpenStream* stream = first_; stream != nullptr; stream = stream->next_) stream->OnDrain();
}

}  // namespace sru::server::calls
