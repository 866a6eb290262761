#include "server/rest/v2_infer.h"

#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "inference/open_inference.pb.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/memory_hold.h"
#include "tests/testing/plain_rest_call.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  inference::ModelInferRequest request;
  OutputForms outputs;
};

absl::StatusOr<Parsed> Parse(const std::string& body, const std::string& json_length = "",
                             int64_t memory_limit = 64 << 20) {
  calls::ByteBudget budget(memory_limit);
  MemoryHold memory(&budget);
  absl::StatusOr<HttpInferRequest> request =
      ParseHttpInferRequest(body, json_length, "trec", "2", &memory);
  if (!request.ok()) return request.status();
  Parsed parsed;
  EXPECT_TRUE(calls::ParseCord(request->message, &parsed.request));
  parsed.outputs = request->outputs;
  return parsed;
}

Parsed Good(const std::string& body, const std::string& json_length = "") {
  absl::StatusOr<Parsed> parsed = Parse(body, json_length);
  EXPECT_TRUE(parsed.ok()) << parsed.status() << " " << body;
  return parsed.ok() ? *std::move(parsed) : Parsed();
}

std::string Error(const std::string& body, const std::string& json_length = "") {
  const absl::StatusOr<Parsed> parsed = Parse(body, json_length);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(parsed.status().message());
}

// A request with one input of these keys.
std::string WithInput(const std::string& keys) {
  return absl::StrCat(R"({"inputs":[{)", keys, "}]}");
}

std::string Ints(const std::vector<int32_t>& values) {
  std::string raw(values.size() * sizeof(int32_t), '\0');
  if (!values.empty()) std::memcpy(&raw[0], values.data(), raw.size());
  return raw;
}

TEST(V2RequestTest, EverythingThatAMessageHas) {
  const Parsed parsed = Good(R"({
    "outputs": [{"name": "label", "parameters": {"binary_data": false, "x": 1}}, {"name": "logits"}],
    "id": "a-1", "parameters": {"timeout": 5000, "priority": "high", "share": 0.5, "on": true,
                                "big": 18446744073709551615, "binary_data_output": true},
    "inputs": [
      {"data": [[1, 2], [3, 4]], "name": "token_ids", "datatype": "INT32", "shape": [2, 2],
       "parameters": {"content_type": "np"}},
      {"name": "lengths", "shape": [2], "datatype": "INT64", "data": [1, 2], "parameters": null}]})");
  const inference::ModelInferRequest& request = parsed.request;
  EXPECT_EQ(request.model_name(), "trec");
  EXPECT_EQ(request.model_version(), "2");
  EXPECT_EQ(request.id(), "a-1");
  EXPECT_EQ(request.parameters_size(), 5);
  EXPECT_EQ(request.parameters().at("timeout").int64_param(), 5000);
  EXPECT_EQ(request.parameters().at("priority").string_param(), "high");
  EXPECT_EQ(request.parameters().at("share").double_param(), 0.5);
  EXPECT_TRUE(request.parameters().at("on").bool_param());
  EXPECT_EQ(request.parameters().at("big").uint64_param(), 18446744073709551615U);
  ASSERT_EQ(request.inputs_size(), 2);
  EXPECT_EQ(request.inputs(0).name(), "token_ids");
  EXPECT_EQ(request.inputs(0).datatype(), "INT32");
  EXPECT_THAT(request.inputs(0).shape(), ElementsAre(2, 2));
  EXPECT_EQ(request.inputs(0).parameters().at("content_type").string_param(), "np");
  EXPECT_FALSE(request.inputs(0).has_contents());
  ASSERT_EQ(request.raw_input_contents_size(), 2);
  EXPECT_EQ(request.raw_input_contents(0), Ints({1, 2, 3, 4}));
  EXPECT_EQ(request.raw_input_contents(1).size(), 16U);
  ASSERT_EQ(request.outputs_size(), 2);
  EXPECT_EQ(request.outputs(0).name(), "label");
  EXPECT_EQ(request.outputs(0).parameters_size(), 1);
  EXPECT_FALSE(parsed.outputs.IsBinary("label"));
  EXPECT_TRUE(parsed.outputs.IsBinary("logits"));
}

