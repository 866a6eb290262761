// Sends what a command reads in batches, several at a time, and prints the answers in order.
//
// Item is what one batch has several of; Response is what the server answers to a batch. A batch
// that fails because of one of its items is sent again in halves, so that only the bad one fails.
#ifndef SRU_CLIENT_COMMANDS_BATCHES_H_
#define SRU_CLIENT_COMMANDS_BATCHES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/calls.h"
#include "client/commands/commands.h"
#include "client/commands/printer.h"
#include "client/commands/text_input.h"
#include "client/line_input.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace sru::client {

// Makes a call, and repeats it while the server refuses it as too much, at most five times and each
// time after the delay that the server asked for.
inline absl::Status CallPatiently(absl::FunctionRef<absl::Status()> call) {
  for (int retries = 5;; --retries) {
    absl::Status status = call();
    const auto delay = RetryDelay(status);
    if (status.code() != absl::StatusCode::kResourceExhausted || !delay.has_value() ||
        retries == 0) {
      return status;
    }
    absl::SleepFor(std::clamp(*delay, absl::Milliseconds(1), absl::Seconds(5)));
  }
}

// Returns true if one item of a call may be to blame for the error: the server refuses an item, or
// the call or its answer has too many bytes. An overload carries a delay (RetryDelay()), so it
// blames no item.
inline bool MayBlameAnItem(const absl::Status& status) {
  return status.code() == absl::StatusCode::kInvalidArgument ||
         (status.code() == absl::StatusCode::kResourceExhausted && !RetryDelay(status).has_value());
}

// A command that prints the answers to its items in their order, and says on standard error which
// of them failed.
template <typename Item, typename Response>
class BatchRunner {
 public:
  using Items = std::vector<Item>;

  // One call and its answer.
  struct Answer {
    Items items;
    absl::StatusOr<Response> response = absl::UnknownError("not asked");
    absl::Duration latency;
  };

  BatchRunner(const Command& command, const CommonFlags& flags)
      : command_(command), common_(flags) {}
  virtual ~BatchRunner() = default;
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Sends everything, with up to `in_flight` calls at a time, and returns the exit code. Answers
  // are printed while the next line may take long to come.
  int Run(int in_flight) {
    std::deque<std::future<void>> open;  // in order
    absl::Status input;
    for (int64_t number = 0; !stopped_; ++number) {
      if (static_cast<int>(open.size()) >= in_flight) {
        open.front().wait();
        open.pop_front();
      }
      absl::StatusOr<Items> items = Next();
      input = items.status();
      if (stopped_ || !items.ok() || items->empty()) break;
      open.push_back(std::async(std::launch::async, [this, number, batch = *std::move(items)] {
        std::vector<Answer> answers;
        AskOrSplit(batch, &answers);
        MutexLock lock(&mu_);
        while (printed_ < number) changed_.Wait(&mu_);
        if (!stopped_) Take(answers);
        ++printed_;
        changed_.SignalAll();
      }));
    }
    open.clear();  // waits for all
    if (stopped_) return kExitFailed;
    if (!input.ok()) Report(common_.Explain(input));
    return exit_code_;
  }

 protected:
  void Report(absl::string_view message) { exit_code_ = Failure(command_, message); }

  virtual absl::StatusOr<Items> Next() = 0;
  // Ends a Next() that waits. Called from another thread.
  virtual void StopInput() {}
  // Called from several threads at a time.
  virtual absl::StatusOr<Response> Call(const Items& items) = 0;
  virtual std::string Where(const Item& item) const = 0;
  virtual void Print(const Answer& answer) = 0;
  // Says what is wrong. Another item can succeed only if this one was to blame.
  virtual bool Fail(const Answer& answer) {
    const absl::Status& status = answer.response.status();
    Report(absl::StrCat(Where(answer.items.front()), ": ", common_.Explain(status)));
    return MayBlameAnItem(status);
  }

  const Command& command_;
  const CommonFlags& common_;
  int exit_code_ = kExitOk;

 private:
  // Prints the answers. Stops everything if there is no point in going on.
  void Take(const std::vector<Answer>& answers) {
    const bool go_on = std::all_of(answers.begin(), answers.end(), [this](const Answer& answer) {
      if (!answer.response.ok()) return Fail(answer);
      Print(answer);
      return true;
    });
    if (go_on && std::cout.good()) return;
    stopped_ = true;
    // Next() may wait for a line that comes much later.
    StopInput();
  }

