#include "server/unknown_variables.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const std::vector<absl::string_view> kFlags = {"test_address", "test_tokens", "test_seconds",
                                               "test_pin"};

TEST(UnknownVariablesTest, VariablesThatNobodyReads) {
  const char* const environment[] = {
      "PATH=/bin", "SRU_TEST_ADDRESS=fine", "SRU_TOKENS=1", "SRU_ADDRESS=client", "SRU_TLS_CA=c",
      // Kubernetes, for the services sru and sru-server.
      "SRU_SERVICE_HOST=10.0.0.1", "SRU_SERVICE_PORT_GRPC=1", "SRU_PORT=tcp://1",
      "SRU_PORT_50051_TCP_ADDR=1", "SRU_SERVER_SERVICE_HOST=1", "SRU_SERVER_PORT_9090_TCP=1",
      "SRU_ELSE", nullptr};
  EXPECT_THAT(
      UnknownVariables(environment, kFlags),
      ElementsAre("environment variable SRU_ELSE has no effect: there is no such option",
                  "environment variable SRU_TOKENS has no effect: there is no such option"));
  const char* const mistyped[] = {"SRU_TOKENZ=9", nullptr};
  EXPECT_THAT(UnknownVariables(mistyped, {"tokens", "listen"}),
              ElementsAre("environment variable SRU_TOKENZ has no effect: there is no such option; "
                          "did you mean SRU_TOKENS?"));
  EXPECT_THAT(UnknownVariables(nullptr, kFlags), IsEmpty());
}

}  // namespace
}  // namespace sru::server
