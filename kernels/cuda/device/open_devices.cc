#include "kernels/cuda/device/open_devices.h"

#include <algorithm>
#include <set>
#include <utility>

namespace sru::kernels::cuda {
namespace {

// 12040 -> "12.4"
std::string VersionName(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The oldest Linux driver that runs programs of this CUDA version. A driver runs programs of its
// major version whatever their minor one is (NVIDIA's "CUDA Compatibility").
std::string LeastDriver(int runtime_version) {
  switch (runtime_version / 1000) {
    case 12:
      return "525.60.13";
    case 13:
      return "580.65.06";
    default:
      return "one for CUDA " + std::to_string(runtime_version / 1000) + ".0";
  }
}

// Ends a message: whoever reads it can tell whether a new driver would help.
std::string Versions(Driver* driver) {
  const int installed = driver->driver_version();
  const int built = driver->runtime_version();
  return "; driver: " + (installed == 0 ? "none" : "for CUDA " + VersionName(installed)) +
         ", this program: built with CUDA " + VersionName(built) + ", needs driver " +
         LeastDriver(built) + " or newer";
}

Status Unavailable(const std::string& message) {
  return Status(StatusCode::kUnavailable, "backend cuda: ", message);
}

Status NoGpu(Driver* driver, const std::string& said) {
  const int installed = driver->driver_version();
  std::string why = "the driver says: " + said;
  // In both of these cases the driver's own words are that it is too old.
  if (installed == 0) {
    why = "no NVIDIA driver was found (libcuda.so.1)";
  } else if (installed / 1000 < driver->runtime_version() / 1000) {
    why = "the NVIDIA driver is too old";
  }
  return Unavailable("no GPU can be used: " + why + Versions(driver));
}

Status CheckOrdinals(const std::vector<int>& ordinals, int count) {
  for (auto it = ordinals.begin(); it != ordinals.end(); ++it) {
    if (*it < 0 || *it >= count) {
      return InvalidArgument("cuda_devices: expected 0 to ", count - 1, ", found ", *it);
    }
    if (std::find(ordinals.begin(), it, *it) != it) {
      return InvalidArgument("cuda_devices: ", *it, " is named twice");
    }
  }
  return OkStatus();
}

bool IsUsable(Driver* driver, int ordinal) {
  return driver->ComputeCapability(ordinal) >= kMinComputeCapability;
}

void WarnOfDifferentModels(const std::vector<std::unique_ptr<Device>>& devices,
                           std::vector<std::string>* warnings) {
  std::set<std::string> names;
  for (const std::unique_ptr<Device>& device : devices) names.insert(device->name());
  if (names.size() < 2) return;
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  warnings->push_back("backend cuda: the GPUs are of different models (" + list +
                      "): the same sequence may differ in its last bits from one to another");
}

}  // namespace

Status OpenDevices(Driver* driver, const std::vector<int>& ordinals,
                   std::vector<std::unique_ptr<Device>>* devices,
                   std::vector<std::string>* warnings) {
  int count = 0;
  if (const Status status = driver->Count(&count); !status.ok()) {
    return NoGpu(driver, status.message());
  }
  if (count == 0) return NoGpu(driver, "there is none");
  std::vector<int> chosen = ordinals;
  for (int i = 0; ordinals.empty() && i < count; ++i) {
    if (IsUsable(driver, i)) chosen.push_back(i);
  }
  if (chosen.empty()) {
    return Unavailable("no GPU has compute capability " + std::to_string(kMinComputeCapability) +
                       ".0 or newer");
  }
  SRU_RETURN_IF_ERROR(CheckOrdinals(chosen, count));
  SRU_RETURN_IF_ERROR(driver->LoadLibraries());
  std::vector<std::unique_ptr<Device>> opened;
  std::vector<std::string> failures;
  for (const int ordinal : chosen) {
    std::unique_ptr<Device> device;
    const Status status = driver->Open(ordinal, &device);
    if (status.ok()) {
      opened.push_back(std::move(device));
    } else if (!ordinals.empty()) {
      return Unavailable(status.message() + Versions(driver));
    } else {
      failures.push_back(status.message());
    }
  }
  if (opened.empty()) {
    std::string message = "no GPU can be opened: ";
    for (const std::string& failure : failures) {
      message += (&failure == &failures.front() ? "" : "; ") + failure;
    }
    return Unavailable(message + Versions(driver));
  }
  for (const std::string& failure : failures) {
    warnings->push_back("backend cuda: a GPU is left out: " + failure + Versions(driver));
  }
  WarnOfDifferentModels(opened, warnings);
  *devices = std::move(opened);
  return OkStatus();
}

int CountDevices(Driver* driver) {
  int count = 0;
  if (!driver->Count(&count).ok()) return 0;
  int usable = 0;
  for (int i = 0; i < count; ++i) usable += IsUsable(driver, i) ? 1 : 0;
  return usable > 0 && driver->LoadLibraries().ok() ? usable : 0;
}

}  // namespace sru::kernels::cuda
