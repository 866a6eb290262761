// sru_client generate: texts that a language model writes.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>

#include "absl/strings/numbers.h"
#include "base/limits.h"
#include "base/status.h"
#include "client/client.h"
#include "client/commands/batches.h"
#include "client/commands/commands.h"
#include "client/commands/text_input.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

constexpr char kGenerateHelp[] =
    R"(sru_client generate lets a language model go on from a text, and prints what it writes as it comes.

usage: sru_client generate [--flag=value ...] [PROMPT]

Without PROMPT the prompt is --file or standard input, all of it as it is, the newline at its end
too. The text is what follows; --echo prints the prompt before it. As long as --temperature is 0 the
model writes the most probable token each time, which gives the same text each time; the text of a
higher temperature is another one each time, unless --seed fixes it.

--state_out keeps what the model remembers at the end, and --state_in goes on from there: the text
is the same as without the stop. If a server shuts down, the text continues on another one by itself.

examples:
  sru_client generate "It was a dark and stormy night"
  sru_client generate --temperature=0.8 --top_p=0.95 --seed=7 "It was a dark and"
  sru_client generate --num_samples=3 --temperature=1 --stop=. "The prince said"
  sru_client generate --stop=$'\n\n' --file=chapter1.txt
  sru_client generate --top_candidates=3 --max_new_tokens=10 "It was a"   (what else might come?)
  sru_client generate --json "It was a" | jq -j .text
  sru_client generate --state_out=s.bin "It was" ; sru_client generate --state_in=s.bin
)";

// The limits of inference.proto.
constexpr float kMaxTemperature = 100;
constexpr float kMaxPenalty = 100;

// How tokens are picked, and when a text ends.
struct SamplingFlags {
  float temperature = 0;
  int top_k = 0;
  float top_p = 0;
  float min_p = 0;
  std::string seed;
  float repetition_penalty = 0;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  int num_samples = 1;
  int max_new_tokens = 200;
  int min_new_tokens = 0;
  std::vector<std::string> stop;

  void AddTo(Flags* flags) {
    flags->Add("max_new_tokens", &max_new_tokens, {0},
               "length of the text in tokens; 0 = as many as the server allows");
    flags->Add("min_new_tokens", &min_new_tokens, {0},
               "nothing ends the text before it has this many");
    flags->AddRepeated(
        "stop", &stop,
        "end the text before this string; may be given several times ($'\\n' is a newline)");
    flags->Add(
        "temperature", &temperature, {0, kMaxTemperature},
        "0 = always the most probable token; 1 = as probable as the model finds them; more is "
        "wilder");
    flags->Add("top_k", &top_k, {0}, "pick among the most probable tokens, this many; 0 = all");
    flags->Add("top_p", &top_p, {0, 1},
               "pick among the fewest with this probability together; 0 = all");
    flags->Add("min_p", &min_p, {0, 1},
               "pick among those with at least this part of the largest probability");
    flags->Add("seed", &seed, "fixes the text for good; without one each run gives another text");
    flags->Add("repetition_penalty", &repetition_penalty, {0, kMaxPenalty},
               "makes tokens of the prompt and the text less probable; 1.1 is mild, 0 = off");
    flags->Add("presence_penalty", &presence_penalty, {-kMaxPenalty, kMaxPenalty},
               "the same for tokens of the text");
    flags->Add("frequency_penalty", &frequency_penalty, {-kMaxPenalty, kMaxPenalty},
               "the same, for each time that one came");
    flags->Add("num_samples", &num_samples, {1, kMaxSamples}, "how many texts");
  }

  // Writes them into `request`. kInvalidArgument names the flag that is wrong.
  absl::Status WriteTo(v1::GenerateRequest* request) const {
    if (max_new_tokens > 0 && min_new_tokens > max_new_tokens) {
      return InvalidArgument("--min_new_tokens: expected at most ", max_new_tokens,
                             " (--max_new_tokens), found ", min_new_tokens);
    }
    v1::Sampling* sampling = request->mutable_sampling();
    uint64_t parsed_seed = 0;
    if (!seed.empty()) {
      if (!absl::SimpleAtoi(seed, &parsed_seed)) {
        return InvalidArgument("--seed: expected a whole number from 0 to 2^64 - 1, found '", seed,
                               "'");
      }
      sampling->set_seed(parsed_seed);
    }
    for (const std::string& text : stop) {
      if (text.empty()) return absl::InvalidArgumentError("--stop: expected text, found ''");
      request->add_stop(text);
    }
    sampling->set_temperature(temperature);
    sampling->set_top_k(top_k);
    sampling->set_top_p(top_p);
    sampling->set_min_p(min_p);
    sampling->set_repetition_penalty(repetition_penalty);
    sampling->set_presence_penalty(presence_penalty);
    sampling->set_frequency_penalty(frequency_penalty);
    request->set_max_new_tokens(max_new_tokens);
    request->set_min_new_tokens(min_new_tokens);
    request->set_num_samples(num_samples);
    return absl::OkStatus();
  }
};

