#include "server/base/process_start.h"

#include <string>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

// When this program's constants were made: after its start, before any test.
const absl::Time kInitialized = absl::Now();

std::string Stat(const std::string& name) {
  return "4711 (" + name +
         ") S 1 4711 4711 0 -1 4194560 3021 0 5 0 12 3 0 0 20 0 9 0 123456 987654 321 18446744\n";
}

TEST(ProcessStartTest, ReadsTheStartFromTheKernelsText) {
  EXPECT_EQ(ParseStartAfterBoot(Stat("sru_server"), 100), absl::Milliseconds(1234560));
  EXPECT_EQ(ParseStartAfterBoot(Stat("sru_server"), 1000), absl::Milliseconds(123456));
  // A name may look like fields.
  EXPECT_EQ(ParseStartAfterBoot(Stat("a) S 1 2 3 (b"), 100), absl::Milliseconds(1234560));
}

TEST(ProcessStartTest, SaysNothingOfATextOfAnotherForm) {
  for (const char* text : {"", "4711 (a", "4711 (a)", "4711 (a) S 1 2 3",
                           "4711 (a) S 1 1 1 0 -1 1 1 0 5 0 12 3 0 0 20 0 9 0 soon 9 3"}) {
    EXPECT_EQ(ParseStartAfterBoot(text, 100), std::nullopt) << text;
  }
  EXPECT_EQ(ParseStartAfterBoot(Stat("a"), 0), std::nullopt);
}

TEST(ProcessStartTest, TheProcessStartedBeforeItsConstantsWereMade) {
  const absl::Time start = ProcessStartTime();
  EXPECT_LE(start, kInitialized);
  EXPECT_GT(start, kInitialized - absl::Minutes(10));
  EXPECT_EQ(ProcessStartTime(), start);
}

}  // namespace
}  // namespace sru::server
