#include "models/digest.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

TEST(DigestTest, IsSha256) {
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(absl::BytesToHexString(DigestOf("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DigestTest, ReadsAFilePieceByPiece) {
  const std::string path = ::testing::TempDir() + "digest_test_file";
  // No multiple of a piece.
  std::string contents;
  for (int i = 0; i < 300001; ++i) contents += static_cast<char>(i * 7);
  std::ofstream(path, std::ios::binary) << contents;
  const auto digest = [&path] { return *DigestOfFile(*OpenFile::Open(path, 1 << 20)); };
  EXPECT_EQ(digest(), DigestOf(contents));
  std::ofstream(path, std::ios::binary) << "";
  EXPECT_EQ(digest(), DigestOf(""));
  std::remove(path.c_str());
}

// RFC 4231, test case 2.
TEST(DigestTest, KeyedDigestsAreHmacSha256) {
  const auto digest = KeyedDigest("Jefe", "what do ya want for nothing?");
  ASSERT_TRUE(digest.has_value());
  EXPECT_EQ(absl::BytesToHexString(*digest),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace
}  // namespace sru::models
