// Bodies of which callers make what they like: eight times as many bytes take eight times as long,
// and no more.
#include <algorithm>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/base/interruption.h"
#include "server/calls/method.h"
#include "server/rest/api_routes.h"
#include "server/rest/client_request.h"
#include "server/rest/completions_request.h"
#include "server/rest/json_message.h"
#include "server/rest/packed_body.h"
#include "server/rest/v2_infer.h"
#include "server/rest/web_protocol.h"
#include "sru/v1/inference.pb.h"
#include "tests/testing/marian_files.h"

namespace sru::server::rest {
namespace {

constexpr size_t kBytes = 16 << 10;
constexpr size_t kTimes = 8;
// Quadratic time takes 64 times as long.
constexpr double kMost = 3 * kTimes;

using Parser = std::function<void(const std::string& body)>;
// A text of about so many bytes.
using Text = std::function<std::string(size_t bytes)>;

void ReadCompletions(const std::string& body) {
  MemoryHold unlimited(nullptr);
  CompletionsRequest request;
  ParseCompletionsRequest(body, &unlimited, &request);
}

// /v1, and Connect's JSON.
template <typename Request>
void ReadMessage(const std::string& body) {
  MemoryHold unlimited(nullptr);
  Request request;
  ParseJsonMessage(body, &unlimited, &request).IgnoreError();
}

template <typename Read>
void ReadClient(const std::string& body, const Read& read) {
  MemoryHold unlimited(nullptr);
  nlohmann::json tree;
  if (!ParseTree(body, &unlimited, &tree).ok()) return;
  FieldReader fields(tree);
  ClientRequest request;
  read(&fields, &request);
}

template <ReadClientRequest read>
void ReadClientBody(const std::string& body) {
  ReadClient(body, read);
}

// The pipelines of all tasks, one after the other.
void ReadPipelines(const std::string& body) {
  for (const char* const task : {"encoder", "classifier", "tagger", "translator", "reader"}) {
    v1::ModelInfo model;
    model.set_task(task);
    ReadClient(body,
               [&](auto* fields, auto* request) { return ReadPipeline(model, fields, request); });
  }
}

void ReadInfer(const std::string& body) {
  MemoryHold unlimited(nullptr);
  ParseHttpInferRequest(body, "", "trec", "", &unlimited).status().IgnoreError();
}

// The body, and as many bytes of binary tensors behind it as it has itself.
void ReadInferWithBinary(const std::string& body) {
  MemoryHold unlimited(nullptr);
  ParseHttpInferRequest(body + std::string(body.size(), '\0'), absl::StrCat(body.size()), "trec",
                        "", &unlimited)
      .status()
      .IgnoreError();
}

// gRPC-Web's text: a message in base64, and pieces of base64 one after the other.
void ReadBase64(const std::string& body) {
  const std::string frame = WebFrame(ErrorForm::kGrpcWebText, body, /*is_end=*/false);
  const absl::StatusOr<std::string> message = DecodeBase64Pieces(frame);
  ASSERT_TRUE(message.ok());
  EXPECT_TRUE(OnlyMessage(*message).ok());
  std::string pieces;
  for (size_t i = 0; i < body.size() / 4; ++i) pieces += "QQ==";
  EXPECT_EQ(DecodeBase64Pieces(pieces)->size(), body.size() / 4);
}

// What unpacks to the body, and the body itself, which is no gzip.
void ReadPacked(const std::string& body) {
  http::PageRequest request;
  request.headers["content-encoding"] = "gzip";
  MemoryHold unlimited(nullptr);
  std::string packed = testing::Gzip(body);
  EXPECT_TRUE(UnpackBody(request, body.size(), &unlimited, &packed).status.ok());
  EXPECT_EQ(packed, body);
  packed = testing::Gzip(body);
  EXPECT_EQ(UnpackBody(request, body.size() - 1, &unlimited, &packed).http_status, 413);
  packed = body;
  EXPECT_FALSE(UnpackBody(request, body.size(), &unlimited, &packed).status.ok());
}

std::string Repeated(absl::string_view unit, size_t bytes, absl::string_view between = "") {
  std::string text(unit);
  while (text.size() < bytes) absl::StrAppend(&text, between, unit);
  return text;
}

// Texts to stand where a value does.
std::vector<std::pair<const char*, Text>> Values() {
  const auto list = [](std::string unit) -> Text {
    return [unit = std::move(unit)](size_t bytes) {
      return absl::StrCat("[", Repeated(unit, bytes, ","), "]");
    };
  };
  const auto string_of = [](std::string unit) -> Text {
    return [unit = std::move(unit)](size_t bytes) {
      return absl::StrCat("\"", Repeated(unit, bytes), "\"");
    };
  };
  const auto keys = [](bool different) -> Text {
    return [different](size_t bytes) {
      std::string text = "{\"0\":1";
      for (int i = 1; text.size() < bytes; ++i) {
        absl::StrAppend(&text, ",\"", different ? i : 0, "\":1");
      }
      return text + "}";
    };
  };
  return {{"objects", list("{}")},
          {"lists", list("[]")},
          {"lists of objects", list("[{}]")},
          {"objects of objects", list(R"({"a":{}})")},
          {"numbers", list("1")},
          {"long numbers", list("-1.7976931348623157e-308")},
          {"one long number", [](size_t bytes) { return "1" + std::string(bytes, '0'); }},
          {"a long fraction", [](size_t bytes) { return "0." + std::string(bytes, '7'); }},
          {"nulls", list("null")},
          {"short strings", list("\"\"")},
          {"numbers as strings", list("\"NaN\"")},
          {"a long word", string_of("a")},
          {"escapes", string_of("\\n")},
          {"code points as escapes", string_of("\\u4e2d")},
          {"pairs of escapes", string_of("\\ud83d\\ude00")},
          {"a string without an end", [](size_t bytes) { return "\"" + Repeated("\\\"", bytes); }},
          {"white space", [](size_t bytes) { return Repeated(" \n", bytes) + "1"; }},
          {"keys", keys(true)},
          {"one key again and again", keys(false)},
          {"a long key", [](size_t bytes) { return "{\"" + std::string(bytes, 'k') + "\":1}"; }},
          {"deep lists", [](size_t bytes) { return Repeated("[", bytes); }},
          {"deep objects", [](size_t bytes) { return Repeated("{\"a\":", bytes); }},
          {"no UTF-8", string_of("\xff")},
          {"an error at the end", [](size_t bytes) { return Repeated("[1],", bytes) + "x"; }}};
}

double Seconds(const Parser& parse, const std::string& body) {
  const std::clock_t begin = std::clock();
  parse(body);
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

struct Door {
  const char* name;
  Parser parse;
  std::vector<std::string> bodies;       // "@" stands for the value
  std::vector<std::string> routes = {};  // whose bodies it reads, by their paths
};

std::vector<Door> Doors() {
  const std::string tensor =
      R"({"inputs":[{"name":"a","shape":[100000000],"datatype":"FP64","data":@}]})";
  return {
      {"completions",
       ReadCompletions,
       {R"({"prompt":@})", R"({"prompt":"a","logit_bias":@})", R"({"prompt":"a","stop":@})", "@"},
       {"/v1/completions"}},
      {"embeddings",
       ReadClientBody<ReadOpenAiEmbeddings>,
       {R"({"input":@})", "@"},
       {"/v1/embeddings"}},
      {"embed", ReadClientBody<ReadEmbed>, {R"({"inputs":@})", "@"}, {"/embed"}},
      {"pipelines",
       ReadPipelines,
       {R"({"inputs":@})", R"({"inputs":"a","parameters":{"ignore_labels":@}})", "@"},
       {"/pipelines/{model}", "/"}},
      {"tokenize", ReadClientBody<ReadTokenize>, {R"({"prompt":@})"}, {"/tokenize"}},
      {"detokenize", ReadClientBody<ReadDetokenize>, {R"({"tokens":@})"}, {"/detokenize"}},
      {"v1 Classify",
       ReadMessage<v1::ClassifyRequest>,
       {R"({"sequences":@})", R"({"sequences":[{"text":@}]})",
        R"({"sequences":[{"token_ids":{"values":@}}]})", R"({"texts":@})", R"({"tokens":@})",
        R"({"text":@,"priority":"low"})", R"({"priority":@})", "@"}},
      {"v1 Answer", ReadMessage<v1::AnswerRequest>, {R"({"question":"a","passages":@,"top_n":1})"}},
      {"v1 Generate",
       ReadMessage<v1::GenerateRequest>,
       {R"({"sampling":{"logit_bias":@}})", R"({"stop":@})", R"({"state":@})", "@"}},
      {"v2",
       ReadInfer,
       {tensor, R"({"inputs":[{"name":"a","shape":[1],"datatype":"BYTES","data":[@]}]})",
        R"({"inputs":@})", R"({"parameters":@})", R"({"id":@})", "@"},
       {"/v2/models/{name}/infer", "/v2/models/{name}/versions/{version}/infer"}},
      {"v2 with binary data", ReadInferWithBinary, {R"({"id":@,"inputs":[]})"}},
      {"gRPC-Web", ReadBase64, {"@"}},
      {"Content-Encoding", ReadPacked, {"@"}},
  };
}

// Those that read messages are all one.
TEST(HostileBodyTest, EveryRouteHasADoor) {
  std::vector<std::string> have;
  for (const Door& door : Doors()) have.insert(have.end(), door.routes.begin(), door.routes.end());
  std::vector<std::string> need;
  for (const RouteGroup& group : ApiRoutes(calls::MethodTable({}))) {
    for (const Route& route : group.routes) {
      if (route.max_body() > 0) need.push_back(route.path);
    }
  }
  EXPECT_THAT(have, ::testing::UnorderedElementsAreArray(need));
}

TEST(HostileBodyTest, EveryDoorTakesLinearTime) {
  for (const Door& door : Doors()) {
    for (const std::string& body : door.bodies) {
      const size_t at = body.find('@');
      for (const auto& [name, value] : Values()) {
        const auto with = [&, &value = value](size_t bytes) {
          return absl::StrCat(body.substr(0, at), value(bytes), body.substr(at + 1));
        };
        const std::string small = with(kBytes);
        const std::string large = with(kTimes * kBytes);
        // The best of up to three rounds: other programs take time, too.
        double seconds_small = 1e9;
        double seconds_large = 1e9;
        const auto is_linear = [&] { return seconds_large < kMost * seconds_small + 0.01; };
        for (int round = 0; round < 3 && (round == 0 || !is_linear()); ++round) {
          seconds_small = std::min(seconds_small, Seconds(door.parse, small));
          seconds_large = std::min(seconds_large, Seconds(door.parse, large));
        }
        EXPECT_TRUE(is_linear()) << door.name << ", " << body << ", " << name << ": "
                                 << seconds_large << " s and " << seconds_small << " s";
      }
    }
  }
}

// The bodies that turn out not to be JSON are read again for the place of the fault.
TEST(HostileBodyTest, NoDoorReadsOnWhenItsClientHasLeft) {
  MemoryHold unlimited(nullptr);
  struct Reader {
    const char* start;  // of a body with a list of numbers
    const char* end;
    std::function<absl::Status(const std::string& body)> parse;
  };
  const std::vector<Reader> readers = {
      {R"({"prompt":[)", "]}",
       [&](const std::string& body) {
         CompletionsRequest request;
         return ParseCompletionsRequest(body, &unlimited, &request).status;
       }},
      {R"({"sequences":[{"token_ids":{"values":[)", "]}}]}",
       [&](const std::string& body) {
         v1::ClassifyRequest request;
         return ParseJsonMessage(body, &unlimited, &request);
       }},
      {R"({"inputs":[{"name":"a","shape":[524288],"datatype":"INT64","data":[)", "]}]}",
       [&](const std::string& body) {
         return ParseHttpInferRequest(body, "", "trec", "", &unlimited).status();
       }}};
  const std::string numbers = Repeated("1", 1 << 20, ",");
  for (const Reader& reader : readers) {
    for (const std::string end : {reader.end, "]", "],x"}) {
      SCOPED_TRACE(absl::StrCat(reader.start, end));
      const std::string body = absl::StrCat(reader.start, numbers, end);
      int times = 0;
      {
        const Interruption counts([&times] { return ++times < 0; });
        reader.parse(body).IgnoreError();
      }
      EXPECT_GT(times, 50);
      for (int i = 1; i <= times; i *= 2) {
        int asked = 0;
        const Interruption interruption([&asked, i] { return ++asked >= i; });
        EXPECT_TRUE(absl::IsCancelled(reader.parse(body))) << i << " of " << times;
        EXPECT_EQ(asked, i);
      }
    }
  }
}

}  // namespace
}  // namespace sru::server::rest
