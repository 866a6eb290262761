#include "client/client.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <thread>

#include "client/command_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/checked.h"
#include "tests/testing/fake_server.h"

namespace sru::client {
namespace {

using ::sru::testing::Checked;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::unique_ptr<Client> MakeClient(ConnectOptions options) {
  auto client = Checked(Client::Create(options));
  return *std::move(client);
}

v1::ClassifyRequest Request(absl::string_view text) {
  v1::ClassifyRequest request;
  *request.add_sequences() = TextSequence(text);
  return request;
}

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    options_.address = server_.address();
    options_.initial_backoff = kMinBackoff;
    client_ = MakeClient(options_);
  }

  FakeServer server_;
  ConnectOptions options_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, Classifies) {
  EXPECT_TRUE(client_->Connect(absl::Seconds(10)).ok());
  v1::ClassifyRequest request = Request("a text that is long");
  request.set_top_k(1);
  auto response = Checked(client_->Classify(request));
  ASSERT_EQ(response->classifications_size(), 1);
  EXPECT_EQ(response->classifications(0).labels(0).name(), "LONG");
  EXPECT_EQ(server_.requests<v1::ClassifyRequest>().back().SerializeAsString(),
            request.SerializeAsString());
}

TEST_F(ClientTest, SendsTheIdAndTheTraceOfACall) {
  CallOptions call;
  call.request_id = "mine";
  call.traceparent = StartTrace();
  EXPECT_TRUE(client_->Classify(Request("x"), call).ok());
  EXPECT_EQ(server_.header("x-request-id"), "mine");
  EXPECT_EQ(server_.header("traceparent"), call.traceparent);
  EXPECT_THAT(call.traceparent, ::testing::MatchesRegex("00-[0-9a-f]{32}-[0-9a-f]{16}-01"));
  EXPECT_NE(call.traceparent, StartTrace());
  EXPECT_TRUE(client_->Classify(Request("x")).ok());
  EXPECT_EQ(server_.header("x-request-id"), "");
  EXPECT_EQ(server_.header("traceparent"), "");
  options_.traceparent = StartTrace();
  const std::unique_ptr<Client> client = MakeClient(options_);
  EXPECT_TRUE(client->Classify(Request("x")).ok());
  EXPECT_EQ(server_.header("traceparent"), options_.traceparent);
  EXPECT_TRUE(client->Classify(Request("x"), call).ok());
  EXPECT_EQ(server_.header("traceparent"), call.traceparent);
}

TEST_F(ClientTest, RefusesIdsThatCannotBeSent) {
  for (const std::string& wrong : {std::string("a b"), std::string(129, 'x'), std::string("\n")}) {
    CallOptions call;
    call.request_id = wrong;
    EXPECT_EQ(client_->Classify(Request("x"), call).status().message(),
              "request_id: expected at most 128 visible ASCII characters");
    call = CallOptions();
    call.traceparent = wrong;
    EXPECT_EQ(client_->Classify(Request("x"), call).status().message(),
              "traceparent: expected at most 128 visible ASCII characters");
  }
}

TEST_F(ClientTest, EncodesInEveryFormat) {
  for (const v1::OutputFormat format :
       {v1::OUTPUT_FORMAT_UNSPECIFIED, v1::OUTPUT_FORMAT_FLOATS, v1::OUTPUT_FORMAT_RAW_FLOAT32,
        v1::OUTPUT_FORMAT_RAW_FLOAT16, v1::OUTPUT_FORMAT_RAW_BFLOAT16}) {
    v1::EncodeRequest request;
    const int32_t ids[] = {4, 2};
    *request.add_sequences() = TokenIdsSequence(ids);
    request.set_output_format(format);
    auto response = Checked(client_->Encode(request));
    auto values = Checked(EncodingValues(response->encodings(0), format));
    EXPECT_THAT(*values, ElementsAre(1.0f, -2.0f)) << format;
  }
}

