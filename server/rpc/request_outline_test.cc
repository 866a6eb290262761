#include "server/rpc/request_outline.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

// The bytes in slices of `slice` bytes, as the wire may deliver them.
grpc::ByteBuffer Buffer(const std::string& bytes, size_t slice) {
  std::vector<grpc::Slice> slices;
  for (size_t i = 0; i < bytes.size(); i += slice) slices.emplace_back(bytes.substr(i, slice));
  return grpc::ByteBuffer(slices.data(), slices.size());
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
    EXPECT_EQ(outline.model, "trec");
    EXPECT_EQ(outline.version, 123456789012);
    EXPECT_EQ(outline.priority, v1::PRIORITY_HIGH);
    EXPECT_EQ(outline.num_sequences, 8);
  }
}

TEST(RequestOutlineTest, TheFieldsOfEncodeAreTheSame) {
  v1::EncodeRequest request;
  request.set_model("m");
  request.set_version(-1);
  request.set_priority(v1::PRIORITY_LOW);
  request.set_pooling(v1::POOLING_MAX);
  request.add_sequences();
  RequestOutline outline;
  ASSERT_TRUE(ReadOutline<v1::EncodeRequest>(Buffer(request.SerializeAsString(), 5), &outline));
  EXPECT_EQ(outline.model, "m");
  EXPECT_EQ(outline.version, -1);
  EXPECT_EQ(outline.priority, v1::PRIORITY_LOW);
  EXPECT_EQ(outline.num_sequences, 1);
}

TEST(RequestOutlineTest, AnEmptyMessageHasNoSequences) {
  RequestOutline outline;
  outline.num_sequences = 5;
  ASSERT_TRUE(ReadOutline<v1::ClassifyRequest>(grpc::ByteBuffer(), &outline));
  EXPECT_EQ(outline.num_sequences, 0);
  EXPECT_EQ(outline.model, "");
}

TEST(RequestOutlineTest, TheLastValueOfAFieldCounts) {
  v1::ClassifyRequest first;
  first.set_model("a");
  first.set_version(1);
  v1::ClassifyRequest second;
  second.set_model("b");
  RequestOutline outline;
  ASSERT_TRUE(ReadOutline<v1::ClassifyRequest>(
      Buffer(first.SerializeAsString() + second.SerializeAsString(), 100), &outline));
  EXPECT_EQ(outline.model, "b");
  EXPECT_EQ(outline.version, 1);
}

TEST(RequestOutlineTest, EveryPrefixIsReadOrRefused) {
  v1::ClassifyRequest request;
  request.set_model("trec");
  request.add_sequences()->set_text("What is it ?");
  request.set_priority(v1::PRIORITY_HIGH);
  const std::string bytes = request.SerializeAsString();
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string prefix = bytes.substr(0, length);
    RequestOutline outline;
    v1::ClassifyRequest parsed;
    EXPECT_EQ(ReadOutline<v1::ClassifyRequest>(Buffer(prefix, 4), &outline),
              parsed.ParseFromString(prefix))
        << length;
  }
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

}  // namespace
}  // namespace sru::server
