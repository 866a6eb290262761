#include "server/transport/event_engine.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpc/event_engine/endpoint_config.h"
#include "grpc/event_engine/slice.h"
#include "grpc/event_engine/slice_buffer.h"
#include "gtest/gtest.h"
#include "server/base/deferred_work.h"
#include "tests/testing/notification.h"
#include "tests/testing/tcp_pair.h"

namespace sru::server::transport {
namespace {

using ::grpc_event_engine::experimental::EndpointConfig;
using ::grpc_event_engine::experimental::MemoryAllocator;
using ::grpc_event_engine::experimental::MemoryAllocatorFactory;
using ::grpc_event_engine::experimental::MemoryRequest;
using ::grpc_event_engine::experimental::Slice;
using ::grpc_event_engine::experimental::SliceBuffer;
using ::sru::testing::Notification;
using ::sru::testing::TcpPair;
using Engine = ::grpc_event_engine::experimental::EventEngine;

constexpr std::chrono::hours kNever(1);

// Without a quota.
class PlainAllocator final : public grpc_event_engine::experimental::internal::MemoryAllocatorImpl {
 public:
  size_t Reserve(MemoryRequest request) override { return request.max(); }
  grpc_slice MakeSlice(MemoryRequest request) override { return grpc_slice_malloc(request.max()); }
  void Release(size_t /*bytes*/) override {}
  void Shutdown() override {}
};

MemoryAllocator NewAllocator() { return MemoryAllocator(std::make_shared<PlainAllocator>()); }

class PlainAllocatorFactory final : public MemoryAllocatorFactory {
 public:
  MemoryAllocator CreateMemoryAllocator(absl::string_view /*name*/) override {
    return NewAllocator();
  }
};

class NoConfig final : public EndpointConfig {
 public:
  std::optional<int> GetInt(absl::string_view /*key*/) const override { return std::nullopt; }
  std::optional<absl::string_view> GetString(absl::string_view /*key*/) const override {
    return std::nullopt;
  }
  void* GetVoidPointer(absl::string_view /*key*/) const override { return nullptr; }
};

Engine::ResolvedAddress Port(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  return {reinterpret_cast<const sockaddr*>(&address), sizeof(address)};
}

// A descriptor of its own for the server's end, which the endpoint closes.
int TakeServer(TcpPair* pair) {
  const int fd = dup(pair->server());
  pair->CloseServer();
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

std::string Text(SliceBuffer* buffer) {
  std::string text;
  for (size_t i = 0; i < buffer->Count(); ++i) text += (*buffer)[i].as_string_view();
  return text;
}

std::shared_ptr<PollingEngine> NewEngine(int threads = 2) {
  PollingEngine::Options options;
  options.threads = threads;
  return std::make_shared<PollingEngine>(options);
}

// A callback that takes a status, to be waited for.
class Outcome {
 public:
  std::function<void(absl::Status)> Callback() {
    return [this](absl::Status status) {
      status_ = std::move(status);
      done_.Notify();
    };
  }
  absl::Status Wait() {
    if (!done_.Wait()) {
      return absl::DeadlineExceededError("the callback did not run");
    }
    return status_;
  }
  bool done() { return done_.HasBeenNotified(); }

 private:
  absl::Status status_;
  Notification done_;
};

TEST(PollingEndpointTest, ReadsWhatArrives) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  for (const char* text : {"one", "two"}) {
    SliceBuffer buffer;
    Outcome outcome;
    ASSERT_FALSE(endpoint->Read(outcome.Callback(), &buffer, {}));
    ASSERT_TRUE(TcpPair::Write(pair.client(), text));
    ASSERT_TRUE(outcome.Wait().ok());
    EXPECT_EQ(Text(&buffer), text);
  }
}

TEST(PollingEndpointTest, ReadsWhatWasThereBefore) {
  const auto engine = NewEngine();
  TcpPair pair;
  ASSERT_TRUE(TcpPair::Write(pair.client(), "early"));
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer buffer;
  Outcome outcome;
  ASSERT_FALSE(endpoint->Read(outcome.Callback(), &buffer, {}));
  ASSERT_TRUE(outcome.Wait().ok());
  EXPECT_EQ(Text(&buffer), "early");
}

TEST(PollingEndpointTest, ReadFailsWhenThePeerIsGone) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer buffer;
  Outcome outcome;
  ASSERT_FALSE(endpoint->Read(outcome.Callback(), &buffer, {}));
  shutdown(pair.client(), SHUT_RDWR);
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(buffer.Length(), 0U);
}

TEST(PollingEndpointTest, TellsItsAddresses) {
  const auto engine = NewEngine();
  TcpPair pair;
  sockaddr_in client{};
  socklen_t size = sizeof(client);
  ASSERT_EQ(getsockname(pair.client(), reinterpret_cast<sockaddr*>(&client), &size), 0);
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  const auto* peer = reinterpret_cast<const sockaddr_in*>(endpoint->GetPeerAddress().address());
  EXPECT_EQ(peer->sin_port, client.sin_port);
  EXPECT_NE(endpoint->GetLocalAddress().size(), 0U);
}

// More than the system takes at once, in more pieces than one sendmsg() takes.
TEST(PollingEndpointTest, WritesAllToAPeerThatIsSlow) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer data;
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(60000 + i, static_cast<char>('a' + i % 26));
    expected += piece;
    data.AppendIndexed(Slice::FromCopiedString(piece));
  }
  Outcome outcome;
  ASSERT_FALSE(endpoint->Write(outcome.Callback(), &data, {}));
  EXPECT_FALSE(outcome.done());
  std::string got;
  std::vector<char> buffer(1 << 16);
  while (got.size() < expected.size()) {
    ASSERT_TRUE(TcpPair::IsReadable(pair.client()));
    const ssize_t count = read(pair.client(), buffer.data(), buffer.size());
    ASSERT_GT(count, 0);
    got.append(buffer.data(), static_cast<size_t>(count));
  }
  EXPECT_TRUE(outcome.Wait().ok());
  EXPECT_EQ(got == expected, true);
}

