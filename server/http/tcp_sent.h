// Whether the client of a TCP connection has sent anything: balancers connect and leave.
#ifndef SRU_SERVER_HTTP_TCP_SENT_H_
#define SRU_SERVER_HTTP_TCP_SENT_H_

namespace sru::server::http {

// True also where the system does not say. Apart from its callers since the system has two headers
// for TCP that cannot be included together. Thread-safe.
bool ClientHasSent(int fd);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_TCP_SENT_H_
