#include "server/http/page_host.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::http {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(PageHostTest, TakesNamesAndAddresses) {
  using Kind = PageHost::Kind;
  for (const auto& [header, kind, host, loopback] :
       std::vector<std::tuple<std::string, Kind, std::string, bool>>{
           {"localhost", Kind::kName, "localhost", true},
           {"LOCALHOST:9090", Kind::kName, "localhost", true},
           {"localhost:0", Kind::kName, "localhost", true},
           {"localhost:65535", Kind::kName, "localhost", true},
           {"127.0.0.1", Kind::kIpV4, "127.0.0.1", true},
           {"127.255.0.9:80", Kind::kIpV4, "127.255.0.9", true},
           {"10.0.0.1:9090", Kind::kIpV4, "10.0.0.1", false},
           {"128.0.0.1", Kind::kIpV4, "128.0.0.1", false},
           {"[::1]", Kind::kIpV6, "::1", true},
           {"[::1]:9090", Kind::kIpV6, "::1", true},
           {"[0:0:0:0:0:0:0:1]", Kind::kIpV6, "0:0:0:0:0:0:0:1", true},
           {"[::ffff:127.0.0.1]", Kind::kIpV6, "::ffff:127.0.0.1", true},
           {"[::FFFF:10.0.0.1]:1", Kind::kIpV6, "::ffff:10.0.0.1", false},
           {"[2001:db8::1]:9090", Kind::kIpV6, "2001:db8::1", false},
           {"server", Kind::kName, "server", false},
           {"Sru.Example.org:9090", Kind::kName, "sru.example.org", false},
           {"a_b-c.1.x2", Kind::kName, "a_b-c.1.x2", false},
           {"localhost.evil.example", Kind::kName, "localhost.evil.example", false},
           {"127.0.0.1.evil.example", Kind::kName, "127.0.0.1.evil.example", false},
           {"127.evil.example", Kind::kName, "127.evil.example", false},
       }) {
    const auto parsed = ParsePageHost(header);
    ASSERT_TRUE(parsed.has_value()) << header;
    EXPECT_EQ(parsed->kind, kind) << header;
    EXPECT_EQ(parsed->host, host) << header;
    EXPECT_EQ(parsed->is_loopback(), loopback) << header;
  }
}

TEST(PageHostTest, RefusesAllElse) {
  for (const std::string& header : std::vector<std::string>{
           "", " ", ":80", "localhost:", "localhost:x", "localhost:+80", "localhost:-1",
           "localhost: 80", "localhost:65536", "localhost:000080", "localhost:80:80",
           "localhost:80@evil.example", "evil@localhost", "localhost/", "localhost?", "localhost#",
           " localhost", "localhost ", "localhost, evil.example", "local host", "localhost.",
           ".localhost", "a..b", "-\x01", "caf\xc3\xa9", "%6cocalhost", std::string("a\0b", 3),
           // Texts that some programs take for an address.
           "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.1", "127.0.0.0x1", "0177.0.0.1",
           "127.0.0.01", "127.0.0.1.", "1.2.3.4.5", "256.0.0.1", "0x", "[]", "[::1", "::1", "::1]",
           "[::1]x", "[::1]:", "[::1]:x", "[::1%25lo]", "[::1%lo]", "[127.0.0.1]", "[localhost]",
           "[[::1]]", std::string("[::1\0]", 6), std::string(254, 'a')}) {
    EXPECT_FALSE(ParsePageHost(header).has_value()) << header;
    EXPECT_FALSE(IsAllowedPageHost(header, {"localhost", "evil.example"})) << header;
    EXPECT_THAT(WrongPageHost(header), HasSubstr("the header Host is missing or wrong"));
  }
  EXPECT_TRUE(ParsePageHost(std::string(253, 'a')).has_value());
}

TEST(PageHostTest, OnlyWhatAStrangerCannotOwnIsAllowed) {
  const std::vector<std::string> names = {"sru.example.org"};
  for (const char* header : {"localhost:9090", "127.0.0.1", "10.0.0.1:9090", "[2001:db8::1]:9090",
                             "server:9090", "sru.example.org", "SRU.example.org:9090"}) {
    EXPECT_TRUE(IsAllowedPageHost(header, names)) << header;
  }
  for (const char* header :
       {"evil.example", "example.org", "x.sru.example.org", "sru.example.org.evil.example",
        "sru.example.orgx", "127.0.0.1.evil.example", "localhost.evil.example:9090"}) {
    EXPECT_FALSE(IsAllowedPageHost(header, names)) << header;
  }
  EXPECT_FALSE(IsAllowedPageHost("sru.example.org", {}));
  EXPECT_THAT(WrongPageHost("Evil.example:80"), HasSubstr("--status_page_host=evil.example"));
}

TEST(PageHostTest, ParsesTheFlag) {
  EXPECT_THAT(*ParsePageHostNames("f", ""), IsEmpty());
  EXPECT_THAT(*ParsePageHostNames("f", "sru.example.org,GPU.lan"),
              ElementsAre("sru.example.org", "gpu.lan"));
  for (const char* text : {",", "a.b,", "a.b, c.d", "a.b:9090", "http://a.b", "*.a.b", "10.0.0.1",
                           "[::1]", "a.b.", "127.1"}) {
    const absl::Status status = ParsePageHostNames("status_page_host", text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--status_page_host: expected")) << text;
  }
}

}  // namespace
}  // namespace sru::server::http
