#include "server/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/wiring/parts.h"

namespace sru::server {
namespace {

class ServerImpl final : public Server {
 public:
  ServerImpl(std::unique_ptr<kernels::Backend> backend, const Options& options)
      : shared_(options), models_(std::move(backend), &shared_) {}

  ~ServerImpl() override {
    if (!drained_) Drain();
    // Their last job may be the end of a call, with its model.
    shared_.readers.Stop();
    shared_.writers.Stop();
    // The metrics pages and the watch read the registry, so they go first.
    models_.StopWatch();
    pages_.Stop();
    models_.Unload();
  }

  absl::Status Start() {
    SRU_RETURN_UNLESS_OK(ValidateOptions(options_));
    SRU_RETURN_UNLESS_OK(wiring::CheckPorts(options_));
    const std::string warning = calls::BudgetsWarning(shared_.budgets, ReadMemoryLimits());
    if (!warning.empty()) LogWarning(warning);
    SRU_RETURN_UNLESS_OK(doors_.LoadCredentials(&models_.loader()));
    SRU_RETURN_UNLESS_OK(pages_.Start());
    SRU_RETURN_UNLESS_OK(models_.Load());
    methods_.Make(&shared_, &models_);
    doors_.StartLoops();
    http_calls_.StartCallServer();
    SRU_RETURN_UNLESS_OK(doors_.OpenForCallers(http_calls_.server()));
    pages_.OpenBoxes();
    models_.StartWatch();
    SRU_RETURN_UNLESS_OK(doors_.OpenAdmin());
    models_.SetStarted();
    if (options_.models.control != lifecycle::ModelControl::kStatic) {
      models_.manager()->StartThread();
    }
    return absl::OkStatus();
  }

  ListenAddress address() const override { return doors_.address(); }
  ListenAddress metrics_address() const override { return pages_.address(); }
  std::optional<ListenAddress> admin_address() const override { return doors_.admin_address(); }
  std::optional<ListenAddress> http_address() const override { return doors_.http_address(); }

  void Reload() override {
    std::vector<std::string> looked_at;
    if (options_.models.control == lifecycle::ModelControl::kPoll) {
      models_.manager()->RequestPoll();
      looked_at.push_back("the repository");
    }
    if (options_.security.has_tls()) looked_at.push_back("the TLS files");
    if (!options_.security.auth_tokens_file.empty()) looked_at.push_back("the file of tokens");
    if (!options_.security.state_key_file.empty()) looked_at.push_back("the file of state keys");
    doors_.LookNow();
    LogInfo(looked_at.empty()
                ? "reload: there is nothing to look at; --model_control=poll lets the server look "
                  "at the repository"
                : absl::StrCat("reload: looking at ", absl::StrJoin(looked_at, ", ")));
  }

  bool Drain() override {
    drained_ = true;
    return wiring::Drain(&shared_, &models_, &doors_, &http_calls_, &pages_);
  }

 private:
  // In the order of their dependencies: the last one is destroyed first. Pointers in them are set
  // while the server starts, before the threads that read them, and stay until the destructor.
  wiring::Shared shared_;
  const Options& options_ = shared_.options;
  bool drained_ = false;
  wiring::ServedModels models_;
  wiring::CallMethods methods_;
  wiring::Doors doors_{&shared_, &methods_};
  wiring::HttpCalls http_calls_{&shared_, models_, &methods_, &doors_};
  wiring::Pages pages_{&shared_, &models_, &doors_, &http_calls_};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options,
                                                      std::unique_ptr<kernels::Backend> backend) {
  auto server = std::make_unique<ServerImpl>(std::move(backend), options);
  SRU_RETURN_UNLESS_OK(server->Start());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace sru::server
