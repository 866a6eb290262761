// FailingBackend: the reference backend on devices that fail and fill up on command, to test what a
// server does in that case.
#ifndef SRU_TESTS_TESTING_FAILING_BACKEND_H_
#define SRU_TESTS_TESTING_FAILING_BACKEND_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
    std::vector<size_t> on;
    for (size_t i = 0; i < devices_->failed.size(); ++i) {
      if (!devices_->failed[i]) on.push_back(i);
    }
    if (on.empty()) return {kernels::StatusCode::kDeviceLost, "all devices have failed"};
    *executable = std::make_unique<FailingExecutable>(std::move(compiled), devices_, std::move(on));
    return status;
  }

  kernels::Status Compile(const kernels::Program& /*program*/,
                          const kernels::CompileOptions& /*options*/,
                          std::unique_ptr<kernels::ProgramExecutable>* /*executable*/) override {
    return kernels::Unsupported("failing: stacks only");
  }

 private:
  class FailingWorkspace : public kernels::Workspace {
   public:
    FailingWorkspace(std::unique_ptr<kernels::Workspace> workspace,
                     const kernels::WorkspaceLimits& limits,
                     std::shared_ptr<FailingDevices> devices)
        : workspace_(std::move(workspace)), limits_(limits), devices_(std::move(devices)) {
      devices_->workspace_bytes[limits_.device] += kFailingWorkspaceBytes;
    }
    ~FailingWorkspace() override {
      devices_->workspace_bytes[limits_.device] -= kFailingWorkspaceBytes;
    }
    const kernels::WorkspaceLimits& limits() const override { return limits_; }
    size_t bytes() const override { return kFailingWorkspaceBytes; }
    kernels::Workspace& workspace() { return *workspace_; }

   private:
    const std::unique_ptr<kernels::Workspace> workspace_;
    const kernels::WorkspaceLimits limits_;
    const std::shared_ptr<FailingDevices> devices_;
  };

  class FailingExecutable : public kernels::Executable {
   public:
    // `on`: the devices that have the weights.
    FailingExecutable(std::unique_ptr<kernels::Executable> executable,
                      std::shared_ptr<FailingDevices> devices, std::vector<size_t> on)
        : executable_(std::move(executable)), devices_(std::move(devices)), on_(std::move(on)) {
      for (size_t i : on_) devices_->weight_bytes[i] += kFailingWeightBytes;
    }
    ~FailingExecutable() override {
      for (size_t i : on_) devices_->weight_bytes[i] -= kFailingWeightBytes;
    }

    int num_devices() const override { return static_cast<int>(devices_->failed.size()); }
    int workers_per_device() const override { return 2; }
    kernels::Status CreateWorkspace(const kernels::WorkspaceLimits& limits,
                                    std::unique_ptr<kernels::Workspace>* workspace) const override {
      if (devices_->failed[limits.device]) {
        return {kernels::StatusCode::kDeviceLost,
                "device " + std::to_string(limits.device) + " has failed and is out of use"};
      }
      if (devices_->workspaces.fetch_add(1) >= devices_->max_workspaces) {
        return {kernels::StatusCode::kResourceExhausted, "device 0: a workspace does not fit"};
      }
      kernels::WorkspaceLimits on_reference = limits;
      on_reference.device = 0;
      std::unique_ptr<kernels::Workspace> created;
      kernels::Status status = executable_->CreateWorkspace(on_reference, &created);
      if (!status.ok()) return status;
      *workspace = std::make_unique<FailingWorkspace>(std::move(created), limits, devices_);
      return status;
    }
    kernels::Status Run(const kernels::RaggedBatch& batch, const kernels::SequenceOutput* outputs,
                        kernels::Workspace& workspace) const override {
      auto& failing = static_cast<FailingWorkspace&>(workspace);
      const int device = failing.limits().device;
      if (devices_->failed[device]) {
        return {kernels::StatusCode::kDeviceLost,
                "device " + std::to_string(device) + ": unspecified launch failure"};
      }
      return executable_->Run(batch, outputs, failing.workspace());
    }
    size_t weight_bytes() const override { return kFailingWeightBytes; }

   private:
    const std::unique_ptr<kernels::Executable> executable_;
    const std::shared_ptr<FailingDevices> devices_;
    const std::vector<size_t> on_;
  };

  const std::shared_ptr<FailingDevices> devices_;
  std::unique_ptr<kernels::Backend> reference_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FAILING_BACKEND_H_
