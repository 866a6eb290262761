#include "server/calls/messages/response_writer.h"

#include "gtest/gtest.h"

namespace sru::server::calls {
namespace {

TEST(ResponseWriterTest, TimesAreMicroseconds) {
  telemetry::CallTimes times;
  times.tokenize = absl::Nanoseconds(1500);
  times.queue = absl::Milliseconds(2);
  times.compute = absl::Microseconds(3);
  times.total = absl::Seconds(1);
  v1::StageTimes proto;
  WriteTimes(times, &proto);
  EXPECT_DOUBLE_EQ(proto.tokenize_us(), 1.5);
  EXPECT_DOUBLE_EQ(proto.queue_us(), 2000);
  EXPECT_DOUBLE_EQ(proto.compute_us(), 3);
  EXPECT_DOUBLE_EQ(proto.total_us(), 1e6);
}

}  // namespace
}  // namespace sru::server::calls
