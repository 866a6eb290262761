#include "server/open_inference/tensors/infer_request.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "server/calls/message_cord.h"
#include "server/open_inference/tensors/infer_form.h"

namespace sru::server::open_inference {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

inference::ModelInferRequest SomeRequest() {
  inference::ModelInferRequest request;
  request.set_model_name("model");
  request.set_model_version("3");
  request.set_id("id");
  (*request.mutable_parameters())["timeout"].set_int64_param(-7);
  auto* const input = request.add_inputs();
  input->set_name("text");
  input->set_datatype("BYTES");
  input->add_shape(2);
  input->add_shape(-1);
  input->mutable_contents()->add_bytes_contents("a");
  request.add_inputs()->set_name("lengths");
  request.add_outputs()->set_name("label");
  request.add_raw_input_contents("xyz");
  return request;
}

std::string ErrorOf(const std::string& bytes) {
  InferRequest read;
  const absl::Status status = ReadInferRequest(bytes, &read);
  EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsUnimplemented(status)) << status;
  return std::string(status.message());
}

TEST(InferRequestTest, ReadsEveryField) {
  const std::string bytes = SomeRequest().SerializeAsString();
  InferRequest read;
  ASSERT_TRUE(ReadInferRequest(bytes, &read).ok());
  EXPECT_EQ(read.model_name, "model");
  EXPECT_EQ(read.model_version, "3");
  EXPECT_EQ(read.id, "id");
  ASSERT_THAT(read.parameters, SizeIs(1));
  EXPECT_EQ(read.parameters[0].name, "timeout");
  EXPECT_EQ(std::get<int64_t>(read.parameters[0].value), -7);
  ASSERT_THAT(read.inputs, SizeIs(2));
  EXPECT_EQ(read.inputs[0].name, "text");
  EXPECT_EQ(read.inputs[0].datatype, "BYTES");
  EXPECT_THAT(read.inputs[0].shape, ElementsAre(2, -1));
  EXPECT_TRUE(read.inputs[0].has_contents);
  EXPECT_FALSE(read.inputs[1].has_contents);
  EXPECT_THAT(read.outputs, ElementsAre("label"));
  EXPECT_THAT(read.raw_inputs, ElementsAre("xyz"));
}

TEST(InferRequestTest, ReadsEveryKindOfParameter) {
  inference::ModelInferRequest request;
  auto& parameters = *request.mutable_parameters();
  parameters["b"].set_bool_param(true);
  parameters["s"].set_string_param("text");
  parameters["d"].set_double_param(0.5);
  parameters["u"].set_uint64_param(UINT64_MAX);
  parameters["nothing"];
  const std::string bytes = request.SerializeAsString();
  InferRequest read;
  ASSERT_TRUE(ReadInferRequest(bytes, &read).ok());
  ASSERT_THAT(read.parameters, SizeIs(5));
  for (const InferParameter& parameter : read.parameters) {
    if (parameter.name == "b") {
      EXPECT_TRUE(std::get<bool>(parameter.value));
    } else if (parameter.name == "s") {
      EXPECT_EQ(std::get<absl::string_view>(parameter.value), "text");
    } else if (parameter.name == "d") {
      EXPECT_EQ(std::get<double>(parameter.value), 0.5);
    } else if (parameter.name == "u") {
      EXPECT_EQ(std::get<uint64_t>(parameter.value), UINT64_MAX);
    } else {
      EXPECT_EQ(parameter.value.index(), 0U);
    }
  }
}

TEST(InferRequestTest, PassesOverUnknownFields) {
  // Field 15: a varint, 8 bytes, 4 bytes, some bytes, and a group with a group in it.
  const std::string unknown(
      "\x78\x05\x79"
      "12345678"
      "\x7d"
      "1234"
      "\x7a\x02xy"
      "\x7b\x7b\x78\x01\x7c\x7c",
      26);
  const std::string bytes = unknown + SomeRequest().SerializeAsString() + unknown;
  InferRequest read;
  ASSERT_TRUE(ReadInferRequest(bytes, &read).ok());
  EXPECT_EQ(read.model_name, "model");
  EXPECT_THAT(read.inputs, SizeIs(2));
}

TEST(InferRequestTest, TheLastValueCounts) {
  const std::string bytes = SomeRequest().SerializeAsString() + std::string("\x0a\x01z", 3);
  InferRequest read;
  ASSERT_TRUE(ReadInferRequest(bytes, &read).ok());
  EXPECT_EQ(read.model_name, "z");
}

TEST(InferRequestTest, NoBytesAreAnEmptyRequest) {
  InferRequest read;
  EXPECT_TRUE(ReadInferRequest("", &read).ok());
  EXPECT_THAT(read.inputs, IsEmpty());
}

