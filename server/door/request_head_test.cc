#include "server/door/request_head.h"

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "server/door/response_head.h"

namespace sru::server::door {
namespace {

constexpr size_t kLongestHead = 1000;

TEST(RequestHeadTest, ContentTypesOfGrpc) {
  for (const auto& [type, is_grpc] :
       {std::pair{"application/grpc", true}, std::pair{"application/grpc+proto", true},
        std::pair{"application/grpc;charset=utf-8", true}, std::pair{"application/grpcweb", false},
        std::pair{"application/json", false}, std::pair{"", false}}) {
    RequestHead head;
    head.Add("content-type", type, kLongestHead);
    EXPECT_EQ(head.is_grpc(), is_grpc) << type;
  }
}

TEST(RequestHeadTest, FieldsAreFoundAndTheProtocolsOwnAreNot) {
  RequestHead head;
  head.Add(":method", "POST", kLongestHead);
  head.Add(":path", "/a/B", kLongestHead);
  head.Add("x-one", "first", kLongestHead);
  head.Add("x-other", "alone", kLongestHead);
  head.Add("x-one", "second", kLongestHead);
  head.Add("grpc-timeout", "1S", kLongestHead);
  head.Add("grpc-encoding", "snappy", kLongestHead);
  head.Add("grpc-accept-encoding", "identity, gzip", kLongestHead);
  head.Add("te", "trailers", kLongestHead);
  head.Add("x-two-bin", "AA==,AQ", kLongestHead);
  head.Add("x-no-bin", "?", kLongestHead);
  head.Add("x-one", "", kLongestHead);
  head.JoinRepeated();
  EXPECT_EQ(head.verb(), "POST");
  EXPECT_EQ(head.path(), "/a/B");
  EXPECT_EQ(head.Find("x-one"), "first,second,");
  EXPECT_EQ(head.Count("x-one"), 3);
  EXPECT_EQ(head.Find("x-other"), "alone");
  EXPECT_EQ(head.Count("x-two-bin"), 2);
  EXPECT_EQ(head.Find("x-two-bin"), absl::string_view("\0", 1));
  EXPECT_EQ(head.Count("x-no-bin"), 0);
  EXPECT_TRUE(head.has_bad_binary());
  EXPECT_EQ(head.Count("grpc-timeout") + head.Count("te") + head.Count(":path"), 0);
  EXPECT_EQ(head.timeout(), absl::Seconds(1));
  EXPECT_EQ(head.encoding(), Encoding::kUnknown);
  EXPECT_EQ(head.encoding_name(), "snappy");
  EXPECT_TRUE(head.accepts_gzip());
}

TEST(RequestHeadTest, AHostIsThatOfTheAuthority) {
  for (const auto& [scheme, host, is_malformed] :
       {std::tuple{"http", "Example.com", false}, std::tuple{"http", "example.com:80", false},
        std::tuple{"https", "example.com:443", false}, std::tuple{"http", "example.com:443", true},
        std::tuple{"http", "example.co", true}, std::tuple{"http", "", true}}) {
    RequestHead head;
    head.Add(":authority", "example.com", kLongestHead);
    head.Add(":scheme", scheme, kLongestHead);
    head.Add("host", host, kLongestHead);
    EXPECT_EQ(head.is_malformed(), is_malformed) << scheme << " " << host;
    std::string hosts;  // of a handler of requests, which has one
    head.VisitFields(
        [&](absl::string_view, absl::string_view value) { absl::StrAppend(&hosts, value); });
    EXPECT_EQ(hosts, "example.com");
  }
  RequestHead head;
  head.Add("host", "alone", kLongestHead);
  EXPECT_FALSE(head.is_malformed());
  EXPECT_EQ(head.Find("host"), "alone");
}

TEST(RequestHeadTest, AListIsCountedBeyondItsBoundAndNotKept) {
  RequestHead head;
  head.Add("a", "b", 40);
  head.Add("c", "d", 40);
  EXPECT_EQ(head.list_bytes(), 2 * (2 + 32));
  EXPECT_EQ(head.Find("a"), "b");
  EXPECT_EQ(head.Count("c"), 0);
}

TEST(RequestHeadTest, EachOfManyBinaryValuesIsCounted) {
  const std::string name = std::string(200, 'a') + "-bin";
  RequestHead few;
  few.Add(name, "AA,AQ,Ag", kLongestHead);
  EXPECT_EQ(few.list_bytes(), name.size() + 8 + 3 * 32);
  EXPECT_EQ(few.Count(name), 3);
  RequestHead many;
  many.Add(name, std::string(500, ','), kLongestHead);
  EXPECT_GT(many.list_bytes(), kLongestHead);
  EXPECT_LT(many.memory_bytes(), 4 * kLongestHead);
}

TEST(ResponseHeadTest, LongTextsAreCutBetweenCharacters) {
  std::string text(kMostMessageBytes - 1, 'a');
  text += "\xC3\xA4" + std::string(kMostDetailBytes, 'd');
  HeaderList list;
  list.AddEnd({RetryAfter(absl::InternalError(text), absl::Seconds(1)), {}, {}});
  ASSERT_EQ(list.size(), 2U);  // no details
  EXPECT_EQ(list.data()[1].valuelen, kMostMessageBytes - 1);
}

}  // namespace
}  // namespace sru::server::door
