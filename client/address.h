// Tells from the gRPC target in ConnectOptions::address whether a call stays on this machine.
#ifndef SRU_CLIENT_ADDRESS_H_
#define SRU_CLIENT_ADDRESS_H_

#include "absl/strings/string_view.h"

namespace sru::client {

// Whether everything that is sent to the target stays on this machine: true for "localhost",
// numeric loopback addresses and socket files; false for a name that only looks like one
// ("127.evil.example") and for a list with any other address. A pure function.
bool StaysOnThisMachine(absl::string_view target);

}  // namespace sru::client

#endif  // SRU_CLIENT_ADDRESS_H_