TEST(V2RequestTest, BinaryDataFollowTheJson) {
  const std::string header =
      R"({"inputs":[{"name":"a","shape":[2],"datatype":"INT32","parameters":{"binary_data_size":8}},)"
      R"({"name":"b","shape":[1],"datatype":"INT32","data":[7]},)"
      R"({"name":"c","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":7}}]})";
  const std::string bytes = Ints({1, 2}) + std::string("\3\0\0\0xyz", 7);
  const Parsed parsed = Good(header + bytes, absl::StrCat(header.size()));
  ASSERT_EQ(parsed.request.raw_input_contents_size(), 3);
  EXPECT_EQ(parsed.request.raw_input_contents(0), Ints({1, 2}));
  EXPECT_EQ(parsed.request.raw_input_contents(1), Ints({7}));
  EXPECT_EQ(parsed.request.raw_input_contents(2), std::string("\3\0\0\0xyz", 7));
  EXPECT_EQ(parsed.request.inputs(0).parameters_size(), 0);

  const std::string size = absl::StrCat(header.size());
  EXPECT_THAT(Error(header + bytes.substr(1), size),
              HasSubstr("input 'c': binary_data_size: expected at most the 6 bytes that the body "
                        "has left, found 7"));
  EXPECT_THAT(Error(header + bytes + "z", size), HasSubstr("found 1"));
  EXPECT_THAT(Error(header + bytes), HasSubstr("JSON, byte"));
}

// As languages without integers write them.
TEST(V2RequestTest, WholeNumbersMayHaveAPoint) {
  const std::string header =
      R"({"parameters":{"a":2.0,"b":0.5,"c":1e3},"inputs":[{"name":"a","shape":[2.0,1e0],)"
      R"("datatype":"INT32","parameters":{"binary_data_size":8.0}}]})";
  const Parsed parsed = Good(header + Ints({1, 2}), absl::StrCat(header.size()));
  EXPECT_EQ(parsed.request.parameters().at("a").int64_param(), 2);
  EXPECT_EQ(parsed.request.parameters().at("b").double_param(), 0.5);
  EXPECT_EQ(parsed.request.parameters().at("c").int64_param(), 1000);
  EXPECT_EQ(parsed.request.inputs(0).shape(0), 2);
  EXPECT_EQ(parsed.request.raw_input_contents(0), Ints({1, 2}));
  EXPECT_THAT(Error(WithInput(R"("name":"a","shape":[1.5],"datatype":"INT32","data":[1])")),
              HasSubstr("shape[0]: expected a whole number, found '1.5'"));
}

TEST(V2RequestTest, LargeTensorsAreNotCopied) {
  const int count = 5000;  // as binary data and as JSON
  const std::vector<int32_t> values(count, 65);
  const std::string header =
      absl::StrCat(R"({"inputs":[{"name":"a","shape":[)", count,
                   R"(],"datatype":"INT32","parameters":{"binary_data_size":)", 4 * count,
                   R"(}},{"name":"b","shape":[)", count, R"(],"datatype":"INT32","data":)",
                   json(values).dump(), "}]}");
  calls::ByteBudget budget(1 << 20);
  MemoryHold memory(&budget);
  ASSERT_TRUE(memory.Grow(static_cast<int64_t>(header.size() + 4 * count)));
  absl::StatusOr<HttpInferRequest> request = ParseHttpInferRequest(
      header + Ints(values), absl::StrCat(header.size()), "trec", "", &memory);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_GE(budget.used(), static_cast<int64_t>(header.size()) + 2 * 4 * count);
  const auto chunks = request->message.Chunks();
  EXPECT_EQ(std::distance(chunks.begin(), chunks.end()), 4);
  inference::ModelInferRequest message;
  ASSERT_TRUE(calls::ParseCord(request->message, &message));
  EXPECT_EQ(message.raw_input_contents(0), Ints(values));
  EXPECT_EQ(message.raw_input_contents(1), Ints(values));
}

