// Connection: a socket, TLS, and what is spoken on it: HTTP/2, by a session of nghttp2 with its
// streams, or HTTP/1.1, by a Session that it is the host of. It lives on one loop.
//
// Reading. What arrives is read in portions of 16 KiB into a buffer of the loop, so a connection
// that is idle holds none. Where more waits than a portion, callers take turns, not connections: a
// caller is known by its last call. While the peer does not take what is written, little more is
// read of it.
//
// Time. Each wait for the peer has a deadline: TLS handshake, HTTP/2 preface, the rest of a header
// block, the bytes of a call's message, acknowledgements of pings, taking what is sent. One timer
// looks after all of them: it is set to the earliest, and what has become late meanwhile sets it
// again.
#ifndef SRU_SERVER_DOOR_CONNECTION_H_
#define SRU_SERVER_DOOR_CONNECTION_H_

#include <nghttp2/nghttp2.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/intrusive/list.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "prometheus/gauge.h"
#include "server/door/door_context.h"
#include "server/door/flood_guard.h"
#include "server/door/frame_filter.h"
#include "server/door/session.h"
#include "server/door/stream.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/byte_stream.h"
#include "server/transport/connection_table.h"
#include "server/transport/loop.h"

namespace sru::server::door {

using transport::AcceptedSocket;
using transport::ByteStream;
using transport::ConnectionTable;

class Connection final : public std::enable_shared_from_this<Connection>,
                         public transport::TableMember,
                         private SessionHost,
                         private transport::Writer,
                         private transport::Timer {
 public:
  // Who keeps the connection while it is open. On the loop's thread.
  class Owner {
   public:
    virtual void OnClosed(Connection* connection) = 0;

   protected:
    ~Owner() = default;
  };

  Connection(DoorContext* context, Loop* loop, Owner* owner, AcceptedSocket socket);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // All of the following are for the loop's thread.

  void Start();
  // Asks the client to go elsewhere; calls that are on their way are answered.
  void BeginGoAway(CloseCause cause);
  // Other tokens or certificates are in use.
  void Recheck();
  // Answers the calls whose messages have not come whole: another server is to be asked.
  void RefuseRest();
  // Session::BeginStop() of one that it is the host of.
  void StopHttp1();
  // Closes the connection at once. Its owner may drop it. A reason is counted.
  void Close(CloseCause cause);

  // TableMember:
  void MakeWay() override;

  // For streams.
  DoorContext& context() { return context_; }
  Loop& loop() { return loop_; }
  const std::shared_ptr<const PeerInfo>& peer() const { return peer_; }
  const std::shared_ptr<MemoryCount>& memory() const { return memory_; }
  // Counts what its address' calls without a token take.
  const std::shared_ptr<MemoryCount>& open_memory() {
    if (open_memory_ == nullptr) open_memory_ = context_.open_memory_of.Of(peer_->key);
    return open_memory_;
  }
  nghttp2_session* session() { return session_; }
  // The client's certificate is no longer accepted. Calls that have begun are answered.
  bool is_revoked() const { return is_revoked_; }
  void AwaitBytes(Stream* stream);
  void AwaitTaken(Stream* stream);
  // The stream's OnFlushed() is called when all that is framed by then has been written.
  void FlushLater(Stream* stream);
  void WriteSoon() { loop_.WriteLater(this); }
  // The memory of an answer until it is framed. False if the connection has too much that its peer
  // does not take, or if there is none.
  [[nodiscard]] bool TakeForAnswer(int64_t bytes);
  void GiveForAnswer(int64_t bytes);
  // Bytes of the stream are used, so that the client may send as many more.
  void OpenWindow(int32_t id, size_t bytes);
  // A message has so many bytes to come: lets more of them be under way at a time.
  void WidenWindow(int32_t id, size_t bytes);
  void Reset(int32_t id, uint32_t code);
  // A call has begun that has so much of its time left. Returns whether it comes late: calls of
  // this connection are being refused, and of late others came with more than twice as much. Such
  // a call has waited for a stream or for the socket, which hold others, too: it has less time than
  // it says.
  bool CameLate(absl::Duration left);
  // A queue has refused a call of the connection.
  void OnRefused() { last_refused_ = last_read_; }
  // A message has arrived whole.
  void OnMessage();
  // One call more or less is being worked on. Without any, the connection may make way for another
  // one: what a client does not send, or take, must not keep others out.
  void OnBusy(int change) { place_.set_idle((num_busy_ += change) == 0); }
  // A call of this caller has begun.
  void OnCaller(const callers::Caller* caller) {
    if (caller != nullptr) last_caller_ = caller;
  }

 private:
  // kOpen and kLingering are of HTTP/2.
  enum class State { kHandshake, kSniffing, kHttp1, kOpen, kLingering, kClosed };
  enum class GoAway { kNot, kAnnounced, kFinal };
  using Descriptor = boost::asio::posix::stream_descriptor;

  // nghttp2's reactions.
  friend struct Reactions;
  int OnBeginHeaders(int32_t id);
  // False when the connection is to be ended.
  bool OnFrameHead(uint32_t type, uint32_t flags, size_t length);
  int OnFrame(const nghttp2_frame& frame);
  int OnData(int32_t id, absl::string_view bytes);
  int OnFrameSent(const nghttp2_frame& frame);
  void OnStreamClosed(int32_t id);
  Stream* Find(int32_t id);
  // False when the connection is to be ended.
  bool Note(Flood flood, double times = 1);
  // nghttp2 is to read the rest of the fields for the sake of its table only.
  int OnEndlessHeaders();
  void OnFlood(Flood flood);
  void CloseAsTooSlow();
  int OnPing(bool ack, absl::string_view payload);

  // Writer:
  void WriteNow() override;
  // Timer:
  void OnTimer(SteadyTime now) override;
  // SessionHost:
  void Read(const void* caller) override;
  Sent Write(absl::string_view first, absl::string_view second) override;
  void EndSending() override { bytes_->EndSending(); }
  void SetIdle(bool idle) override { place_.set_idle(idle); }
  void End(CloseCause cause, bool reset) override;

  // A step of the TLS handshake. Addresses take turns.
  void HandshakeInTurn();
  void Handshake();
  // Finds out by the first bytes which HTTP the peer speaks.
  void Sniff();
  // Speaks HTTP/2. `received` has been read already.
  void StartSession(absl::string_view received);
  // Speaks HTTP/1.1. `received` has been read already.
  void StartHttp1(std::string received);
  // Reads what http1_ waits for.
  void ReadForHttp1();
  // Writes what http1_ has given, a portion of it; kWantsWrite if there is more.
  ByteStream::Outcome WriteForHttp1();
  // Goes on with that.
  void WriteOnForHttp1();
  // Counts the connection as one of this protocol, and no more as one of another.
  void Count(Protocol protocol);
  // Leaves all that the connection is listed in, and its owner.
  void Leave(CloseCause cause);
  void FailHandshake(const std::string& error);
  // Whether the client's certificate, if it has one, is still accepted. It was when the handshake
  // began.
  bool IsTrusted() const;
  void AwaitReadable();
  // What TLS writes may have to read first.
  void AwaitWritable(ByteStream::Outcome outcome = ByteStream::Outcome::kWantsWrite);
  // Goes on after a time in which nothing was read: the stream may hold bytes that the socket no
  // longer has.
  void ReadOn();
  void OnReady();
  // Where the next bytes are read to.
  absl::Span<char> ReadBuffer();
  // Reads what the socket has. Empty: nothing has come yet, and the connection waits for it, or is
  // closed.
  absl::string_view ReadNow();
  void ReadSome();
  // Reads on when it is its caller's turn.
  void ReadInTurn();
  // False when the connection is not to be read on.
  bool Receive(absl::string_view bytes);
  // Writes what there is. False: the peer takes no more for now, or the connection is closed.
  bool Flush();
  // Writes out what is framed already, as Flush().
  bool FlushFramed();
  bool WriteOut(absl::string_view bytes, size_t* written);
  void CallFlushed(bool ok);
  // Ends the session with a GOAWAY of this code, and then the connection.
  void Terminate(uint32_t code, CloseCause cause);
  // Frames what comes before a GOAWAY that was submitted, and it, to be written as the peer takes
  // it.
  void FrameGoAway();
  void BeginLinger(CloseCause cause);
  void EndStreams();
  void FinishGoAway();
  void CloseIfDone();
  void CheckBy(SteadyTime due);
  void SubmitPing(absl::string_view payload);

  DoorContext& context_;
  Loop& loop_;
  Owner& owner_;
  std::shared_ptr<const PeerInfo> peer_;
  const std::shared_ptr<MemoryCount> memory_;
  std::shared_ptr<MemoryCount> open_memory_;  // null before the first
  const int socket_;
  Descriptor descriptor_;
  std::shared_ptr<ssl_ctx_st> tls_context_;
  std::unique_ptr<ByteStream> bytes_;
  nghttp2_session* session_ = nullptr;
  std::shared_ptr<Session> http1_;
  transport::TablePlace place_;
  transport::TablePlace handshake_place_;

  State state_ = State::kHandshake;
  std::string sniffed_;  // read before it is known who speaks, and not used yet
  prometheus::Gauge* counted_ = nullptr;
  CloseCause cause_ = CloseCause::kPeer;  // of what has begun
  bool reading_ = false;                  // waits until it can be read
  bool writing_ = false;                  // waits until it can be written
  bool in_turn_ = false;                  // waits for ReadInTurn()
  // ReadInTurn() waits for the turn of this caller. Connections of an address that have had no call
  // share one.
  const void* last_caller_ = &context_;

  boost::intrusive::list<Stream, boost::intrusive::base_hook<StreamHook<AllStreams>>,
                         boost::intrusive::constant_time_size<false>>
      streams_;
  boost::intrusive::list<Stream, boost::intrusive::base_hook<StreamHook<WaitingStreams>>,
                         boost::intrusive::constant_time_size<false>>
      waiting_;  // the one that waits longest first
  boost::intrusive::list<Stream, boost::intrusive::base_hook<StreamHook<UnsentStreams>>,
                         boost::intrusive::constant_time_size<false>>
      unsent_;               // likewise
  int64_t num_streams_ = 0;  // that nghttp2 has
  int64_t num_busy_ = 0;
  // The most time that a call had left, in this and in the last kTimesLeftWindow.
  std::array<absl::Duration, 2> most_left_;
  SteadyTime most_left_since_;
  SteadyTime last_refused_;
  int64_t answer_bytes_ = 0;  // of TakeForAnswer()
  std::vector<Stream*> to_flush_;

  bool http1_reads_ = false;       // http1_ waits for bytes
  absl::string_view http1_first_;  // what is left of what it writes
  absl::string_view http1_second_;

  std::string out_;        // framed, and not taken by the socket; or a copy for http1_
  size_t out_begin_ = 0;   // of what is left
  int64_t out_bytes_ = 0;  // of it, taken from memory_
  SteadyTime blocked_since_ = SteadyTime::max();
  size_t read_while_blocked_ = 0;

  FrameFilter filter_;
  FloodGuard floods_;
  bool flooded_ = false;
  GoAway go_away_ = GoAway::kNot;
  bool framed_go_away_ = false;  // since FrameGoAway() began, or at all
  bool got_goodbye_ = false;     // a GOAWAY without an error
  bool is_revoked_ = false;
  SteadyTime go_away_at_ = SteadyTime::max();  // when the final one follows at the latest
  SteadyTime started_;
  SteadyTime deadline_;  // of the handshake, of the preface, of lingering
  bool has_settings_ = false;
  bool has_ack_ = false;  // of our SETTINGS
  SteadyTime last_read_;
  SteadyTime block_since_;  // of the last header block
  SteadyTime age_at_;
  SteadyTime age_grace_at_ = SteadyTime::max();
  SteadyTime open_by_ = SteadyTime::max();    // if it has only reset streams
  SteadyTime ping_sent_ = SteadyTime::max();  // that is not acknowledged
  // Pings of the client.
  SteadyTime last_ping_;
  int ping_strikes_ = 0;
  bool sent_since_ping_ = true;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_CONNECTION_H_
