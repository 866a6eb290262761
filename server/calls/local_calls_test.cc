#include "server/calls/local_calls.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/calls/message_cord.h"
#include "sru/v1/inference.pb.h"
#include "tests/testing/fake_methods.h"
#include "tests/testing/poll.h"

namespace sru::server::calls {
namespace {

using ::sru::testing::FakeEnd;
using ::sru::testing::FakeStream;
using ::sru::testing::FakeUnary;
using ::sru::testing::PollUntil;
using ::testing::ElementsAre;

constexpr char kService[] = "sru.v1.InferenceService";

Method Unary(
    std::function<CallEnd(Exchange&, const v1::GetModelRequest&, v1::GetModelResponse*)> run) {
  return FakeUnary<v1::GetModelRequest, v1::GetModelResponse>(kService, "GetModel", std::move(run));
}
Method Stream(
    std::function<CallEnd(Exchange&, const std::function<bool(const std::string&)>&)> run) {
  return FakeStream<v1::GenerateRequest, v1::GenerateResponse>(
      kService, "Generate", [run = std::move(run)](auto& exchange, const auto&, const auto& write) {
        return run(exchange, [&write](const std::string& text) {
          v1::GenerateResponse response;
          response.set_text(text);
          return write(response);
        });
      });
}

// The caller of a stream, with all that it has received.
struct Caller {
  Mutex mutex;
  std::vector<std::string> texts ABSL_GUARDED_BY(mutex);
  std::optional<absl::Status> end ABSL_GUARDED_BY(mutex);

