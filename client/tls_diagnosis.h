// Finds out why a connection could not be made. gRPC says no more than that it could not; here the
// same is done once more, step by step, by a socket and OpenSSL, and the step that fails is named.
// Used by client.cc only, after a failure.
#ifndef SRU_CLIENT_TLS_DIAGNOSIS_H_
#define SRU_CLIENT_TLS_DIAGNOSIS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/client.h"

namespace sru::client {

// kUnavailable says what is wrong, in a whole sentence that names the address and the option to
// look at: nobody listens, TLS on one side only, a certificate that is not trusted or of another
// name, a client certificate that the server wants or does not take. OK when nothing is: the server
// answers, so that it is its health that keeps calls away. kUnknown when it cannot be found out
// (several addresses, a proxy, a socket file) or not within `timeout`. Connects once, sends nothing
// but the handshake. Thread-safe.
absl::Status DiagnoseConnection(const ConnectOptions& options, absl::Duration timeout);

// kInvalidArgument names the option: a file of which OpenSSL can read nothing, a key that does not
// belong to its certificate. Empty = not given. Pure.
absl::Status CheckClientPem(absl::string_view tls_ca, absl::string_view tls_cert,
                            absl::string_view tls_key);

}  // namespace sru::client

#endif  // SRU_CLIENT_TLS_DIAGNOSIS_H_
