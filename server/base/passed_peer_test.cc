#include "server/base/passed_peer.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(PassedPeerTest, NamesTheCallerAsGrpcDoes) {
  EXPECT_EQ(PeerAt("10.0.0.1", 4711), "ipv4:10.0.0.1:4711");
  EXPECT_EQ(PeerAt("2001:db8::1", 80), "ipv6:[2001:db8::1]:80");
}

TEST(PassedPeerTest, ComesBackAsItWas) {
  for (const char* peer : {"ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:80", "unix:/run/sru"}) {
    EXPECT_EQ(ParsePassedPeer(PassPeer(peer)), peer);
  }
}

TEST(PassedPeerTest, WhatAStrangerSendsIsIgnored) {
  const std::string made = PassPeer("ipv4:10.0.0.1:4711");
  for (const std::string& value :
       {std::string(), std::string("ipv4:10.0.0.1:4711"), std::string(64, '0'),
        std::string(32, '0') + "ipv4:10.0.0.1:4711", made.substr(1), made.substr(0, 32),
        "0" + made}) {
    EXPECT_EQ(ParsePassedPeer(value), "") << value;
  }
  for (size_t i = 0; i < 32; ++i) {
    std::string changed = made;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_EQ(ParsePassedPeer(changed), "") << i;
  }
}

}  // namespace
}  // namespace sru::server
