// Who may call a model through the status page (--status_page_try). The port is meant for monitoring,
// and is often open to more machines than the gRPC port.
#ifndef SRU_SERVER_HTTP_TRY_ACCESS_H_
#define SRU_SERVER_HTTP_TRY_ACCESS_H_

namespace sru::server::http {

enum class TryAccess {
  kOff,  // nobody
  // Only from this machine: the connection comes from a loopback address, no proxy has forwarded it,
  // and the page was opened as localhost or by a loopback address. A proxy on this machine that does
  // not say that it forwards opens it to everybody.
  kLocal,
  kAll,  // from everywhere, if the page was opened under a name that cannot be a stranger's
};

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_TRY_ACCESS_H_
