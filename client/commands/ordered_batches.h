// Sends what a command reads in batches, many at a time, and hands the answers over in order.
//
// Item is what one batch has several of; Response is what the server answers to a batch. A batch
// that fails because of one of its items is sent again in halves, so that only the bad one fails.
#ifndef SRU_CLIENT_COMMANDS_ORDERED_BATCHES_H_
#define SRU_CLIENT_COMMANDS_ORDERED_BATCHES_H_

#include <cstddef>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/commands/batches.h"
#include "client/commands/command.h"
#include "client/commands/common_flags.h"
#include "client/commands/line_input.h"
#include "client/ordered_jobs.h"
#include "google/protobuf/repeated_ptr_field.h"

namespace sru::client {

// One call and its answer.
template <typename Item, typename Response>
struct BatchAnswer {
  std::vector<Item> items;
  absl::StatusOr<Response> response = absl::UnknownError("not asked");
  absl::Duration latency;
};

// Makes one call. Used by several threads at a time.
template <typename Item, typename Response>
using BatchCall = std::function<absl::StatusOr<Response>(const std::vector<Item>& items)>;

// Calls again while the server refuses the call as too much (CallPatiently()).
template <typename Item, typename Response>
BatchAnswer<Item, Response> AskOnce(const BatchCall<Item, Response>& call,
                                    std::vector<Item> items) {
  BatchAnswer<Item, Response> answer;
  answer.items = std::move(items);
  const absl::Time start = absl::Now();
  static_cast<void>(CallPatiently([&] {
    answer.response = call(answer.items);
    return answer.response.status();
  }));
  answer.latency = absl::Now() - start;
  return answer;
}

// Adds the answers to the items: all in one call; if one of them may be to blame for its error, each
// half in turn, until an error of another kind comes. That makes fewer than twice as many calls as
// there are items.
template <typename Item, typename Response>
void AskOrSplit(const BatchCall<Item, Response>& call, std::vector<Item> items,
                std::vector<BatchAnswer<Item, Response>>* answers) {
  BatchAnswer<Item, Response> answer = AskOnce(call, std::move(items));
  if (answer.items.size() == 1 || !MayBlameAnItem(answer.response.status())) {
    answers->push_back(std::move(answer));
    return;
  }
  const auto middle = answer.items.begin() + static_cast<std::ptrdiff_t>(answer.items.size() / 2);
  AskOrSplit(call, std::vector<Item>(answer.items.begin(), middle), answers);
  const absl::Status status = answers->back().response.status();
  if (!status.ok() && !MayBlameAnItem(status)) return;
  AskOrSplit(call, std::vector<Item>(middle, answer.items.end()), answers);
}

// Sends the batches that `next` returns, until one is empty, with up to `in_flight` calls at a time,
// and hands the answers to `take` in their order. `take` returns false to stop everything. Returns
// the error of `next`, if it has one, after what came before has been handed over; else whether
// `take` has always returned true.
template <typename Item, typename Response>
absl::StatusOr<bool> AskInOrder(
    int in_flight, const std::function<absl::StatusOr<std::vector<Item>>()>& next,
    const BatchCall<Item, Response>& call,
    const std::function<bool(const std::vector<BatchAnswer<Item, Response>>&)>& take) {
  OrderedJobs jobs(in_flight);
  for (;;) {
    absl::StatusOr<std::vector<Item>> items = next();
    if (!items.ok() || items->empty()) {
      if (!jobs.Drain()) return false;
      if (!items.ok()) return items.status();
      return true;
    }
    const bool added = jobs.Add([&call, &take, items = *std::move(items)] {
      std::vector<BatchAnswer<Item, Response>> answers;
      AskOrSplit(call, items, &answers);
      return [&take, answers = std::move(answers)] { return take(answers); };
    });
    if (!added) return false;
  }
}

// A command that prints the answers to its items in their order, and says on standard error which
// of them failed.
template <typename Item, typename Response>
class BatchRunner {
 public:
  using Items = std::vector<Item>;
  using Answer = BatchAnswer<Item, Response>;

