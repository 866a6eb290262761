// The connections of one port share this.
#ifndef SRU_SERVER_DOOR_DOOR_CONTEXT_H_
#define SRU_SERVER_DOOR_DOOR_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/base/rate_limit.h"
#include "server/base/side_threads.h"
#include "server/callers/caller.h"
#include "server/calls/exchange.h"
#include "server/calls/http_exchange.h"
#include "server/calls/method.h"
#include "server/door/door_metrics.h"
#include "server/door/memory_count.h"
#include "server/door/session.h"
#include "server/transport/accepted_socket.h"
#include "server/transport/call_check.h"
#include "server/transport/connection_table.h"
#include "server/transport/file_limit.h"
#include "server/transport/security_options.h"

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace sru::server::door {

// Who is at the other end of a connection.
struct PeerInfo {
  std::string name;  // in gRPC's form
  transport::AddressKey key{};
  std::string certificate;  // OwnerOf() it; "" if the peer has shown none
};

struct DoorOptions {
  // Both must outlive the door. Without methods every connection speaks HTTP/1.1.
  const calls::MethodTable* methods = nullptr;
  DoorMetrics* metrics = nullptr;
  // Makes the call of a path that no row has.
  std::function<calls::CallHandler*(calls::Exchange* exchange)> unknown;
  transport::CallCheck check_call;  // null: all may call, and none are told apart
  // Makes the call of a method that the caller's limits refuse.
  std::function<calls::CallHandler*(calls::Exchange* exchange, calls::MethodId method,
                                    const absl::Status& refusal)>
      refused;
  // A call ends before it has a handler, and its caller is known or none is asked for. Counts it,
  // and gives what is sent. Null: the status alone is sent.
  std::function<calls::CallEnd(const calls::Exchange& exchange, const absl::Status& status)>
      on_failed;
  // Makes the handler of a request over HTTP/2 that is no gRPC call. Null: it is answered with a
  // status that says so.
  std::function<calls::HttpHandler*(calls::HttpExchange* exchange)> start_http;
  // Makes the session of a connection that speaks HTTP/1.1, on its loop. Null: it is closed.
  std::function<std::shared_ptr<Session>(SessionHost* host, const PeerInfo& peer)> start_http1;
  // Turns TLS on: gives the context for a connection that has just come.
  std::function<std::shared_ptr<ssl_ctx_st>()> tls_context;
  // A TLS handshake failed. `detail` is OpenSSL's reason; empty: the client closed the connection
  // after it had sent something, or its time was up.
  std::function<void(const std::string& detail, const std::string& peer)> on_handshake_failure;
  // A connection was closed because there are too many, when that of `peer` came. `reason` is one
  // of connection_table.h.
  std::function<void(absl::string_view reason, const std::string& peer)> on_refused;
  // A connection is closed because the answer of a call was not taken in time.
  std::function<void(absl::string_view method, const std::string& peer)> on_not_taken;

  transport::ConnectionLimits limits;
  int files_left = transport::kReservedFiles;  // descriptors that connections leave to other uses
  // Where they run out, takes no connection before another one has made way; else drops what comes
  // too fast for that.
  bool waits_for_files = false;
  // The table that it shares with other ports, which must outlive it; null: the door has its own,
  // of `limits`.
  transport::ConnectionTable* connections = nullptr;
  uint32_t max_message_bytes = 4 << 20;
  bool allow_compression = false;
  bool asks_for_tokens = false;  // of requests that are no calls, too
  // A stream waits this long for bytes that it needs: its header, its first message, the rest of
  // one.
  absl::Duration bytes_timeout = absl::Seconds(30);
  absl::Duration send_timeout = absl::InfiniteDuration();
};

struct DoorContext {
  DoorContext(DoorOptions given, MemoryCount* receive_memory, SideThreads* side_threads);

  const DoorOptions options;
  SideThreads& side;
  // What arrives and what open streams take, over all doors; each address has a part of it at most.
  AddressMemory memory;
  // Calls without a token, such as those of the health service, and bodies without one that arrive,
  // have a part of their own: an eighth of that, and one address a quarter of this eighth.
  MemoryCount open_memory;
  AddressMemory open_memory_of;
  transport::ConnectionTable own_connections;
  transport::ConnectionTable& connections;

  // Answers that were given and have not left, and those that were given up.
  std::atomic<int64_t> unsent{0};
  std::atomic<int64_t> not_taken{0};
  std::atomic<int64_t> streams{0};   // that are open, or whose calls have not ended
  std::atomic<int64_t> sessions{0};  // of HTTP/1.1
  // Connections that were asked to go elsewhere, and may still send calls.
  std::atomic<int64_t> announced{0};
  std::atomic<bool> draining{false};
  RateLimit closed_lines{10};  // limits the log lines on connections that are closed
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_DOOR_CONTEXT_H_
