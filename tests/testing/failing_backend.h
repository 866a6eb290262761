// FailingBackend: the reference backend on devices that fail, fill up and stand still on command,
// to test what a server does in that case.
#ifndef SRU_TESTS_TESTING_FAILING_BACKEND_H_
#define SRU_TESTS_TESTING_FAILING_BACKEND_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/backend.h"

namespace sru::testing {

// Of each device, whatever the model.
inline constexpr size_t kFailingWeightBytes = 1000000;
inline constexpr size_t kFailingWorkspaceBytes = 2000000;

// What a test keeps in its hand while the server owns the backend. Thread-safe.
struct FailingDevices {
  explicit FailingDevices(int count) : failed(count), weight_bytes(count), workspace_bytes(count) {}

  std::vector<std::atomic<bool>> failed;
  std::vector<std::atomic<size_t>> weight_bytes;
  std::vector<std::atomic<size_t>> workspace_bytes;
  std::atomic<int> max_workspaces{1000};  // of all devices; more are refused
  std::atomic<int> workspaces{0};
  // While it is set, runs do not begin: whatever the machine's speed, calls wait.
  std::atomic<bool> held{false};
  std::atomic<int> run_milliseconds{0};  // that a run takes in addition
};

class FailingBackend : public kernels::Backend {
 public:
  explicit FailingBackend(std::shared_ptr<FailingDevices> devices) : devices_(std::move(devices)) {
    (void)kernels::CreateBackend("reference", &reference_);
  }

  const char* name() const override { return "failing"; }
  std::string description() const override { return "devices that fail"; }
  std::vector<kernels::DeviceInfo> devices() const override {
    std::vector<kernels::DeviceInfo> infos;
    for (size_t i = 0; i < devices_->failed.size(); ++i) {
      kernels::DeviceInfo info;
      info.name = "Paper GPU";
      info.ordinal = static_cast<int>(i);
      info.memory_bytes = 80000000;
      info.memory_limit = 70000000;
      info.weight_bytes = devices_->weight_bytes[i];
      info.memory_in_use = info.weight_bytes + devices_->workspace_bytes[i];
      info.lost = devices_->failed[i];
      infos.push_back(std::move(info));
    }
    return infos;
  }
  kernels::Status Compile(const kernels::StackSpec& spec, const kernels::CompileOptions& options,
                          std::unique_ptr<kernels::Executable>* executable) override {
    std::unique_ptr<kernels::Executable> compiled;
    kernels::Status status = reference_->Compile(spec, options, &compiled);
    if (!status.ok()) return status;
    if (!AnyWorks()) return {kernels::StatusCode::kDeviceLost, "all devices have failed"};
    *executable = std::make_unique<FailingExecutable>(std::move(compiled), devices_);
    return status;
  }

  kernels::Status Compile(const kernels::Program& program, const kernels::CompileOptions& options,
                          std::unique_ptr<kernels::ProgramExecutable>* executable) override {
    std::unique_ptr<kernels::ProgramExecutable> compiled;
    kernels::Status status = reference_->Compile(program, options, &compiled);
    if (!status.ok()) return status;
    if (!AnyWorks()) return {kernels::StatusCode::kDeviceLost, "all devices have failed"};
    *executable = std::make_unique<FailingProgramExecutable>(std::move(compiled), devices_);
    return status;
  }

 private:
  // What stacks and programs have in common: weights on the devices that work, and workspaces.
  class Weights {
   public:
    explicit Weights(std::shared_ptr<FailingDevices> devices) : devices_(std::move(devices)) {
      for (size_t i = 0; i < devices_->failed.size(); ++i) {
        if (!devices_->failed[i]) on_.push_back(i);
      }
      for (size_t i : on_) devices_->weight_bytes[i] += kFailingWeightBytes;
    }
    ~Weights() {
      for (size_t i : on_) devices_->weight_bytes[i] -= kFailingWeightBytes;
    }
    Weights(const Weights&) = delete;
    Weights& operator=(const Weights&) = delete;

    const std::shared_ptr<FailingDevices>& devices() const { return devices_; }
    int count() const { return static_cast<int>(devices_->failed.size()); }
    kernels::Status CheckWorkspace(int device) const {
      if (devices_->failed[device]) {
        return {kernels::StatusCode::kDeviceLost,
                "device " + std::to_string(device) + " has failed and is out of use"};
      }
      if (devices_->workspaces.fetch_add(1) >= devices_->max_workspaces) {
        return {kernels::StatusCode::kResourceExhausted, "device 0: a workspace does not fit"};
      }
      return kernels::OkStatus();
    }
    kernels::Status CheckRun(int device) const {
      absl::SleepFor(absl::Milliseconds(devices_->run_milliseconds.load()));
      while (devices_->held) absl::SleepFor(absl::Milliseconds(1));
      return CheckDevice(device);
    }
    kernels::Status CheckDevice(int device) const {
      if (!devices_->failed[device]) return kernels::OkStatus();
      return {kernels::StatusCode::kDeviceLost,
              "device " + std::to_string(device) + ": unspecified launch failure"};
    }

   private:
    const std::shared_ptr<FailingDevices> devices_;
    std::vector<size_t> on_;  // the devices that have the weights
  };

