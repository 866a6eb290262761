#include "server/transport/connection_handover.h"

#include <utility>

#include "server/compat/grpc_version.h"

#if SRU_GRPC_IS_CURRENT
#include <algorithm>
#include <atomic>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "grpc/event_engine/event_engine.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/transport/event_engine.h"
#endif

namespace sru::server::transport {

#if SRU_GRPC_IS_CURRENT

namespace {

// The one engine of all servers of this process, which is also gRPC's default: its callbacks run on
// the default engine's threads whatever the server's engine is. Lives as long as anybody uses it.
class SharedEngine {
 public:
  SharedEngine() {
    MutexLock lock(&Uses().mutex);
    if (Uses().count++ == 0) {
      PollingEngine::Options options;
      options.threads = NumThreads();
      Uses().engine = std::make_shared<PollingEngine>(options);
      grpc_event_engine::experimental::SetDefaultEventEngine(Uses().engine);
    }
    engine_ = Uses().engine;
  }
  ~SharedEngine() {
    std::shared_ptr<PollingEngine> last;  // gRPC may still be at work with it
    MutexLock lock(&Uses().mutex);
    if (--Uses().count > 0) return;
    grpc_event_engine::experimental::SetDefaultEventEngine(nullptr);
    last = std::move(Uses().engine);
  }
  SharedEngine(const SharedEngine&) = delete;
  SharedEngine& operator=(const SharedEngine&) = delete;

  const std::shared_ptr<PollingEngine>& get() const { return engine_; }

 private:
  struct AllUses {
    Mutex mutex;
    int count ABSL_GUARDED_BY(mutex) = 0;
    std::shared_ptr<PollingEngine> engine ABSL_GUARDED_BY(mutex);
  };
  static AllUses& Uses() {
    static auto* const uses = new AllUses;
    return *uses;
  }
  // They take calls, check and tokenize them; what computes has threads of its own.
  static int NumThreads() { return std::clamp(NumCores() / 2, 2, 16); }

  std::shared_ptr<PollingEngine> engine_;
};

class EngineHandover final : public ConnectionHandover {
 public:
  EngineHandover(grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials,
                 std::shared_ptr<ReceiveLedger> ledger)
      : ledger_(std::move(ledger)) {
    builder->SetEventEngine(engine_.get());
    builder->AddListeningPort(absl::StrCat("127.0.0.1:", port_), std::move(credentials));
  }

  void HandOver(int /*listening_socket*/, int connection, const std::string& peer) override {
    std::shared_ptr<ReceiveLedger::Account> account;
    if (ledger_ != nullptr) account = ledger_->Open(peer);
    if (!engine_.get()->Accept(port_, connection, std::move(account))) {
      LogInfo("gRPC did not take a connection: the server shuts down");
    }
  }

 private:
  // Of no address: gRPC's name for the engine's listener that it makes for this server.
  static int NextPort() {
    constexpr int kMostPorts = 65000;
    static std::atomic<int> next{0};
    return 1 + next++ % kMostPorts;
  }

  const std::shared_ptr<ReceiveLedger> ledger_;
  SharedEngine engine_;
  const int port_ = NextPort();
};

}  // namespace

std::unique_ptr<ConnectionHandover> ConnectionHandover::AddTo(
    grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials,
    std::shared_ptr<ReceiveLedger> ledger) {
  return std::make_unique<EngineHandover>(builder, std::move(credentials), std::move(ledger));
}

#else  // an older gRPC

namespace {

class AcceptorHandover final : public ConnectionHandover {
 public:
  AcceptorHandover(grpc::ServerBuilder* builder,
                   std::shared_ptr<grpc::ServerCredentials> credentials)
      : acceptor_(builder->experimental().AddExternalConnectionAcceptor(
            grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
            std::move(credentials))) {}

  void HandOver(int listening_socket, int connection, const std::string& /*peer*/) override {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.listener_fd = listening_socket;
    parameters.fd = connection;
    acceptor_->HandleNewConnection(&parameters);
  }

 private:
  const std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
};

}  // namespace

std::unique_ptr<ConnectionHandover> ConnectionHandover::AddTo(
    grpc::ServerBuilder* builder, std::shared_ptr<grpc::ServerCredentials> credentials,
    std::shared_ptr<ReceiveLedger> /*ledger*/) {
  return std::make_unique<AcceptorHandover>(builder, std::move(credentials));
}

#endif  // SRU_GRPC_IS_CURRENT

}  // namespace sru::server::transport
