// The whole server in one object: models, engines, gRPC and the metrics port. main() adds signals;
// tests start it in-process on port 0.
#ifndef SRU_SERVER_SERVER_H_
#define SRU_SERVER_SERVER_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "server/options.h"

namespace sru::server {

class Server {
 public:
  // Loads the models that options.model_control and version_policy name, starts their engines and
  // listens. Returns when the server takes calls. Errors are meant for the person who starts the
  // server: one line that says what to fix. While models load, /healthz answers and /readyz says
  // 503.
  //
  // The server is ready when it takes calls and serves a model. With explicit control it needs no
  // model: nobody has asked for one yet.
  //
  // With a `backend`, which tests with devices that fail create, the options that choose one are
  // ignored.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const Options& options, std::unique_ptr<kernels::Backend> backend = nullptr);

  // Drains, unless Drain() has been called.
  virtual ~Server() = default;

  // The addresses, with the actual ports.
  virtual ListenAddress address() const = 0;
  virtual ListenAddress metrics_address() const = 0;
  // Empty without options.admin_listen.
  virtual std::optional<ListenAddress> admin_address() const = 0;
  // Empty without options.http.http_listen.
  virtual std::optional<ListenAddress> http_address() const = 0;

  // Checks at once what is otherwise checked at intervals: the repository, with
  // --model_control=poll, and the files of TLS and tokens. Logs what it does. Returns before it is
  // done. Thread-safe.
  virtual void Reload() = 0;

  // Stops serving, in this order: /readyz says 503 and health NOT_SERVING; after drain_delay new
  // calls get UNAVAILABLE; accepted calls are answered; the listeners close. Returns within about
  // drain_timeout; calls that are still in flight then are answered with UNAVAILABLE, and the
  // result is false. Call it once, from one thread. (The destructor waits for a model that is being
  // loaded.)
  virtual bool Drain() = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_SERVER_H_