// Leaves `state` as it is without a path. kInvalidArgument, naming --state_in, if the file cannot
// be read or is empty.
absl::Status ReadState(const std::string& path, std::string* state) {
  if (path.empty()) return absl::OkStatus();
  SRU_ASSIGN_OR_RETURN(*state, ReadFile("--state_in", path));
  if (!state->empty()) return absl::OkStatus();
  return InvalidArgument("--state_in: ", path, " is empty; expected what --state_out has written");
}

// Replaces the file, or the one that a symbolic link leads to, in one step, so that it is never
// half a state. A device or a pipe is written to.
absl::Status WriteState(const std::string& path, const std::string& state) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const bool in_place = std::filesystem::exists(status) && !is_regular_file(status);
  std::string target = in_place ? path : std::filesystem::canonical(path, error).string();
  if (target.empty()) target = path;  // there is no such file yet
  const std::string written = in_place ? target : absl::StrCat(target, ".", getpid());
  std::ofstream file(written, std::ios::binary);
  file << state;
  file.close();
  if (file && (in_place || std::rename(written.c_str(), target.c_str()) == 0)) {
    return absl::OkStatus();
  }
  const std::string reason = std::strerror(errno);
  if (!in_place) std::remove(written.c_str());
  return absl::UnknownError(absl::StrCat("--state_out: ", path, " cannot be written: ", reason));
}

struct GenerateFlags {
  CommonFlags common;
  SamplingFlags sampling;
  TargetFlags target;
  std::string file;
  bool echo = false;
  bool log_probs = false;
  int top_candidates = 0;
  std::string state_in;
  std::string state_out;
};

// The prompt: the argument, the file, or standard input unless there is a state to go on from.
absl::StatusOr<std::string> ReadPrompt(const GenerateFlags& flags,
                                       const std::vector<std::string>& arguments) {
  if (!arguments.empty()) return arguments[0];
  if (flags.file.empty() && !flags.state_in.empty()) return std::string();
  if (flags.file.empty() || flags.file == "-") {
    if (isatty(STDIN_FILENO) != 0) {
      std::cerr << "reading the prompt from the terminal; end with Ctrl-D\n";
    }
    return ReadAll(STDIN_FILENO, "standard input");
  }
  return ReadFile("--file", flags.file);
}

// Checks the flags and makes the request. kInvalidArgument names the flag.
absl::Status MakeRequest(const std::vector<std::string>& arguments, GenerateFlags* flags,
                         v1::GenerateRequest* request) {
  SRU_RETURN_UNLESS_OK(flags->sampling.WriteTo(request));
  if (arguments.size() > 1) {
    return InvalidArgument("expected one PROMPT, found ", arguments.size(),
                           "; put quotes around a text with spaces");
  }
  if (!arguments.empty() && !flags->file.empty()) {
    return absl::InvalidArgumentError("--file and PROMPT exclude each other");
  }
  if (!flags->state_out.empty() && flags->sampling.num_samples > 1) {
    return InvalidArgument("--state_out: expected --num_samples=1, found ",
                           flags->sampling.num_samples);
  }
  flags->log_probs = flags->log_probs || flags->top_candidates > 0;
  flags->target.SetOn(request);
  request->set_echo(flags->echo);
  request->set_token_log_probs(flags->log_probs);
  request->set_top_candidates(flags->top_candidates);
  request->set_return_state(!flags->state_out.empty());
  SRU_RETURN_UNLESS_OK(ReadState(flags->state_in, request->mutable_state()));
  SRU_ASSIGN_OR_RETURN(const std::string prompt, ReadPrompt(*flags, arguments));
  // An empty argument is a mistake that the server should name.
  if (!prompt.empty() || request->state().empty()) request->mutable_prompt()->set_text(prompt);
  return absl::OkStatus();
}

// Prints the answers of a call as they come: objects, rows of tokens, or text. Of several samples,
// the first one that is not complete is printed as it comes, the others once they are complete.
class Text {
 public:
  Text(const GenerateFlags& flags, Printer* printer)
      : flags_(flags), printer_(printer), samples_(flags.sampling.num_samples) {}

  void Add(const v1::GenerateResponse& response) {
    if (flags_.common.json) {
      printer_->Object(ResponseJson(response));
    } else if (flags_.log_probs) {
      AddRows(response);
    } else {
      Sample& sample = samples_[response.sample()];
      sample.held_back += response.text();
      sample.complete = response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
      for (; current_ < samples_.size(); ++current_) {
        Print(current_);
        if (!samples_[current_].complete) break;
        End();
      }
    }
    printer_->Flush();
  }

  // Call last, also after an error: prints what was held back.
  void Finish() {
    for (; current_ < samples_.size(); ++current_) {
      if (!samples_[current_].begun && samples_[current_].held_back.empty()) continue;
      Print(current_);
      End();
    }
    std::cout.flush();
  }

