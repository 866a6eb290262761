#include "client/names.h"

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"

namespace sru::client {
namespace {

template <typename Value, size_t kSize>
absl::Status Parse(absl::string_view flag, absl::string_view text,
                   const std::pair<const char*, Value> (&names)[kSize], Value* value) {
  std::string allowed;
  for (const auto& [name, candidate] : names) {
    if (text == name) {
      *value = candidate;
      return absl::OkStatus();
    }
    if (*name != '\0') absl::StrAppend(&allowed, allowed.empty() ? "" : ", ", name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, ": expected one of ", allowed, "; found '", text, "'"));
}

constexpr std::pair<const char*, v1::Priority> kPriorities[] = {
    {"", v1::PRIORITY_UNSPECIFIED},
    {"low", v1::PRIORITY_LOW},
    {"normal", v1::PRIORITY_NORMAL},
    {"high", v1::PRIORITY_HIGH},
};

static_assert(std::size(kPriorities) == v1::Priority_MAX + 1, "a name for each priority");

constexpr std::pair<const char*, v1::Pooling> kPoolings[] = {
    {"default", v1::POOLING_DEFAULT}, {"none", v1::POOLING_NONE}, {"first", v1::POOLING_FIRST},
    {"last", v1::POOLING_LAST},       {"max", v1::POOLING_MAX},   {"mean", v1::POOLING_MEAN},
};

static_assert(std::size(kPoolings) == v1::Pooling_MAX + 1, "a name for each pooling");

constexpr std::pair<const char*, v1::LengthPenalty::Form> kPenalties[] = {
    {"", v1::LengthPenalty::FORM_UNSPECIFIED},
    {"gnmt", v1::LengthPenalty::FORM_GNMT},
    {"power", v1::LengthPenalty::FORM_POWER},
    {"none", v1::LengthPenalty::FORM_NONE},
};

static_assert(std::size(kPenalties) == v1::LengthPenalty::Form_MAX + 1, "a name for each form");

constexpr std::pair<const char*, v1::OutputFormat> kFormats[] = {
    {"float32", v1::OUTPUT_FORMAT_RAW_FLOAT32},
    {"float16", v1::OUTPUT_FORMAT_RAW_FLOAT16},
    {"bfloat16", v1::OUTPUT_FORMAT_RAW_BFLOAT16},
};
static_assert(std::size(kFormats) == v1::OutputFormat_MAX - v1::OUTPUT_FORMAT_FLOATS,
              "a name for each raw format");

std::string Advice(const absl::Status& status, absl::string_view address, absl::Duration deadline) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (absl::StrContains(status.message(), "TLS")) return "";  // the message says it all
      if (absl::StrContains(status.message(), "does not serve")) {
        return "see why with: sru_client models --status";
      }
      if (absl::StrContains(status.message(), "connect")) {
        return absl::StrCat(
            "is the server running at ", address,
            "? Start it with: make serve, or name another with --address=HOST:PORT");
      }
      return "the server is shutting down; try again, or another replica with --address=HOST:PORT";
    case absl::StatusCode::kDeadlineExceeded:
      return absl::StrCat("the answer did not come within ", absl::FormatDuration(deadline),
                          "; allow more with --deadline, or send less per call");
    case absl::StatusCode::kResourceExhausted: {
      const auto delay = RetryDelay(status);
      if (delay.has_value()) {
        return absl::StrCat("the server is overloaded; it asks to wait ",
                            absl::FormatDuration(*delay), " before another try");
      }
      return "the server is overloaded, or the answer is too large: try again later, or send less "
             "per call";
    }
    case absl::StatusCode::kNotFound:
      return "see what is loaded with: sru_client models";
    case absl::StatusCode::kFailedPrecondition:
      return "see what each model can do with: sru_client models";
    case absl::StatusCode::kUnauthenticated:
      return "the server wants a token that it knows: give it with --token_file=FILE";
    case absl::StatusCode::kUnimplemented:
      return absl::StrCat("is it an SRU server that listens at ", address, "?");
    default:
      return "";
  }
}

}  // namespace

absl::Status ParsePriority(absl::string_view text, v1::Priority* priority) {
  return Parse("priority", text, kPriorities, priority);
}

absl::Status ParsePooling(absl::string_view text, v1::Pooling* pooling) {
  return Parse("pooling", text, kPoolings, pooling);
}

const char* PoolingName(v1::Pooling pooling) {
  for (const auto& [name, value] : kPoolings) {
    if (value == pooling) return name;
  }
  return "unknown";
}

absl::Status ParseLengthPenalty(absl::string_view text, v1::LengthPenalty::Form* form) {
  return Parse("length_penalty", text, kPenalties, form);
}

const char* LengthPenaltyName(v1::LengthPenalty::Form form) {
  for (const auto& [name, value] : kPenalties) {
    if (value == form) return name;
  }
  return "unknown";
}

std::string ModelStateName(v1::ModelStatus::State state) {
  const std::string& name = v1::ModelStatus::State_Name(state);
  return name.empty() ? "unknown" : name;
}

absl::Status ParseOutputFormat(absl::string_view text, v1::OutputFormat* format) {
  return Parse("output_format", text, kFormats, format);
}

std::string ExplainError(const absl::Status& status, absl::string_view address,
                         absl::Duration deadline) {
  std::string text = absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
  const std::string advice = Advice(status, address, deadline);
  if (!advice.empty()) absl::StrAppend(&text, "\n  ", advice);
  return text;
}

std::string ExplainAdminError(const absl::Status& status, absl::string_view address,
                              absl::Duration deadline) {
  const char* advice = nullptr;
  if (absl::StrContains(status.message(), "--model_control")) {
    // It says itself what to do.
    return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
  }
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    advice = "mend the model's files and load it again; models/FORMAT.md says what they hold";
  } else if (status.code() == absl::StatusCode::kResourceExhausted) {
    advice = "unload another model, or give the server more memory, and load it again";
  } else {
    return ExplainError(status, address, deadline);
  }
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(), "\n  ",
                      advice);
}

}  // namespace sru::client
