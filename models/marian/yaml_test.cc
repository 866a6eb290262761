#include "models/marian/yaml.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ParseError(const std::string& text) {
  return std::string(YamlMap::Parse(text, "f.yml").status().message());
}

YamlMap ParseOrDie(const std::string& text) {
  auto map = YamlMap::Parse(text, "f.yml");
  EXPECT_TRUE(map.ok()) << map.status();
  return *std::move(map);
}

TEST(YamlTest, ReadsScalarsAndLists) {
  YamlMap map = ParseOrDie(
      "a: 3\nb: 0.5\nc: true\nd: []\ne:\n  - x\n  - \"y z\"\nf: \"\"\ng: ~\nh: {i: 1}\n");
  int a = 0;
  double b = 0;
  bool c = false;
  map.Integer("a", 1, 3, &a);
  map.Number("b", 0, 1, &b);
  map.Boolean("c", &c);
  EXPECT_EQ(a, 3);
  EXPECT_EQ(b, 0.5);
  EXPECT_TRUE(c);
  EXPECT_THAT(map.List("d"), IsEmpty());
  EXPECT_THAT(map.List("e"), ElementsAre("x", "y z"));
  EXPECT_THAT(map.List("g"), IsEmpty());
  map.Expect("d", "");
  map.Expect("e", "x,y z");
  map.Expect("f", "");
  map.Expect("absent", "x");
  EXPECT_TRUE(map.status().ok()) << map.status();
  map.Expect("h", "");
  EXPECT_THAT(map.status().message(),
              HasSubstr("f.yml: key 'h': expected no value, found nested values"));
}

TEST(YamlTest, NamesTheKeyOfAWrongValue) {
  const auto error = [](const auto& look) {
    YamlMap map = ParseOrDie("a: 4\nb: x\nc: [1, 2]\n");
    look(map);
    return std::string(map.status().message());
  };
  int integer = 7;
  double number = 7;
  bool boolean = true;
  EXPECT_EQ(error([&](YamlMap& map) { map.Integer("a", 1, 3, &integer); }),
            "f.yml: key 'a': expected an integer from 1 to 3, found '4'");
  EXPECT_THAT(error([&](YamlMap& map) { map.Integer("b", 1, 3, &integer); }),
              HasSubstr("found 'x'"));
  EXPECT_THAT(error([&](YamlMap& map) { map.Number("b", 0, 1, &number); }),
              HasSubstr("expected a number from 0 to 1"));
  EXPECT_THAT(error([&](YamlMap& map) { map.Number("c", 0, 1, &number); }),
              HasSubstr("found '1,2'"));
  EXPECT_THAT(error([&](YamlMap& map) { map.Boolean("a", &boolean); }),
              HasSubstr("expected true or false"));
  EXPECT_THAT(error([&](YamlMap& map) { map.Require("z"); }),
              HasSubstr("key 'z': expected a value, found no such key"));
  EXPECT_EQ(integer, 7);
  EXPECT_EQ(number, 7);
  EXPECT_TRUE(boolean);
}

TEST(YamlTest, RefusesWhatIsNoMapAndWhatIsLargeOrDeep) {
  EXPECT_THAT(ParseError("- a\n"), HasSubstr("expected a YAML map"));
  EXPECT_THAT(ParseError(""), HasSubstr("expected a YAML map"));
  EXPECT_THAT(ParseError("a: [1\nb: \"\n"), HasSubstr("f.yml: not YAML: line "));
  EXPECT_THAT(ParseError("a: *b\n"), HasSubstr("f.yml: not YAML"));
  EXPECT_THAT(ParseError("a: 1\na: 2\n"), HasSubstr("key 'a' is there twice"));
  EXPECT_THAT(ParseError("[a, b]: 1\n"), HasSubstr("keys that are scalars"));
  EXPECT_THAT(ParseError("a: " + std::string(65536, 'x')), HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(ParseError("a: " + std::string(17, '[')), HasSubstr("16 levels"));
  EXPECT_THAT(ParseError("a: " + std::string(20000, '{')), HasSubstr("16 levels"));
  std::string dashes = "a:\n";
  for (int i = 0; i < 10000; ++i) dashes += "- ";
  EXPECT_THAT(ParseError(dashes), HasSubstr("16 levels"));
  std::string marks = "a:\n";
  for (int i = 0; i < 10000; ++i) marks += "? ";
  EXPECT_THAT(ParseError(marks), HasSubstr("16 levels"));
}

// Brackets are levels only where YAML says so.
TEST(YamlTest, LevelsAreThoseOfTheParser) {
  std::string quoted = "a: ";
  for (int i = 0; i < 12000; ++i) quoted += "[\"]\",";
  EXPECT_THAT(ParseError(quoted), HasSubstr("16 levels"));
  std::string commented = "a:\n";
  for (int i = 0; i < 3000; ++i) commented += "  [ # ]\n";
  EXPECT_THAT(ParseError(commented), HasSubstr("16 levels"));
  std::string indented = "a:\n";
  for (int i = 1; i < 300; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "b:\n";
  EXPECT_THAT(ParseError(indented), HasSubstr("16 levels"));
  const std::string many(100, '[');
  YamlMap map = ParseOrDie("# " + many + "\na: '" + many + "'\nb: " + std::string(80, ' ') + "c\n" +
                           "d: " + std::string(15, '[') + std::string(15, ']') + "\n");
  EXPECT_THAT(map.List("a"), ElementsAre(many));
  EXPECT_THAT(map.List("b"), ElementsAre("c"));
}

TEST(YamlTest, AliasesCannotMultiplyTheText) {
  YamlMap few = ParseOrDie("a: &x [b, c]\nd: *x\n");
  EXPECT_THAT(few.List("d"), ElementsAre("b", "c"));
  const std::string text(1000, 'x');
  std::string list = "a: &x [y";
  for (int i = 0; i < 500; ++i) list += ",y";
  std::string lists = "a: &x [[]";
  for (int i = 0; i < 500; ++i) lists += ",[]";
  for (std::string bomb : {"a: &x " + text, list + "]", lists + "]"}) {
    bomb += "\n";
    for (int i = 0; i < 100; ++i) bomb += "k" + std::to_string(i) + ": *x\n";
    EXPECT_THAT(ParseError(bomb), HasSubstr("f.yml: aliases make the values longer"));
  }
}

}  // namespace
}  // namespace sru::models
