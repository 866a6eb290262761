// A text that a user and a language model write in turns: `sru_client generate --interactive`.
#ifndef SRU_CLIENT_COMMANDS_GENERATE_SESSION_H_
#define SRU_CLIENT_COMMANDS_GENERATE_SESSION_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/client.h"
#include "client/commands/interrupts.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

struct GenerateSessionOptions {
  bool tokens = false;       // the user's words are split by spaces already
  bool show_prompt = false;  // standard input is a terminal
  // Makes one call, which prints its answers and hands them over.
  std::function<absl::Status(const v1::GenerateRequest&, const CallOptions&,
                             const std::function<void(const v1::GenerateResponse&)>&)>
      generate;
  // Prints an error.
  std::function<void(const absl::Status&)> report;
};

// Each line of standard input goes on from the state in which the answer before it ended. Ctrl-C
// ends an answer: the session goes on from what was there until then. Not thread-safe.
class GenerateSession {
 public:
  // `request` has everything but the prompt; one sample.
  GenerateSession(Client* client, Interrupts* interrupts, v1::GenerateRequest request,
                  GenerateSessionOptions options);

  // Reads lines until the end of the input or /quit. True if no call failed and no read.
  bool Run();

  // What the model remembers; empty at the beginning and after /reset.
  const std::string& state() const { return state_; }

 private:
  // False to end the session.
  bool Command(const std::string& line);
  void Answer(const std::string& line);
  // After an answer that was interrupted, reads the line and the tokens that had come.
  absl::Status CatchUp(const v1::GenerateRequest& request, const std::vector<int32_t>& ids);
  absl::Status Read(const v1::Sequence& sequence);
  void ShowPrompt() const;

  Client* const client_;
  Interrupts* const interrupts_;
  const v1::GenerateRequest request_;
  const GenerateSessionOptions options_;
  std::string state_;
  int64_t version_;  // the one that made the state
  bool failed_ = false;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_COMMANDS_GENERATE_SESSION_H_