TEST(V2RequestTest, LengthOfTheJson) {
  const std::string body = WithInput(R"("name":"a","shape":[0],"datatype":"INT32","data":[])");
  Good(body, absl::StrCat(body.size()));
  for (const std::string& length :
       {std::string("0"), std::string("-1"), std::string("x"), std::string("1 "),
        std::string("99999999999999999999"), absl::StrCat(body.size() + 1)}) {
    EXPECT_THAT(Error(body, length),
                HasSubstr("Inference-Header-Content-Length: expected a whole number from 1 to"));
  }
  EXPECT_THAT(Error("", "1"), HasSubstr("Inference-Header-Content-Length"));
}

TEST(V2RequestTest, ErrorsNameTheField) {
  EXPECT_EQ(Error("[]"), "the request: expected a JSON object, found an array");
  EXPECT_THAT(Error(""), HasSubstr("found the end"));
  EXPECT_THAT(Error("{"), HasSubstr("found the end"));
  EXPECT_THAT(Error("{} x"), HasSubstr("expected nothing after the value"));
  EXPECT_THAT(Error("{\"id\":\"\xff\"}"), HasSubstr("JSON, byte 7: expected UTF-8"));
  EXPECT_EQ(Error("{}"), "the request: expected the key 'inputs', found none");
  EXPECT_EQ(Error(R"({"input":[]})"),
            "the request: unknown key 'input'; expected id, parameters, inputs, outputs");
  EXPECT_EQ(Error(R"({"id":"a","id":"b","inputs":[]})"), "the request: the key 'id' comes twice");
  EXPECT_EQ(Error(R"({"id":1,"inputs":[]})"), "id: expected a string, found 1");
  EXPECT_EQ(Error(R"({"inputs":{}})"), "inputs: expected an array, found an object");
  EXPECT_EQ(Error(R"({"inputs":[1]})"), "inputs[0]: expected an object, found 1");
  EXPECT_EQ(Error(R"({"inputs":[],"outputs":[{"nam":"x"}]})"),
            "outputs[0]: unknown key 'nam'; expected name, parameters");
  EXPECT_EQ(Error(R"({"inputs":[],"outputs":[{}]})"),
            "outputs[0]: expected the key 'name', found none");
  EXPECT_EQ(Error(R"({"inputs":[],"outputs":[{"name":"p","parameters":{"binary_data":1}}]})"),
            "outputs[0].parameters.'binary_data': expected true or false, found 1");
  EXPECT_EQ(Error(R"({"inputs":[],"parameters":{"binary_data_output":"yes"}})"),
            "parameters.'binary_data_output': expected true or false, found a string");
  EXPECT_EQ(Error(R"({"inputs":[],"parameters":{"a":[]}})"),
            "parameters.'a': expected a string, a number, true or false, found an array");
  EXPECT_EQ(Error(R"({"inputs":[],"parameters":{"a":1,"a":2}})"),
            "parameters: the key 'a' comes twice");
  EXPECT_EQ(Error(R"({"inputs":[],"parameters":{"a":99999999999999999999}})"),
            "parameters.'a': expected a whole number of 64 bits, found '99999999999999999999'");
  EXPECT_EQ(Error(R"({"inputs":[],"parameters":{"a":1e999}})"),
            "parameters.'a': expected a finite number, found '1e999'");
}