TEST(PollingEndpointTest, WritesAtOnceWhatFits) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer data;
  data.Append(Slice::FromCopiedString("hello"));
  EXPECT_TRUE(endpoint->Write([](const absl::Status&) { FAIL(); }, &data, {}));
  EXPECT_EQ(TcpPair::Read(pair.client()), "hello");
}

TEST(PollingEndpointTest, WriteFailsWhenThePeerIsGone) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer data;
  // Until the system takes no more.
  data.Append(Slice::FromCopiedString(std::string(32 << 20, 'x')));
  Outcome outcome;
  ASSERT_FALSE(endpoint->Write(outcome.Callback(), &data, {}));
  shutdown(pair.client(), SHUT_RDWR);
  const linger reset{1, 0};
  setsockopt(pair.client(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  ASSERT_GE(dup2(STDERR_FILENO, pair.client()), 0);  // closes it
  EXPECT_EQ(outcome.Wait().code(), absl::StatusCode::kUnavailable);
}

TEST(PollingEndpointTest, EndsWhatIsPendingWhenItIsDestroyed) {
  const auto engine = NewEngine();
  TcpPair pair;
  auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer buffer;
  SliceBuffer data;
  data.Append(Slice::FromCopiedString(std::string(32 << 20, 'x')));
  Outcome read;
  Outcome written;
  ASSERT_FALSE(endpoint->Read(read.Callback(), &buffer, {}));
  ASSERT_FALSE(endpoint->Write(written.Callback(), &data, {}));
  endpoint.reset();
  EXPECT_EQ(read.Wait().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(written.Wait().code(), absl::StatusCode::kCancelled);
}

// gRPC's allocator runs what waits in gRPC when its quota is used up, on the thread that asks it.
class BusyAllocator final : public grpc_event_engine::experimental::internal::MemoryAllocatorImpl {
 public:
  explicit BusyAllocator(std::function<void()> work) : work_(std::move(work)) {}
  size_t Reserve(MemoryRequest request) override {
    work_();
    return request.max();
  }
  grpc_slice MakeSlice(MemoryRequest request) override {
    work_();
    return grpc_slice_malloc(request.max());
  }
  void Release(size_t /*bytes*/) override {}
  void Shutdown() override {}

 private:
  const std::function<void()> work_;
};

TEST(PollingEndpointTest, MayBeUsedWhileItAllocates) {
  const auto engine = NewEngine();
  TcpPair pair;
  std::unique_ptr<Engine::Endpoint> endpoint;
  SliceBuffer data;
  data.Append(Slice::FromCopiedString("an answer"));
  Outcome written;
  const auto write = [&] { endpoint->Write(written.Callback(), &data, {}); };
  endpoint = engine->MakeEndpoint(TakeServer(&pair),
                                  MemoryAllocator(std::make_shared<BusyAllocator>(write)));
  SliceBuffer buffer;
  Outcome read;
  ASSERT_FALSE(endpoint->Read(read.Callback(), &buffer, {}));
  ASSERT_TRUE(TcpPair::Write(pair.client(), "a call"));
  ASSERT_TRUE(read.Wait().ok());
  EXPECT_EQ(Text(&buffer), "a call");
  EXPECT_TRUE(written.Wait().ok());
  EXPECT_EQ(TcpPair::Read(pair.client()), "an answer");
}

TEST(PollingEndpointTest, MayBeDestroyedWhileItAllocates) {
  const auto engine = NewEngine();
  TcpPair pair;
  std::unique_ptr<Engine::Endpoint> endpoint;
  const auto destroy = [&] { endpoint.reset(); };
  endpoint = engine->MakeEndpoint(TakeServer(&pair),
                                  MemoryAllocator(std::make_shared<BusyAllocator>(destroy)));
  SliceBuffer buffer;
  Outcome read;
  ASSERT_FALSE(endpoint->Read(read.Callback(), &buffer, {}));
  ASSERT_TRUE(TcpPair::Write(pair.client(), "a call"));
  EXPECT_TRUE(read.Wait().ok());
  EXPECT_EQ(Text(&buffer), "a call");
}

// What keeps a flood of resets from piling up: what came of a read has run before the next.
TEST(PollingEndpointTest, IsNotReadFurtherBeforeItsWorkIsDone) {
  const auto engine = NewEngine(/*threads=*/4);
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  constexpr int kCalls = 1000;
  constexpr int kSteps = 3;  // callbacks of each, one after the other
  SliceBuffer first;
  SliceBuffer second;
  std::atomic<int> steps{0};
  int steps_at_second_read = -1;
  Outcome outcome;
  std::function<void(int)> step = [&](int left) {
    ++steps;
    if (left > 1) engine->Run([&step, left] { step(left - 1); });
  };
  const auto on_second = [&](absl::Status status) {
    steps_at_second_read = steps;
    outcome.Callback()(std::move(status));
  };
  const auto on_first = [&](const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    EXPECT_TRUE(TcpPair::Write(pair.client(), "two"));
    EXPECT_FALSE(endpoint->Read(on_second, &second, {}));
    for (int i = 0; i < kCalls; ++i) engine->Run([&step] { step(kSteps); });
  };
  ASSERT_FALSE(endpoint->Read(on_first, &first, {}));
  ASSERT_TRUE(TcpPair::Write(pair.client(), "one"));
  ASSERT_TRUE(outcome.Wait().ok());
  EXPECT_EQ(steps_at_second_read, kCalls * kSteps);
  EXPECT_EQ(Text(&second), "two");
}

// One that goes on for ever must not keep the only thread from others.
TEST(PollingEndpointTest, EndlessWorkDoesNotHoldUpOtherConnections) {
  const auto engine = NewEngine(/*threads=*/1);
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  std::atomic<bool> stop{false};
  Notification stopped;
  std::function<void()> work = [&] {
    if (stop) {
      stopped.Notify();
    } else {
      engine->Run(work);
    }
  };
  engine->Run(work);
  for (const char* text : {"one", "two"}) {
    SliceBuffer buffer;
    Outcome read;
    ASSERT_FALSE(endpoint->Read(read.Callback(), &buffer, {}));
    ASSERT_TRUE(TcpPair::Write(pair.client(), text));
    ASSERT_TRUE(read.Wait().ok());
    SliceBuffer data;
    data.Append(Slice::FromCopiedString("answer"));
    Outcome written;
    engine->Run([&] { EXPECT_FALSE(endpoint->Write(written.Callback(), &data, {})); });
    EXPECT_TRUE(written.Wait().ok());
    EXPECT_EQ(TcpPair::Read(pair.client()), "answer");
  }
  stop = true;
  ASSERT_TRUE(stopped.Wait());
}

TEST(PollingEngineTest, RunsClosuresOnItsThreads) {
  const auto engine = NewEngine();
  EXPECT_FALSE(engine->IsWorkerThread());
  Notification done;
  bool on_worker = false;
  engine->Run([&] {
    on_worker = engine->IsWorkerThread();
    done.Notify();
  });
  ASSERT_TRUE(done.Wait());
  EXPECT_TRUE(on_worker);
}

TEST(PollingEngineTest, RunsNothingBeforeRunReturns) {
  const auto engine = NewEngine();
  std::vector<std::string> order;
  Notification done;
  engine->Run([&] {
    engine->Run([&] {
      order.emplace_back("inner");
      done.Notify();
    });
    order.emplace_back("outer");
  });
  ASSERT_TRUE(done.Wait());
  EXPECT_EQ(order, (std::vector<std::string>{"outer", "inner"}));
}

TEST(PollingEngineTest, RunsWhatIsLeftBeforeItEnds) {
  std::atomic<int> count{0};
  {
    const auto engine = NewEngine();
    for (int i = 0; i < 100; ++i) engine->Run([&count] { ++count; });
  }
  EXPECT_EQ(count, 100);
}

TEST(PollingEngineTest, MayEndOnItsOwnThread) {
  auto engine = NewEngine();
  Notification done;
  auto* const raw = engine.get();
  raw->Run([held = std::move(engine), &done]() mutable {
    held.reset();
    done.Notify();
  });
  ASSERT_TRUE(done.Wait());
}

TEST(PollingEngineTest, TimersRunInTheirOrder) {
  const auto engine = NewEngine(/*threads=*/1);
  std::vector<int> order;
  Notification done;
  const auto add = [&](int milliseconds) {
    engine->RunAfter(std::chrono::milliseconds(milliseconds), [&, milliseconds] {
      order.push_back(milliseconds);
      if (order.size() == 5) done.Notify();
    });
  };
  for (const int milliseconds : {30, 10, 20, -5, 0}) add(milliseconds);
  ASSERT_TRUE(done.Wait());
  std::vector<int> sorted = order;
  std::sort(sorted.begin() + 2, sorted.end());
  EXPECT_EQ(order, sorted);
  EXPECT_EQ(std::vector<int>(order.begin() + 2, order.end()), (std::vector<int>{10, 20, 30}));
}

TEST(PollingEngineTest, ATimerThatIsCancelledIsDestroyedAtOnceAndOnlyOnce) {
  const auto engine = NewEngine();
  const auto held = std::make_shared<int>(0);
  const auto handle = engine->RunAfter(kNever, [held] { FAIL(); });
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_TRUE(engine->Cancel(handle));
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_FALSE(engine->Cancel(handle));
  // Its place is another's now.
  const auto other = engine->RunAfter(kNever, [] { FAIL(); });
  EXPECT_FALSE(engine->Cancel(handle));
  EXPECT_TRUE(engine->Cancel(other));
  EXPECT_FALSE(engine->Cancel(Engine::TaskHandle::kInvalid));
}

TEST(PollingEngineTest, ATimerThatHasRunCannotBeCancelled) {
  const auto engine = NewEngine();
  Notification done;
  const auto handle = engine->RunAfter(std::chrono::nanoseconds(1), [&] { done.Notify(); });
  ASSERT_TRUE(done.Wait());
  EXPECT_FALSE(engine->Cancel(handle));
}

TEST(PollingEngineTest, CancelsAnyOfManyTimers) {
  const auto engine = NewEngine();
  std::atomic<int> ran{0};
  std::vector<Engine::TaskHandle> handles;
  for (int i = 0; i < 1000; ++i) {
    handles.push_back(
        engine->RunAfter(kNever + std::chrono::seconds(i * 7919 % 1000), [&ran] { ++ran; }));
  }
  Notification done;
  engine->RunAfter(std::chrono::milliseconds(5), [&] { done.Notify(); });
  for (size_t i = 0; i < handles.size(); ++i) {
    EXPECT_TRUE(engine->Cancel(handles[i * 389 % handles.size()]));
  }
  ASSERT_TRUE(done.Wait());
  EXPECT_EQ(ran, 0);
}

TEST(DeferredWorkTest, ClosuresRunOnTheSameThreadAtTheEndOfTheOutermost) {
  const auto engine = NewEngine();
  ASSERT_TRUE(DeferredWork::has_keeper());
  std::thread::id ran_on;
  {
    const DeferredWork outer;
    {
      const DeferredWork inner;
      engine->Run([&] { ran_on = std::this_thread::get_id(); });
    }
    EXPECT_EQ(ran_on, std::thread::id());
  }
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(DeferredWorkTest, WhatIsWrittenLeavesAtTheEnd) {
  const auto engine = NewEngine();
  TcpPair pair;
  const auto endpoint = engine->MakeEndpoint(TakeServer(&pair), NewAllocator());
  SliceBuffer data;
  data.Append(Slice::FromCopiedString("hello"));
  Outcome outcome;
  {
    const DeferredWork deferred;
    EXPECT_FALSE(endpoint->Write(outcome.Callback(), &data, {}));
    EXPECT_TRUE(TcpPair::StaysQuiet(pair.client()));
  }
  EXPECT_TRUE(outcome.done());
  EXPECT_EQ(TcpPair::Read(pair.client()), "hello");
}

TEST(HandoverListenerTest, TakesConnectionsBetweenStartAndItsEnd) {
  const auto engine = NewEngine();
  std::unique_ptr<Engine::Endpoint> accepted;
  Outcome shut_down;
  auto listener = engine->CreateListener(
      [&](std::unique_ptr<Engine::Endpoint> endpoint, MemoryAllocator /*allocator*/) {
        accepted = std::move(endpoint);
      },
      shut_down.Callback(), NoConfig(), std::make_unique<PlainAllocatorFactory>());
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(*(*listener)->Bind(Port(7)), 7);

  TcpPair early;
  EXPECT_FALSE(engine->Accept(7, TakeServer(&early)));
  EXPECT_EQ(TcpPair::Read(early.client()), "");  // closed

  ASSERT_TRUE((*listener)->Start().ok());
  TcpPair pair;
  ASSERT_TRUE(engine->Accept(7, TakeServer(&pair)));
  ASSERT_NE(accepted, nullptr);
  SliceBuffer buffer;
  Outcome outcome;
  ASSERT_FALSE(accepted->Read(outcome.Callback(), &buffer, {}));
  ASSERT_TRUE(TcpPair::Write(pair.client(), "hello"));
  ASSERT_TRUE(outcome.Wait().ok());
  EXPECT_EQ(Text(&buffer), "hello");

  TcpPair elsewhere;
  EXPECT_FALSE(engine->Accept(8, TakeServer(&elsewhere)));

  listener->reset();
  EXPECT_TRUE(shut_down.Wait().ok());
  TcpPair late;
  EXPECT_FALSE(engine->Accept(7, TakeServer(&late)));
  EXPECT_EQ(TcpPair::Read(late.client()), "");
}

TEST(HandoverListenerTest, TwoCannotHaveTheSameName) {
  const auto engine = NewEngine();
  const auto make = [&] {
    return *engine->CreateListener([](auto, auto) {}, [](const absl::Status&) {}, NoConfig(),
                                   std::make_unique<PlainAllocatorFactory>());
  };
  const auto one = make();
  const auto two = make();
  ASSERT_TRUE(one->Bind(Port(7)).ok());
  EXPECT_EQ(two->Bind(Port(7)).status().code(), absl::StatusCode::kAlreadyExists);
}

// Sends back what it reads until it fails, then goes.
class EchoConnection {
 public:
  EchoConnection(std::unique_ptr<Engine::Endpoint> endpoint, std::atomic<int>* open)
      : endpoint_(std::move(endpoint)), open_(open) {
    ++*open_;
    Read();
  }

 private:
  void Read() {
    // A read or a write that succeeds at once would go on here as well.
    if (endpoint_->Read([this](const absl::Status& status) { OnRead(status); }, &buffer_, {})) {
      OnRead(absl::OkStatus());
    }
  }
  void OnRead(const absl::Status& status) {
    if (!status.ok()) return End();
    data_.Clear();
    data_.Swap(buffer_);
    if (endpoint_->Write([this](const absl::Status& status) { OnWritable(status); }, &data_, {})) {
      OnWritable(absl::OkStatus());
    }
  }
  void OnWritable(const absl::Status& status) {
    if (!status.ok()) return End();
    buffer_.Clear();
    Read();
  }
  void End() {
    std::atomic<int>* const open = open_;
    delete this;
    --*open;
  }

  std::unique_ptr<Engine::Endpoint> endpoint_;
  std::atomic<int>* const open_;
  SliceBuffer buffer_;
  SliceBuffer data_;
};

// For the thread sanitizer, mostly: connections come and go on many threads, with timers that are
// cancelled and closures from outside.
TEST(PollingEngineTest, ServesManyConnections) {
  std::atomic<int> open{0};
  {
    const auto engine = NewEngine(/*threads=*/4);
    std::vector<std::thread> clients;
    for (int client = 0; client < 4; ++client) {
      clients.emplace_back([&] {
        for (int i = 0; i < 30; ++i) {
          TcpPair pair;
          new EchoConnection(engine->MakeEndpoint(TakeServer(&pair), NewAllocator()), &open);
          const auto timer = engine->RunAfter(kNever, [] { FAIL(); });
          engine->RunAfter(std::chrono::microseconds(100), [] {});
          for (int call = 0; call < 10; ++call) {
            ASSERT_TRUE(TcpPair::Write(pair.client(), "ping"));
            std::string got;
            while (got.size() < 4) {
              const std::string part = TcpPair::Read(pair.client());
              ASSERT_FALSE(part.empty());
              got += part;
            }
            ASSERT_EQ(got, "ping");
            engine->Run([] {});
          }
          EXPECT_TRUE(engine->Cancel(timer));
        }
      });
    }
    for (std::thread& client : clients) client.join();
    Notification closed;
    std::function<void()> look = [&] {
      if (open == 0) {
        closed.Notify();
      } else {
        engine->RunAfter(std::chrono::milliseconds(1), look);
      }
    };
    engine->Run(look);
    ASSERT_TRUE(closed.Wait());
  }
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace sru::server::transport