TEST(InferRequestTest, RefusesBrokenBytes) {
  const std::string bytes = SomeRequest().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    InferRequest read;
    const absl::Status status = ReadInferRequest(bytes.substr(0, size), &read);
    // Cut between two fields it is a shorter request.
    inference::ModelInferRequest parsed;
    EXPECT_EQ(status.ok(), parsed.ParseFromString(bytes.substr(0, size))) << size << status;
  }
  EXPECT_THAT(ErrorOf("\x0a\x05zz"), HasSubstr("malformed protobuf"));
  EXPECT_THAT(ErrorOf("\x7b"), HasSubstr("malformed protobuf"));  // a group without an end
  EXPECT_THAT(ErrorOf("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("malformed"));
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += '\x7b';
  for (int i = 0; i < 200; ++i) deep += '\x7c';
  EXPECT_THAT(ErrorOf(deep), StartsWith("message: "));
}

TEST(InferRequestTest, RefusesTextThatIsNotUtf8) {
  for (const auto& [field, bytes] : {std::pair<std::string, std::string>{"model_name",
                                                                         "\x0a\x02"
                                                                         "a\xff"},
                                     {"model_version",
                                      "\x12\x02"
                                      "a\xff"},
                                     {"id",
                                      "\x1a\x02"
                                      "a\xff"}}) {
    EXPECT_EQ(ErrorOf(bytes), field + ": invalid UTF-8 at byte 1");
  }
}

TEST(InferRequestTest, RefusesTooManyParts) {
  inference::ModelInferRequest request;
  for (int i = 0; i <= kMaxTensors; ++i) request.add_inputs();
  EXPECT_EQ(ErrorOf(request.SerializeAsString()), "inputs: too many, expected at most 16");
  request.Clear();
  for (int i = 0; i <= kMaxTensors; ++i) request.add_outputs();
  EXPECT_EQ(ErrorOf(request.SerializeAsString()), "outputs: too many, expected at most 16");
  request.Clear();
  for (int i = 0; i <= kMaxTensors; ++i) request.add_raw_input_contents("");
  EXPECT_EQ(ErrorOf(request.SerializeAsString()),
            "raw_input_contents: too many, expected at most 16");
  request.Clear();
  for (int i = 0; i <= kMaxParameters; ++i) {
    (*request.mutable_parameters())[std::to_string(i)].set_bool_param(true);
  }
  EXPECT_EQ(ErrorOf(request.SerializeAsString()), "parameters: too many, expected at most 32");
  std::string unknown;  // of field 100
  for (int i = 0; i < kMaxFields; ++i) unknown += std::string("\xa0\x06\x01", 3);
  InferRequest read;
  EXPECT_TRUE(FindInferFields(unknown, &read));
  unknown += std::string("\xa0\x06\x01", 3);
  EXPECT_FALSE(FindInferFields(unknown, &read));
  EXPECT_EQ(ErrorOf(unknown), "message: fields: too many, expected at most 2048");
  request.clear_parameters();
  request.clear_inputs();
  EXPECT_EQ(ErrorOf(request.SerializeAsString() + "\x2a" + std::string("\x80\x30", 2) +
                    unknown.substr(0, 6144)),
            "message: fields: too many, expected at most 2048");
  request.Clear();
  auto* const input = request.add_inputs();
  for (int i = 0; i <= kMaxDimensions; ++i) input->add_shape(1);
  EXPECT_EQ(ErrorOf(request.SerializeAsString()), "inputs[0].shape: too many, expected at most 8");
  request.Clear();
  request.add_inputs()->mutable_contents();
  const std::string once = request.SerializeAsString();
  // The input's field, with its contents twice.
  EXPECT_EQ(ErrorOf(std::string("\x2a\x04\x2a\x00\x2a\x00", 6)),
            "inputs[0].contents: occurs twice, expected once");
}

TEST(InferRequestTest, RefusesWhatTritonAloneHas) {
  inference::ModelInferRequest request;
  (*request.add_inputs()->mutable_parameters())["shared_memory_region"].set_string_param("x");
  EXPECT_THAT(ErrorOf(request.SerializeAsString()), HasSubstr("shared memory is not supported"));
  request.Clear();
  (*request.add_outputs()->mutable_parameters())["classification"].set_int64_param(3);
  EXPECT_THAT(ErrorOf(request.SerializeAsString()), HasSubstr("classification is not supported"));
}

TEST(InferRequestTest, QuotesForeignText) {
  EXPECT_EQ(Quoted("a'b\n\xff"), "'a\\'b\\n\\xff'");
  EXPECT_EQ(Quoted(std::string(100, 'x')), "'" + std::string(64, 'x') + "...'");
}

TEST(InferResponseTest, IsTheMessageOfTheProtocol) {
  inference::ModelInferResponse head;
  head.set_model_name("model");
  head.set_model_version("12");
  head.set_id("an id");
  const auto add = [&head](const char* name, Datatype datatype, std::vector<int64_t> shape) {
    auto* const tensor = head.add_outputs();
    tensor->set_name(name);
    tensor->set_datatype(Describe(datatype).name);
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
  };
  add("label", Datatype::kBytes, {2});
  add("logits", Datatype::kFp32, {2, 300});
  add("nothing", Datatype::kInt32, {0});
  const auto write = [](size_t tensor, uint8_t* to) {
    if (tensor == 0) WriteElement("def", WriteElement("abc", to));
    if (tensor == 1) std::memcpy(to, "wxyz", 4);
  };
  absl::Cord bytes;
  ASSERT_TRUE(WriteInferResponse(head, {14, 4, 0}, write, &bytes).ok());
  ASSERT_TRUE(bytes.TryFlat().has_value());
  inference::ModelInferResponse parsed;
  ASSERT_TRUE(calls::ParseCord(bytes, &parsed));
  EXPECT_EQ(parsed.model_name(), "model");
  EXPECT_EQ(parsed.model_version(), "12");
  EXPECT_EQ(parsed.id(), "an id");
  ASSERT_THAT(parsed.outputs(), SizeIs(3));
  EXPECT_EQ(parsed.outputs(0).name(), "label");
  EXPECT_EQ(parsed.outputs(0).datatype(), "BYTES");
  EXPECT_THAT(parsed.outputs(1).shape(), ElementsAre(2, 300));
  EXPECT_THAT(parsed.outputs(2).shape(), ElementsAre(0));
  EXPECT_THAT(parsed.raw_output_contents(),
              ElementsAre(std::string("\x03\0\0\0abc\x03\0\0\0def", 14), "wxyz", ""));
  std::string again;
  ASSERT_TRUE(parsed.SerializeToString(&again));
  EXPECT_EQ(again.size(), bytes.size());
}

}  // namespace
}  // namespace sru::server::open_inference