TEST(V2RequestTest, ErrorsNameTheInput) {
  EXPECT_EQ(Error(WithInput(R"("shape":[1],"datatype":"INT32","data":[1])")),
            "inputs[0]: expected the key 'name', found none");
  EXPECT_EQ(Error(WithInput(R"("name":"a","datatype":"INT32","data":[1])")),
            "input 'a': expected the key 'shape', found none");
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[1],"data":[1])")),
            "input 'a': expected the key 'datatype', found none");
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[1],"datatype":"INT32")")),
            "input 'a': expected the key 'data', found none");
  EXPECT_THAT(Error(WithInput(R"("name":"a","shape":[1],"datatype":"INT","data":[1])")),
              HasSubstr("input 'a': datatype: expected one of BOOL"));
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[1.5],"datatype":"INT32","data":[1])")),
            "inputs[0].shape[0]: expected a whole number, found '1.5'");
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":["1"],"datatype":"INT32","data":[1])")),
            "inputs[0].shape[0]: expected a whole number, found \"1\"");
  EXPECT_THAT(
      Error(WithInput(R"("name":"a","shape":[1,1,1,1,1,1,1,1,1],"datatype":"INT32","data":[1])")),
      HasSubstr("inputs[0].shape: expected at most 8 dimensions"));
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[2],"datatype":"INT32","data":[1])")),
            "input 'a': data: expected 2 values by the shape [2], found 1");
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[1],"datatype":"INT32","data":7)")),
            "inputs[0].data: expected an array, found 7");
  EXPECT_EQ(Error(WithInput(R"("name":"a","shape":[1],"datatype":"INT32","data":[1],"data":[1])")),
            "inputs[0]: the key 'data' comes twice");
  const std::string binary =
      R"("name":"a","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":)";
  EXPECT_EQ(Error(WithInput(binary + R"(-4})")),
            "input 'a': binary_data_size: expected a number of bytes, found -4");
  EXPECT_EQ(Error(WithInput(binary + R"("4"})")),
            "input 'a': binary_data_size: expected a number of bytes, found a string");
  EXPECT_EQ(Error(WithInput(binary + R"(4},"data":[1])")),
            "input 'a': expected either data or the parameter binary_data_size, found both");
  EXPECT_THAT(Error(WithInput(binary + R"(4})")), HasSubstr("at most the 0 bytes"));
  EXPECT_THAT(Error(WithInput(binary + R"(9223372036854775807})")),
              HasSubstr("at most the 0 bytes"));
}

TEST(V2RequestTest, NumbersOfThingsAreBounded) {
  const auto many = [](size_t count, const std::string& one) {
    std::string all;
    for (size_t i = 0; i < count; ++i) absl::StrAppend(&all, i == 0 ? "" : ",", one);
    return all;
  };
  const std::string output = R"({"name":"a"})";
  Good(R"({"inputs":[],"outputs":[)" + many(HttpInferRequest::kMaxTensors, output) + "]}");
  EXPECT_THAT(
      Error(R"({"inputs":[],"outputs":[)" + many(HttpInferRequest::kMaxTensors + 1, output) + "]}"),
      HasSubstr("outputs: expected at most 64"));
  std::string parameters;
  for (size_t i = 0; i < HttpInferRequest::kMaxParameters; ++i)
    absl::StrAppend(&parameters, "\"p", i, "\":1,");
  EXPECT_THAT(Error(R"({"inputs":[],"parameters":{)" + parameters + R"("x":1}})"),
              HasSubstr("expected at most 64 parameters"));
}

TEST(V2RequestTest, MemoryIsReservedBeforeItIsTaken) {
  std::string data = "[0";
  for (int i = 1; i < 100000; ++i) data += ",0";
  const std::string body = WithInput(
      absl::StrCat(R"("name":"a","shape":[100000],"datatype":"FP64","data":)", data, "]"));
  EXPECT_EQ(Parse(body, "", 799000).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Parse(body, "", 801000).ok());

  calls::ByteBudget budget(1 << 20);
  {
    MemoryHold memory(&budget);
    ASSERT_TRUE(memory.Grow(static_cast<int64_t>(body.size())));
    absl::StatusOr<HttpInferRequest> request = ParseHttpInferRequest(body, "", "trec", "", &memory);
    ASSERT_TRUE(request.ok());
    // The text is gone, the message is there.
    EXPECT_EQ(budget.used(), static_cast<int64_t>(request->message.size()));
  }
  EXPECT_EQ(budget.used(), 0);
}

