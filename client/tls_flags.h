// The flags of programs that call servers over TLS: --tls and the others that begin so.
#ifndef SRU_CLIENT_TLS_FLAGS_H_
#define SRU_CLIENT_TLS_FLAGS_H_

#include "base/flags.h"
#include "client/connect_options.h"

namespace sru::client {

void AddTlsFlags(ConnectOptions* options, Flags* flags);

}  // namespace sru::client

#endif  // SRU_CLIENT_TLS_FLAGS_H_
