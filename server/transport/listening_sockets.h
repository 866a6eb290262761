// Listening sockets, and the names of who connects to them.
#ifndef SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
#define SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/listen_address.h"

namespace sru::server::transport {

// Sockets that listen on `address`, which gets the actual port; they do not block. "0.0.0.0" takes
// IPv6 too where the machine has it, as with gRPC. A host "unix:PATH" is a socket in the file
// system; a socket that is there and that nobody listens on makes way, another file does not.
// kUnavailable names `flag`, the address and why it cannot be listened on. The caller closes the
// sockets.
absl::StatusOr<std::vector<int>> OpenListeningSockets(absl::string_view flag,
                                                      ListenAddress* address);

// A flag and its address.
using ListenFlag = std::pair<absl::string_view, ListenAddress>;

// Opens the sockets of all addresses, and then closes them: the same error now that would come
// later. An address that is taken since an earlier flag has its port names that flag.
absl::Status CheckListening(const std::vector<ListenFlag>& flags);

// As gRPC writes it: a URI whose path is percent-encoded, link-local addresses with the number of
// their interface (fe80::1%4). Pure.
std::string PeerName(const sockaddr_storage& address);

// What errno means.
std::string SystemErrorText();

// Whether an error of accept() is one of the connection that was to be accepted, which is gone
// then: accept(2), "Error handling". Pure.
bool IsAboutConnection(int error);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