// ---------------------------------------------------------------- answers

inference::ModelInferResponse SomeResponse() {
  inference::ModelInferResponse response;
  response.set_model_name("trec");
  response.set_model_version("1");
  response.set_id("a\"1");
  auto* output = response.add_outputs();
  output->set_name("label");
  output->set_datatype("BYTES");
  output->add_shape(2);
  response.add_raw_output_contents(std::string("\1\0\0\0A\2\0\0\0BC", 11));
  output = response.add_outputs();
  output->set_name("ids");
  output->set_datatype("INT32");
  output->add_shape(2);
  output->add_shape(1);
  response.add_raw_output_contents(Ints({-1, 5}));
  return response;
}

std::string HeaderOf(const http::PageResponse& page) {
  for (const auto& [name, value] : page.headers) {
    if (name == "Inference-Header-Content-Length") return value;
  }
  return "";
}

TEST(V2ResponseTest, Json) {
  calls::ByteBudget budget(1 << 20);
  MemoryHold memory(&budget);
  const auto page = WriteHttpInferResponse(SomeResponse(), OutputForms(), &memory);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->content_type, "application/json");
  EXPECT_EQ(HeaderOf(*page), "");
  EXPECT_EQ(json::parse(page->body),
            json::parse(R"({"model_name":"trec","model_version":"1","id":"a\"1","outputs":[
                {"name":"label","datatype":"BYTES","shape":[2],"data":["A","BC"]},
                {"name":"ids","datatype":"INT32","shape":[2,1],"data":[-1,5]}]})"));
  EXPECT_GE(budget.used(), static_cast<int64_t>(page->body.size()));
}

TEST(V2ResponseTest, BinaryDataFollowTheJson) {
  MemoryHold memory(nullptr);
  OutputForms forms;
  forms.binary["ids"] = true;
  const auto page = WriteHttpInferResponse(SomeResponse(), forms, &memory);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(page->content_type, "application/octet-stream");
  const size_t length = std::stoul(HeaderOf(*page));
  const json head = json::parse(page->body.substr(0, length));
  EXPECT_EQ(head["outputs"][0]["data"], json({"A", "BC"}));
  EXPECT_EQ(head["outputs"][1]["parameters"], json({{"binary_data_size", 8}}));
  EXPECT_FALSE(head["outputs"][1].contains("data"));
  EXPECT_EQ(page->body.substr(length), Ints({-1, 5}));

  forms = OutputForms();
  forms.binary_by_default = true;
  const auto both = WriteHttpInferResponse(SomeResponse(), forms, &memory);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->body.substr(std::stoul(HeaderOf(*both))),
            std::string("\1\0\0\0A\2\0\0\0BC", 11) + Ints({-1, 5}));
}

