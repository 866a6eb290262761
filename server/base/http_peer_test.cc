#include "server/base/http_peer.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(HttpPeerTest, NamesTheCallerAsGrpcDoes) {
  EXPECT_EQ(ParseHttpPeer(MakeHttpPeer("10.0.0.1", 4711)), "ipv4:10.0.0.1:4711");
  EXPECT_EQ(ParseHttpPeer(MakeHttpPeer("2001:db8::1", 80)), "ipv6:[2001:db8::1]:80");
}

TEST(HttpPeerTest, WhatAStrangerSendsIsIgnored) {
  const std::string made = MakeHttpPeer("10.0.0.1", 4711);
  for (const std::string& value :
       {std::string(), std::string("ipv4:10.0.0.1:4711"), std::string(64, '0'),
        std::string(32, '0') + "ipv4:10.0.0.1:4711", made.substr(1), made.substr(0, 32),
        "0" + made}) {
    EXPECT_EQ(ParseHttpPeer(value), "") << value;
  }
  for (size_t i = 0; i < 32; ++i) {
    std::string changed = made;
    changed[i] = changed[i] == '0' ? '1' : '0';
    EXPECT_EQ(ParseHttpPeer(changed), "") << i;
  }
}

}  // namespace
}  // namespace sru::server
