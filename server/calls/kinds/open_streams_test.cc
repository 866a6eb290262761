#include "server/calls/kinds/open_streams.h"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;

constexpr char kCaller[] = "10.0.0.1";

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
  EXPECT_TRUE(streams.Add(&a, kCaller).ok());
  EXPECT_TRUE(streams.Add(&b, kCaller).ok());
  const absl::Status refused = streams.Add(&c, kCaller);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kStreams);
  EXPECT_THAT(refused.message(), HasSubstr("2 are open, which is the limit (--max_streams)"));
  streams.Remove(&c);  // was never added
  EXPECT_EQ(streams.count(), 2);
  streams.Remove(&b);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&c, kCaller).ok());
  streams.Leave(&a);  // its place is free before it is gone
  streams.Leave(&a);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&b, kCaller).ok());
  streams.Remove(&b);
  streams.Remove(&a);
  streams.Remove(&c);
  EXPECT_EQ(streams.count(), 0);
}

TEST(OpenStreamsTest, ACallerHasAQuarterOfThePlaces) {
  OpenStreams streams(OpenStreams::kLeastShared);
  CountingStream a;
  CountingStream b;
  CountingStream c;
  EXPECT_TRUE(streams.Add(&a, kCaller).ok());
  EXPECT_TRUE(streams.Add(&b, kCaller).ok());
  const absl::Status refused = streams.Add(&c, kCaller);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kStreams);
  EXPECT_THAT(refused.message(),
              HasSubstr("2 of yours are open, which is one caller's part of 8 (--max_streams)"));
  EXPECT_TRUE(streams.Add(&c, "name a").ok());
  streams.Remove(&c);
  streams.Leave(&a);
  EXPECT_TRUE(streams.Add(&c, kCaller).ok());
  for (CountingStream* stream : {&a, &b, &c}) streams.Remove(stream);
  EXPECT_EQ(streams.count(), 0);
}

TEST(OpenStreamsTest, ACallerWithoutAnIdHasNoShare) {
  OpenStreams streams(OpenStreams::kLeastShared);
  std::array<CountingStream, OpenStreams::kLeastShared> all;
  for (CountingStream& stream : all) EXPECT_TRUE(streams.Add(&stream, "").ok());
  for (CountingStream& stream : all) streams.Remove(&stream);
}

TEST(OpenStreamsTest, DrainTellsEachStreamOnce) {
  OpenStreams streams(3);
  CountingStream a;
  CountingStream gone;
  CountingStream b;
  for (CountingStream* stream : {&a, &gone, &b}) EXPECT_TRUE(streams.Add(stream, kCaller).ok());
  streams.Remove(&gone);
  streams.Drain();
  streams.Drain();
  EXPECT_EQ(a.drains, 1);
  EXPECT_EQ(b.drains, 1);
  EXPECT_EQ(gone.drains, 0);
  const absl::Status refused = streams.Add(&gone, kCaller);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kDraining);
  streams.Remove(&a);
  streams.Remove(&b);
}

}  // namespace
}  // namespace sru::server::calls
