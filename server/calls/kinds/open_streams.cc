#include "server/calls/kinds/open_streams.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::calls {
bool OpenStreams::TakeShare(absl::string_view caller) {
  if (caller.empty()) return true;
  MutexLock lock(&caller_mutex_);
  int& count = by_caller_[caller];
  if (count >= share_) return false;
  ++count;
  return true;
}

absl::Status OpenStreams::Add(OpenStream* stream, absl::string_view caller) {
  {
    MutexLock lock(&mutex_);
    const bool has_place = !draining_ && count_ < limit_;
    if (has_place && !TakeShare(caller)) {
      return batching::MakeRefusal(
          batching::RejectReason::kStreams,
          absl::StrCat("streams: ", share_, " of yours are open, which is one caller's part of ",
                       limit_, " (--max_streams); retry later"));
    }
    if (has_place) {
      stream->caller_ = std::string(caller);
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
  if (stream->caller_.empty()) return;
  MutexLock lock(&caller_mutex_);
  const auto found = by_caller_.find(stream->caller_);
  if (--found->second == 0) by_caller_.erase(found);
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
