#include "client/commands/generate_session.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "client/commands/text_input.h"
#include "client/line_reader.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

// Tokens that are read in one call: servers bound the length of a sequence, but not of a text.
constexpr size_t kReadTokens = 256;

constexpr char kSessionHelp[] =
    "Type the beginning of a text: the model goes on from there, and so does each further line. "
    "The\n"
    "text has just what you type and what the model writes, without the ends of your lines.\n"
    "  (an empty line)  let the model write more\n"
    "  /reset           begin a new text\n"
    "  /quit            end the session, as Ctrl-D does\n"
    "  /help            this page\n"
    "  Ctrl-C           end the model's answer\n";

}  // namespace

GenerateSession::GenerateSession(Client* client, Interrupts* interrupts,
                                 v1::GenerateRequest request, GenerateSessionOptions options)
    : client_(client),
      interrupts_(interrupts),
      request_(std::move(request)),
      options_(std::move(options)),
      state_(request_.state()),
      version_(request_.version()) {}

void GenerateSession::ShowPrompt() const {
  if (options_.show_prompt) std::cerr << "> " << std::flush;
}

bool GenerateSession::Run() {
  LineReader reader(STDIN_FILENO);
  if (options_.show_prompt) std::cerr << "type the beginning of a text; /help shows the rest\n";
  while (std::cout.good()) {
    interrupts_->SetHandler([this] {
      if (options_.show_prompt) std::cerr << "\n(/quit or Ctrl-D ends the session)\n";
      ShowPrompt();
    });
    ShowPrompt();
    const std::vector<std::string> lines = reader.NextBatch(1);
    if (lines.empty()) break;
    if (absl::StartsWith(lines[0], "/")) {
      if (!Command(lines[0])) break;
    } else {
      Answer(lines[0]);
    }
  }
  interrupts_->SetHandler(nullptr);
  if (reader.error() != 0) {
    failed_ = true;
    options_.report(CannotBeRead("standard input", reader.error()));
  }
  return !failed_ && std::cout.good();
}

bool GenerateSession::Command(const std::string& line) {
  if (line == "/quit") return false;
  if (line == "/reset") {
    state_.clear();
    version_ = request_.version();
    std::cerr << "(a new text begins)\n";
  } else if (line == "/help") {
    std::cerr << kSessionHelp;
  } else {
    std::cerr << "there is no command '" << line << "'; /help lists them\n";
  }
  return true;
}

void GenerateSession::Answer(const std::string& line) {
  if (line.empty() && state_.empty()) {
    std::cerr << "there is no text yet; type its beginning\n";
    return;
  }
  v1::GenerateRequest request = request_;
  request.set_return_state(true);
  request.set_state(state_);
  request.set_version(version_);
  if (!line.empty()) *request.mutable_prompt() = MakeSequence(line, options_.tokens);

  Cancellation cancellation;
  CallOptions options;
  options.cancellation = &cancellation;
  interrupts_->SetHandler([&] { cancellation.Cancel(); });
  std::vector<int32_t> ids;
  std::string state;
  int64_t version = version_;
  absl::Status status =
      options_.generate(request, options, [&](const v1::GenerateResponse& response) {
        ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
        version = response.version();
        if (!response.state().empty()) state = response.state();
      });
  interrupts_->SetHandler(nullptr);
  if (status.ok() && state.empty()) {
    status = absl::InternalError("the answer has no state, which was asked for");
  }
  if (status.ok()) {
    state_ = state;
    version_ = version;
    return;
  }
  if (cancellation.cancelled() && status.code() == absl::StatusCode::kCancelled) {
    if (ids.empty()) {
      std::cerr << "(nothing had come; the text is what it was before this line)\n";
      return;
    }
    request.set_version(version);
    status = CatchUp(request, ids);
    if (status.ok()) return;
  }
  failed_ = true;
  options_.report(status);
}

absl::Status GenerateSession::CatchUp(const v1::GenerateRequest& request,
                                      const std::vector<int32_t>& ids) {
  const std::string before = state_;
  version_ = request.version();
  absl::Status status;
  // An echo has the prompt's tokens among the others.
  if (request.has_prompt() && !request.echo()) status = Read(request.prompt());
  for (size_t i = 0; i < ids.size() && status.ok(); i += kReadTokens) {
    status = Read(TokenIdsSequence(absl::MakeConstSpan(ids).subspan(i, kReadTokens)));
  }
  if (!status.ok()) state_ = before;
  return status;
}

absl::Status GenerateSession::Read(const v1::Sequence& sequence) {
  v1::ScoreRequest request;
  request.set_model(request_.model());
  request.set_version(version_);
  request.set_priority(request_.priority());
  request.set_return_states(true);
  *request.add_sequences() = sequence;
  if (!state_.empty()) request.add_states(state_);
  SRU_ASSIGN_OR_RETURN(v1::ScoreResponse response, client_->Score(request));
  if (response.scores_size() != 1 || response.scores(0).state().empty()) {
    return absl::InternalError("the answer has no state, which was asked for");
  }
  state_ = response.scores(0).state();
  return absl::OkStatus();
}

}  // namespace sru::client