  // Adds the answers to the items: all in one call; if one of them may be to blame for its error,
  // each half in turn, until an error of another kind comes. That makes fewer than twice as many
  // calls as there are items.
  void AskOrSplit(Items items, std::vector<Answer>* answers) {
    Answer answer;
    answer.items = std::move(items);
    const absl::Time start = absl::Now();
    static_cast<void>(CallPatiently([&] {
      answer.response = Call(answer.items);
      return answer.response.status();
    }));
    answer.latency = absl::Now() - start;
    if (answer.items.size() == 1 || !MayBlameAnItem(answer.response.status())) {
      answers->push_back(std::move(answer));
      return;
    }
    const auto middle = answer.items.begin() + static_cast<std::ptrdiff_t>(answer.items.size() / 2);
    AskOrSplit(Items(answer.items.begin(), middle), answers);
    const absl::Status status = answers->back().response.status();
    if (!status.ok() && !MayBlameAnItem(status)) return;
    AskOrSplit(Items(middle, answer.items.end()), answers);
  }

  std::atomic<bool> stopped_{false};
  Mutex mu_;
  CondVar changed_;
  int64_t printed_ ABSL_GUARDED_BY(mu_) = 0;  // batches whose turn to be printed is over
};

// The same for texts, each of which has a result of its own in the response.
template <typename Response, typename Result>
class TextRunner : public BatchRunner<LineInput::Item, Response> {
 public:
  using Base = BatchRunner<LineInput::Item, Response>;
  using typename Base::Answer;
  using typename Base::Items;

  // A text and its result.
  struct Text {
    const LineInput::Item& item;
    const Response& response;
    const Result& result;
    absl::Duration latency;

    // The line that --json prints.
    Json ToJson() const {
      Json json = {{"line", item.line},
                   {"text", item.text},
                   {"model", response.model()},
                   {"version", response.version()}};
      json.update(MessageJson(result));
      json["latency_us"] = absl::ToDoubleMicroseconds(latency);
      json["times"] = MessageJson(response.times());
      return json;
    }
  };

  using Results = const google::protobuf::RepeatedPtrField<Result>& (Response::*)() const;
  using CallServer = std::function<absl::StatusOr<Response>(const Items& items)>;
  // Gives rows or an object to the printer.
  using PrintText = std::function<absl::Status(const Text& text)>;

  // The texts are `arguments` or the lines of standard input. `on_failure` is called for each
  // batch that failed, after the message.
  TextRunner(
      const Command& command, const CommonFlags& common, const InputFlags& flags,
      std::vector<std::string> arguments, Printer* printer, Results results, CallServer call,
      PrintText print, std::function<void()> on_failure = [] {})
      : Base(command, common),
        input_(std::move(arguments), /*skips_blank=*/!flags.skip_empty),
        batch_(flags.batch),
        printer_(printer),
        results_(results),
        call_(std::move(call)),
        print_(std::move(print)),
        on_failure_(std::move(on_failure)) {}

 private:
  absl::StatusOr<Items> Next() override { return input_.Next(batch_); }
  void StopInput() override { input_.Stop(); }

  // kInternal unless there is a result for each text.
  absl::StatusOr<Response> Call(const Items& items) override {
    absl::StatusOr<Response> response = call_(items);
    if (!response.ok()) return response;
    const size_t results = ((*response).*results_)().size();
    if (results == items.size()) return response;
    return absl::InternalError(
        absl::StrCat("the server answered ", results, " of ", items.size(), " texts"));
  }

  std::string Where(const LineInput::Item& item) const override { return input_.Where(item); }

  void Print(const Answer& answer) override {
    for (size_t i = 0; i < answer.items.size(); ++i) {
      const Result& result = ((*answer.response).*results_)().Get(static_cast<int>(i));
      printer_->Count(result);
      const absl::Status status =
          print_({answer.items[i], *answer.response, result, answer.latency});
      if (!status.ok()) this->Report(this->common_.Explain(status));
    }
    printer_->Flush();
  }

  bool Fail(const Answer& answer) override {
    const bool go_on = Base::Fail(answer);
    on_failure_();
    return go_on;
  }

  LineInput input_;
  const int batch_;
  Printer* const printer_;
  const Results results_;
  const CallServer call_;
  const PrintText print_;
  const std::function<void()> on_failure_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_BATCHES_H_
