// How a client proves who it is and checks who the server is: TLS and tokens, from the files that
// ConnectOptions names.
#ifndef SRU_CLIENT_CHANNEL_SECURITY_H_
#define SRU_CLIENT_CHANNEL_SECURITY_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/connect_options.h"

namespace grpc {
class ChannelCredentials;
}  // namespace grpc
struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace sru::client {

// Whether everything that is sent to a gRPC target (ConnectOptions::address) stays on this machine:
// true for "localhost", numeric loopback addresses and socket files; false for a name that only
// looks like one ("127.evil.example") and for a list with any other address. A pure function.
bool StaysOnThisMachine(absl::string_view target);

// Whether the options ask for TLS.
bool WantsTls(const ConnectOptions& options);

// Without tls_ca, the authorities that the system trusts count. kInvalidArgument names the option:
// a file cannot be read or holds no PEM, or a certificate comes without its key or with another
// one.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeChannelCredentials(
    const ConnectOptions& options);

// The same for a program that speaks HTTP/2 itself, as sru_bench does; null without TLS.
absl::StatusOr<std::shared_ptr<ssl_ctx_st>> MakeTlsContext(const ConnectOptions& options);

// The token in a file, which is read again from time to time because tokens are replaced while
// programs run. Thread-safe.
class TokenFile {
 public:
  // Null if the options have no token. kInvalidArgument names the option: the file cannot be read
  // or does not hold exactly one token, or the token would cross the network in the clear.
  static absl::StatusOr<std::unique_ptr<TokenFile>> Open(const ConnectOptions& options);

  // The value of the header `authorization`. Keeps the last token if the file goes bad.
  std::string Authorization();

 private:
  TokenFile(std::string path, std::string token);

  const std::string path_;  // empty: the token stays
  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_read_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::client

#endif  // SRU_CLIENT_CHANNEL_SECURITY_H_
