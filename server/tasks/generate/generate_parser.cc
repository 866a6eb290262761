#include "server/tasks/generate/generate_parser.h"

#include <cstdint>
#include <utility>

#include "base/status.h"
#include "models/decoding/sampling_options.h"
#include "models/decoding/stop_strings.h"

namespace sru::server::tasks {
namespace {

// Whether there is nothing in it, as opposed to something that gives no tokens.
bool IsEmpty(const v1::Sequence& prompt) {
  switch (prompt.input_case()) {
    case v1::Sequence::kText:
      return prompt.text().empty();
    case v1::Sequence::kTokens:
      return prompt.tokens().values().empty();
    case v1::Sequence::kTokenIds:
      return prompt.token_ids().values().empty();
    case v1::Sequence::kFeatures:
      return false;  // no language model takes them
    case v1::Sequence::INPUT_NOT_SET:
      break;
  }
  return true;
}

absl::Status ParsePrompt(const v1::GenerateRequest& request, const calls::ModelInput& input,
                         const calls::RequestLimits& limits, GenerateTask* task,
                         calls::WordCounts* words) {
  if (IsEmpty(request.prompt())) {
    if (!request.state().empty()) return absl::OkStatus();
    return InvalidArgument("prompt: empty, expected at least one token, or a state to go on from");
  }
  calls::TokenTask sequence;
  calls::TokenCounts counts;
  SRU_RETURN_UNLESS_OK(
      calls::ParseSequence(request.prompt(), "prompt", input, limits, &sequence, &counts));
  task->prompt = std::move(sequence.token_ids);
  calls::AddWords(request.prompt().input_case(), counts, words);
  return absl::OkStatus();
}

absl::Status ParseSampling(const v1::Sampling& sampling, int vocabulary_size, GenerateTask* task) {
  models::SamplingOptions& options = task->sampling;
  options.temperature = sampling.temperature();
  options.top_k = sampling.top_k();
  options.top_p = sampling.top_p();
  options.min_p = sampling.min_p();
  options.repetition_penalty = sampling.repetition_penalty();
  options.presence_penalty = sampling.presence_penalty();
  options.frequency_penalty = sampling.frequency_penalty();
  options.logit_bias.assign(sampling.logit_bias().begin(), sampling.logit_bias().end());
  task->seed = sampling.seed();
  return models::ValidateSampling(options, vocabulary_size);
}

absl::Status ParseLengths(const v1::GenerateRequest& request, const calls::RequestLimits& limits,
                          GenerateTask* task) {
  const int most = limits.max_new_tokens;
  if (request.max_new_tokens() < 0 || request.max_new_tokens() > most) {
    return InvalidArgument("max_new_tokens: ", request.max_new_tokens(),
                           " is out of range, expected 1 to ", most,
                           " (--max_new_tokens), or 0 for that many");
  }
  task->max_new_tokens = request.max_new_tokens() == 0 ? most : request.max_new_tokens();
  if (request.min_new_tokens() < 0 || request.min_new_tokens() > task->max_new_tokens) {
    return InvalidArgument("min_new_tokens: ", request.min_new_tokens(),
                           " is out of range, expected 0 to ", task->max_new_tokens,
                           " (max_new_tokens)");
  }
  task->min_new_tokens = request.min_new_tokens();
  return absl::OkStatus();
}

absl::Status ParseStops(const v1::GenerateRequest& request, int vocabulary_size,
                        GenerateTask* task) {
  if (static_cast<size_t>(request.stop_size()) > models::kMaxStopStrings) {
    return InvalidArgument("stop: ", request.stop_size(),
                           " strings are too many, expected at most ", models::kMaxStopStrings);
  }
  for (int i = 0; i < request.stop_size(); ++i) {
    const size_t bytes = request.stop(i).size();
    if (bytes == 0 || bytes > models::kMaxStopStringBytes) {
      return InvalidArgument("stop[", i, "]: ", bytes, " bytes, expected 1 to ",
                             models::kMaxStopStringBytes);
    }
  }
  if (request.stop_token_ids_size() > kMaxStopTokens) {
    return InvalidArgument("stop_token_ids: ", request.stop_token_ids_size(),
                           " are too many, expected at most ", kMaxStopTokens);
  }
  for (int i = 0; i < request.stop_token_ids_size(); ++i) {
    const int32_t id = request.stop_token_ids(i);
    if (id < 0 || id >= vocabulary_size) {
      return InvalidArgument("stop_token_ids[", i, "]: ", id, " is out of range, expected 0 to ",
                             vocabulary_size - 1);
    }
  }
  task->stop.assign(request.stop().begin(), request.stop().end());
  task->stop_token_ids.assign(request.stop_token_ids().begin(), request.stop_token_ids().end());
  return absl::OkStatus();
}

}  // namespace

absl::Status ParseGenerate(const v1::GenerateRequest& request, const calls::ModelInput& input,
                           int max_candidates, const calls::RequestLimits& limits,
                           GenerateTask* task, calls::WordCounts* words) {
  absl::Status status = ParseLengths(request, limits, task);
  if (status.ok()) status = ParseSampling(request.sampling(), input.vocabulary_size, task);
  if (status.ok()) status = ParseStops(request, input.vocabulary_size, task);
  if (!status.ok()) return status;
  if (request.num_samples() < 0 || request.num_samples() > kMaxSamples) {
    return InvalidArgument("num_samples: ", request.num_samples(),
                           " is out of range, expected 1 to ", kMaxSamples, ", or 0 for 1");
  }
  task->num_samples = request.num_samples() == 0 ? 1 : request.num_samples();
  SRU_ASSIGN_OR_RETURN(task->num_candidates,
                       calls::ParseTopCandidates(request.top_candidates(), max_candidates));
  task->echo = request.echo();
  task->token_log_probs = request.token_log_probs();
  task->return_state = request.return_state();
  return ParsePrompt(request, input, limits, task, words);
}

}  // namespace sru::server::tasks
