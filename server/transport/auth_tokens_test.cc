#include "server/transport/auth_tokens.h"

#include <openssl/evp.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/callers/callers.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::transport {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  EXPECT_EQ(set.Find("4f6R0pXyY0b1nq3cVd2m")->name, "search");
  EXPECT_EQ(set.Find("4o1X9nUuPqL0aa7Zc8sE")->name, "");
  EXPECT_EQ(set.Find("short+/=~")->name, "search");
}

TEST(TokenSetTest, FindsEachOfMany) {
  std::string file;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&file, "name", i, " token-", i, "\n");
  const TokenSet set = Parse(file);
  for (int i = 0; i < 1000; ++i) {
    const TokenSet::Owner* const owner = set.Find(absl::StrCat("token-", i));
    ASSERT_NE(owner, nullptr) << i;
    EXPECT_EQ(owner->name, absl::StrCat("name", i));
  }
  EXPECT_EQ(set.Find("token-1000"), nullptr);
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
  TokenSet set = Parse(
      "a aaaaaaaaaaaaaaaaa\na bbbbbbbbbbbbbbbbb\nccccccccccccccccc\n"
      "ddddddddddddddddd\n");
  const FakeClock clock;
  callers::Callers callers({}, &clock);
  set.Register(&callers);
  const auto caller = [&set](const char* token) { return set.Find(token)->caller; };
  EXPECT_EQ(caller("aaaaaaaaaaaaaaaaa")->id(), "name a");
  EXPECT_EQ(caller("bbbbbbbbbbbbbbbbb"), caller("aaaaaaaaaaaaaaaaa"));
  EXPECT_NE(caller("ccccccccccccccccc"), caller("ddddddddddddddddd"));
  EXPECT_EQ(caller("ccccccccccccccccc")->name(), "unnamed");
  EXPECT_EQ(caller("ccccccccccccccccc")->id().find("ccc"), std::string::npos);
  EXPECT_TRUE(caller("ccccccccccccccccc")->is_proven());
}

TEST(TokenSetTest, LimitsFollowTheToken) {
  const TokenSet set = Parse(
      "search aaaaaaaaaaaaaaaaa  tokens_per_second=20000 burst=40000 models=lm,trec weight=2\n"
      "search bbbbbbbbbbbbbbbbb\n"
      "other ccccccccccccccccc calls_in_flight=8\n"
      "ddddddddddddddddd\n"
      "default tokens_per_second=100 highest_priority=high\n");
  EXPECT_EQ(set.size(), 4u);
  for (const char* const token : {"aaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbb"}) {
    const callers::CallerLimits& search = set.Find(token)->limits;
    EXPECT_EQ(search.tokens_per_second, 20000);
    EXPECT_EQ(search.burst, 40000);
    EXPECT_THAT(search.models, ElementsAre("lm", "trec"));
    EXPECT_EQ(search.weight, 2);
    EXPECT_EQ(search.highest_priority, batching::Priority::kHigh);
  }
  EXPECT_EQ(set.Find("ccccccccccccccccc")->limits.calls_in_flight, 8);
  EXPECT_EQ(set.Find("ccccccccccccccccc")->limits.tokens_per_second, 100);
  EXPECT_EQ(set.Find("ddddddddddddddddd")->limits.tokens_per_second, 100);
}

TEST(TokenSetTest, ACommentBeginsWithAnyWord) {
  const TokenSet set =
      Parse("aaaaaaaaaaaaaaaaa #old\nname bbbbbbbbbbbbbbbbb weight=2 # weight=3\n");
  EXPECT_EQ(set.size(), 2u);
  EXPECT_EQ(set.Find("aaaaaaaaaaaaaaaaa")->name, "");
  EXPECT_EQ(set.Find("bbbbbbbbbbbbbbbbb")->limits.weight, 2);
}

// These lines mean what they meant before there were limits.
TEST(TokenSetTest, OldLinesMeanWhatTheyDid) {
  const TokenSet set = Parse("default dG9rZW4tZm9yLXlvdQ==\nteam models=\nweight=\n");
  EXPECT_EQ(set.size(), 3u);
  EXPECT_EQ(set.Find("dG9rZW4tZm9yLXlvdQ==")->name, "default");
  EXPECT_EQ(set.Find("models=")->name, "team");
  EXPECT_NE(set.Find("weight="), nullptr);
}

TEST(TokenSetTest, ErrorsOfLimitsNameTheLineAndRepeatNoToken) {
  const auto error = [](const std::string& line) {
    const std::string text = ErrorOf("# a comment\nok aaaaaaaaaaaaaaaaa\n" + line);
    EXPECT_THAT(text, AllOf(HasSubstr("--auth_tokens_file: line 3: "), Not(HasSubstr("secret"))));
    return text;
  };
  EXPECT_THAT(error("a secret weight=0"), HasSubstr("weight: expected a number from 0.01 to 100"));
  for (const char* line : {"default token_per_second=2000", "default burst=", "default",
                           "default weight", "default # weight=2"}) {
    EXPECT_THAT(error(line), HasSubstr("expected limits such as tokens_per_second=2000"));
  }
  EXPECT_THAT(error("a secret burst=5"), HasSubstr("burst: expected tokens_per_second beside it"));
  EXPECT_THAT(error("a secret calls_in_flight=-1"), HasSubstr("calls_in_flight: expected a whole"));
  EXPECT_THAT(error("a secret weight=1 weight=2"), HasSubstr("weight: expected once"));
  EXPECT_THAT(error("a secret weight=1 wieght=secret"), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(error("a secret methods=Classify,Clasify"), HasSubstr("found 'Clasify'"));
  EXPECT_THAT(error("a secret highest_priority=urgent"), HasSubstr("low, normal or high"));
  EXPECT_THAT(error("secret weight=1"), HasSubstr("NAME TOKEN"));
  EXPECT_THAT(error("default weight=x"), HasSubstr("weight"));
  EXPECT_THAT(ErrorOf("default weight=1\na aaaaaaaaa\ndefault weight=2"),
              AllOf(HasSubstr("line 3"), HasSubstr("line 1 already")));
  EXPECT_THAT(ErrorOf("a aaaaaaaaa weight=1\na bbbbbbbbb weight=2"),
              AllOf(HasSubstr("line 2"), HasSubstr("that line 1 gives this name")));
}

}  // namespace
}  // namespace sru::server::transport
