#include "server/translation/request_fields.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/interruption.h"
#include "server/rest/error_response.h"

namespace sru::server::translation {
namespace {

using rest::kFormContentType;
using rest::MemoryHold;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RequestFields Read(const std::string& body, const char* type) {
  RequestFields fields;
  MemoryHold memory(nullptr);
  const absl::Status status = fields.AddBody(body, type, &memory);
  EXPECT_TRUE(status.ok()) << body << ": " << status;
  return fields;
}

std::string Error(const std::string& body, const char* type) {
  RequestFields fields;
  MemoryHold memory(nullptr);
  const absl::Status status = fields.AddBody(body, type, &memory);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << body;
  return std::string(status.message());
}

TEST(RequestFieldsTest, FormsAndJsonSayTheSame) {
  for (RequestFields read :
       {Read("text=a+b%26&text=%C3%A9&n=5&on=1&empty=",
             "application/x-www-form-urlencoded; charset=utf-8"),
        Read(R"({"text":["a b&","\u00e9"],"n":5,"on":true,"empty":"","left":null})",
             "Application/JSON")}) {
    EXPECT_THAT(read.All("text"), ElementsAre("a b&", "\xC3\xA9"));
    EXPECT_EQ(read.Last("text"), "\xC3\xA9");
    EXPECT_TRUE(read.is_list("text"));
    EXPECT_FALSE(read.is_list("n"));
    EXPECT_EQ(read.Last("n"), "5");
    EXPECT_TRUE(read.Flag("on", false));
    EXPECT_TRUE(read.Flag("left", true));
    EXPECT_TRUE(read.has("empty"));
    EXPECT_FALSE(read.has("left"));
    EXPECT_THAT(read.All("left"), IsEmpty());
    EXPECT_TRUE(read.status().ok());
    EXPECT_FALSE(read.Flag("n", true));
    EXPECT_FALSE(read.Flag("text", true));
    EXPECT_EQ(read.status().message(), "n: expected 0, 1, true or false, found '5'");
  }
}

TEST(RequestFieldsTest, AListOfOneIsAListInJson) {
  EXPECT_TRUE(Read(R"({"q":["a"]})", "application/json").is_list("q"));
  EXPECT_FALSE(Read("q=a", kFormContentType).is_list("q"));
  EXPECT_TRUE(Read(R"({"q":[]})", "application/json").has("q"));
}

TEST(RequestFieldsTest, WhatCannotBeReadIsNamed) {
  EXPECT_EQ(Error("a=%4", kFormContentType), "a: expected two digits after each %");
  EXPECT_EQ(Error("a=%FF", kFormContentType), "a: expected UTF-8");
  EXPECT_THAT(Error("%FF=a", kFormContentType), HasSubstr("expected UTF-8"));
  EXPECT_EQ(Error(R"({"a":1,"a":2})", "application/json"), "a: the key comes twice");
  for (const char* const body : {"[1]", "1", "\"a\"", "null", "true"}) {
    EXPECT_EQ(Error(body, "application/json"), "the body: expected a JSON object") << body;
  }
  EXPECT_THAT(Error(R"({"a":"b")", "application/json"), HasSubstr("the body is not JSON"));
  EXPECT_THAT(Error("{\"a\":\"\xFF\"}", "application/json"), HasSubstr("the body is not JSON"));
}

TEST(RequestFieldsTest, WhatIsNoValueIsAProblemOfWhoAsksForIt) {
  const std::pair<const char*, const char*> wrong[] = {
      {"null", "null"}, {R"({"c":1,"a":[{}]})", "an object"}, {"[1,[2]]", "a list"}};
  for (const auto& [value, name] : wrong) {
    RequestFields fields =
        Read(absl::StrCat(R"({"a":["b",)", value, R"(,"d",null],"e":{"c":[{"e":1}]},"c":2})"),
             "application/json");
    EXPECT_EQ(fields.Last("c"), "2");
    EXPECT_TRUE(fields.status().ok());
    EXPECT_TRUE(fields.has("e"));
    EXPECT_FALSE(fields.is_list("e"));
    EXPECT_THAT(fields.All("a"), ElementsAre("b", "d"));
    const std::string problem =
        absl::StrCat("a: value 2: expected a text, a number, true or false, found ", name);
    EXPECT_EQ(fields.status(), absl::InvalidArgumentError(problem));
    EXPECT_EQ(fields.Last("e"), "");
    EXPECT_EQ(fields.status().message(), problem) << "the first one stays";
  }
  RequestFields fields = Read(R"({"a":{"b":"c"}})", "application/json");
  EXPECT_FALSE(fields.Flag("a", false));
  EXPECT_EQ(fields.status().message(),
            "a: expected a text, a number, true or false, or a list of them, found an object");
  EXPECT_EQ(Error(R"({"a":{},"a":1})", "application/json"), "a: the key comes twice");
  EXPECT_THAT(Error(R"({"a":{"b":})", "application/json"), HasSubstr("the body is not JSON"));
}

TEST(RequestFieldsTest, NothingIsReadOnWhenTheClientHasLeft) {
  MemoryHold unlimited(nullptr);
  std::string form;
  std::string list = R"({"q":[)";
  for (int i = 0; i < 1 << 18; ++i) {
    form += "&q=a";
    list += "1,1,1,1,";
  }
  for (const std::string& body : {form, list + "1]}", list + "],x"}) {
    const char* const type = body[0] == '&' ? kFormContentType : rest::kJsonContentType;
    int times = 0;
    const auto read = [&](int until) {
      times = 0;
      const Interruption interruption([&times, until] { return ++times >= until; });
      return RequestFields().AddBody(body, type, &unlimited);
    };
    EXPECT_FALSE(absl::IsCancelled(read(1 << 20)));
    EXPECT_GE(times, 15);
    for (int i = times; i >= 1; i /= 2) {
      EXPECT_TRUE(absl::IsCancelled(read(i))) << i;
      EXPECT_EQ(times, i);
    }
  }
}

TEST(RequestFieldsTest, MemoryIsReserved) {
  calls::ByteBudget budget(10000);
  {
    MemoryHold memory(&budget);
    RequestFields fields;
    EXPECT_TRUE(fields.AddForm("a=b", &memory).ok());
    EXPECT_GT(memory.bytes(), 100);
    EXPECT_EQ(fields.AddForm(std::string(1000, '&'), &memory).code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(fields.AddJson("[" + std::string(1000, ',') + "]", &memory).code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace sru::server::translation
