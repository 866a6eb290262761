#include "models/kernel_status.h"

#include "gtest/gtest.h"

namespace sru::models {
namespace {

TEST(KernelStatusTest, KeepsMeaningAndMessage) {
  EXPECT_TRUE(ToAbslStatus(kernels::OkStatus()).ok());
  const struct {
    kernels::StatusCode from;
    absl::StatusCode to;
  } kCases[] = {
      {kernels::StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      {kernels::StatusCode::kUnsupported, absl::StatusCode::kUnimplemented},
      {kernels::StatusCode::kResourceExhausted, absl::StatusCode::kResourceExhausted},
      {kernels::StatusCode::kUnavailable, absl::StatusCode::kUnavailable},
      {kernels::StatusCode::kDeviceLost, absl::StatusCode::kUnavailable},
      {kernels::StatusCode::kInternal, absl::StatusCode::kInternal},
  };
  for (const auto& c : kCases) {
    const absl::Status status = ToAbslStatus(kernels::Status(c.from, "what happened"));
    EXPECT_EQ(status.code(), c.to);
    EXPECT_EQ(status.message(), "what happened");
  }
}

}  // namespace
}  // namespace sru::models
