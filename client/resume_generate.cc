#include "client/resume_generate.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/calls.h"

namespace sru::client {
namespace {

constexpr absl::Duration kLongestWait = absl::Seconds(5);

// One text of the request, over all calls.
struct Sample {
  bool done = false;
  std::string state;
  // Whether the present call has sent something of it after which it has sent no state: then there
  // is nothing to go on from.
  bool open = false;
  int prompt_tokens = 0;
  int generated_tokens = 0;  // up to the state
};

class Resumption {
 public:
  Resumption(v1::GenerateRequest request, TakeGenerated take)
      : request_(std::move(request)),
        take_(take),
        greedy_(!(request_.sampling().temperature() > 0)),
        samples_(std::max(1, request_.num_samples())),
        version_(request_.version()) {
    if (!greedy_ && !request_.sampling().has_seed()) {
      std::random_device random;
      // Readers of JSON keep 53 bits of a number.
      request_.mutable_sampling()->set_seed((uint64_t{random()} << 32 | random()) >> 11);
    }
  }

  // Asks for all samples.
  absl::Status CallForAll(CallGenerate call) {
    return Call(call, request_, /*first_wanted=*/0, /*first_index=*/0);
  }

  // Asks for the rest of one sample.
  absl::Status CallForOne(CallGenerate call, int index) {
    const Sample& sample = samples_[index];
    v1::GenerateRequest request = request_;
    request.set_version(version_);
    // The tokens of a sample depend on its number, so those before it are asked for as well.
    const int as_sample = greedy_ ? 0 : index;
    request.set_num_samples(as_sample + 1);
    if (!sample.state.empty()) {
      request.clear_prompt();
      request.set_echo(false);
      request.set_state(sample.state);
      request.set_min_new_tokens(std::max(0, request_.min_new_tokens() - sample.generated_tokens));
      if (request_.max_new_tokens() > 0) {
        request.set_max_new_tokens(request_.max_new_tokens() - sample.generated_tokens);
        if (request.max_new_tokens() <= 0) {
          return absl::InternalError(
              absl::StrCat("the server has generated ", sample.generated_tokens, " of ",
                           request_.max_new_tokens(), " tokens, but gave no finish_reason"));
        }
      }
    }
    return Call(call, request, as_sample, index);
  }

  // The first sample that is not complete; -1 if all are.
  int FirstOpen() const {
    const auto it = std::find_if(samples_.begin(), samples_.end(),
                                 [](const Sample& sample) { return !sample.done; });
    return it == samples_.end() ? -1 : static_cast<int>(it - samples_.begin());
  }

  // Whether each text that is not complete has a state to go on from, or has not begun.
  bool CanGoOn() const {
    return std::none_of(samples_.begin(), samples_.end(),
                        [](const Sample& sample) { return !sample.done && sample.open; });
  }

  bool caller_has_enough() const { return caller_has_enough_; }
  bool made_progress() const { return made_progress_; }

 private:
  // The samples from `first_wanted` on are those of the whole from `first_index` on; others are not
  // wanted.
  absl::Status Call(CallGenerate call, const v1::GenerateRequest& request, int first_wanted,
                    int first_index) {
    const int num_samples = std::max(1, request.num_samples());
    made_progress_ = false;
    bool cut_off = false;  // what is wanted is there
    absl::Status bad;
    const absl::Status status = call(request, [&](v1::GenerateResponse* response) {
      const int number = response->sample();
      if (number < 0 || number >= num_samples) {
        bad = absl::InternalError(
            absl::StrCat("the answer has sample ", number, " of ", num_samples));
        return false;
      }
      if (number < first_wanted) return true;
      Sample& sample = samples_[first_index + number - first_wanted];
      if (sample.done) {
        bad = absl::InternalError(
            absl::StrCat("sample ", number, " goes on after its finish_reason"));
        return false;
      }
      response->set_sample(first_index + number - first_wanted);
      if (!Take(&sample, response)) {
        caller_has_enough_ = true;
        return false;
      }
      cut_off = first_wanted > 0 && sample.done;
      return !cut_off;
    });
    if (!bad.ok()) return bad;
    if (cut_off && status.code() == absl::StatusCode::kCancelled) return absl::OkStatus();
    if (!status.ok()) return status;
    for (int number = first_wanted; number < num_samples; ++number) {
      if (samples_[first_index + number - first_wanted].done) continue;
      return absl::InternalError(
          absl::StrCat("the call has ended, but sample ", number, " has no finish_reason"));
    }
    return absl::OkStatus();
  }

  bool Take(Sample* sample, v1::GenerateResponse* response) {
    version_ = response->version();
    made_progress_ = made_progress_ || response->token_ids_size() > 0;
    if (response->finish_reason() != v1::FINISH_REASON_UNSPECIFIED) {
      sample->done = true;
      if (!sample->state.empty()) response->set_prompt_tokens(sample->prompt_tokens);
      response->set_generated_tokens(response->generated_tokens() + sample->generated_tokens);
      return take_(response);
    }
    sample->open = true;
    if (!response->state().empty()) {
      sample->open = false;
      if (sample->state.empty()) sample->prompt_tokens = response->prompt_tokens();
      sample->generated_tokens += response->generated_tokens();
      sample->state = response->state();
      response->clear_state();
      response->clear_prompt_tokens();
      response->clear_generated_tokens();
      if (response->text().empty() && response->token_ids().empty()) return true;
    }
    return take_(response);
  }

  v1::GenerateRequest request_;
  const TakeGenerated take_;
  const bool greedy_;
  std::vector<Sample> samples_;
  int64_t version_;  // that has answered, or that the caller wants
  bool made_progress_ = false;
  bool caller_has_enough_ = false;
};

}  // namespace

absl::Status ResumeGenerate(v1::GenerateRequest request, int max_attempts, CallGenerate call,
                            absl::FunctionRef<void(absl::Duration)> sleep, TakeGenerated take) {
  Resumption resumption(std::move(request), take);
  absl::Status status = resumption.CallForAll(call);
  bool resumed = false;
  for (int in_vain = 0; !resumption.caller_has_enough();) {
    const int open = resumption.FirstOpen();
    if (status.ok() && open < 0) return status;
    if (!status.ok()) {
      const std::optional<absl::Duration> delay = RetryDelay(status);
      const bool refused =
          resumed && delay.has_value() && status.code() == absl::StatusCode::kResourceExhausted;
      if (status.code() != absl::StatusCode::kUnavailable && !refused) return status;
      if (open < 0) return absl::OkStatus();  // nothing is missing
      if (!resumption.CanGoOn()) return status;
      in_vain = resumption.made_progress() ? 0 : in_vain + 1;
      if (in_vain >= max_attempts || max_attempts == 1) return status;
      if (refused) sleep(std::clamp(*delay, absl::Milliseconds(1), kLongestWait));
    }
    resumed = true;
    status = resumption.CallForOne(call, open);
  }
  return status;
}

}  // namespace sru::client
