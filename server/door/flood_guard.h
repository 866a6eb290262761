// FloodGuard: counts what a peer can make us do for nearly nothing, and says when it is more than
// any honest client does. Each kind has a rate beyond which the connection ends. What a client
// honestly does besides calls grows with its calls, so each call and each answer earns it more.
//
// Used by one thread.
#ifndef SRU_SERVER_DOOR_FLOOD_GUARD_H_
#define SRU_SERVER_DOOR_FLOOD_GUARD_H_

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iterator>

#include "server/transport/timer_set.h"

namespace sru::server::door {

enum class Flood {
  kResets,  // of streams, by either side
  kPings,
  kSettings,
  kEmptyData,
  kSmallData,
  kWindowUpdates,
  kPriorities,
  kOtherFrames,
  kEmptyRecords  // of TLS, such as KeyUpdates
};
inline constexpr const char* kFloodNames[] = {"resets",     "pings",        "settings",
                                              "empty_data", "small_data",   "window_updates",
                                              "priorities", "other_frames", "empty_records"};
inline constexpr size_t kNumFloods = std::size(kFloodNames);
static_assert(kNumFloods == size_t{1} + static_cast<size_t>(Flood::kEmptyRecords));

class FloodGuard {
 public:
  FloodGuard() {
    for (size_t i = 0; i < kNumFloods; ++i) left_[i] = kRates[i].burst;
  }

  // False when the connection is to be ended.
  bool Note(Flood flood, transport::SteadyTime now, double times = 1) {
    Refill(now);
    double& left = left_[static_cast<size_t>(flood)];
    left -= times;
    return left >= 0;
  }

  // A call was answered.
  void OnAnswer() {
    Earn(Flood::kResets, 1);
    Earn(Flood::kPings, 1);
    Earn(Flood::kWindowUpdates, 4);
    Earn(Flood::kPriorities, 2);
  }
  // Data was sent: gRPC's clients give room for more after each message, however small.
  void OnDataSent() {
    Earn(Flood::kWindowUpdates, 4);
    Earn(Flood::kPings, 1);
  }
  // A message has arrived whole.
  void OnMessage() { Earn(Flood::kSmallData, 2); }
  // So many bytes were sent or received in frames of a good size.
  void OnBytes(size_t bytes) {
    Earn(Flood::kWindowUpdates, static_cast<double>(bytes) / 1024);
    Earn(Flood::kPings, static_cast<double>(bytes) / 16384);
  }

 private:
  struct Rate {
    double burst;
    double per_second;
  };
  // In the order of Flood. What remains of a flood below these rates takes a few hundredths of a
  // core.
  static constexpr std::array<Rate, kNumFloods> kRates = {{
      {10000, 5000},
      {1000, 100},
      {100, 5},
      {1000, 100},
      {50000, 20000},
      {20000, 5000},
      {1000, 100},
      {1000, 100},
      {32, 1},
  }};

  void Earn(Flood flood, double amount) {
    const auto i = static_cast<size_t>(flood);
    left_[i] = std::min(left_[i] + amount, kRates[i].burst);
  }
  void Refill(transport::SteadyTime now) {
    const double seconds = std::chrono::duration<double>(now - refilled_).count();
    if (seconds < 0.01) return;
    refilled_ = now;
    for (size_t i = 0; i < kNumFloods; ++i) {
      left_[i] = std::min(left_[i] + seconds * kRates[i].per_second, kRates[i].burst);
    }
  }

  std::array<double, kNumFloods> left_{};
  transport::SteadyTime refilled_{};
};

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_FLOOD_GUARD_H_