  LocalCalls::OnMessage OnMessage() {
    return [this](const absl::Cord& message) {
      v1::GenerateResponse response;
      EXPECT_TRUE(ParseCord(message, &response));
      MutexLock lock(&mutex);
      texts.push_back(response.text());
    };
  }
  LocalCalls::OnDone OnDone() {
    return [this](LocalAnswer answer) {
      MutexLock lock(&mutex);
      EXPECT_FALSE(end.has_value());
      end = std::move(answer.end.status);
    };
  }
  size_t count() {
    MutexLock lock(&mutex);
    return texts.size();
  }
  bool ended() {
    MutexLock lock(&mutex);
    return end.has_value();
  }
};

TEST(LocalCallsTest, ACallThatIsCancelledAtItsDeadlineSaysSo) {
  const Method method = Unary([](Exchange& exchange, const auto&, auto*) {
    EXPECT_TRUE(PollUntil([&] { return exchange.is_cancelled(); }));
    return FakeEnd(absl::CancelledError("the caller cancelled the request"));
  });
  LocalCalls calls;
  for (const bool in_time : {false, true}) {
    LocalCallInfo info;
    info.deadline = SteadyNow() + (in_time ? absl::Hours(1) : absl::ZeroDuration());
    std::atomic<absl::StatusCode> code{absl::StatusCode::kOk};
    std::shared_ptr<LocalCall> call = calls.Unary(
        method, absl::Cord(), info, [&](LocalAnswer answer) { code = answer.end.status.code(); });
    call->Cancel();
    EXPECT_TRUE(PollUntil([&] { return code != absl::StatusCode::kOk; }));
    EXPECT_EQ(code, in_time ? absl::StatusCode::kCancelled : absl::StatusCode::kDeadlineExceeded);
  }
}

TEST(LocalCallsTest, AnAnswerHasItsMessageAndItsHeaders) {
  const Method method = Unary([](Exchange& exchange, const auto& request, auto* response) {
    EXPECT_EQ(exchange.method(), "/sru.v1.InferenceService/GetModel");
    EXPECT_EQ(exchange.FindHeader("x-request-id"), "mine");
    EXPECT_EQ(exchange.peer(), "ipv4:10.0.0.1:4711");
    EXPECT_LE(exchange.time_left(), absl::Seconds(20));
    response->mutable_model()->set_name(request.model());
    CallEnd end = FakeEnd(absl::OkStatus());
    end.headers = {{"x-request-id", "theirs"}};
    return end;
  });
  LocalCalls calls;
  v1::GetModelRequest request;
  request.set_model("trec");
  std::string got;
  std::atomic<bool> done{false};
  calls.Unary(method, ToCord(request),
              {SteadyNow() + absl::Seconds(20), {{"x-request-id", "mine"}}, "ipv4:10.0.0.1:4711"},
              [&](const LocalAnswer& answer) {
                v1::GetModelResponse response;
                EXPECT_TRUE(ParseCord(answer.message, &response));
                got = response.model().name() + " " + answer.end.headers.front().second;
                done = true;
              });
  EXPECT_TRUE(PollUntil([&] { return done.load(); }));
  EXPECT_EQ(got, "trec theirs");
}

TEST(LocalCallsTest, AMethodWaitsUntilItsCallerWantsMore) {
  std::atomic<int> written{0};
  const Method method = Stream([&](Exchange&, const auto& write) {
    for (const char* text : {"a", "b", "c"}) {
      EXPECT_TRUE(write(text));
      ++written;
    }
    return FakeEnd(absl::OkStatus());
  });
  LocalCalls calls;
  Caller caller;
  const auto stream =
      calls.ServerStream(method, absl::Cord(), {}, caller.OnMessage(), caller.OnDone());
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(written, i - 1);
    stream->Next();
    EXPECT_TRUE(PollUntil([&] { return caller.count() == static_cast<size_t>(i); }));
    EXPECT_TRUE(PollUntil([&] { return written == i; }));
  }
  EXPECT_FALSE(caller.ended());
  stream->Next();
  EXPECT_TRUE(PollUntil([&] { return caller.ended(); }));
  MutexLock lock(&caller.mutex);
  EXPECT_THAT(caller.texts, ElementsAre("a", "b", "c"));
  EXPECT_TRUE(caller.end->ok());
}

// The caller may have given up while the call was answered.
TEST(LocalCallsTest, AnAnswerIsNeverPartOfWhatWasSent) {
  std::atomic<bool> cancelled{false};
  const auto wait = [&cancelled] { EXPECT_TRUE(PollUntil([&] { return cancelled.load(); })); };
  const Method unary = Unary([&](Exchange&, const auto&, auto* response) {
    wait();
    response->mutable_model()->set_name("whole");
    return FakeEnd(absl::OkStatus());
  });
  const Method stream = Stream([&](Exchange&, const auto& write) {
    wait();
    EXPECT_FALSE(write("lost"));
    return FakeEnd(absl::OkStatus());
  });
  LocalCalls calls;
  std::optional<LocalAnswer> answer;
  std::atomic<bool> done{false};
  const auto call = calls.Unary(unary, absl::Cord(), {}, [&](LocalAnswer given) {
    answer = std::move(given);
    done = true;
  });
  Caller caller;
  const auto texts =
      calls.ServerStream(stream, absl::Cord(), {}, caller.OnMessage(), caller.OnDone());
  call->Cancel();
  texts->Cancel();
  cancelled = true;
  EXPECT_TRUE(PollUntil([&] { return done && caller.ended(); }));
  EXPECT_TRUE(answer->end.status.ok());
  EXPECT_FALSE(answer->message.empty());
  MutexLock lock(&caller.mutex);
  EXPECT_TRUE(absl::IsCancelled(*caller.end));
}

TEST(LocalCallsTest, ACancelledCallEndsWithoutItsCallersHelp) {
  const Method method = Stream([](Exchange& exchange, const auto& write) {
    while (write("more")) continue;
    EXPECT_TRUE(exchange.is_cancelled());
    return FakeEnd(absl::CancelledError("gone"));
  });
  LocalCalls calls;
  Caller caller;
  const auto stream =
      calls.ServerStream(method, absl::Cord(), {}, caller.OnMessage(), caller.OnDone());
  stream->Next();
  EXPECT_TRUE(PollUntil([&] { return caller.count() == 1; }));
  stream->Cancel();
  stream->Cancel();
  EXPECT_TRUE(PollUntil([&] { return caller.ended(); }));
  MutexLock lock(&caller.mutex);
  EXPECT_EQ(*caller.end, absl::CancelledError("gone"));
}

TEST(LocalCallsTest, CloseEndsWhatRunsAndRefusesTheRest) {
  const Method method = Unary([](Exchange& exchange, const auto&, auto*) {
    EXPECT_TRUE(PollUntil([&] { return exchange.is_cancelled(); }));
    return FakeEnd(absl::CancelledError("closed"));
  });
  LocalCalls calls;
  std::vector<absl::StatusCode> codes;
  const auto done = [&codes](const LocalAnswer& answer) {
    codes.push_back(answer.end.status.code());
  };
  calls.Unary(method, absl::Cord(), {}, done);
  calls.Close();
  calls.Unary(method, absl::Cord(), {}, done);
  // Close() cancelled them, not the caller.
  EXPECT_THAT(codes, ElementsAre(absl::StatusCode::kUnavailable, absl::StatusCode::kUnavailable));
}

// All has been computed; the caller takes it at its own pace.
TEST(LocalCallsTest, CloseLetsACallerTakeWhatIsLeft) {
  const Method method = Stream([](Exchange&, const auto& write) {
    for (int n = 0; n < 100; ++n) EXPECT_TRUE(write(std::to_string(n)));
    return FakeEnd(absl::OkStatus());
  });
  LocalCalls calls;
  Caller caller;
  const auto stream =
      calls.ServerStream(method, absl::Cord(), {}, caller.OnMessage(), caller.OnDone());
  std::thread reader([&] {
    for (size_t n = 1; n <= 100; ++n) {
      stream->Next();
      EXPECT_TRUE(PollUntil([&] { return caller.count() == n; }));
    }
    stream->Next();
  });
  calls.Close(absl::Seconds(20));
  reader.join();
  MutexLock lock(&caller.mutex);
  EXPECT_EQ(*caller.end, absl::OkStatus());
}

// A caller that keeps its stream and is kept by the stream's functions is gone all the same.
TEST(LocalCallsTest, ARefusedStreamKeepsNothing) {
  const Method method = Stream([](Exchange&, const auto&) { return FakeEnd(absl::OkStatus()); });
  LocalCalls calls;
  calls.Close();
  const auto kept = std::make_shared<int>(0);
  const auto stream = calls.ServerStream(
      method, absl::Cord(), {}, [kept](const absl::Cord&) {}, [kept](const LocalAnswer&) {});
  stream->Next();
  EXPECT_EQ(kept.use_count(), 1);
}

// Nothing is lost, doubled or entered twice, whoever comes first.
TEST(LocalCallsTest, CallersAndMethodsOnManyThreads) {
  const Method method = Stream([](Exchange&, const auto& write) {
    for (int i = 0; i < 20; ++i) {
      if (!write(std::to_string(i))) return FakeEnd(absl::CancelledError());
    }
    return FakeEnd(absl::OkStatus());
  });
  LocalCalls calls;
  std::atomic<int> ended{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        Caller caller;
        const auto stream =
            calls.ServerStream(method, absl::Cord(), {}, caller.OnMessage(), caller.OnDone());
        const size_t most = static_cast<size_t>((t * 50 + i) % 25);
        while (!caller.ended() && caller.count() < most) {
          const size_t before = caller.count();
          stream->Next();
          EXPECT_TRUE(PollUntil([&] { return caller.count() > before || caller.ended(); }));
        }
        stream->Cancel();
        EXPECT_TRUE(PollUntil([&] { return caller.ended(); }));
        MutexLock lock(&caller.mutex);
        for (size_t n = 0; n < caller.texts.size(); ++n) {
          EXPECT_EQ(caller.texts[n], std::to_string(n));
        }
        ++ended;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ended, 200);
  calls.Close();
}

TEST(MessageCordTest, AMessageInPiecesIsReadAsAWhole) {
  v1::ClassifyRequest request;
  request.set_model("trec");
  for (int i = 0; i < 100; ++i) request.add_sequences()->set_text(std::string(i, 'x'));
  const std::string bytes = request.SerializeAsString();
  EXPECT_EQ(std::string(ToCord(request)), bytes);
  for (const size_t size : {1, 2, 7, 100000}) {
    absl::Cord pieces;
    for (size_t i = 0; i < bytes.size(); i += size) {
      const auto piece = std::make_shared<const std::string>(bytes.substr(i, size));
      pieces.Append(absl::MakeCordFromExternal(*piece, [piece] {}));
    }
    v1::ClassifyRequest again;
    ASSERT_TRUE(ParseCord(pieces, &again)) << size;
    EXPECT_EQ(again.SerializeAsString(), bytes);
    pieces.RemoveSuffix(1);
    EXPECT_FALSE(ParseCord(pieces, &again)) << size;
  }
  EXPECT_TRUE(ParseCord(absl::Cord(), &request));
  EXPECT_EQ(request.ByteSizeLong(), 0U);
}

// A call that is answered on another thread while the one that started it is still in its reaction:
// either may be the last that holds it.
TEST(LocalCallsTest, EitherThreadMayEndACall) {
  class Call final : public CallHandler {
   public:
    Call(Exchange* exchange, std::thread* other) : exchange_(*exchange), other_(*other) {}
    void OnMessage(std::optional<absl::Cord> /*message*/) override {
      other_ = std::thread([this] { exchange_.WriteAndFinish(absl::Cord("x"), {}); });
    }
    void OnDone() override { delete this; }

   private:
    Exchange& exchange_;
    std::thread& other_;
  };
  std::thread other;
  Method method = Method::Of(MethodId::kGetModel);
  method.start = [&other](Exchange* exchange) { return new Call(exchange, &other); };
  for (int i = 0; i < 2000; ++i) {
    LocalCalls calls;
    std::atomic<int> answers{0};
    calls.Unary(method, absl::Cord(), {SteadyNow() + absl::Seconds(20), {}, ""},
                [&](const LocalAnswer& answer) {
                  EXPECT_TRUE(answer.end.status.ok());
                  ++answers;
                });
    other.join();
    calls.Close();
    EXPECT_EQ(answers, 1);
  }
}

}  // namespace
}  // namespace sru::server::calls
