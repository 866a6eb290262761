#include "client/command_line.h"

#include <algorithm>
#include <cstring>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "client/client.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/generated_enum_reflection.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {
namespace {

// The names of the values that users know begin with one of these; of output formats those are the
// raw ones.
constexpr absl::string_view kPrefixes[] = {"FINISH_REASON_", "FORM_",     "OUTPUT_FORMAT_RAW_",
                                           "POOLING_",       "PRIORITY_", "UNKNOWN_"};

std::string Advice(const absl::Status& status, absl::string_view address, absl::Duration deadline) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (absl::StrContains(status.message(), "does not serve")) {
        return "see why with: sru_client models --status";
      }
      if (absl::StrContains(status.message(), "tls_") ||
          absl::StrContains(status.message(), "TLS")) {
        return "";  // the message says it all
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

std::string WithAdvice(const absl::Status& status, absl::string_view advice) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(),
                      advice.empty() ? "" : "\n  ", advice);
}

void PrintUsage(const Program& program, absl::Span<const Command* const> commands,
                std::ostream& out) {
  out << program.name << " " << program.purpose << "\n\nusage: " << program.name
      << " SUBCOMMAND [--flag=value ...]" << program.arguments << "\n\n";
  size_t width = 0;
  for (const Command* command : commands) width = std::max(width, std::strlen(command->name));
  for (const Command* command : commands) {
    out << absl::StreamFormat("  %-*s  %s\n", width, command->name, command->summary);
  }
  out << "\n"
      << program.name << " SUBCOMMAND --help shows its flags, with examples; --version."
      << program.more << "\n";
}

}  // namespace

int RunProgram(const Program& program, absl::Span<const Command* const> commands,
               const std::vector<std::string>& args) {
  const std::string name = args.empty() ? "" : args[0];
  for (const Command* command : commands) {
    if (name == command->name) return command->run(*command, {args.begin() + 1, args.end()});
  }
  if (name == "help" || name == "--help" || name == "-h") {
    PrintUsage(program, commands, std::cout);
    return kExitOk;
  }
  if (name == "--version") {
    std::cout << program.version << "\n";
    return kExitOk;
  }
  if (!args.empty()) {
    std::cerr << program.name << ": there is no subcommand '" << name << "'\n\n";
  }
  PrintUsage(program, commands, std::cerr);
  return kExitUsage;
}

void AddTlsFlags(ConnectOptions* options, Flags* flags) {
  flags->Add("tls", &options->tls, "use TLS, as the other --tls flags do too");
  flags->Add("tls_ca", &options->tls_ca,
             "PEM file with the authorities to trust; without it those of the system");
  flags->Variable("SRU_TLS_CA");
  flags->Add("tls_cert", &options->tls_cert, "PEM file with this client's certificate");
  flags->Variable("SRU_TLS_CLIENT_CERT");
  flags->Add("tls_key", &options->tls_key, "PEM file with its key");
  flags->Variable("SRU_TLS_CLIENT_KEY");
  flags->Add("tls_server_name", &options->tls_server_name,
             "name in the server's certificate, if it is not that in --address");
  flags->Variable("SRU_TLS_SERVER_NAME");
}

std::string NameOf(const google::protobuf::EnumValueDescriptor& value) {
  absl::string_view name = value.name();
  for (const absl::string_view prefix : kPrefixes) {
    if (!absl::ConsumePrefix(&name, prefix)) continue;
    return name == "UNSPECIFIED" ? "" : absl::AsciiStrToLower(name);
  }
  return std::string(name);
}

template <typename Enum>
std::vector<std::pair<std::string, Enum>> NamedValues() {
  const google::protobuf::EnumDescriptor& type = *google::protobuf::GetEnumDescriptor<Enum>();
  std::vector<std::pair<std::string, Enum>> values;
  for (int i = 0; i < type.value_count(); ++i) {
    std::string name = NameOf(*type.value(i));
    if (name.empty() || name == type.value(i)->name()) continue;
    values.emplace_back(std::move(name), static_cast<Enum>(type.value(i)->number()));
  }
  return values;
}
template std::vector<std::pair<std::string, v1::Priority>> NamedValues();
template std::vector<std::pair<std::string, v1::Unknown>> NamedValues();
template std::vector<std::pair<std::string, v1::Pooling>> NamedValues();
template std::vector<std::pair<std::string, v1::LengthPenalty::Form>> NamedValues();
template std::vector<std::pair<std::string, v1::OutputFormat>> NamedValues();

std::string ExplainError(const absl::Status& status, absl::string_view address,
                         absl::Duration deadline) {
  return WithAdvice(status, Advice(status, address, deadline));
}

std::string ExplainAdminError(const absl::Status& status, absl::string_view address,
                              absl::Duration deadline) {
  // This message says itself what to do.
  if (absl::StrContains(status.message(), "--model_control")) return WithAdvice(status, "");
  if (status.code() == absl::StatusCode::kFailedPrecondition) {
    return WithAdvice(
        status, "mend the model's files and load it again; models/FORMAT.md says what they hold");
  }
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return WithAdvice(status,
                      "unload another model, or give the server more memory, and load it again");
  }
  return ExplainError(status, address, deadline);
}

}  // namespace sru::client
