#include "server/base/listen_address.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(ListenAddressTest, IsParsedAndWritten) {
  for (const char* text : {"0.0.0.0:0", "localhost:65535", "[::]:50051", "[::1]:1"}) {
    const absl::StatusOr<ListenAddress> address = ParseListenAddress("listen", text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
  }
  for (const char* text : {"", ":", ":1", "host", "host:", "host:x", "host:-1", "host:65536",
                           "::1:80", "[]:80", "[::1:80"}) {
    EXPECT_EQ(ParseListenAddress("listen", text).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace sru::server
