#include "server/transport/auth_tokens.h"

#include <openssl/evp.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pointee;

constexpr char kFile[] = R"(# who        token
search       4f6R0pXyY0b1nq3cVd2m

	4o1X9nUuPqL0aa7Zc8sE  
search       short+/=~
)";

TokenSet Parse(absl::string_view text) {
  absl::StatusOr<TokenSet> set = TokenSet::Parse(text, "--auth_tokens_file");
  EXPECT_TRUE(set.ok()) << set.status();
  return set.ok() ? *std::move(set) : TokenSet();
}

std::string ErrorOf(absl::string_view text) {
  const absl::StatusOr<TokenSet> set = TokenSet::Parse(text, "--auth_tokens_file");
  EXPECT_EQ(set.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(set.status().message());
}

TEST(TokenSetTest, FindsTokensAndTheirNames) {
  const TokenSet set = Parse(kFile);
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set.num_short(), 1u);
  EXPECT_THAT(set.Find("4f6R0pXyY0b1nq3cVd2m"), Pointee(std::string("search")));
  EXPECT_THAT(set.Find("4o1X9nUuPqL0aa7Zc8sE"), Pointee(std::string()));
  EXPECT_THAT(set.Find("short+/=~"), Pointee(std::string("search")));
}

TEST(TokenSetTest, EverythingElseIsUnknown) {
  const TokenSet set = Parse(kFile);
  for (const char* token :
       {"", "4F6R0pXyY0b1nq3cVd2m", "4f6R0pXyY0b1nq3cVd2", "4f6R0pXyY0b1nq3cVd2mm", "search", "#",
        "search       4f6R0pXyY0b1nq3cVd2m"}) {
    EXPECT_EQ(set.Find(token), nullptr) << token;
  }
}

TEST(TokenSetTest, TakesOtherEditorsFiles) {
  EXPECT_EQ(Parse("\xef\xbb\xbftoken-one\r\nname token-two\r\n").size(), 2u);
  EXPECT_NE(Parse("token-one").Find("token-one"), nullptr);
}

TEST(TokenSetTest, ErrorsNameTheLineAndRepeatNoToken) {
  EXPECT_THAT(ErrorOf("ok-token\na b secret"),
              AllOf(HasSubstr("--auth_tokens_file: line 2"), HasSubstr("3 words"),
                    Not(HasSubstr("secret"))));
  EXPECT_THAT(ErrorOf("secr\xc3\xa9t"), AllOf(HasSubstr("line 1"), Not(HasSubstr("secr"))));
  EXPECT_THAT(ErrorOf(std::string("a\0b", 3)), HasSubstr("line 1"));
  EXPECT_THAT(ErrorOf(std::string(kMaxTokenLength + 1, 'x')), HasSubstr("4096"));
  EXPECT_THAT(ErrorOf("a secret\nb secret"),
              AllOf(HasSubstr("line 2"), HasSubstr("earlier"), Not(HasSubstr("secret"))));
  for (const char* nothing : {"", "\n", "# only\n  # comments\n"}) {
    EXPECT_THAT(ErrorOf(nothing), HasSubstr("at least one token"));
  }
  std::string many;
  for (size_t i = 0; i <= kMaxTokens; ++i) absl::StrAppend(&many, "token", i, "\n");
  EXPECT_THAT(ErrorOf(many), HasSubstr("at most 10000"));
}

// As where the configuration names a FIPS module that is not there.
TEST(TokenSetTest, WithoutSha256ThereAreNoTokens) {
  const TokenSet earlier = Parse("token-one");
  ASSERT_EQ(EVP_set_default_properties(nullptr, "provider=none"), 1);
  const absl::StatusOr<TokenSet> set = TokenSet::Parse("token-one", "--auth_tokens_file");
  ASSERT_EQ(EVP_set_default_properties(nullptr, ""), 1);
  EXPECT_EQ(set.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(set.status().message()),
              AllOf(HasSubstr("--auth_tokens_file: "), HasSubstr("SHA-256"),
                    HasSubstr("unsupported"), HasSubstr("OPENSSL_CONF")));
  // What was read before holds on to its digest, and to what it knows.
  EXPECT_NE(earlier.Find("token-one"), nullptr);
  EXPECT_EQ(earlier.Find("token-two"), nullptr);
  // A set that was never filled knows nobody.
  EXPECT_EQ(TokenSet().Find(""), nullptr);
}

TEST(BearerTokenTest, TheSchemeIsInAnyCase) {
  EXPECT_EQ(BearerToken("Bearer aB1"), "aB1");
  EXPECT_EQ(BearerToken("bearer aB1"), "aB1");
  EXPECT_EQ(BearerToken("BEARER   aB1"), "aB1");
}

TEST(BearerTokenTest, OtherFormsGiveNothing) {
  for (const std::string& header :
       {std::string(), std::string("Bearer"), std::string("Bearer "), std::string("aB1"),
        std::string("Basic aB1"), std::string("Bearer a b"), std::string("Bearer a\tb"),
        std::string("Bearer\taB1"), std::string("Bearer aB1 "), std::string("Bearer \xc3\xa9"),
        "Bearer " + std::string(kMaxTokenLength + 1, 'x')}) {
    EXPECT_EQ(BearerToken(header), "") << header;
  }
}

TEST(TokenSetTest, TellsCallersApartByNameOrToken) {
  const auto set = TokenSet::Parse(
      "a aaaaaaaaaaaaaaaaa\na bbbbbbbbbbbbbbbbb\nccccccccccccccccc\n"
      "ddddddddddddddddd\n",
      "F");
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->CallerId("aaaaaaaaaaaaaaaaa"), "name a");
  EXPECT_EQ(set->CallerId("bbbbbbbbbbbbbbbbb"), "name a");
  const std::string c = set->CallerId("ccccccccccccccccc");
  EXPECT_EQ(c.find("digest "), 0u);
  EXPECT_EQ(c.find("ccc"), std::string::npos);
  EXPECT_NE(c, set->CallerId("ddddddddddddddddd"));
  EXPECT_EQ(set->CallerId("eeeeeeeeeeeeeeeee"), "");
}

}  // namespace
}  // namespace sru::server::transport