 private:
  struct Sample {
    std::string held_back;
    bool begun = false;
    bool complete = false;
    int tokens = 0;
  };

  static Json ResponseJson(const v1::GenerateResponse& response) {
    Json json = MessageJson(response);
    EraseEmpty({"log_probs", "candidates", "token_texts"}, &json);
    if (response.finish_reason() != v1::FINISH_REASON_UNSPECIFIED) return json;
    for (const char* last :
         {"model", "version", "finish_reason", "prompt_tokens", "generated_tokens"}) {
      json.erase(last);
    }
    return json;
  }

  void AddRows(const v1::GenerateResponse& response) {
    for (int i = 0; i < response.token_ids_size(); ++i) {
      const bool scored = i < response.log_probs_size();
      const bool has_candidates = i < response.candidates_size();
      // The text belongs to all tokens of the message; it is shown with the last one.
      const bool has_text = i + 1 == response.token_ids_size() && !response.text().empty();
      printer_->Row(
          {absl::StrCat(response.sample()), absl::StrCat(++samples_[response.sample()].tokens),
           absl::StrCat(response.token_ids(i)), scored ? Fixed(response.log_probs(i), 4) : kNothing,
           scored ? Fixed(Bits(response.log_probs(i)), 3) : kNothing,
           has_text ? Quoted(response.text()) : kNothing,
           has_candidates ? CandidateList(response.candidates(i)) : kNothing});
    }
  }

  // Control characters become visible on a terminal.
  void Print(size_t number) {
    Sample& sample = samples_[number];
    if (samples_.size() > 1 && !sample.begun) {
      std::cout << "--- sample " << number << "\n";
      at_line_start_ = true;
    }
    sample.begun = true;
    const std::string text = std::exchange(sample.held_back, "");
    if (text.empty()) return;
    std::cout << (terminal_ ? Printable(text, /*keep=*/"\n\t") : text);
    at_line_start_ = text.back() == '\n';
  }

  void End() {
    if ((terminal_ || samples_.size() > 1) && !at_line_start_) std::cout << "\n";
    at_line_start_ = true;
  }

  const GenerateFlags& flags_;
  Printer* const printer_;
  const bool terminal_ = isatty(STDOUT_FILENO) != 0;
  std::vector<Sample> samples_;
  size_t current_ = 0;  // the sample that is printed as it comes
  bool at_line_start_ = true;
};

int Generate(const Command& command, const std::vector<std::string>& args) {
  GenerateFlags options;
  // A text takes as long as it is.
  options.common.connect.deadline = absl::Minutes(5);
  Flags flags;
  options.sampling.AddTo(&flags);
  flags.Add("file", &options.file, "FILE: its text is the prompt; - is standard input");
  flags.Add("echo", &options.echo, "print the prompt before the text");
  flags.Add("state_in", &options.state_in, "FILE: go on from this state, also without a prompt");
  flags.Add("state_out", &options.state_out, "FILE: write the state after the text");
  flags.Add("log_probs", &options.log_probs,
            "print a row for each token, with the probability that the model gives it");
  flags.Add("top_candidates", &options.top_candidates, {0, kMaxCandidates},
            "and the most probable tokens in its place, up to 128");
  options.target.AddTo(&flags);
  v1::GenerateRequest request;
  const Start start = Begin(command, args, &flags, &options.common, [&](const auto& arguments) {
    return MakeRequest(arguments, &options, &request);
  });
  if (start.client == nullptr) return start.exit_code;

  std::vector<TextTable::Column> columns;
  if (options.log_probs) {
    columns = {{"SAMPLE", true}, {"POSITION", true}, {"TOKEN ID", true}, {"LOG-PROB", true},
               {"BITS", true},   {"TEXT"},           {"CANDIDATES"}};
  }
  Printer printer(command, options.common.json, std::move(columns));
  Text text(options, &printer);
  std::string state;
  bool printed = false;
  absl::Status status;
  // A call that is refused as too much is made again, but not once something has been printed.
  static_cast<void>(CallPatiently([&] {
    status = start.client->Generate(request, [&](const v1::GenerateResponse& response) {
      printed = true;
      text.Add(response);
      if (!response.state().empty()) state = response.state();
      return std::cout.good();
    });
    return printed ? absl::OkStatus() : status;
  }));
  text.Finish();
  if (!std::cout.good()) return kExitFailed;
  if (status.ok() && !options.state_out.empty()) {
    status = state.empty() ? absl::InternalError("the answer has no state, which was asked for")
                           : WriteState(options.state_out, state);
  }
  return status.ok() ? kExitOk : CallError(command, options.common, status);
}

}  // namespace

constexpr Command kGenerate = {"generate", "texts that a language model writes", kGenerateHelp,
                               Generate};

}  // namespace sru::client
