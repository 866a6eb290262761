#include "base/host_port.h"

#include <string>

#include "gtest/gtest.h"

namespace sru {
namespace {

TEST(HostPortTest, CutsHostAndPort) {
  struct Case {
    const char* text;
    const char* cut;  // host|port, in brackets if it had them; null: there is none
  };
  for (const Case& c :
       {Case{"host", "host"}, Case{"host:80", "host|80"}, Case{"host:", "host|"},
        Case{":80", "|80"}, Case{"", ""}, Case{"::1", "::1"}, Case{"a:1:2", "a:1:2"},
        Case{"[::1]", "[::1]"}, Case{"[::1]:80", "[::1]|80"}, Case{"[]:1", "[]|1"},
        Case{"[::1", nullptr}, Case{"[::1]80", nullptr}, Case{"[", nullptr}}) {
    const auto cut = SplitHostPort(c.text);
    ASSERT_EQ(cut.has_value(), c.cut != nullptr) << c.text;
    if (!cut.has_value()) continue;
    std::string text(cut->host);
    if (cut->brackets) text = "[" + text + "]";
    if (cut->port.has_value()) text += "|" + std::string(*cut->port);
    EXPECT_EQ(text, c.cut) << c.text;
  }
}

TEST(HostPortTest, LoopbackIsToldByNameOrNumber) {
  for (const char* host :
       {"localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"", "127.evil.example", "localhost.example", "10.0.0.1", "128.0.0.1",
                           "::2", "::ffff:10.0.0.1", "0.0.0.0"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace sru
