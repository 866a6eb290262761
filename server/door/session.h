// Session and SessionHost: the two sides of a connection of HTTP/1.1. The host, a Connection, owns
// the socket, TLS, the place in the table of connections and the turns in which it is read; the
// session (server/http/http_connection.h) speaks the protocol. HTTP/2 is spoken by the Connection
// itself, with nghttp2.
//
//   Host                            Session
//   start_http1(host, peer)     ->  makes the session
//   session->Start()
//   session->OnRead(ok, data)   <-  host->Read(caller)
//   session->OnWritten(ok)      <-  host->Write(first, second), if it is kLater
//   session->OnClosed()         <-  host->End(cause, reset)
//
// All of it runs on the connection's loop.
#ifndef SRU_SERVER_DOOR_SESSION_H_
#define SRU_SERVER_DOOR_SESSION_H_

#include "absl/strings/string_view.h"
#include "server/door/door_metrics.h"

namespace sru::server::door {

// Of no use after Session::OnClosed().
class SessionHost {
 public:
  enum class Sent { kAll, kLater };

  // Reads some. One read at a time; OnRead() does not come before this returns. The callers of an
  // address take turns, and `caller` tells them apart (transport::TurnKey).
  virtual void Read(const void* caller) = 0;
  // Writes both parts. One write at a time. kAll: it is done. kLater: OnWritten() follows, and
  // until then the parts must stay where they are.
  virtual Sent Write(absl::string_view first, absl::string_view second) = 0;
  // The client is told that nothing more will come.
  virtual void EndSending() = 0;
  // Nobody works on a request of the connection, so it may make way for another one.
  virtual void SetIdle(bool idle) = 0;
  // Closes the connection. With `reset`, what the client has not taken yet is dropped; otherwise
  // the kernel keeps it and goes on sending it.
  virtual void End(CloseCause cause, bool reset) = 0;

 protected:
  ~SessionHost() = default;
};

class Session {
 public:
  virtual ~Session() = default;
  virtual void Start() = 0;
  // Not `ok`: the client has closed its side, or the connection is broken. `data` is valid during
  // the call.
  virtual void OnRead(bool ok, absl::string_view data) = 0;
  virtual void OnWritten(bool ok) = 0;
  // Other tokens or certificates are in use. `trusted`: the client's certificate is accepted still.
  virtual void Recheck(bool trusted) = 0;
  // The server stops: no request comes after the one that is being answered. One whose body has not
  // come whole is answered without it.
  virtual void BeginStop() = 0;
  // The connection is closed, by whichever side. Nothing else follows.
  virtual void OnClosed() = 0;
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_SESSION_H_
