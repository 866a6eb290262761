#include "server/telemetry/request_id.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace sru::server::telemetry {

bool IsValidRequestId(absl::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdLength &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string MakeRequestId() {
  static const uint64_t process = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  static std::atomic<uint64_t> count{0};
  return absl::StrCat(absl::Hex(process, absl::kZeroPad16),
                      absl::Hex(count.fetch_add(1, std::memory_order_relaxed), absl::kZeroPad16));
}

}  // namespace sru::server::telemetry