  BatchRunner(const Command& command, const CommonFlags& flags)
      : command_(command), common_(flags) {}
  virtual ~BatchRunner() = default;
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  // Sends everything and returns the exit code. `names_code`: a message on the input begins with
  // its status code, as those on calls do.
  int Run(int in_flight, bool names_code = true) {
    const absl::StatusOr<bool> done = AskInOrder<Item, Response>(
        in_flight, [this] { return Next(); }, [this](const Items& items) { return Call(items); },
        [this](const std::vector<Answer>& answers) { return Take(answers); });
    if (!done.ok()) {
      Report(names_code ? common_.Explain(done.status()) : std::string(done.status().message()));
    }
    return done.ok() && !*done ? kExitFailed : exit_code_;
  }

 protected:
  // False, and the input is stopped, if there is no point in going on.
  bool Take(const std::vector<Answer>& answers) {
    bool go_on = true;
    for (const Answer& answer : answers) {
      progress_.Add(answer.items.size());
      if (answer.response.ok()) {
        Print(answer);
      } else if (!Fail(answer)) {
        go_on = false;
        break;
      }
    }
    if (go_on && std::cout.good()) return true;
    // Next() may wait for a line that comes much later.
    StopInput();
    return false;
  }

  void Report(absl::string_view message) {
    std::cerr << "sru_client " << command_.name << ": " << message << "\n";
    exit_code_ = kExitFailed;
  }

  virtual absl::StatusOr<Items> Next() = 0;
  // Ends a Next() that waits. Called from another thread.
  virtual void StopInput() = 0;
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
  ProgressLine progress_;
};

// The same for texts, each of which has a result of its own in the response.
template <typename Response, typename Result>
class TextRunner : public BatchRunner<LineInput::Item, Response> {
 public:
  using Base = BatchRunner<LineInput::Item, Response>;
  using typename Base::Answer;
  using typename Base::Items;
  using Results = const google::protobuf::RepeatedPtrField<Result>& (Response::*)() const;
  using PrintResult =
      std::function<absl::Status(const LineInput::Item& item, const Response& response,
                                 const Result& result, absl::Duration latency)>;

  // `call` is used by several threads at a time. `flush` is called after the results of a batch.
  TextRunner(const Command& command, const CommonFlags& flags, int batch, LineInput* input,
             Results results, BatchCall<LineInput::Item, Response> call, PrintResult print,
             std::function<void()> flush)
      : Base(command, flags),
        batch_(batch),
        input_(input),
        results_(results),
        call_(std::move(call)),
        print_(std::move(print)),
        flush_(std::move(flush)) {}

 protected:
  absl::StatusOr<Items> Next() override { return input_->Next(batch_); }
  void StopInput() override { input_->Stop(); }

  absl::StatusOr<Response> Call(const Items& items) override {
    return Checked(call_(items), items.size());
  }

  // kInternal unless there is a result for each text.
  absl::StatusOr<Response> Checked(absl::StatusOr<Response> response, size_t texts) const {
    if (!response.ok()) return response;
    const size_t results = ((*response).*results_)().size();
    if (results == texts) return response;
    return absl::InternalError(
        absl::StrCat("the server answered ", results, " of ", texts, " texts"));
  }

  std::string Where(const LineInput::Item& item) const override { return input_->Where(item); }

  void Print(const Answer& answer) override {
    for (size_t i = 0; i < answer.items.size(); ++i) {
      const absl::Status status =
          print_(answer.items[i], *answer.response,
                 ((*answer.response).*results_)().Get(static_cast<int>(i)), answer.latency);
      if (!status.ok()) this->Report(this->common_.Explain(status));
    }
    flush_();
  }

 private:
  const int batch_;
  LineInput* const input_;
  const Results results_;
  const BatchCall<LineInput::Item, Response> call_;
  const PrintResult print_;
  const std::function<void()> flush_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_ORDERED_BATCHES_H_
