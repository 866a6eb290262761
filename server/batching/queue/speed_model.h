// SpeedModel: learns from the last batches how long a batch takes, and how far off its predictions
// are.
//
// A batch of T tokens is taken to need `fixed + per_token * T` seconds. Both numbers come from the
// last kWindow batches by medians (Theil and Sen: the median of the slopes between pairs of
// batches), so that a slow outlier, such as the first batch on cold caches, does not count, and a
// lasting change is learnt after half a window. While all batches have about the same size, the two
// numbers cannot be told apart; then the time is assumed to be proportional to the tokens, a
// cautious choice that the first larger batch corrects.
//
// Where a batch is computed by a thread, it is the thread's processor time that is divided so:
// other threads interrupt it, for longer than a small batch takes, which would look like a large
// fixed part. The times of day are larger by the median of their ratios.
//
// Work that goes first interrupts a batch. The next one is taken to be interrupted for the median
// of the last kWindow.
//
// What the batches' times do not show (other threads on the same cores, the work of answering, how
// a request falls between two batches, requests that arrive later and go first) is learnt from
// outcomes: predictions are to be multiplied by `margin`, which stays a tenth above the largest
// actual / predicted. It follows larger ratios fast, but by bounded steps, so that one outlier has
// little effect, and smaller ones slowly, because requests that miss their deadlines are seldom
// seen to finish.
//
// Not thread-safe.
#ifndef SRU_SERVER_BATCHING_QUEUE_SPEED_MODEL_H_
#define SRU_SERVER_BATCHING_QUEUE_SPEED_MODEL_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace sru::server::batching {

class SpeedModel {
 public:
  // False until the first batch: nothing can be predicted.
  bool known() const { return count_ > 0; }

  // The batch was computed in `seconds`, besides which it was interrupted for other work for
  // `waited`. For `interrupted` of the seconds its thread did not run.
  void AddBatch(int64_t tokens, double seconds, double waited = 0, double interrupted = 0) {
    samples_[count_ % kWindow] = {static_cast<double>(tokens), std::max(seconds, kMinSeconds),
                                  waited, std::max(seconds - interrupted, kMinSeconds)};
    ++count_;
    // Fits after each batch while there are few, later only now and then.
    if (count_ <= kWindow / 4 || count_ % (kWindow / 4) == 0) Fit();
  }

  // Seconds of the machine's work; 0 when nothing is known.
  double Seconds(int64_t tokens, int64_t batches) const {
    return stretch_ *
           (fixed_ * static_cast<double>(batches) + per_token_ * static_cast<double>(tokens));
  }

  // Adds the time for which each batch is interrupted.
  double SecondsWithWaits(int64_t tokens, int64_t batches) const {
    return Seconds(tokens, batches) + wait_ * static_cast<double>(batches);
  }

  // So many tokens take as long as a batch does besides its tokens; 0 if that is not known.
  double FixedTokens() const { return per_token_ > 0 ? fixed_ / per_token_ : 0; }

  // The most tokens of a batch that takes no longer than `seconds` if nothing interrupts it; more
  // if a batch's fixed cost would otherwise exceed a tenth of its time.
  int64_t TokensWithin(double seconds) const {
    constexpr double kMost = 1e9;
    if (per_token_ <= 0) return static_cast<int64_t>(kMost);
    const double tokens = std::max(seconds - fixed_, 9 * fixed_) / per_token_;
    return static_cast<int64_t>(std::clamp(tokens, 1.0, kMost));
  }

  // A prediction (without the margin) and the actual time, both in seconds and > 0.
  void AddOutcome(double predicted, double actual) {
    const double error = actual / predicted - margin_;
    margin_ += error > 0 ? std::min(kRiseWeight * error, kMaxRise) : kFallWeight * error;
    margin_ = std::clamp(margin_, 1.0, kMaxMargin);
  }

  double margin() const { return kReserve * margin_; }

 private:
  struct Sample {
    double tokens = 0;
    double seconds = 0;
    double waited = 0;
    double work = 0;  // of the seconds
  };

  static constexpr size_t kWindow = 32;
  static constexpr double kMinSeconds = 1e-9;
  static constexpr double kMinSpread = 1.5;  // of the sizes of batches, to tell the two parts apart
  static constexpr double kRiseWeight = 0.5;
  static constexpr double kMaxRise = 0.125;
  static constexpr double kFallWeight = 0.01;
  static constexpr double kMaxMargin = 8.0;
  static constexpr double kReserve = 1.1;  // for the way back to the caller, among others

  // The lower median; reorders [begin, end), which must not be empty.
  static double Median(double* begin, double* end) {
    double* middle = begin + (end - begin - 1) / 2;
    std::nth_element(begin, middle, end);
    return *middle;
  }

  void Fit() {
    const size_t n = std::min(count_, kWindow);
    std::array<double, kWindow> values{};
    for (size_t i = 0; i < n; ++i) values[i] = samples_[i].waited;
    wait_ = Median(values.data(), values.data() + n);
    for (size_t i = 0; i < n; ++i) values[i] = samples_[i].seconds / samples_[i].work;
    stretch_ = Median(values.data(), values.data() + n);
    double least = samples_[0].tokens;
    double most = least;
    for (size_t i = 0; i < n; ++i) {
      values[i] = samples_[i].work / samples_[i].tokens;
      least = std::min(least, samples_[i].tokens);
      most = std::max(most, samples_[i].tokens);
    }
    // No slope can be steeper, since the fixed part is not negative.
    per_token_ = Median(values.data(), values.data() + n);
    fixed_ = 0;
    if (most < kMinSpread * least) return;

    // Pairs of batches of nearly the same size would only add noise.
    const double min_distance = (most - least) / 4;
    std::array<double, kWindow*(kWindow - 1) / 2> slopes{};
    size_t num_slopes = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = i + 1; j < n; ++j) {
        const double distance = samples_[j].tokens - samples_[i].tokens;
        if (std::abs(distance) < min_distance) continue;
        slopes[num_slopes++] = (samples_[j].work - samples_[i].work) / distance;
      }
    }
    per_token_ = std::clamp(Median(slopes.data(), slopes.data() + num_slopes), 0.0, per_token_);
    for (size_t i = 0; i < n; ++i) {
      values[i] = samples_[i].work - per_token_ * samples_[i].tokens;
    }
    fixed_ = std::max(0.0, Median(values.data(), values.data() + n));
  }

  std::array<Sample, kWindow> samples_;
  size_t count_ = 0;
  double fixed_ = 0;
  double per_token_ = 0;
  double stretch_ = 1;
  double wait_ = 0;
  double margin_ = 1.25;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_SPEED_MODEL_H_
