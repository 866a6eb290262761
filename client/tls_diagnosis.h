// Finds out why a connection could not be made. gRPC says no more than that it could not; this code
// tries again with a socket and OpenSSL, step by step, and names the step that fails. Only
// client.cc uses it, after a failure.
#ifndef SRU_CLIENT_TLS_DIAGNOSIS_H_
#define SRU_CLIENT_TLS_DIAGNOSIS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/connect_options.h"

namespace sru::client {

// kUnavailable says what is wrong, in a whole sentence that names the address and the option to
// check: nothing listens, only one side uses TLS, the certificate is not trusted or has another
// name, the server wants a client certificate or does not accept this one. OK if nothing is wrong:
// the server answers, so it is its health that keeps calls away. kUnknown if the reason cannot be
// found (several addresses, a proxy, a socket file), or not within `timeout`. Connects once and
// sends nothing but the handshake. Thread-safe.
absl::Status DiagnoseConnection(const ConnectOptions& options, absl::Duration timeout);

// kInvalidArgument names the option: OpenSSL can read nothing of a file, or a key does not belong
// to its certificate. Empty = not given. A pure function.
absl::Status CheckClientPem(absl::string_view tls_ca, absl::string_view tls_cert,
                            absl::string_view tls_key);

}  // namespace sru::client

#endif  // SRU_CLIENT_TLS_DIAGNOSIS_H_
