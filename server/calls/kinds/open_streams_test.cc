#include "server/calls/kinds/open_streams.h"

#include <array>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;

constexpr char kPeer[] = "ipv4:10.0.0.1:4711";

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
  EXPECT_TRUE(streams.Add(&a, kPeer).ok());
  EXPECT_TRUE(streams.Add(&b, kPeer).ok());
  const absl::Status refused = streams.Add(&c, kPeer);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kStreams);
  EXPECT_THAT(refused.message(), HasSubstr("2 are open, which is the limit (--max_streams)"));
  streams.Remove(&c);  // was never added
  EXPECT_EQ(streams.count(), 2);
  streams.Remove(&b);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&c, kPeer).ok());
  streams.Leave(&a);  // its place is free before it is gone
  streams.Leave(&a);
  EXPECT_EQ(streams.count(), 1);
  EXPECT_TRUE(streams.Add(&b, kPeer).ok());
  streams.Remove(&b);
  streams.Remove(&a);
  streams.Remove(&c);
  EXPECT_EQ(streams.count(), 0);
}

TEST(OpenStreamsTest, AnAddressHasAQuarterOfThePlaces) {
  OpenStreams streams(OpenStreams::kLeastShared);
  // Each pair is one address.
  for (const auto& [peer, same, other] :
       {std::array{"ipv4:10.0.0.1:1", "ipv4:10.0.0.1:2", "ipv4:10.0.0.2:1"},
        std::array{"ipv6:[2001:db8::1]:1", "ipv6:%5B2001:db8::2%5D:1", "ipv6:[2001:db8:0:1::1]:1"},
        std::array{"ipv6:[fe80::1%eth0]:1", "ipv6:[fe80::1%25eth0]:1", "ipv6:[fe81::1]:1"},
        std::array{"ipv6:[::ffff:10.0.0.1]:1", "ipv4:10.0.0.1:2", "ipv4:10.0.0.2:1"}}) {
    CountingStream a;
    CountingStream b;
    CountingStream c;
    EXPECT_TRUE(streams.Add(&a, peer).ok());
    EXPECT_TRUE(streams.Add(&b, same).ok());
    const absl::Status refused = streams.Add(&c, same);
    EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kStreams) << peer;
    EXPECT_THAT(refused.message(),
                HasSubstr("2 of your address are open, which is its part of 8 (--max_streams)"));
    EXPECT_TRUE(streams.Add(&c, other).ok()) << other;
    streams.Remove(&c);
    streams.Leave(&a);
    EXPECT_TRUE(streams.Add(&c, peer).ok());
    for (CountingStream* stream : {&a, &b, &c}) streams.Remove(stream);
    EXPECT_EQ(streams.count(), 0);
  }
}

TEST(OpenStreamsTest, ASocketInTheFileSystemHasNoShare) {
  OpenStreams streams(OpenStreams::kLeastShared);
  std::array<CountingStream, OpenStreams::kLeastShared> all;
  for (CountingStream& stream : all) EXPECT_TRUE(streams.Add(&stream, "unix:").ok());
  for (CountingStream& stream : all) streams.Remove(&stream);
}

TEST(OpenStreamsTest, DrainTellsEachStreamOnce) {
  OpenStreams streams(3);
  CountingStream a;
  CountingStream gone;
  CountingStream b;
  for (CountingStream* stream : {&a, &gone, &b}) EXPECT_TRUE(streams.Add(stream, kPeer).ok());
  streams.Remove(&gone);
  streams.Drain();
  streams.Drain();
  EXPECT_EQ(a.drains, 1);
  EXPECT_EQ(b.drains, 1);
  EXPECT_EQ(gone.drains, 0);
  const absl::Status refused = streams.Add(&gone, kPeer);
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(batching::GetRejectReason(refused), batching::RejectReason::kDraining);
  streams.Remove(&a);
  streams.Remove(&b);
}

}  // namespace
}  // namespace sru::server::calls
