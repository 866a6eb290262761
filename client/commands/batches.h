// Sends many texts as batches, with patience for an overloaded server.
#ifndef SRU_CLIENT_COMMANDS_BATCHES_H_
#define SRU_CLIENT_COMMANDS_BATCHES_H_

#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/commands/command.h"
#include "client/commands/common_flags.h"
#include "client/commands/text_input.h"

namespace sru::client {

// Makes a call, and repeats it while the server refuses it as too much, at most five times and each
// time after the delay that the server asked for.
absl::Status CallPatiently(absl::FunctionRef<absl::Status()> call);

// Sends one batch and prints its answers.
using SendBatch = std::function<absl::Status(const std::vector<TextInput::Item>&)>;

// Sends all texts in batches of `batch` and returns the program's exit code. If a batch is refused
// because of one of its texts, they are sent one by one, so that only the bad one fails.
int RunBatches(const Command& command, const CommonFlags& flags, int batch, TextInput* input,
               const SendBatch& send);

// A SendBatch from its two halves: `call` sends one batch, `print` prints its answers and gets the
// time that the call took.
template <typename Response>
SendBatch CallAndPrint(
    std::function<absl::StatusOr<Response>(const std::vector<TextInput::Item>&)> call,
    std::function<absl::Status(const std::vector<TextInput::Item>&, const Response&,
                               absl::Duration)>
        print) {
  return [call, print](const std::vector<TextInput::Item>& items) {
    const absl::Time start = absl::Now();
    absl::StatusOr<Response> response;
    const absl::Status status = CallPatiently([&] {
      response = call(items);
      return response.status();
    });
    if (!status.ok()) return status;
    return print(items, *response, absl::Now() - start);
  };
}

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_BATCHES_H_
