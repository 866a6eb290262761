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
  Digest digest;
  digest.Update("a");
  digest.Update("");
  digest.Update("bc");
  EXPECT_EQ(digest.Finish(), DigestOf("abc"));
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

}  // namespace
}  // namespace sru::models
