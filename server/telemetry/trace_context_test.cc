#include "server/telemetry/trace_context.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::server::telemetry {
namespace {

constexpr char kTrace[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kParent[] = "00f067aa0ba902b7";

std::string Header(const std::string& version = "00", const std::string& trace = kTrace,
                   const std::string& parent = kParent, const std::string& flags = "01") {
  return version + "-" + trace + "-" + parent + "-" + flags;
}

TEST(TraceContextTest, TakesTheHeaderApart) {
  const std::string header = Header();
  const auto context = ParseTraceparent(header);
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_TRUE(context->sampled);
}

TEST(TraceContextTest, SampledIsTheLowestBitOfTheFlags) {
  for (const auto& [flags, sampled] :
       {std::pair{"00", false}, std::pair{"01", true}, std::pair{"fe", false},
        std::pair{"ff", true}, std::pair{"0a", false}, std::pair{"0b", true}}) {
    const std::string header = Header("00", kTrace, kParent, flags);
    const auto context = ParseTraceparent(header);
    ASSERT_TRUE(context.has_value()) << flags;
    EXPECT_EQ(context->sampled, sampled) << flags;
  }
}

TEST(TraceContextTest, LaterVersionsAreReadAsTheFirst) {
  EXPECT_TRUE(ParseTraceparent(Header("01")).has_value());
  EXPECT_TRUE(ParseTraceparent(Header("cc") + "-what-comes").has_value());
  EXPECT_FALSE(ParseTraceparent(Header("cc") + "x").has_value());
}

TEST(TraceContextTest, MalformedHeadersAreIgnored) {
  const std::string good = Header();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseTraceparent(good.substr(0, length)).has_value()) << length;
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char bad : {'g', 'A', ' ', '\0', '\xff'}) {
      std::string header = good;
      header[i] = bad;
      EXPECT_FALSE(ParseTraceparent(header).has_value()) << header;
    }
  }
  EXPECT_FALSE(ParseTraceparent(good + "-00").has_value());  // version 00 ends here
  EXPECT_FALSE(ParseTraceparent(good + " ").has_value());
  EXPECT_FALSE(ParseTraceparent(Header("ff")).has_value());
  EXPECT_FALSE(ParseTraceparent(Header("00", std::string(32, '0'))).has_value());
  EXPECT_FALSE(ParseTraceparent(Header("00", kTrace, std::string(16, '0'))).has_value());
}

}  // namespace
}  // namespace sru::server::telemetry
