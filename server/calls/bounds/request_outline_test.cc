#include "server/calls/bounds/request_outline.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "server/calls/bounds/request_limits.h"
#include "tests/testing/protos.h"

namespace sru::server::calls {
namespace {

using ::sru::testing::Message;

// The bytes in slices of `slice` bytes, as the wire may deliver them.
absl::Cord Buffer(const std::string& bytes, size_t piece) {
  absl::Cord cord;
  for (size_t i = 0; i < bytes.size(); i += piece) {
    const auto owned = std::make_shared<const std::string>(bytes.substr(i, piece));
    cord.Append(absl::MakeCordFromExternal(*owned, [owned] {}));
  }
  return cord;
}

template <typename Request>
RequestOutline Read(const std::string& bytes, size_t piece) {
  RequestOutline outline;
  outline.num_sequences = 5;  // it is written over
  EXPECT_TRUE(ReadOutline<Request>(Buffer(bytes, piece), &outline));
  return outline;
}

// What the outline says of a request: its model, version and priority, and each count that is not
// 0.
std::string Told(const RequestOutline& outline) {
  std::string told = absl::StrCat(outline.model, " ", outline.version, " ", outline.priority);
  const std::pair<const char*, int64_t> counts[] = {
      {"queries", outline.num_queries},    {"sequences", outline.num_sequences},
      {"words", outline.num_words},        {"unpacked", outline.num_unpacked_ids},
      {"packed", outline.packed_id_bytes}, {"states", outline.num_states},
      {"entries", outline.num_entries},    {"extra", outline.extra_fields},
  };
  for (const auto& [name, count] : counts) {
    if (count != 0) absl::StrAppend(&told, " ", name, " ", count);
  }
  return told;
}

template <typename Request>
void ExpectPrefixesAreReadOrRefused(const std::string& bytes) {
  for (size_t length = 0; length < bytes.size(); length += length < 50 ? 1 : 97) {
    Request parsed;
    RequestOutline outline;
    const std::string prefix = bytes.substr(0, length);
    EXPECT_EQ(ReadOutline<Request>(Buffer(prefix, 4), &outline), parsed.ParseFromString(prefix))
        << length;
  }
}

TEST(RequestOutlineTest, ReadsWhatAdmissionNeedsInAnySlices) {
  v1::ClassifyRequest request;
  request.set_model("trec");
  request.set_version(123456789012);
  request.set_top_k(3);
  request.set_truncate(true);
  request.set_priority(v1::PRIORITY_HIGH);
  for (int i = 0; i < 7; ++i) {
    request.add_sequences()->set_text(std::string(static_cast<size_t>(i) * 50, 'x'));
  }
  request.add_sequences()->mutable_token_ids()->add_values(7);
  const std::string bytes = request.SerializeAsString();
  for (size_t slice : {size_t{1}, size_t{3}, size_t{64}, bytes.size()}) {
    RequestOutline outline;
    ASSERT_TRUE(ReadOutline<v1::ClassifyRequest>(Buffer(bytes, slice), &outline)) << slice;
    EXPECT_EQ(Told(outline), "trec 123456789012 3 sequences 8 packed 1");
  }
}

TEST(RequestOutlineTest, TheFieldsOfEncodeAreTheSame) {
  const auto request = Message<v1::EncodeRequest>(
      "model: 'm' version: -1 priority: PRIORITY_LOW pooling: POOLING_MAX sequences {}");
  EXPECT_EQ(Told(Read<v1::EncodeRequest>(request.SerializeAsString(), 5)), "m -1 1 sequences 1");
}

// They do not count as unknown fields, of which a request may have few.
TEST(RequestOutlineTest, FieldsAfterThePriorityAreKnown) {
  v1::ClassifyRequest classify;
  classify.set_skip_empty(true);
  EXPECT_EQ(Told(Read<v1::ClassifyRequest>(classify.SerializeAsString(), 5)), " 0 0");
  v1::EncodeRequest encode;
  encode.set_skip_empty(true);
  EXPECT_EQ(Told(Read<v1::EncodeRequest>(encode.SerializeAsString(), 5)), " 0 0");
  v1::ScoreRequest score;
  score.set_skip_empty(true);
  EXPECT_EQ(Told(Read<v1::ScoreRequest>(score.SerializeAsString(), 5)), " 0 0");
}

TEST(RequestOutlineTest, WhatAnswerIsMadeOfIsCounted) {
  auto request = Message<v1::AnswerRequest>(
      "model: 'reader' version: 4 top_n: 1 max_answer_tokens: 1 priority: PRIORITY_HIGH "
      "one_per_passage: true no_overlap: true");
  for (int q = 0; q < 2; ++q) {
    v1::Query* const query = request.add_queries();
    query->set_question("Who wrote it ?");
    for (int i = 0; i < 3; ++i) {
      query->add_passages(std::string(1000, 'p'));
      v1::PassageTags* const tags = query->add_passage_tags();
      for (int t = 0; t < 5; ++t) {
        tags->add_pos_ids(t);
        tags->add_ner_ids(t);
        tags->add_lemmas("lemma");
      }
    }
    query->add_question_lemmas("who");
  }
  const std::string bytes = request.SerializeAsString();
  RequestOutline outline = Read<v1::AnswerRequest>(bytes, 7);
  EXPECT_EQ(Told(outline), "reader 4 3 queries 2 sequences 6 words 32 packed 60 entries 6");
  EXPECT_EQ(outline.message_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(outline.least_tasks(), 2);
  EXPECT_EQ(outline.least_tokens(), 8);
  // Up to three tags are those of one token.
  EXPECT_LE(outline.min_tokens(), 30 + 2);
  ExpectPrefixesAreReadOrRefused<v1::AnswerRequest>(bytes);
}

TEST(RequestOutlineTest, TagsOfAnswerNeedNotBePacked) {
  // queries { passage_tags { pos_ids: 1 ner_ids: 2 ner_ids: 3 field 99: 1 } field 99: 1 }
  const std::string tags("\x08\x01\x10\x02\x10\x03\x98\x06\x01", 9);
  const std::string query = std::string("\x1a\x09", 2) + tags + std::string("\x98\x06\x01", 3);
  const std::string bytes = std::string("\x1a\x0e", 2) + query;
  v1::AnswerRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  ASSERT_EQ(parsed.queries(0).passage_tags(0).ner_ids_size(), 2);
  RequestOutline outline = Read<v1::AnswerRequest>(bytes, 3);
  EXPECT_EQ(outline.num_unpacked_ids, 3);
  EXPECT_EQ(outline.extra_fields, 2);
}

TEST(RequestOutlineTest, WhatGenerateIsMadeOfIsCounted) {
  auto request = Message<v1::GenerateRequest>(
      "model: 'lm' version: 4 prompt { token_ids { values: 3 } } priority: PRIORITY_HIGH "
      "max_new_tokens: 1 min_new_tokens: 1 num_samples: 1 token_log_probs: true top_candidates: 1 "
      "return_state: true echo: true");
  request.set_state(std::string(1000, 's'));
  for (int i = 0; i < 20; ++i) (*request.mutable_sampling()->mutable_logit_bias())[i] = 1;
  for (int i = 0; i < 30; ++i) request.add_stop("stop");
  for (int i = 0; i < 40; ++i) request.add_stop_token_ids(i);
  RequestOutline outline = Read<v1::GenerateRequest>(request.SerializeAsString(), 7);
  EXPECT_EQ(Told(outline), "lm 4 3 sequences 1 packed 41 states 1 entries 50");
  // A second prompt, and bytes that are no message.
  const std::string twice = request.SerializeAsString() + request.SerializeAsString();
  outline = Read<v1::GenerateRequest>(twice, 100);
  EXPECT_EQ(outline.extra_fields, 1);
  EXPECT_FALSE(ReadOutline<v1::GenerateRequest>(Buffer("\x1a\x05x", 100), &outline));
}

TEST(RequestOutlineTest, WhatTranslateIsMadeOfIsCounted) {
  auto request = Message<v1::TranslateRequest>(
      "model: 't' version: 2 sequences { text: 'text' } sequences { token_ids { values: 3 } } "
      "beam_size: 5 length_penalty { form: FORM_POWER alpha: 0.5 } num_hypotheses: 2 "
      "max_new_tokens: 10 return_alignment: true priority: PRIORITY_LOW truncate: true");
  for (int i = 0; i < 5; ++i) request.add_sequences()->mutable_tokens()->add_values("w");
  for (int i = 0; i < 7; ++i) request.add_target_prefixes("prefix");
  const std::string bytes = request.SerializeAsString();
  RequestOutline outline = Read<v1::TranslateRequest>(bytes, 7);
  EXPECT_EQ(Told(outline), "t 2 1 sequences 7 words 5 packed 1 entries 7");
  EXPECT_EQ(outline.message_bytes, static_cast<int64_t>(bytes.size()));
  // A second penalty is merged into the first.
  outline = Read<v1::TranslateRequest>(bytes + bytes, 7);
  EXPECT_EQ(outline.extra_fields, 2);
  EXPECT_FALSE(ReadOutline<v1::TranslateRequest>(Buffer("\x2a\x05x", 7), &outline));
}

TEST(RequestOutlineTest, WhatAStreamIsMadeOfIsCounted) {
  const auto request = Message<v1::EncodeStreamRequest>(
      "start { model: 'm' version: 1 output_format: OUTPUT_FORMAT_FLOATS normalize: true "
      "state: 's' priority: PRIORITY_LOW unknown: UNKNOWN_SKIP } "
      "chunk { tokens { values: ['w', 'w', 'w', 'w', 'w'] } } return_state: true");
  const std::string bytes = request.SerializeAsString();
  RequestOutline outline = Read<v1::EncodeStreamRequest>(bytes, 3);
  EXPECT_EQ(outline.num_sequences, 1);
  EXPECT_EQ(outline.num_words, 5);
  EXPECT_EQ(outline.extra_fields, 0);
  EXPECT_EQ(outline.message_bytes, static_cast<int64_t>(bytes.size()));
  outline = Read<v1::EncodeStreamRequest>(bytes + bytes, 3);
  EXPECT_EQ(outline.extra_fields, 8);  // the fields of `start`, and the chunk
  EXPECT_FALSE(
      ReadOutline<v1::EncodeStreamRequest>(Buffer(bytes.substr(0, bytes.size() - 1), 3), &outline));
}

TEST(RequestOutlineTest, TheStatesOfScoreAreCounted) {
  auto request = Message<v1::ScoreRequest>(
      "model: 'lm' version: 4 sequences { text: 'a' } sequences { token_ids { values: 3 } } "
      "return_states: true token_log_probs: true top_candidates: 5 priority: PRIORITY_HIGH");
  request.add_states(std::string(1000, 's'));
  request.add_states("");
  RequestOutline outline = Read<v1::ScoreRequest>(request.SerializeAsString(), 7);
  EXPECT_EQ(Told(outline), "lm 4 3 sequences 2 packed 1 states 2");
  RequestOutline without = outline;
  without.num_states = 0;
  EXPECT_GT(EstimateCallBytes(outline), EstimateCallBytes(without));
  // The same field of a request that has no states is an unknown one.
  outline = Read<v1::EncodeRequest>(request.SerializeAsString(), 7);
  EXPECT_EQ(outline.num_states, 0);
  EXPECT_GT(outline.extra_fields, 0);
}

TEST(RequestOutlineTest, AnEmptyMessageHasNoSequences) {
  EXPECT_EQ(Told(Read<v1::ClassifyRequest>("", 1)), " 0 0");
}

TEST(RequestOutlineTest, TheLastValueOfAFieldCounts) {
  const auto first = Message<v1::ClassifyRequest>("model: 'a' version: 1");
  const auto second = Message<v1::ClassifyRequest>("model: 'b'");
  EXPECT_EQ(
      Told(Read<v1::ClassifyRequest>(first.SerializeAsString() + second.SerializeAsString(), 100)),
      "b 1 0");
}

TEST(RequestOutlineTest, EveryPrefixIsReadOrRefused) {
  v1::ClassifyRequest request;
  request.set_model("trec");
  request.add_sequences()->set_text("What is it ?");
  request.set_priority(v1::PRIORITY_HIGH);
  ExpectPrefixesAreReadOrRefused<v1::ClassifyRequest>(request.SerializeAsString());
}

TEST(RequestOutlineTest, RefusesWhatIsNoMessage) {
  const std::string overlong_name = "\x0a\xff\xff\xff\xff\x07";
  const std::string overlong_sequence = "\x1a\x7fshort";
  const std::string field_zero("\x00\x01", 2);
  const std::string end_group = "\x0c";
  const std::string endless_varint(11, '\xff');
  for (const std::string& bytes :
       {overlong_name, overlong_sequence, field_zero, end_group, endless_varint}) {
    RequestOutline outline;
    EXPECT_FALSE(ReadOutline<v1::ClassifyRequest>(Buffer(bytes, 100), &outline));
  }
}

TEST(RequestOutlineTest, CountsWhatParsingWouldMake) {
  v1::ClassifyRequest request;
  request.add_sequences()->set_text("text");
  v1::Tokens* tokens = request.add_sequences()->mutable_tokens();
  for (int i = 0; i < 5; ++i) tokens->add_values("word");
  v1::TokenIds* ids = request.add_sequences()->mutable_token_ids();
  for (const int id : {1, 300, 70000}) ids->add_values(id);  // 1, 2 and 3 bytes
  request.add_sequences()->mutable_features()->set_data(std::string(32, '\0'));
  const std::string bytes = request.SerializeAsString();
  RequestOutline outline = Read<v1::ClassifyRequest>(bytes, 7);
  EXPECT_EQ(Told(outline), " 0 0 sequences 4 words 5 packed 6");
  EXPECT_EQ(outline.message_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_GE(EstimateCallBytes(outline), outline.message_bytes);
}

TEST(RequestOutlineTest, IdsNeedNotBePacked) {
  // sequences { token_ids { values: 1 values: 2 } }
  const std::string bytes("\x1a\x06\x1a\x04\x08\x01\x08\x02", 8);
  v1::ClassifyRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  ASSERT_EQ(parsed.sequences(0).token_ids().values_size(), 2);
  RequestOutline outline = Read<v1::ClassifyRequest>(bytes, 3);
  EXPECT_EQ(outline.num_unpacked_ids, 2);
  EXPECT_EQ(outline.max_ids(), 2);
}

TEST(RequestOutlineTest, CountsUnknownFieldsAtEveryLevelAndInGroups) {
  const std::string unknown("\x98\x06\x01", 3);                // field 99: 1
  const std::string group("\x9b\x06\x98\x06\x01\x9c\x06", 7);  // field 99 { field 99: 1 }
  const auto nested = [](char tag, const std::string& inner) {
    return std::string(1, tag) + static_cast<char>(inner.size()) + inner;
  };
  const std::string bytes =
      unknown + group + nested('\x1a', unknown) + nested('\x1a', nested('\x12', unknown)) +
      nested('\x1a', nested('\x1a', group)) + nested('\x1a', nested('\x22', unknown));
  v1::ClassifyRequest parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  RequestOutline outline = Read<v1::ClassifyRequest>(bytes, 5);
  EXPECT_EQ(outline.num_sequences, 4);
  EXPECT_EQ(outline.extra_fields, 1 + 2 + 1 + 1 + 2 + 1);
}

TEST(RequestOutlineTest, InputsThatReplaceOthersAreExtra) {
  // sequences { tokens {} token_ids {} tokens {} }
  const std::string bytes("\x1a\x06\x12\x00\x1a\x00\x12\x00", 8);
  RequestOutline outline = Read<v1::ClassifyRequest>(bytes, 100);
  EXPECT_EQ(outline.extra_fields, 2);
}

TEST(RequestOutlineTest, RefusesWhatWouldTakeTooMuch) {
  RequestLimits limits;
  limits.max_sequences = 4;
  limits.max_request_tokens = 100;
  RequestOutline most;
  most.num_sequences = 4;
  most.num_words = 60;
  most.num_unpacked_ids = 30;
  most.packed_id_bytes = 109;  // at least 10 ids
  most.extra_fields = kMaxExtraFields;
  RequestOutline answer;
  answer.num_queries = 4;
  answer.num_sequences = 4;
  answer.num_words = 302;
  EXPECT_TRUE(CheckOutline(most, limits).ok());
  EXPECT_TRUE(CheckOutline(answer, limits).ok());
  constexpr char kTokens[] =
      "more than 100 tokens in all, expected at most that (--max_queue_tokens); send several calls";
  constexpr char kMany[] =
      "are too many, expected at most 4 (--max_sequences_per_request); send several calls";
  const auto expect = [&limits](RequestOutline many, auto grow, const std::string& error) {
    grow(many);
    EXPECT_EQ(CheckOutline(many, limits), absl::InvalidArgumentError(error));
  };
  expect(
      most, [](auto& o) { o.num_sequences = 5; }, absl::StrCat("sequences: 5 ", kMany));
  expect(
      most, [](auto& o) { ++o.num_words; }, absl::StrCat("sequences: ", kTokens));
  expect(
      most, [](auto& o) { ++o.packed_id_bytes; }, absl::StrCat("sequences: ", kTokens));
  expect(
      most, [](auto& o) { ++o.extra_fields; },
      "message: more than 64 fields that are unknown or replaced by later ones, expected none");
  expect(
      answer, [](auto& o) { o.num_queries = 5; }, absl::StrCat("queries: 5 ", kMany));
  expect(
      answer, [](auto& o) { o.num_sequences = 10000; },
      absl::StrCat("queries: 10000 passages ", kMany));
  expect(
      answer, [](auto& o) { ++o.num_words; }, absl::StrCat("queries: ", kTokens));
}

TEST(RequestOutlineTest, LongModelNamesAreLeftToTheParser) {
  v1::ClassifyRequest request;
  request.set_model(std::string(kMaxOutlineModelName + 1, 'm'));
  request.add_sequences();
  RequestOutline outline = Read<v1::ClassifyRequest>(request.SerializeAsString(), 99);
  EXPECT_TRUE(outline.long_model_name);
  EXPECT_EQ(outline.model, "");
  EXPECT_EQ(outline.num_sequences, 1);
}

TEST(RequestOutlineTest, SmallMessagesHaveFewFields) {
  std::string bytes;
  for (int i = 0; i < kMaxExtraFields; ++i) bytes += std::string("\x98\x06\x01", 3);
  EXPECT_TRUE(HasFewFields(Buffer(bytes, 10)));
  EXPECT_FALSE(HasFewFields(Buffer(bytes + std::string("\x98\x06\x01", 3), 10)));
  EXPECT_TRUE(HasFewFields(absl::Cord()));
  EXPECT_TRUE(HasFewFields(Buffer("\x0c", 1)));  // the parser says what is wrong
}

}  // namespace
}  // namespace sru::server::calls