TEST_F(ClientTest, Scores) {
  v1::ScoreRequest request;
  *request.add_sequences() = TextSequence("abcd");
  request.set_return_states(true);
  request.set_token_log_probs(true);
  auto response = Checked(client_->Score(request));
  ASSERT_EQ(response->scores_size(), 1);
  EXPECT_EQ(response->scores(0).token_count(), 4);
  EXPECT_EQ(response->scores(0).token_log_probs_size(), 3);
  EXPECT_EQ(response->scores(0).state(), "abcd");
  ASSERT_EQ(server_.requests<v1::ScoreRequest>().size(), 1u);
  EXPECT_EQ(server_.requests<v1::ScoreRequest>()[0].SerializeAsString(),
            request.SerializeAsString());
  request.mutable_sequences(0)->set_text("\xff");
  EXPECT_EQ(client_->Score(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClientTest, Answers) {
  v1::AnswerRequest request;
  v1::Query* query = request.add_queries();
  query->set_question("Which is the longest?");
  query->add_passages("one b\u00e4r");
  query->add_passages("three");
  query->add_question_lemmas("long");
  query->add_passage_tags()->add_lemmas("one");
  request.set_top_n(2);
  server_.FailNext({grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining")});
  auto response = Checked(client_->Answer(request));
  EXPECT_EQ(server_.num_calls(), 2);
  ASSERT_EQ(response->results_size(), 1);
  ASSERT_EQ(response->results(0).answers_size(), 2);
  EXPECT_EQ(response->results(0).answers(0).text(), "three");
  EXPECT_EQ(response->results(0).answers(0).passage(), 1);
  EXPECT_EQ(response->results(0).answers(1).end_byte(), 8);
  EXPECT_EQ(response->results(0).answers(1).end_char(), 7);
  EXPECT_EQ(server_.requests<v1::AnswerRequest>().back().SerializeAsString(),
            request.SerializeAsString());
}

TEST_F(ClientTest, TextsOfAQueryMustBeUtf8) {
  const auto message = [&](auto change) {
    v1::AnswerRequest request;
    for (int i = 0; i < 2; ++i) {
      v1::Query* query = request.add_queries();
      query->set_question("q");
      query->add_passages("p");
      query->add_passage_tags()->add_lemmas("l");
      query->add_question_lemmas("l");
    }
    change(request.mutable_queries(1));
    const absl::Status status = client_->Answer(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](v1::Query* query) { query->set_question("a\xff"); }),
            "queries[1].question: expected UTF-8, found an invalid byte at offset 1");
  EXPECT_EQ(message([](v1::Query* query) { query->add_passages("\xff"); }),
            "queries[1].passages[1]: expected UTF-8, found an invalid byte at offset 0");
  EXPECT_EQ(message([](v1::Query* query) { query->add_passage_tags()->add_lemmas("\xff"); }),
            "queries[1].passage_tags[1].lemmas[0]: expected UTF-8, found an invalid byte at "
            "offset 0");
  EXPECT_EQ(message([](v1::Query* query) { query->add_question_lemmas("\xff"); }),
            "queries[1].question_lemmas[1]: expected UTF-8, found an invalid byte at offset 0");
  EXPECT_EQ(server_.num_calls(), 0);
}

TEST_F(ClientTest, Translates) {
  v1::TranslateRequest request;
  *request.add_sequences() = TextSequence("two words");
  *request.add_sequences() = TextSequence("");
  request.set_num_hypotheses(2);
  request.set_return_alignment(true);
  request.mutable_length_penalty()->set_alpha(0);
  server_.FailNext({grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining")});
  auto response = Checked(client_->Translate(request));
  EXPECT_EQ(server_.num_calls(), 2);
  ASSERT_EQ(response->translations_size(), 2);
  ASSERT_EQ(response->translations(0).hypotheses_size(), 2);
  EXPECT_EQ(response->translations(0).hypotheses(0).text(), "TWO WORDS");
  EXPECT_THAT(response->translations(0).hypotheses(0).alignment(),
              ElementsAre(1.0f, 0.0f, 0.25f, 0.75f));
  EXPECT_EQ(response->translations(1).hypotheses(0).text(), "");
  EXPECT_EQ(server_.requests<v1::TranslateRequest>().back().SerializeAsString(),
            request.SerializeAsString());

  request.add_target_prefixes("fine");
  request.add_target_prefixes("\xff");
  EXPECT_EQ(client_->Translate(request).status().message(),
            "target_prefixes[1]: expected UTF-8, found an invalid byte at offset 0");
  request.mutable_sequences(0)->set_text("\xff");
  EXPECT_EQ(client_->Translate(request).status().message(),
            "sequences[0].text: expected UTF-8, found an invalid byte at offset 0");
  EXPECT_EQ(server_.num_calls(), 2);
}

TEST_F(ClientTest, GeneratesAndGoesOnAtAnotherServer) {
  server_.DrainGenerateAfter({2});
  v1::GenerateRequest request;
  *request.mutable_prompt() = TextSequence("abc");
  request.set_max_new_tokens(4);
  std::string text;
  const auto take = [&](const v1::GenerateResponse& response) {
    text += response.text();
    return text.size() < 100;
  };
  const absl::Status status = client_->Generate(request, take);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(text, "defg");
  ASSERT_EQ(server_.requests<v1::GenerateRequest>().size(), 2u);
  EXPECT_EQ(server_.requests<v1::GenerateRequest>()[1].state(), "abcde");

  request.add_stop("\xff");
  EXPECT_EQ(client_->Generate(request, take).message(),
            "stop[0]: expected UTF-8, found an invalid byte at offset 0");
  request.mutable_prompt()->set_text("\xff");
  EXPECT_EQ(client_->Generate(request, take).message(),
            "prompt.text: expected UTF-8, found an invalid byte at offset 0");
}

TEST_F(ClientTest, GenerateIsCancelledFromAnotherThread) {
  v1::GenerateRequest request;
  *request.mutable_prompt() = TextSequence("hang");
  Cancellation cancellation;
  CallOptions options;
  options.cancellation = &cancellation;
  std::thread canceller;
  int messages = 0;
  const absl::Status status = client_->Generate(
      request,
      [&](const v1::GenerateResponse&) {
        if (++messages == 2) canceller = std::thread([&] { cancellation.Cancel(); });
        return true;
      },
      options);
  canceller.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(messages, 2);
  // Once cancelled, no call begins.
  EXPECT_EQ(client_
                ->Generate(
                    request, [](const auto&) { return true; }, options)
                .code(),
            absl::StatusCode::kCancelled);
}

TEST_F(ClientTest, EncodesAStream) {
  int sent = 0;
  std::vector<int> tokens;
  std::string state;
  absl::Status status = client_->EncodeStream(
      [&](v1::EncodeStreamRequest* request) {
        if (sent == 3) return false;
        if (sent == 0) request->mutable_start()->set_model("m");
        *request->mutable_chunk() =
            TextSequence(std::vector<std::string>{"a", "b c", "d e f"}[sent]);
        request->set_return_state(sent == 2);
        ++sent;
        return true;
      },
      [&](const v1::EncodeStreamResponse& response) {
        tokens.push_back(response.encoding().token_count());
        state += response.state();
        return true;
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(tokens, ElementsAre(1, 2, 3));
  EXPECT_EQ(state, "ab cd e f");
  status = client_->EncodeStream(
      [](v1::EncodeStreamRequest* request) {
        *request->mutable_chunk() = TextSequence("no start");
        return true;
      },
      [](const v1::EncodeStreamResponse&) { return true; });
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "start: in the first message only");
}

TEST_F(ClientTest, AStreamThatEndsBeforeAnAnswerHasFailed) {
  const auto encode = [&](const char* text, std::string* state) {
    return client_->EncodeStream(
        [text](v1::EncodeStreamRequest* request) {
          request->mutable_start()->set_model("m");
          *request->mutable_chunk() = TextSequence(text);
          return true;
        },
        [state](const v1::EncodeStreamResponse& response) {
          *state = response.state();
          return !response.has_encoding();
        });
  };
  std::string state;
  const absl::Status idle = encode("idle", &state);
  EXPECT_EQ(idle.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(idle.message()), HasSubstr("before it answered the last request"));
  EXPECT_EQ(encode("drain", &state).message(), "the server is draining");
}

TEST_F(ClientTest, TheStateOfADrainComesThoughTheClientWasIdle) {
  std::string state;
  bool first = true;
  const absl::Status status = client_->EncodeStream(
      [&](v1::EncodeStreamRequest* request) {
        if (first) {
          request->mutable_start()->set_model("m");
        } else {
          absl::SleepFor(absl::Milliseconds(200));  // the stream has ended by then
        }
        *request->mutable_chunk() = TextSequence(first ? "last" : "more");
        first = false;
        return true;
      },
      [&](const v1::EncodeStreamResponse& response) {
        state = response.state();
        return true;
      });
  EXPECT_EQ(status.message(), "the server is draining");
  EXPECT_EQ(state, "last");
}

TEST_F(ClientTest, ListsModels) {
  auto models = Checked(client_->ListModels());
  ASSERT_EQ(models->models_size(), 1);
  auto model = Checked(client_->GetModel("fake"));
  EXPECT_EQ(model->version(), 7);
  auto unknown = client_->GetModel("other", 3);
  EXPECT_EQ(unknown.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(unknown.status().message(), "model: there is no 'other'");
}

TEST_F(ClientTest, ChecksHealth) {
  auto health = Checked(client_->Health());
  EXPECT_EQ(*health, ServingStatus::kServing);
  server_.SetServing("fake", false);
  health = client_->Health("fake");
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, ServingStatus::kNotServing);
  EXPECT_EQ(client_->Health("other").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClientTest, UnavailableIsTriedAgain) {
  const grpc::Status draining(grpc::StatusCode::UNAVAILABLE, "draining");
  server_.FailNext({draining, draining});
  EXPECT_TRUE(client_->Classify(Request("text")).ok());
  EXPECT_EQ(server_.num_calls(), 3);
  server_.FailNext({grpc::Status(grpc::StatusCode::CANCELLED, "closing")});
  EXPECT_TRUE(client_->Classify(Request("text")).ok());
  EXPECT_EQ(server_.num_calls(), 5);

  options_.max_attempts = 1;
  server_.FailNext({draining});
  EXPECT_EQ(MakeClient(options_)->Classify(Request("text")).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.num_calls(), 6);
}

TEST_F(ClientTest, OtherErrorsAreNotTriedAgain) {
  auto response = client_->Classify(Request("bad"));
  EXPECT_EQ(response.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(response.status().message(), "sequences[0].text: gives no tokens");
  EXPECT_EQ(server_.num_calls(), 1);
  EXPECT_FALSE(RetryDelay(response.status()).has_value());
}

TEST_F(ClientTest, OverloadCarriesTheDelay) {
  server_.FailNext({FakeServer::Overloaded(1, 250000000)});
  auto response = client_->Classify(Request("text"));
  EXPECT_EQ(response.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryDelay(response.status()), absl::Milliseconds(1250));
  EXPECT_EQ(server_.num_calls(), 1);
}

TEST_F(ClientTest, TheDeadlineOfACallComesBeforeTheClients) {
  CallOptions options;
  options.deadline = absl::Milliseconds(50);
  EXPECT_EQ(client_->Classify(Request("hang"), options).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(ClientTest, SaysWhenNobodyListens) {
  options_.address = DeadAddress();
  const auto client = MakeClient(options_);
  const absl::Status connected = client->Connect(absl::Seconds(10));
  EXPECT_EQ(connected.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(connected.message()), HasSubstr(options_.address));
  EXPECT_EQ(client->Classify(Request("text")).status().code(), absl::StatusCode::kUnavailable);
}

// The proxy is one where nothing listens.
TEST_F(ClientTest, CallsToThisMachineUseNoProxy) {
  setenv("http_proxy", absl::StrCat("http://", DeadAddress()).c_str(), 1);
  options_.max_attempts = 1;
  const absl::Status status = MakeClient(options_)->Classify(Request("text")).status();
  unsetenv("http_proxy");
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ClientTest, AnswersOverTheLimitAreRefused) {
  options_.max_message_bytes = 8;
  EXPECT_EQ(MakeClient(options_)->Classify(Request("text")).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ClientTest, TextMustBeUtf8) {
  // Up to the last code point, and the edges of the surrogates.
  EXPECT_TRUE(
      client_->Classify(Request("caf\xc3\xa9 \xed\x9f\xbf \xee\x80\x80 \xf4\x8f\xbf\xbf")).ok());
  for (const char* text :
       {"ok \xff", "ok \x80", "ok \xc0\x80", "ok \xe0\x80\x80", "ok \xed\xa0\x80",
        "ok \xf0\x80\x80\x80", "ok \xf4\x90\x80\x80", "ok \xc3", "ok \xe2\x82"}) {
    v1::ClassifyRequest request = Request("fine");
    *request.add_sequences() = TextSequence(text);
    auto response = client_->Classify(request);
    EXPECT_EQ(response.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(response.status().message(),
              "sequences[1].text: expected UTF-8, found an invalid byte at offset 3");
  }
  v1::EncodeRequest encode;
  *encode.add_sequences() = TokensSequence({"fine", "\xff"});
  EXPECT_THAT(std::string(client_->Encode(encode).status().message()),
              HasSubstr("sequences[0].tokens.values[1]"));
  EXPECT_EQ(server_.num_calls(), 1);
}

TEST_F(ClientTest, TokenizesAndDetokenizes) {
  v1::TokenizeRequest texts;
  *texts.add_sequences() = TextSequence("ab c");
  const auto tokens = Checked(client_->Tokenize(texts));
  ASSERT_EQ(tokens->tokenizations(0).tokens_size(), 2);
  EXPECT_EQ(tokens->tokenizations(0).tokens(1).start_byte(), 3);
  v1::DetokenizeRequest ids;
  ids.add_sequences()->add_values(tokens->tokenizations(0).tokens(0).id());
  EXPECT_EQ(Checked(client_->Detokenize(ids))->texts(0), "xx");
}

TEST_F(ClientTest, ManyThreadsShareOne) {
  std::vector<std::thread> threads;
  std::atomic<int> ok{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto response = client_->Classify(Request(t % 2 == 0 ? "short" : "a text that is long"));
        ok += response.ok() &&
              response->classifications(0).labels(0).name() == (t % 2 == 0 ? "SHORT" : "LONG");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ok, 400);
}

TEST_F(ClientTest, OptionsAreChecked) {
  const auto message = [](auto change) {
    ConnectOptions options;
    change(&options);
    auto client = Client::Create(options);
    EXPECT_EQ(client.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(client.status().message());
  };
  EXPECT_THAT(message([](ConnectOptions* o) { o->address = ""; }), HasSubstr("address"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->deadline = -absl::Seconds(1); }),
              HasSubstr("deadline"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->max_attempts = 0; }), HasSubstr("max_attempts"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->max_attempts = 6; }), HasSubstr("max_attempts"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->max_backoff = absl::ZeroDuration(); }),
              HasSubstr("max_backoff"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->initial_backoff = absl::Milliseconds(1); }),
              HasSubstr("expected 2ms <= initial_backoff <= max_backoff, found 1ms and 2s"));
  EXPECT_THAT(message([](ConnectOptions* o) { o->max_message_bytes = 0; }),
              HasSubstr("max_message_bytes"));
  EXPECT_EQ(message([](ConnectOptions* o) { o->token_file = "/"; }),
            "token_file: /: cannot be read: Is a directory");
  EXPECT_EQ(message([](ConnectOptions* o) { o->token = "two words"; }),
            "token: expected one token of visible ASCII characters");
  EXPECT_EQ(message([](ConnectOptions* o) { o->token = o->token_file = "/"; }),
            "token: expected no token beside token_file");
  EXPECT_EQ(message([](ConnectOptions* o) { o->tls_ca = "/"; }),
            "tls_ca: /: cannot be read: Is a directory");
  EXPECT_EQ(message([](ConnectOptions* o) { o->tls_ca = "/dev/null"; }),
            "tls_ca: /dev/null is empty");
}

v1::Encoding RawEncoding(std::vector<int64_t> shape, std::string data) {
  v1::Encoding encoding;
  for (const int64_t size : shape) encoding.add_shape(size);
  encoding.set_data(std::move(data));
  return encoding;
}

TEST(EncodingValuesTest, ReadsHalfPrecision) {
  // 0.5, the largest, the smallest normal, the smallest subnormal, -0, infinity.
  auto values = Checked(EncodingValues(
      RawEncoding({2, 3}, std::string("\x00\x38\xff\x7b\x00\x04\x01\x00\x00\x80\x00\x7c", 12)),
      v1::OUTPUT_FORMAT_RAW_FLOAT16));
  EXPECT_THAT(*values, ElementsAre(0.5f, 65504.0f, 0x1p-14f, 0x1p-24f, 0.0f,
                                   std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(std::signbit((*values)[4]));
  values =
      EncodingValues(RawEncoding({1}, std::string("\x01\x7e", 2)), v1::OUTPUT_FORMAT_RAW_FLOAT16);
  ASSERT_TRUE(values.ok());
  EXPECT_TRUE(std::isnan((*values)[0]));
}

TEST(EncodingValuesTest, RefusesDataThatDoNotFitTheShape) {
  const v1::OutputFormat format = v1::OUTPUT_FORMAT_RAW_FLOAT32;
  for (const v1::Encoding& encoding :
       {RawEncoding({2}, "1234"), RawEncoding({1}, "12345"), RawEncoding({-1}, ""),
        RawEncoding({int64_t{1} << 40, int64_t{1} << 40}, "")}) {
    EXPECT_EQ(EncodingValues(encoding, format).status().code(), absl::StatusCode::kInvalidArgument)
        << encoding.ShortDebugString();
  }
  EXPECT_TRUE(EncodingValues(RawEncoding({0, 4}, ""), format).ok());
}

TEST(NamesTest, ValuesThatUsersName) {
  EXPECT_THAT(NamedValues<v1::Priority>(),
              ElementsAre(Pair("low", v1::PRIORITY_LOW), Pair("normal", v1::PRIORITY_NORMAL),
                          Pair("high", v1::PRIORITY_HIGH)));
}

TEST(NamesTest, ErrorsSayWhatToDo) {
  EXPECT_THAT(ExplainError(absl::UnavailableError("cannot connect to localhost:1"), "localhost:1",
                           absl::Seconds(1)),
              HasSubstr("is the server running at localhost:1? Start it with: make serve"));
  EXPECT_THAT(ExplainError(absl::DeadlineExceededError("late"), "x", absl::Seconds(2)),
              HasSubstr("--deadline"));
  EXPECT_EQ(ExplainError(absl::InvalidArgumentError("top_k: negative"), "x", absl::Seconds(2)),
            "INVALID_ARGUMENT: top_k: negative");
}

TEST(NamesTest, AdminErrorsSayWhatToDo) {
  const auto explain = [](const absl::Status& status) {
    return ExplainAdminError(status, "x", absl::Seconds(2));
  };
  EXPECT_THAT(explain(absl::FailedPreconditionError("model m version 2: config.json is missing")),
              HasSubstr("mend the model's files and load it again"));
  EXPECT_THAT(explain(absl::ResourceExhaustedError("no memory")),
              HasSubstr("unload another model"));
  const std::string control =
      "models cannot be loaded or unloaded by calls: the server runs with --model_control=poll; "
      "start it with --model_control=explicit";
  EXPECT_EQ(explain(absl::FailedPreconditionError(control)), "FAILED_PRECONDITION: " + control);
}

}  // namespace
}  // namespace sru::client
