#include "server/calls/bounds/wire_check.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Explain(const std::string& bytes) {
  const absl::Status status = ExplainParseFailure(*v1::ClassifyRequest::descriptor(), bytes);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// Replaces the only `from` in `bytes` by `to` of the same length: protobuf would not serialize it.
std::string Replace(std::string bytes, const std::string& from, const std::string& to) {
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, from.size(), to);
}

v1::ClassifyRequest MakeRequest() {
  v1::ClassifyRequest request;
  request.set_model("NAME");
  request.add_sequences()->set_text("fine");
  request.add_sequences()->set_text("TEXT");
  v1::Tokens* tokens = request.add_sequences()->mutable_tokens();
  tokens->add_values("one");
  tokens->add_values("WORD");
  for (int i = 0; i < 3; ++i) request.add_sequences()->mutable_token_ids()->add_values(300 + i);
  request.add_sequences()->mutable_features()->set_data("\xff\xfe\xfd\xfc");
  return request;
}

TEST(WireCheckTest, NamesTheStringThatIsNotUtf8) {
  const std::string good = MakeRequest().SerializeAsString();
  EXPECT_EQ(Explain(Replace(good, "NAME", "NA\xffX")),
            "model: expected UTF-8, found byte 0xff at offset 2");
  EXPECT_EQ(Explain(Replace(good, "TEXT", "\xc3(XX")),
            "sequences[1].text: expected UTF-8, found byte 0xc3 at offset 0");
  EXPECT_EQ(Explain(Replace(good, "WORD", "WOR\xe2")),
            "sequences[2].tokens.values[1]: expected UTF-8, found byte 0xe2 at offset 3");
}

TEST(WireCheckTest, NamesTheTextOfAQuery) {
  v1::AnswerRequest request;
  request.add_queries()->set_question("fine");
  v1::Query* const query = request.add_queries();
  query->set_question("QUESTION");
  query->add_passages("fine");
  query->add_passages("PASSAGE");
  query->add_passage_tags();
  query->add_passage_tags()->add_lemmas("LEMMA");
  const std::string good = request.SerializeAsString();
  const auto explain = [](const std::string& bytes) {
    return std::string(ExplainParseFailure(*v1::AnswerRequest::descriptor(), bytes).message());
  };
  EXPECT_EQ(explain(Replace(good, "QUESTION", "QUESTIO\xe2")),
            "queries[1].question: expected UTF-8, found byte 0xe2 at offset 7");
  EXPECT_EQ(explain(Replace(good, "PASSAGE", "PA\xffSAGE")),
            "queries[1].passages[1]: expected UTF-8, found byte 0xff at offset 2");
  EXPECT_EQ(explain(Replace(good, "LEMMA", "\xc0MMMA")),
            "queries[1].passage_tags[1].lemmas[0]: expected UTF-8, found byte 0xc0 at offset 0");
}

TEST(WireCheckTest, NamesWhereTheWireFormatBreaks) {
  EXPECT_EQ(Explain("\x1a\x05\x0a"),
            "message: malformed protobuf, length 5 where 1 bytes are left at byte 0");
  EXPECT_EQ(Explain("\x1a\x02\x0a\x05"),
            "sequences[0]: malformed protobuf, length 5 where 0 bytes are left at byte 2");
  EXPECT_THAT(Explain(std::string("\x00", 1)), HasSubstr("bad field number"));
  EXPECT_THAT(Explain("\x0f"), HasSubstr("unexpected wire type 7"));
  EXPECT_THAT(Explain("\xff\xff"), HasSubstr("broken field tag"));
  EXPECT_THAT(Explain("\x10\xff"), HasSubstr("broken varint"));
  EXPECT_THAT(Explain("\x09\x01"), HasSubstr("cut-off 64-bit"));
  EXPECT_THAT(Explain("\x0d\x01"), HasSubstr("cut-off 32-bit"));
  // token_ids with a packed varint that does not end.
  EXPECT_EQ(Explain("\x1a\x05\x1a\x03\x0a\x01\xff"),
            "sequences[0].token_ids.values: malformed protobuf, broken varint at byte 6");
}

TEST(WireCheckTest, EveryPrefixOfAMessageHasAnAnswer) {
  const std::string good = MakeRequest().SerializeAsString();
  for (size_t length = 0; length <= good.size(); ++length) {
    EXPECT_FALSE(Explain(good.substr(0, length)).empty());
  }
  EXPECT_THAT(Explain(good), StartsWith("message: the "));  // no fault: says what was expected
}

// A fault far inside is not looked for: its place is the caller's to find.
TEST(WireCheckTest, LooksAtSoManyFieldsOnly) {
  std::string bytes;
  for (int i = 0; i < kMaxExplainedFields - 2; ++i) bytes += std::string("\x1a\x00", 2);
  const std::string fault = "\x1a\x02\x0a\x05";
  EXPECT_THAT(Explain(bytes + fault), StartsWith("sequences[9998]: malformed protobuf"));
  const std::string error = Explain(bytes + std::string("\x1a\x00", 2) + fault);
  EXPECT_THAT(error, StartsWith("message: the 20002 bytes are not a valid"));
  EXPECT_THAT(error, HasSubstr("in its first 10000 fields"));
}

TEST(WireCheckTest, LooksAtSoManyBytesOnly) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text(std::string(kMaxExplainedBytes, 'a'));
  const std::string bytes = request.SerializeAsString() + "\xff";
  EXPECT_THAT(Explain(bytes), HasSubstr("no fault was found in its first"));
  // A text is not faulty because the search ends within one of its characters.
  request.mutable_sequences(0)->set_text(std::string(kMaxExplainedBytes - 1, 'a') + "\u00e4");
  EXPECT_THAT(Explain(request.SerializeAsString() + "\xff"), HasSubstr("no fault was found"));
}

}  // namespace
}  // namespace sru::server::calls
