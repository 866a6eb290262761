#include "server/calls/kinds/open_streams.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;

class CountingStream final : public OpenStream {
 public:
  void OnDrain() override { ++drains; }
  int drains = 0;
};

TEST(OpenStreamsTest, RefusesMoreThanItsLimit) {
  OpenStreams streams(2);
  CountingStream a;
  CountingStream b;
  CountingStream c;
  EXPECT_TRUE(streams.Add(&a).ok());
  EXPECT_TRUE(streams.Add(&b).ok());
  const absl::Status refused = streams.Add(&c);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kStreams);
  EXPECT_THAT(refused.message(), HasSubstr("2 are open, which is the limit (--max_streams)"));
  streams.Remove(&c);  // was never added
  EXPECT_EQ(streams.count(), 2);
  streams.Remove(&b);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&c).ok());
  streams.Leave(&a);  // its place is free before it is gone
  streams.Leave(&a);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&b).ok());
  streams.Remove(&b);
  streams.Remove(&a);
  streams.Remove(&c);
  EXPECT_EQ(streams.count(), 0);
}

TEST(OpenStreamsTest, DrainTellsEachStreamOnce) {
  OpenStreams streams(3);
  CountingStream a;
  CountingStream gone;
  CountingStream b;
  for (CountingStream* stream : {&a, &gone, &b}) EXPECT_TRUE(streams.Add(stream).ok());
  streams.Remove(&gone);
  streams.Drain();
  streams.Drain();
  EXPECT_EQ(a.drains, 1);
  EXPECT_EQ(b.drains, 1);
  EXPECT_EQ(gone.drains, 0);
  const absl::Status refused = streams.Add(&gone);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kDraining);
  streams.Remove(&a);
  streams.Remove(&b);
}

}  // namespace
}  // namespace sru::server::calls
