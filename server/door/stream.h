// Stream: a call that comes over HTTP/2, or a request that is no call of gRPC's protocol, as an
// exchange. It lives on the loop of its connection: there all reactions of the call run, and there
// everything happens that a call asks for on another thread. A long message is given to the call on
// a side thread.
//
// stream_state.h draws its life.
#ifndef SRU_SERVER_DOOR_STREAM_H_
#define SRU_SERVER_DOOR_STREAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/callers/caller.h"
#include "server/calls/http_exchange.h"
#include "server/calls/method.h"
#include "server/door/door_context.h"
#include "server/door/message_reader.h"
#include "server/door/request_head.h"
#include "server/door/stream_state.h"
#include "server/transport/loop.h"
#include "server/transport/taken_rate.h"
#include "server/transport/timer_set.h"

namespace sru::server::door {

using transport::ClockNow;
using transport::Loop;
using transport::SteadyTime;

class Connection;

struct AllStreams;
struct WaitingStreams;
struct UnsentStreams;
template <typename Tag>
using StreamHook =
    boost::intrusive::list_base_hook<boost::intrusive::tag<Tag>,
                                     boost::intrusive::link_mode<boost::intrusive::auto_unlink>>;

class Stream final : public calls::HttpExchange,
                     private transport::LoopWork,
                     private transport::Timer,
                     public StreamHook<AllStreams>,
                     public StreamHook<WaitingStreams>,
                     public StreamHook<UnsentStreams> {
 public:
  // Has kStreamBytes of the connection's memory, and gives them back.
  Stream(Connection* connection, int32_t id);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // What a stream without messages takes, with nghttp2's part.
  static constexpr int64_t kStreamBytes = 4 << 10;

  int32_t id() const { return id_; }

  // The connection's side, within nghttp2's reactions. The stream may be gone after those that say
  // so. Returns whether more fields may come: false for a list that no honest client sends.
  bool OnHeader(absl::string_view name, absl::string_view value);
  void OnHead();
  void OnData(absl::string_view bytes);
  // The client sends no more.
  void OnEnd();
  // nghttp2 forgets the stream. It may be gone then.
  void OnClosed();
  // Gives the next bytes of the answer, as nghttp2 asks for them.
  ssize_t ReadAnswer(uint8_t* to, size_t size, uint32_t* flags);
  // The end of the answer is framed. Returns whether the rest of the request is taken, else the
  // client is asked not to send it.
  bool OnEndFramed();

  // Outside of them. What was framed of the stream has been written, or never will be. It may be
  // gone then.
  void OnFlushed(bool ok);
  // The client does not send what it has to send.
  void OnTooSlow();
  // The server shuts down while the client is sending its message or body: says that another server
  // is to be asked.
  void RefuseRest();
  // Other tokens or certificates are in use: ends a stream of messages whose caller is no longer
  // accepted. `trusted`: its certificate is.
  void Recheck(bool trusted);

  // Since when it waits for bytes of its client, or for its client to take an answer; earlier by
  // what the client owes (TakenRate).
  SteadyTime waits_since() const { return waits_since_; }
  SteadyTime unsent_since() const { return unsent_since_; }
  // Of the connection: it is in the list of those whose OnFlushed() is to be called.
  bool is_flush_listed = false;

  // CallOrigin and Exchange:
  absl::string_view FindHeader(absl::string_view name) const override { return head_.Find(name); }
  std::string peer() const override { return peer_->name; }
  std::string certificate() const override { return peer_->certificate; }
  const callers::CallerPtr& caller() const override { return caller_; }
  absl::string_view method() const override { return head_.path(); }
  absl::Duration time_left() const override;
  bool came_late() const override { return came_late_; }
  bool is_cancelled() const override { return cancelled_.load(std::memory_order_acquire); }
  bool message_was_compressed() const override { return reader_.is_compressed(); }
  void AddHeader(std::string name, std::string value) override;
  void Read() override { Ask(kRead); }
  void Write(absl::Cord message) override;
  void Finish(calls::CallEnd end) override;
  void WriteAndFinish(absl::Cord message, calls::CallEnd end) override;
  // HttpExchange:
  absl::string_view verb() const override { return head_.verb(); }
  void VisitHeaders(const std::function<void(absl::string_view name, absl::string_view value)>&
                        visit) const override {
    head_.VisitFields(visit);
  }
  void OnChecked(const void* caller, size_t max_body) override;
  void SetHead(int status, calls::Metadata headers) override;

 private:
  using Request = StreamState::Request;
  using Answer = StreamState::Answer;
  using CallState = StreamState::Call;
  using Reading = StreamState::Reading;
  using Writing = StreamState::Writing;

  // The call has asked for these.
  enum Asked : uint32_t { kRead = 1, kWrite = 2, kFinish = 4, kBack = 8 };

  ~Stream();

  // From any thread.
  void Ask(uint32_t asked);
  // LoopWork:
  void RunOnLoop() override;
  // Timer: the deadline, or the end of an idle stream.
  void OnTimer(SteadyTime now) override;

  // Ends a stream that waits for bytes of its client.
  void StopWaiting(absl::Status reason);
  bool can_answer() const { return state_.can_answer(); }
  // Begins the call or the request, or answers what cannot begin.
  void Begin();
  // Returns whether all of its fields were kept.
  bool HeadIsWhole() const;
  // Answers a call that cannot begin, and says so.
  bool RefuseHead();
  absl::Status CheckHead();
  transport::CallVerdict CheckCaller() const;
  // Gives bytes to the reader as long as a message is asked for; returns how many it took.
  size_t TakeBytes(absl::string_view bytes);
  void Hold(absl::string_view bytes);
  void DropHeld();
  // Frees what is large on another thread.
  template <typename Bytes>
  void Free(Bytes bytes);
  void TakeHeld();
  void EndInput();
  // The client has to send another message within its time.
  void AwaitNext();
  // Ends a call whose queue refuses it, before it is made. Returns whether it did. `message` is
  // read here, so it must not be long.
  bool RefuseQuickly(const absl::Cord& message);
  void Deliver(std::optional<absl::Cord> message);
  // The call asks for a message.
  void ReadNext();
  void WaitForBytes();
  void SetTimer() { loop_.timers().Set(this, std::min({deadline_, idle_at_, last_at_})); }
  // The answer is given, and its time is what is left. A timer that comes earlier stays: few
  // streams are still there when it comes.
  void EndsAtLast() {
    if (last_at_ < due()) loop_.timers().Set(this, last_at_);
  }
  // Read the body of a request that is no call.
  void TakeBody(absl::string_view bytes);
  void GiveBody(absl::Status status);
  // Ends the call from here, as far as it has begun.
  void Fail(absl::Status status, calls::Metadata trailers = {});
  void Cancel();
  // Answers with a status of HTTP and, if it is not empty, with a text.
  void SendHttpStatus(absl::string_view status, absl::string_view text = "");
  // Takes of the memory of calls without a token, of which all that are of the same kind may have a
  // part.
  bool TakeOpen(int64_t bytes, int64_t part);
  // Gives that back, but for so many bytes.
  void GiveOpen(int64_t left);
  // Whether the call is being worked on, and its connection makes way for no other.
  void SetBusy(bool busy);
  // Messages of the answer are compressed. On the call's threads, and once a message was given on
  // the loop's.
  bool compresses() const;
  // Leaves a message for the loop. It is compressed here, since that may take longer than a loop
  // should.
  void GiveMessage(absl::Cord message);
  // Takes the memory for a message of the answer; false if there is none.
  bool Charge(int64_t bytes);
  void SetMessage(absl::Cord message, bool compressed);
  void ClearMessage();
  // Hands what can be sent to nghttp2: of the answer, or with Answer::kComplete all of it.
  void Send(Answer reaches = Answer::kBegun);
  void SendEnd(calls::CallEnd end);
  void SetUnsent();
  void SetSent();
  void EndCall();
  void DeleteIfOver();

  Connection* const connection_;  // of no use once the answer is Answer::kClosed
  DoorContext& context_;
  Loop& loop_;
  const std::shared_ptr<const PeerInfo> peer_;
  const std::shared_ptr<MemoryCount> memory_;
  std::shared_ptr<MemoryCount> open_memory_;  // of what is nobody's who may call
  int64_t open_bytes_ = 0;
  int64_t all_open_bytes_ = 0;  // of these, what is counted for all addresses
  const int32_t id_;
  StreamState state_;

  RequestHead head_;
  const calls::Method* row_ = nullptr;  // null: there is none
  callers::CallerPtr caller_;           // of a call
  callers::Lease lease_;                // until the call ends
  SteadyTime deadline_ = SteadyTime::max();
  SteadyTime last_at_ = SteadyTime::max();  // when the stream is over, even if its answer waits
  // By when the client has to send its next message.
  SteadyTime idle_at_ = SteadyTime::max();
  calls::CallHandler* handler_ = nullptr;
  calls::HttpHandler* http_ = nullptr;  // the same, of a request that is no call
  std::atomic<bool> cancelled_{false};

  // Bytes of the client.
  MessageReader reader_;
  std::string held_;       // that nobody had asked for when they came
  size_t held_begin_ = 0;  // of what is left of them
  absl::Cord body_;        // of a request that is no call
  size_t max_body_ = std::numeric_limits<size_t>::max();
  int64_t body_bytes_ = 0;  // that http_ has
  int64_t head_bytes_ = 0;  // of a long one
  int64_t away_bytes_ = 0;  // of a message that a side thread gives to the call
  bool came_late_ = false;
  bool is_accepted_ = false;  // it is that of a caller who may call
  bool is_refused_ = false;   // since the call began its caller may not call any more
  bool one_request_ = true;
  uint32_t progress_ = 0;  // bytes since waits_since_
  size_t field_bytes_ = 0;
  SteadyTime waits_since_;

  // The answer. What a thread has left for the loop:
  std::atomic<uint32_t> asked_{0};
  absl::Cord given_message_;
  bool given_is_compressed_ = false;
  bool asked_for_gzip_ = false;
  calls::Metadata given_headers_;
  calls::CallEnd given_end_;
  int http_status_ = 0;
  calls::Metadata http_headers_;
  // What is being sent:
  absl::Cord message_;
  int64_t charged_ = 0;  // for the message
  absl::Cord::CharIterator message_at_;
  size_t message_left_ = 0;  // of the message
  std::array<char, 5> prefix_{};
  size_t prefix_left_ = 0;
  calls::Metadata headers_;
  calls::CallEnd end_;  // follows the message
  bool is_busy_ = false;
  SteadyTime unsent_since_;
  transport::TakenRate rate_;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_STREAM_H_
