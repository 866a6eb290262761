#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/lifecycle/model_manager.h"

namespace sru::server::lifecycle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LoadFailureTest, SaysWhatIsMissing) {
  const auto text = [](const std::exception& error) {
    const absl::Status status = ExplainFailure(error);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    return std::string(status.message());
  };
  EXPECT_EQ(text(std::bad_alloc()), "memory does not suffice");
  // The exception that std::thread throws.
  EXPECT_THAT(
      text(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))),
      AllOf(HasSubstr("thread"), HasSubstr("ulimit -u"), HasSubstr("pids.max"),
            HasSubstr("--instances")));
  EXPECT_EQ(text(std::runtime_error("something else")), "something else");
}

}  // namespace
}  // namespace sru::server::lifecycle
