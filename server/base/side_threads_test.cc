#include "server/base/side_threads.h"

#include <optional>
#include <string>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(SideThreadsTest, KeysTakeTurns) {
  std::optional<SideThreads> threads(std::in_place, 1);
  absl::Notification begun;
  absl::Notification go;
  threads->Post([&] {
    begun.Notify();
    go.WaitForNotification();
  });
  begun.WaitForNotification();
  std::string order;
  const auto post = [&](size_t key, char name) {
    threads->Post(key, [&order, name] { order += name; });
  };
  for (const char name : {'a', 'b', 'c', 'd'}) post(1, name);
  post(3, 'x');
  post(3, 'y');
  post(2, 'z');
  threads->Post([&order] { order += '0'; });
  go.Notify();
  threads.reset();  // has run all
  EXPECT_EQ(order, "azx0bycd");
}

TEST(SideThreadsTest, AKeyThatComesLaterWaitsForOneJob) {
  std::optional<SideThreads> threads(std::in_place, 1);
  std::string order;
  absl::Notification begun;
  absl::Notification go;
  threads->Post(2, [&] {
    begun.Notify();
    go.WaitForNotification();
  });
  for (int i = 0; i < 5; ++i) threads->Post(2, [&order] { order += 'a'; });
  begun.WaitForNotification();
  threads->Post(1, [&order] { order += 'b'; });
  go.Notify();
  threads.reset();
  EXPECT_EQ(order, "baaaaa");
}

}  // namespace
}  // namespace sru::server
