#include "server/door/deflate.h"

#include <random>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/inflater.h"

namespace sru::server::door {
namespace {

TEST(GzipTest, TheInflaterGetsBackWhatWasCompressed) {
  for (const size_t size : {1000, 16 << 10, 3 << 20}) {
    absl::Cord message;  // of several pieces
    for (size_t i = 0; i < size / 1000; ++i) message.Append(std::string(1000, 'a' + i % 26));
    const absl::Cord before = message;
    ASSERT_TRUE(Gzip(&message)) << size;
    EXPECT_LT(message.size(), before.size() / 10);
    Inflater inflater(/*gzip=*/true);
    const std::string compressed(message);
    absl::string_view left = compressed;
    absl::Cord after;
    while (!left.empty() || inflater.has_more()) ASSERT_TRUE(inflater.Add(&left, &after).ok());
    EXPECT_TRUE(inflater.ended());
    EXPECT_EQ(after, before);
  }
}

TEST(GzipTest, WhatDoesNotGetSmallerStaysAsItIs) {
  std::mt19937 random(1);
  std::string noise(100000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  for (const std::string& text : {std::string(), std::string("a"), noise}) {
    absl::Cord message(text);
    EXPECT_FALSE(Gzip(&message));
    EXPECT_EQ(message, text);
  }
}

}  // namespace
}  // namespace sru::server::door
