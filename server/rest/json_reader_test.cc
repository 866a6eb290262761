#include "server/rest/json_reader.h"

#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/interruption.h"
#include "server/rest/json_message.h"

namespace sru::server::rest {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status SkipAll(const std::string& text) {
  JsonReader reader(text);
  reader.Skip();
  reader.ExpectEnd();
  return reader.status();
}

TEST(JsonReaderTest, ReadsAnObjectInPlace) {
  JsonReader reader(R"( {"a" : [1, -2.5e3 ,true], "b\n": "x\u00e9\ud83d\ude00", "c": null} )");
  absl::string_view key;
  absl::string_view text;
  std::string scratch;
  bool flag = false;
  ASSERT_TRUE(reader.EnterObject());
  ASSERT_TRUE(reader.NextKey(&key));
  EXPECT_EQ(key, "a");
  ASSERT_TRUE(reader.EnterArray());
  std::vector<std::string> values;
  while (reader.NextElement()) {
    if (reader.Next() == JsonReader::Kind::kBool) {
      ASSERT_TRUE(reader.ReadBool(&flag));
    } else {
      ASSERT_TRUE(reader.ReadNumber(&text));
      values.emplace_back(text);
    }
  }
  EXPECT_THAT(values, ElementsAre("1", "-2.5e3"));
  EXPECT_TRUE(flag);
  ASSERT_TRUE(reader.NextKey(&key));
  EXPECT_EQ(key, "b\n");
  ASSERT_TRUE(reader.ReadString(&scratch, &text));
  EXPECT_EQ(text, "x\xc3\xa9\xf0\x9f\x98\x80");
  ASSERT_TRUE(reader.NextKey(&key));
  EXPECT_EQ(key, "c");
  EXPECT_TRUE(reader.ReadNull());
  EXPECT_FALSE(reader.NextKey(&key));
  EXPECT_TRUE(reader.ExpectEnd()) << reader.status();
}

// Whatever nlohmann's parser accepts is accepted, and nothing else.
TEST(JsonReaderTest, AcceptsWhatJsonIs) {
  const std::string texts =
      R"(0|-0|01|00|-|1.|.5|1.5|1e|1e+|1e5|1E-5|-01|+1|1 2|NaN|Infinity|true|tru|truex|false|null|)"
      R"(nul|| |[]|[1,]|[,1]|[1 2]|[1,2|{}|{"a":1,}|{"a" 1}|{"a":}|{a:1}|{"a":1}}|["a","b"]|"a|)"
      R"("a\|"a\x"|)"
      R"("\u12"|"\u12zz"|"\ud800"|"\ud800\ud800"|"\udc00\ud800"|"\ud834\udd1e"|"\u0000"|)"
      R"([[[[]]]]|[{"a":[{}]},[]]|[1]x|]|}|[}|{]|[1}|{"a":1]|'a'|/* c */ 1|-[]|)"
      "\"a\tb\"|\"a\nb\"|\t\r\n [ 1 ] \n|[1//\n]|\"\x7f\"|\f1";
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(texts, '|'))) {
    SCOPED_TRACE(text);
    EXPECT_EQ(SkipAll(text).ok(), nlohmann::json::accept(text)) << SkipAll(text);
  }
}

TEST(JsonReaderTest, ErrorsNameTheByteAndWhatIsThere) {
  EXPECT_EQ(SkipAll("[1, x]").message(), "JSON, byte 4: expected a value, found x");
  EXPECT_EQ(SkipAll("[1 2]").message(), "JSON, byte 3: expected ',' or ']', found 2");
  EXPECT_EQ(SkipAll("[1").message(), "JSON, byte 2: expected ',' or ']', found the end");
  EXPECT_EQ(SkipAll(R"({"a" 1})").message(), "JSON, byte 5: expected ':' after the key, found 1");
  EXPECT_EQ(SkipAll("1 {}").message(),
            "JSON, byte 2: expected nothing after the value, found an object");
  EXPECT_THAT(std::string(SkipAll("\"a\nb\"").message()), HasSubstr("found 0x0a"));
  EXPECT_THAT(std::string(SkipAll(R"("\ud800")").message()), HasSubstr("surrogate"));
}

TEST(JsonReaderTest, NestingIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(SkipAll(nested(JsonReader::kMaxDepth)).ok());
  EXPECT_THAT(std::string(SkipAll(nested(JsonReader::kMaxDepth + 1)).message()),
              HasSubstr("levels of nesting"));
  EXPECT_FALSE(SkipAll(std::string(1 << 20, '[')).ok());
}

TEST(JsonReaderTest, SkipCountsWhatItPasses) {
  size_t scalars = 0;
  size_t string_bytes = 0;
  JsonReader reader(R"([1, "ab", [true, {"key": "c\n"}], [], null] )");
  ASSERT_TRUE(reader.Skip(&scalars, &string_bytes));
  EXPECT_EQ(scalars, 5U);
  EXPECT_EQ(string_bytes, 5U);  // with the escape
  EXPECT_TRUE(reader.ExpectEnd());
}

TEST(JsonReaderTest, ReadsStringsAsTheyAreWritten) {
  std::string text = "\"\\/\b\f\n\r\t\x01\x1f\x7f \xc3\xa9";
  text.push_back('\0');
  std::string json;
  AppendJsonString(text, &json);
  EXPECT_EQ(nlohmann::json::parse(json).get<std::string>(), text);
  JsonReader reader(json);
  std::string scratch;
  absl::string_view read;
  ASSERT_TRUE(reader.ReadString(&scratch, &read));
  EXPECT_EQ(read, text);
}

TEST(JsonReaderTest, EndsWhenItsThreadIsInterrupted) {
  std::string text = "[1";
  for (int i = 0; i < 100000; ++i) text += ",[]";
  text += "]";
  EXPECT_TRUE(SkipAll(text).ok());
  int asked = 0;
  const Interruption interruption([&asked] { return ++asked == 3; });
  EXPECT_TRUE(absl::IsCancelled(SkipAll(text)));
  EXPECT_EQ(asked, 3);
}

TEST(JsonReaderTest, FoundIsShort) {
  const std::string text = "\"" + std::string(100, 'x') + "\"";
  JsonReader reader(text);
  EXPECT_EQ(reader.Found(), "\"" + std::string(39, 'x') + "...");
  const std::string wide_text = "\"" + std::string(38, 'x') + "\xc3\xa9\xc3\xa9\"";
  JsonReader wide(wide_text);
  EXPECT_EQ(wide.Found(), "\"" + std::string(38, 'x') + "\xc3\xa9...");
}

}  // namespace
}  // namespace sru::server::rest
