#include "server/callers/trusted_proxies.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::callers {
namespace {

using ::testing::HasSubstr;

TrustedProxies Parse(const std::string& text) {
  absl::StatusOr<TrustedProxies> proxies = TrustedProxies::Parse("trusted_proxies", text);
  EXPECT_TRUE(proxies.ok()) << proxies.status();
  return proxies.ok() ? *proxies : TrustedProxies();
}

TEST(TrustedProxiesTest, WithoutProxiesThePeerCalls) {
  const TrustedProxies none;
  EXPECT_EQ(none.CallerAddress("ipv4:10.0.0.1:4711", "1.2.3.4"), "10.0.0.1");
  EXPECT_EQ(none.CallerAddress("10.0.0.1", "1.2.3.4"), "10.0.0.1");
  EXPECT_EQ(none.CallerAddress("ipv6:[2001:db8:1:2:3::4]:80", ""), "2001:db8:1:2::/64");
  EXPECT_EQ(none.CallerAddress("ipv6:%5B2001:db8:1:2::9%5D:80", ""), "2001:db8:1:2::/64");
  EXPECT_EQ(none.CallerAddress("2001:db8:1:2::5", ""), "2001:db8:1:2::/64");
  EXPECT_EQ(none.CallerAddress("ipv6:[fe80::1%25eth0]:80", ""), "fe80::/64");
  EXPECT_EQ(none.CallerAddress("ipv6:[::ffff:10.0.0.1]:80", ""), "10.0.0.1");
  EXPECT_EQ(none.CallerAddress("::1", ""), "::1");
  for (const char* const none_at_all : {"unix:", "unix", "", "unix:/run/sru"}) {
    EXPECT_EQ(none.CallerAddress(none_at_all, "1.2.3.4"), "anonymous") << none_at_all;
  }
}

TEST(TrustedProxiesTest, TheLastAddressThatIsNoProxyCalls) {
  const TrustedProxies proxies = Parse("10.0.0.0/8, 192.0.2.1,fd00::/8,unix");
  const auto caller = [&proxies](const std::string& forwarded) {
    return proxies.CallerAddress("ipv4:10.0.0.1:4711", forwarded);
  };
  EXPECT_EQ(caller("203.0.113.7"), "203.0.113.7");
  EXPECT_EQ(caller("6.6.6.6, 203.0.113.7"), "203.0.113.7");
  EXPECT_EQ(caller("6.6.6.6,203.0.113.7 ,10.9.9.9, 192.0.2.1"), "203.0.113.7");
  EXPECT_EQ(caller("203.0.113.7:5555, fd00::5"), "203.0.113.7");
  EXPECT_EQ(caller("[2001:db8::1]:443"), "2001:db8::/64");
  EXPECT_EQ(caller("10.5.5.5, 10.6.6.6"), "10.5.5.5") << "a proxy that calls itself";
  EXPECT_EQ(caller(""), "10.0.0.1");
  EXPECT_EQ(proxies.CallerAddress("unix:", "203.0.113.7"), "203.0.113.7");
  EXPECT_EQ(proxies.CallerAddress("::ffff:10.0.0.1", "203.0.113.7"), "203.0.113.7");
  // Who is no proxy is not believed.
  EXPECT_EQ(proxies.CallerAddress("ipv4:192.0.2.2:1", "203.0.113.7"), "192.0.2.2");
  EXPECT_EQ(proxies.CallerAddress("ipv4:11.0.0.1:1", "203.0.113.7"), "11.0.0.1");
}

TEST(TrustedProxiesTest, WhatIsNoAddressEndsTheSearch) {
  const TrustedProxies proxies = Parse("10.0.0.0/8");
  for (const std::string& hostile :
       {std::string("unknown"), std::string(","), std::string(" , ,"), std::string("6.6.6.6,"),
        std::string("1.2.3"), std::string("1.2.3.4.5"), std::string("256.1.1.1"),
        std::string("[::1"), std::string("[::1]x"), std::string("10.0.0.1\0.evil", 14),
        std::string("6.6.6.6, <script>"), std::string(8000, ','), std::string(8000, '1'),
        std::string("http://6.6.6.6")}) {
    EXPECT_EQ(proxies.CallerAddress("ipv4:10.0.0.1:1", hostile), "10.0.0.1") << hostile;
  }
  EXPECT_EQ(proxies.CallerAddress("ipv4:10.0.0.1:1", "6.6.6.6, nonsense, 10.0.0.3"), "10.0.0.3");
}

TEST(TrustedProxiesTest, ErrorsNameTheFlag) {
  for (const char* const bad : {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "::/129", "proxy", "/8",
                                "10.0.0.1:80", "10.0.0.0/8/8", "fe80::1%eth0"}) {
    const absl::Status status = TrustedProxies::Parse("trusted_proxies", bad).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("--trusted_proxies: expected")) << bad;
  }
  EXPECT_TRUE(TrustedProxies::Parse("trusted_proxies", "").ok());
  EXPECT_EQ(Parse("0.0.0.0/0").CallerAddress("1.1.1.1", "2.2.2.2"), "2.2.2.2");
  EXPECT_EQ(Parse("0.0.0.0/0").CallerAddress("::5", "2.2.2.2"), "::/64") << "IPv4 only";
}

}  // namespace
}  // namespace sru::server::callers
