// Listening sockets, and the names of who connects to them.
#ifndef SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
#define SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/listen_address.h"

namespace sru::server::transport {

// Sockets that listen on `address`, which gets the actual port; they do not block. "0.0.0.0" takes IPv6 too where the machine has it, as with
// gRPC. A host "unix:PATH" is a socket in the file system; a socket that is there and that nobody listens on makes way. kUnavailable names
// `flag`, the address and why it cannot be listened on. The caller closes the sockets.
absl::StatusOr<std::vector<int>> OpenListeningSockets(absl::string_view flag,
                                                      ListenAddress* address);

// Opens the sockets and closes them: the same error now that would come later. OK if they could be opened.
absl::Status CheckListening(absl::string_view flag, ListenAddress address);

// As gRPC writes it: a URI whose path is percent-encoded, link-local addresses with the number of their interface (fe80::1%4). Pure.
std::string PeerName(const sockaddr_storage& address);

// What errno means.
std::string SystemErrorText();

// Whether an error of accept() is one of the connection that was to be accepted, which is gone then: accept(2), "Error handling". Pure.
bool IsAboutConnection(int error);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
