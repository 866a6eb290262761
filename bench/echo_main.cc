// sru_bench echo: the same measurement against a gRPC server that does nothing.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <initializer_list>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "bench/commands.h"
#include "bench/load_flags.h"
#include "bench/requests.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::bench {
namespace {

constexpr char kEchoUsage[] =
    R"(sru_bench echo starts a bare gRPC callback server in a process of its own, which answers Classify
with a prepared answer of the usual size, unparsed and without any work, and measures it with the
same client as sru_bench load. That is the limit that the wire sets on this machine.

examples:
  sru_bench echo
  sru_bench echo --in_flight=1 --json
  sru_bench echo --serve            only serve, print the address, until Ctrl-C
)";

using RawClassifyService =
    v1::InferenceService::WithRawCallbackMethod_Classify<v1::InferenceService::Service>;

class EchoService : public RawClassifyService {
 public:
  explicit EchoService(const v1::ClassifyResponse& response) {
    const grpc::Slice slice(response.SerializeAsString());
    response_ = grpc::ByteBuffer(&slice, 1);
  }

  grpc::ServerUnaryReactor* Classify(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* /*request*/,
                                     grpc::ByteBuffer* response) override {
    *response = response_;
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  // --lengths asks for the models.
  grpc::Status ListModels(grpc::ServerContext* /*context*/,
                          const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* response) override {
    *response->add_models() = Model();
    return grpc::Status::OK;
  }
  grpc::Status GetModel(grpc::ServerContext* /*context*/, const v1::GetModelRequest* /*request*/,
                        v1::GetModelResponse* response) override {
    *response->mutable_model() = Model();
    return grpc::Status::OK;
  }

 private:
  static v1::ModelInfo Model() {
    v1::ModelInfo model;
    model.set_name("echo");
    model.set_task("classifier");
    model.set_vocabulary_size(10000);
    return model;
  }

  grpc::ByteBuffer response_;
};

v1::ClassifyResponse MakeResponse(int num_sequences, int num_labels) {
  v1::ClassifyResponse response;
  response.set_model("echo");
  response.set_version(1);
  for (int i = 0; i < num_sequences; ++i) {
    v1::Classification* classification = response.add_classifications();
    for (int label = 0; label < num_labels; ++label) {
      v1::Label* entry = classification->add_labels();
      entry->set_name("LABEL");
      entry->set_index(label);
      entry->set_probability(1.0f / static_cast<float>(num_labels + label));
      entry->set_logit(1.5f - static_cast<float>(label));
    }
    classification->set_token_count(10);
  }
  response.mutable_times()->set_tokenize_us(3.5);
  response.mutable_times()->set_queue_us(12.25);
  response.mutable_times()->set_compute_us(45.75);
  response.mutable_times()->set_total_us(61.5);
  return response;
}

// Serves until one of `end_signals` arrives, which it blocks. `ready` gets the port, or 0 if the
// server could not start.
template <typename Ready>
int Serve(const v1::ClassifyResponse& response, std::initializer_list<int> end_signals,
          const Ready& ready) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal_number : end_signals) sigaddset(&signals, signal_number);
  // This must come before gRPC starts its threads, which inherit it.
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  // If Abseil is built with its checks, each of gRPC's locks searches for deadlocks, which costs
  // time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  EchoService service(response);
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  // gRPC's cost per call grows with the number of open calls; a bound keeps the cost low.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ready(server == nullptr ? 0 : port);
  if (server == nullptr) return kExitFailed;
  int signal_number = 0;
  sigwait(&signals, &signal_number);
  server->Shutdown(std::chrono::system_clock::now());
  return kExitOk;
}

// The echo server in a process of its own, which ends with this object and with this process.
class EchoProcess {
 public:
  // Call it before gRPC is used: a fork copies none of gRPC's threads.
  explicit EchoProcess(const v1::ClassifyResponse& response) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kExitFailed);
      // Ctrl-C reaches the whole process group, but the client still needs answers then.
      signal(SIGINT, SIG_IGN);
      const int code = Serve(response, {SIGTERM}, [&](int port) {
        if (write(ends[1], &port, sizeof(port)) != sizeof(port)) _exit(kExitFailed);
        close(ends[1]);
      });
      _exit(code);
    }
    close(ends[1]);
    if (pid_ > 0 && read(ends[0], &port_, sizeof(port_)) != sizeof(port_)) port_ = 0;
    close(ends[0]);
  }

  ~EchoProcess() {
    if (pid_ <= 0) return;
    kill(pid_, SIGTERM);
    waitpid(pid_, nullptr, 0);
  }

  EchoProcess(const EchoProcess&) = delete;
  EchoProcess& operator=(const EchoProcess&) = delete;

  // 0 if it did not start.
  int port() const { return port_; }

 private:
  pid_t pid_ = -1;
  int port_ = 0;
};

}  // namespace

int EchoMain(const std::vector<std::string>& args) {
  LoadOptions load;
  RequestOptions request;
  int labels = 6;
  bool serve = false;
  bool json = false;
  client::FlagSet flags;
  AddRunFlags(&load, &flags);
  AddConnectionFlags(&load, &flags);
  flags.Add("sequences", &request.sequences, "sequences in each call, and in each answer");
  flags.Add("labels", &labels, "labels per sequence in the answer");
  flags.Add("input", &request.input, "file with one text per line");
  flags.Add("lengths", &request.lengths, absl::StrCat("random token ids: ", kLengthsHelp));
  flags.Add("serve", &serve, "only start the server, print its address and wait for Ctrl-C");
  flags.Add("json", &json, "print one JSON object");
  if (auto exit_code = ParseFlags("echo", kEchoUsage, args, &flags)) return *exit_code;
  if (labels < 1 || labels > 100000) {
    return Fail("echo", absl::InvalidArgumentError("--labels: expected 1 to 100000"), load);
  }
  const v1::ClassifyResponse response = MakeResponse(request.sequences, labels);
  if (serve) {
    return Serve(response, {SIGINT, SIGTERM},
                 [](int port) { std::cout << "listening on 127.0.0.1:" << port << std::endl; });
  }

  const EchoProcess server(response);
  if (server.port() == 0) {
    std::cerr << "sru_bench echo: the echo server did not start\n";
    return kExitFailed;
  }
  load.address = absl::StrCat("127.0.0.1:", server.port());
  auto requests = PrepareRequests(request, &load);
  if (!requests.ok()) return Fail("echo", requests.status(), load);
  if (!json) {
    std::cout << "bare gRPC server, requests of " << requests->front().size()
              << " bytes, answers of " << response.ByteSizeLong() << "\n";
  }
  return RunAndReport("echo", load, *requests, /*check=*/false, json);
}

}  // namespace sru::bench
