#include "server/rest/event_stream.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "server/rest/alarm.h"
#include "server/rest/web_protocol.h"

namespace sru::server::rest {
namespace {

constexpr char kComment[] = ": keep-alive\n\n";

}  // namespace

std::string EventStream::Event(absl::string_view data, bool is_end) const {
  if (IsFramed(form_)) return WebFrame(form_, data, is_end);
  return absl::StrCat("data: ", data, "\n\n");
}

void EventStream::Start() {
  if (IsFramed(form_)) return;
  MutexLock lock(&mutex_);
  if (!ending_) SetAlarm(&alarm_, keep_alive_, weak_from_this(), &EventStream::OnAlarm);
}

void EventStream::OnAlarm() {
  bool comment = false;
  {
    MutexLock lock(&mutex_);
    if (ending_ || broken_) return;
    comment = std::exchange(quiet_, true) && !writing_;
    SetAlarm(&alarm_, keep_alive_, weak_from_this(), &EventStream::OnAlarm);
  }
  if (comment) Push(kComment, nullptr, /*last=*/false);
}

void EventStream::Fail(const RestError& error) {
  bool has_begun = false;
  {
    MutexLock lock(&mutex_);
    has_begun = std::exchange(begun_, true);
    if (!has_begun) {
      ending_ = true;
      alarm_.Cancel();
    }
  }
  has_begun ? End(ErrorBody(form_, error)) : call_->Fail(error);
}

void EventStream::Push(std::string text, std::function<void(bool)> sent, bool last) {
  if (last) call_->LeavePlaces();
  bool refused = false;
  bool begin = false;
  {
    MutexLock lock(&mutex_);
    refused = ending_ || broken_;
    if (!refused) {
      begin = !begun_;
      begun_ = true;
      quiet_ = false;
      ending_ = last;
      if (last) alarm_.Cancel();
      waiting_.push_back({std::move(text), std::move(sent)});
      writing_ = writing_ || begin;  // until there is a stream
    }
  }
  if (refused) {
    if (sent != nullptr) sent(false);  // NOLINT(bugprone-use-after-move): moved otherwise
    return;
  }
  if (begin) {
    http::PageResponse head;
    head.content_type =
        IsFramed(form_) ? WebContentType(form_) : "text/event-stream; charset=utf-8";
    // Neither caches nor proxies that collect an answer may hold events back.
    head.headers.emplace_back("Cache-Control", "no-store");
    head.headers.emplace_back("X-Accel-Buffering", "no");
    std::unique_ptr<http::PageStream> stream;
    try {
      stream = call_->ReplyInParts(std::move(head));
    } catch (...) {
      std::deque<Part> dropped;  // keeps who made it, who keeps this
      MutexLock lock(&mutex_);
      dropped.swap(waiting_);
      broken_ = true;
      begun_ = false;  // an error can still be the answer
      throw;
    }
    MutexLock lock(&mutex_);
    stream_ = std::move(stream);
    writing_ = false;
  }
  Pump();
}

// Writes what waits, one part at a time; destroys the stream when the last has been written. A
// write may end before AsyncWrite() returns: the loop goes on then, rather than one function in the
// other.
void EventStream::Pump() {
  {
    MutexLock lock(&mutex_);
    if (pumping_) return;
    pumping_ = true;
  }
  while (true) {
    Part part;
    http::PageStream* stream = nullptr;
    std::unique_ptr<http::PageStream> ended;
    {
      MutexLock lock(&mutex_);
      while (!waiting_.empty() && waiting_.front().text.empty()) waiting_.pop_front();
      const bool nothing = waiting_.empty() || broken_;
      if (writing_ || stream_ == nullptr || nothing) {
        pumping_ = false;
        if (ending_ && nothing && !writing_) ended = std::move(stream_);
        return;
      }
      part = std::move(waiting_.front());
      waiting_.pop_front();
      sent_ = std::move(part.sent);
      writing_ = true;
      stream = stream_.get();
    }
    try {
      stream->AsyncWrite(std::move(part.text),
                         [self = shared_from_this()](bool ok) { self->OnWritten(ok); });
    } catch (const std::exception&) {
      OnWritten(false);
    }
  }
}

void EventStream::OnWritten(bool ok) {
  std::function<void(bool)> sent;
  std::deque<Part> dropped;
  {
    MutexLock lock(&mutex_);
    sent = std::exchange(sent_, nullptr);
    writing_ = false;
    if (!ok) {
      broken_ = true;
      dropped.swap(waiting_);
      alarm_.Cancel();
    }
  }
  if (sent != nullptr) sent(ok);
  for (const Part& part : dropped) {
    if (part.sent != nullptr) part.sent(false);
  }
  Pump();
}

}  // namespace sru::server::rest
