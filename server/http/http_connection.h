// HttpConnection: what is said on one connection: requests are read, handed to the handler and
// answered, one after the other, each part within its time. Knows no sockets and no bounds on the
// number of connections (server/door/connection.h).
//
// Used on one thread. Only the exchange that a handler gets may be used from any: what it is given
// is taken on that thread.
#ifndef SRU_SERVER_HTTP_HTTP_CONNECTION_H_
#define SRU_SERVER_HTTP_HTTP_CONNECTION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/door/door_context.h"
#include "server/door/session.h"
#include "server/http/http_request_parser.h"
#include "server/http/http_server.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/loop.h"
#include "server/transport/taken_rate.h"
#include "server/transport/timer_set.h"

namespace sru::server::http {

class HttpConnection;

// How much of the memory of all bodies a connection's body holds. For its owner, which guards it.
struct BodyPlace {
  transport::AddressKey key{};
  std::weak_ptr<HttpConnection> connection;
  size_t bytes = 0;
  bool coming = false;    // listed, as it is not whole yet
  bool made_way = false;  // holds nothing any more
  std::list<BodyPlace*>::iterator at{};
};

class HttpConnection final : public door::Session,
                             private transport::Timer,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
  using SteadyTime = transport::SteadyTime;

  // The server as its connections see it. Outlives them, and their requests.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual const HttpServer::Options& options() const = 0;
    // Runs these soon on the connection's thread. Thread-safe.
    virtual void Wake(transport::LoopWork* work) = 0;
    virtual void Post(std::function<void()> job) = 0;
    // Connections are to be closed after their answers.
    virtual bool draining() const = 0;
    // Makes the handler of a request.
    virtual calls::HttpHandler* Start(calls::HttpExchange* exchange) = 0;
    // So many more have begun and not ended.
    virtual void CountRequests(int change) = 0;
    // The timers of the connection's thread.
    virtual transport::TimerSet& timers() = 0;
    // Counts an answer that is no handler's.
    virtual void OnAnswer(int status) = 0;
    // The client has not taken an answer in time.
    virtual void OnNotTaken(absl::string_view path, const std::string& peer) = 0;
    // The body has `bytes` by now. False if there is no memory for them, or if the body has made
    // way.
    virtual bool ReserveBody(BodyPlace* place, size_t bytes, bool whole) = 0;
    virtual void ReleaseBody(BodyPlace* place) = 0;
    // Runs the job soon, on the connection's thread. Addresses, and their callers, take turns.
    virtual void RunInTurn(const transport::TurnKey& key, std::function<void()> job) = 0;
    // A connection is closed.
    virtual void OnClosed() = 0;
  };

  HttpConnection(door::SessionHost* host, const door::PeerInfo& peer, Owner* owner);
  ~HttpConnection() override;

  // Session:
  void Start() override;
  void OnRead(bool ok, absl::string_view data) override;
  void OnWritten(bool ok) override;
  void Recheck(bool trusted) override;
  void BeginStop() override;
  void OnClosed() override;

  // The body, which has not come whole, has made way: answers the request without it. Thread-safe.
  void OnBodyMadeWay();

 private:
  class Request;

  enum class Stage {
    kHeader,  // and the time between two requests
    kBody,
    kHandling,
    kWriting,
    kParts,    // of an answer that is made while it is sent
    kRest,     // answered; the rest of the request is still to come
    kClosing,  // answered; the client has to close its side
  };

  // With `reset`, an answer that the client has not taken yet is dropped.
  void Close(door::CloseCause cause, bool reset);
  // Timer: looks whether a deadline has passed.
  void OnTimer(SteadyTime now) override;
  void OnDeadline();
  void EndsAt(SteadyTime deadline);
  void EndsIn(absl::Duration duration);
  bool is_too_old() const { return std::chrono::steady_clock::now() >= too_old_at_; }
  // Goes on with what was read, up to the next answer, and reads on.
  void Process();
  transport::TurnKey turn_key() const { return {body_place_.key, caller_}; }
  // One step with what is in `in`; false when that takes more.
  bool Step(absl::string_view* in);
  bool StepHeader(absl::string_view* in);
  bool StepBody(absl::string_view* in);
  bool StepRest(absl::string_view* in);
  // The next part of the body has its time from now on.
  void AwaitProgress();
  // There is no memory for the body.
  void DropBody();
  absl::Status SlowBody() const;
  bool WantsToRead() const;
  void OnHeader();
  // Hands the body, or why there is none, to the handler.
  void GiveBody(absl::StatusOr<absl::Cord> body);
  void AwaitHandler();
  // The request is wrong, so no more is read.
  void Refuse(int status, const std::string& text);
  // Takes what the handler has given: the next part, or none, and perhaps the end.
  void TakeAnswer(absl::Cord part, bool ends);
  // Writes an answer whole.
  void Write(int status, calls::Metadata fields, absl::Cord body);
  void SendWhole();
  void BeginParts();
  void AddPart(const absl::Cord& part);
  void EndParts();
  void SendParts();
  void Send(absl::string_view first, absl::string_view second);
  void OnSent();
  void EndRequest();
  void ReleaseBody();
  std::string HeadOf(int status, const calls::Metadata& fields, bool in_parts);

  Owner& owner_;
  door::SessionHost& host_;  // of no use once closed_
  const std::string peer_;   // in gRPC's form
  const std::string certificate_;
  HttpRequestParser parser_;
  Stage stage_ = Stage::kHeader;
  bool closed_ = false;
  bool reading_ = false;
  bool peer_closed_ = false;
  bool processing_ = false;
  bool answered_ = false;  // since Process() began
  bool in_turn_ = false;   // waits for its turn to go on
  // Who sent the last request that was accepted. Connections of an address without one
  // share their turns.
  const void* caller_ = &owner_;
  bool started_request_ = false;
  SteadyTime deadline_ = SteadyTime::max();
  const SteadyTime too_old_at_;
  SteadyTime body_deadline_ = SteadyTime::max();
  size_t progress_ = 0;  // bytes of the body since AwaitProgress()
  std::string in_;       // read and not used yet
  absl::Cord body_;
  BodyPlace body_place_;
  bool reserved_ = false;  // something of the memory of all bodies
  bool complete_ = true;   // the request was read to its end
  bool close_after_ = false;
  bool is_head_ = false;
  size_t max_body_ = 0;         // of the request that is being read
  Request* request_ = nullptr;  // from its head to the end of its answer
  std::string head_;            // of the answer that is being written
  int status_ = 0;
  calls::Metadata fields_;
  absl::Cord answer_;  // its body, if it is whole
  // Of an answer in parts: what waits, and what is being written.
  std::string unsent_;
  std::string sending_;
  bool part_is_unsent_ = false;   // the handler's part is in unsent_
  bool part_is_sending_ = false;  // it is in sending_
  bool sends_ = false;
  bool parts_ended_ = false;
  bool is_refused_ = false;  // since the request came its caller may not call any more
  bool chunked_ = true;
  SteadyTime call_ends_ = SteadyTime::max();       // of the request that is being handled
  SteadyTime parts_deadline_ = SteadyTime::max();  // that, or by the age of the connection
  transport::TakenRate rate_;
  size_t ignored_bytes_ = 0;
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_HTTP_CONNECTION_H_
