#include "client/channel_security.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

TEST(AddressTest, StaysOnThisMachine) {
  for (const char* target :
       {"localhost", "localhost:50051", "LocalHost:1", "127.0.0.1:50051", "127.1.2.3", "[::1]:1",
        "::1", "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.2:1", "ipv6:[::1]:1",
        "ipv6:[::1]:1,[::ffff:127.0.0.1]:1", "dns:///localhost:1", "dns:127.0.0.1:1",
        "unix:/run/sru", "unix:///run/sru", "unix-abstract:sru"}) {
    EXPECT_TRUE(StaysOnThisMachine(target)) << target;
  }
}

TEST(AddressTest, WhatOnlyLooksSoDoesNot) {
  for (const char* target : {"",
                             "127.evil.example:50051",
                             "127.0.0.1.evil.example:1",
                             "localhost.evil.example:1",
                             "localhost@evil.example:1",
                             "ipv4:127.0.0.1:1,10.0.0.5:50051",
                             "ipv4:10.0.0.5:1,127.0.0.1:1",
                             "localhost:1,10.0.0.5:1",
                             "[::1].evil.example:1",
                             "[::1",
                             "[::1:1",
                             "[::1]x",
                             ":50051",
                             "ipv6:[::1]:1,[2001:db8::1]:1",
                             "ipv4:127.evil.example:1",
                             "dns://127.0.0.1/evil.example:1",
                             "dns:///evil.example:1",
                             "10.0.0.5:1",
                             "0.0.0.0:1",
                             "xds:///localhost",
                             "127.1:50051"}) {
    EXPECT_FALSE(StaysOnThisMachine(target)) << target;
  }
}

}  // namespace
}  // namespace sru::client