TEST(V2ResponseTest, RefusesWhatItCannotWrite) {
  calls::ByteBudget budget(100);
  MemoryHold memory(&budget);
  EXPECT_EQ(WriteHttpInferResponse(SomeResponse(), OutputForms(), &memory).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(budget.used(), 0);
  MemoryHold unbounded(nullptr);
  inference::ModelInferResponse response = SomeResponse();
  response.mutable_outputs(1)->set_shape(0, 3);
  EXPECT_EQ(WriteHttpInferResponse(response, OutputForms(), &unbounded).status().code(),
            absl::StatusCode::kInternal);
  response.mutable_raw_output_contents()->RemoveLast();
  EXPECT_EQ(WriteHttpInferResponse(response, OutputForms(), &unbounded).status().code(),
            absl::StatusCode::kInternal);
}

// A call whose client takes the parts of an answer at once, or when it is told to.
class PartsCall final : public sru::testing::PlainRestCall {
 public:
  explicit PartsCall(bool takes_at_once) : takes_at_once_(takes_at_once) {}

  MemoryHold& memory() override { return memory_; }
  void Reply(http::PageResponse response) override { whole = std::move(response.body); }
  void Fail(const RestError& error) override { failure = error.status; }
  std::unique_ptr<http::PageStream> ReplyInParts(http::PageResponse head) override {
    content_type = head.content_type;
    return std::make_unique<Stream>(this);
  }

  std::string whole;
  std::string content_type;
  std::vector<std::string> parts;
  std::function<void(bool)> written;
  bool ended = false;
  absl::Status failure;

 private:
  class Stream final : public http::PageStream {
   public:
    explicit Stream(PartsCall* call) : call_(*call) {}
    ~Stream() override { call_.ended = true; }
    void AsyncWrite(std::string part, std::function<void(bool)> written) override {
      call_.parts.push_back(std::move(part));
      if (call_.takes_at_once_) return written(true);
      call_.written = std::move(written);
    }

   private:
    PartsCall& call_;
  };

  const bool takes_at_once_;
  calls::ByteBudget budget_{1 << 20};
  MemoryHold memory_{&budget_};
};

// Two tensors, of which the JSON is longer than what may be in memory.
inference::ModelInferResponse LongResponse() {
  inference::ModelInferResponse response;
  response.set_model_name("trec");
  response.set_model_version("1");
  auto* output = response.add_outputs();
  output->set_name("ids");
  output->set_datatype("INT32");
  output->add_shape(200000);
  std::vector<int> values(200000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int>(i * 12345);
  response.add_raw_output_contents(
      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int)));
  output = response.add_outputs();
  output->set_name("label");
  output->set_datatype("BYTES");
  output->add_shape(30000);
  std::string texts;
  for (int i = 0; i < 30000; ++i) texts += std::string("\2\0\0\0A\"", 6);
  response.add_raw_output_contents(texts);
  return response;
}

TEST(V2ResponseTest, LongJsonIsSentInParts) {
  MemoryHold unbounded(nullptr);
  const std::string whole = WriteHttpInferResponse(LongResponse(), OutputForms(), &unbounded)->body;
  ASSERT_GT(whole.size(), size_t{2} << 20);
  EXPECT_EQ(json::parse(whole)["outputs"][0]["data"].size(), 200000U);
  for (const bool at_once : {true, false}) {
    const auto call = std::make_shared<PartsCall>(at_once);
    ReplyHttpInferResponse(call, LongResponse(), OutputForms());
    while (call->written != nullptr) std::exchange(call->written, nullptr)(true);
    EXPECT_TRUE(call->ended);
    EXPECT_EQ(call->content_type, "application/json");
    std::string sent;
    for (const std::string& part : call->parts) {
      EXPECT_LE(part.size(), 40U << 10);
      sent += part;
    }
    EXPECT_EQ(sent, whole) << at_once;
    EXPECT_EQ(call.use_count(), 1);  // nothing holds it any more
  }
}

TEST(V2ResponseTest, NothingIsWrittenForAClientThatLeft) {
  const auto call = std::make_shared<PartsCall>(false);
  ReplyHttpInferResponse(call, LongResponse(), OutputForms());
  std::exchange(call->written, nullptr)(true);
  std::exchange(call->written, nullptr)(false);
  EXPECT_EQ(call->written, nullptr);
  EXPECT_EQ(call->parts.size(), 2U);
  EXPECT_TRUE(call->ended);
  EXPECT_EQ(call.use_count(), 1);
}

TEST(V2ResponseTest, ShortAndWrongAnswersAreWhole) {
  const auto call = std::make_shared<PartsCall>(true);
  ReplyHttpInferResponse(call, SomeResponse(), OutputForms());
  EXPECT_EQ(json::parse(call->whole)["outputs"].size(), 2U);
  inference::ModelInferResponse wrong = LongResponse();
  wrong.mutable_outputs(0)->set_shape(0, 3);
  ReplyHttpInferResponse(call, wrong, OutputForms());
  EXPECT_EQ(call->failure.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(call->parts.empty());
}

}  // namespace
}  // namespace sru::server::rest