  // `Base` is kernels::Workspace or kernels::ProgramWorkspace.
  template <typename Base, typename Limits>
  class FailingWorkspace : public Base {
   public:
    FailingWorkspace(std::unique_ptr<Base> workspace, const Limits& limits,
                     std::shared_ptr<FailingDevices> devices)
        : workspace_(std::move(workspace)), limits_(limits), devices_(std::move(devices)) {
      devices_->workspace_bytes[limits_.device] += kFailingWorkspaceBytes;
    }
    ~FailingWorkspace() override {
      devices_->workspace_bytes[limits_.device] -= kFailingWorkspaceBytes;
    }
    const Limits& limits() const override { return limits_; }
    size_t bytes() const override { return kFailingWorkspaceBytes; }
    Base& workspace() { return *workspace_; }

   private:
    const std::unique_ptr<Base> workspace_;
    const Limits limits_;
    const std::shared_ptr<FailingDevices> devices_;
  };
  using StackWorkspace = FailingWorkspace<kernels::Workspace, kernels::WorkspaceLimits>;
  using ProgramWorkspace = FailingWorkspace<kernels::ProgramWorkspace, kernels::ProgramLimits>;

  class FailingExecutable : public kernels::Executable {
   public:
    FailingExecutable(std::unique_ptr<kernels::Executable> executable,
                      std::shared_ptr<FailingDevices> devices)
        : executable_(std::move(executable)), weights_(std::move(devices)) {}

    int num_devices() const override { return weights_.count(); }
    int workers_per_device() const override { return 2; }
    kernels::Status CreateWorkspace(const kernels::WorkspaceLimits& limits,
                                    std::unique_ptr<kernels::Workspace>* workspace) const override {
      kernels::Status status = weights_.CheckWorkspace(limits.device);
      if (!status.ok()) return status;
      kernels::WorkspaceLimits on_reference = limits;
      on_reference.device = 0;
      std::unique_ptr<kernels::Workspace> created;
      status = executable_->CreateWorkspace(on_reference, &created);
      if (!status.ok()) return status;
      *workspace = std::make_unique<StackWorkspace>(std::move(created), limits, weights_.devices());
      return status;
    }
    kernels::Status Run(const kernels::RaggedBatch& batch, const kernels::SequenceOutput* outputs,
                        kernels::Workspace& workspace) const override {
      auto& failing = static_cast<StackWorkspace&>(workspace);
      kernels::Status status = weights_.CheckRun(failing.limits().device);
      return status.ok() ? executable_->Run(batch, outputs, failing.workspace()) : status;
    }
    size_t weight_bytes() const override { return kFailingWeightBytes; }

   private:
    const std::unique_ptr<kernels::Executable> executable_;
    const Weights weights_;
  };

  class FailingProgramExecutable : public kernels::ProgramExecutable {
   public:
    FailingProgramExecutable(std::unique_ptr<kernels::ProgramExecutable> executable,
                             std::shared_ptr<FailingDevices> devices)
        : executable_(std::move(executable)), weights_(std::move(devices)) {}

    int num_devices() const override { return weights_.count(); }
    int workers_per_device() const override { return 2; }
    kernels::Status CreateWorkspace(
        const kernels::ProgramLimits& limits,
        std::unique_ptr<kernels::ProgramWorkspace>* workspace) const override {
      kernels::Status status = weights_.CheckWorkspace(limits.device);
      if (!status.ok()) return status;
      kernels::ProgramLimits on_reference = limits;
      on_reference.device = 0;
      std::unique_ptr<kernels::ProgramWorkspace> created;
      status = executable_->CreateWorkspace(on_reference, &created);
      if (!status.ok()) return status;
      *workspace =
          std::make_unique<ProgramWorkspace>(std::move(created), limits, weights_.devices());
      return status;
    }
    // On the reference backend's only device, whatever was asked for.
    kernels::Status CreateArena(const kernels::ArenaOptions& options,
                                std::unique_ptr<kernels::StateArena>* arena) const override {
      kernels::Status status = weights_.CheckDevice(options.device);
      if (!status.ok()) return status;
      kernels::ArenaOptions on_reference = options;
      on_reference.device = 0;
      return executable_->CreateArena(on_reference, arena);
    }
    kernels::Status Run(const kernels::ProgramBatch& batch, const kernels::OutputBatch* outputs,
                        kernels::ProgramWorkspace& workspace) const override {
      auto& failing = static_cast<ProgramWorkspace&>(workspace);
      kernels::Status status = weights_.CheckRun(failing.limits().device);
      return status.ok() ? executable_->Run(batch, outputs, failing.workspace()) : status;
    }
    size_t weight_bytes() const override { return kFailingWeightBytes; }

   private:
    const std::unique_ptr<kernels::ProgramExecutable> executable_;
    const Weights weights_;
  };

  bool AnyWorks() const {
    return std::any_of(devices_->failed.begin(), devices_->failed.end(),
                       [](const std::atomic<bool>& failed) { return !failed; });
  }

  const std::shared_ptr<FailingDevices> devices_;
  std::unique_ptr<kernels::Backend> reference_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FAILING_BACKEND_H_
