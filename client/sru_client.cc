// sru_client: the command line of an SRU inference server.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/client.h"
#include "client/flag_set.h"
#include "client/line_reader.h"
#include "client/names.h"
#include "client/text_table.h"
#include "nlohmann/json.hpp"

namespace sru::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kExitOk = 0;
constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr size_t kTextWidth = 60;       // of a text in a table
constexpr int kMaxOverloadRetries = 5;  // of a call that the server refused as too much
constexpr absl::Duration kProgressAfter = absl::Seconds(2);

constexpr char kUsage[] =
    R"(sru_client calls an SRU inference server.

usage: sru_client SUBCOMMAND [--flag=value ...] [TEXT ...]

  classify  labels with probabilities for texts
  encode    vectors for texts
  models    what the server has loaded
  health    whether the server is serving; exits 0 only then
  admin     loads and unloads models

sru_client SUBCOMMAND --help shows its flags, with examples. Exit codes: 0 all is well, 1 a call
failed, 2 the command line is wrong.
)";

constexpr char kClassifyUsage[] =
    R"(sru_client classify prints the most probable label of each text.

usage: sru_client classify [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line, and prints answers as they come; blank lines
are skipped. A text that the server refuses fails alone: it is reported on standard error and the
exit code is 1.

examples:
  sru_client classify "How many moons does Jupiter have ?"
  sru_client classify --top_k=3 "Who wrote Hamlet ?" "Where is Samarkand ?"
  sru_client classify --json < questions.txt > answers.jsonl
  sru_client classify --tokens "who wrote hamlet ?"      (words that are split already)
  sru_client classify --model=trec --version=1 --deadline=500ms "What is a haiku ?"
)";

constexpr char kEncodeUsage[] =
    R"(sru_client encode prints a vector for each text, or one per token with --pooling=none.

usage: sru_client encode [--flag=value ...] [TEXT ...]

Without TEXT, reads standard input, one text per line; blank lines are skipped. The table shows the
first values of each vector; --json prints all, --raw writes them as bytes.

examples:
  sru_client encode "How many moons does Jupiter have ?"
  sru_client encode --normalize --json < texts.txt > vectors.jsonl
  sru_client encode --pooling=none "one vector per token"
  sru_client encode --raw < texts.txt > vectors.f32   (numpy.fromfile("vectors.f32", "<f4"))
)";

constexpr char kModelsUsage[] =
    R"(sru_client models lists the models that the server has loaded.

usage: sru_client models [--flag=value ...] [NAME]

examples:
  sru_client models
  sru_client models --json trec
  sru_client models --version=2 trec
  sru_client models --status               (also what is loading, unloading or could not be loaded)
)";

constexpr char kHealthUsage[] =
    R"(sru_client health asks whether the server is serving. It exits 0 when the answer is SERVING and 1
otherwise, so that it can be the health check of a container.

usage: sru_client health [--flag=value ...]

examples:
  sru_client health
  sru_client health --address=10.0.0.7:50051 --deadline=1s
  sru_client health --service=trec         (one model)
)";

constexpr char kAdminUsage[] =
    R"(sru_client admin loads and unloads models of a server that runs with --model_control=explicit and
--admin_listen.

usage: sru_client admin [--flag=value ...] load|unload NAME

load answers when the model is served; of a model that is loaded it looks for new and changed
versions. unload answers when calls do not find the model any more; those that did are still answered.

examples:
  sru_client admin load trec
  sru_client admin --address=10.0.0.7:50052 unload trec
)";

struct CommonOptions {
  ConnectOptions connect;
  bool json = false;
};

void AddCommonFlags(CommonOptions* options, FlagSet* flags,
                    const char* address_help = "HOST:PORT of the server",
                    const char* address_variable = "SRU_ADDRESS") {
  flags->Add("address", &options->connect.address, address_help, address_variable);
  flags->Add("deadline", &options->connect.deadline, "time for each call; inf = no bound");
  ConnectOptions& connect = options->connect;
  flags->Add("tls", &connect.tls, "use TLS, as the other --tls flags do too");
  flags->Add("tls_ca", &connect.tls_ca,
             "PEM file with the authorities to trust; without it those of the system",
             "SRU_TLS_CA");
  flags->Add("tls_cert", &connect.tls_cert, "PEM file with this client's certificate",
             "SRU_TLS_CLIENT_CERT");
  flags->Add("tls_key", &connect.tls_key, "PEM file with its key", "SRU_TLS_CLIENT_KEY");
  flags->Add("tls_server_name", &connect.tls_server_name,
             "name in the server's certificate, if it is not that in --address",
             "SRU_TLS_SERVER_NAME");
  flags->Add("token_file", &connect.token_file, "file with the token to send", "SRU_TOKEN_FILE");
  flags->Add("token_without_tls", &connect.token_without_tls,
             "send it over the network without TLS");
  flags->Add("json", &options->json, "print one JSON object per line");
}

// Which sequences are sent, and how.
struct InputOptions {
  std::string model;
  int64_t version = 0;
  bool truncate = false;
  bool tokens = false;
  std::string priority;
  int batch = 32;
};

void AddInputFlags(InputOptions* options, FlagSet* flags) {
  flags->Add("model", &options->model,
             "name of the model; may be left out when the server has one");
  flags->Add("version", &options->version, "version of the model; 0 = the latest");
  flags->Add("truncate", &options->truncate,
             "cut texts that are too long instead of refusing them");
  flags->Add("tokens", &options->tokens,
             "the words are split by spaces already: look them up as they are");
  flags->Add("priority", &options->priority, "low, normal or high");
  flags->Add("batch", &options->batch, "texts per call");
}

int UsageError(const std::string& command, absl::string_view message) {
  std::cerr << "sru_client " << command << ": " << message << "\nsru_client " << command
            << " --help shows the flags, with examples\n";
  return kExitUsage;
}

int CallError(const std::string& command, const absl::Status& status,
              const CommonOptions& options) {
  std::cerr << "sru_client " << command << ": "
            << ExplainError(status, options.connect.address, options.connect.deadline) << "\n";
  return kExitFailed;
}

std::string Dump(const Json& json) {
  // A text that is not UTF-8 gets replacement characters.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Connects, or prints why not and returns null with the exit code.
std::unique_ptr<Client> MakeClient(const std::string& command, const CommonOptions& options,
                                   int* exit_code) {
  auto client = Client::Create(options.connect);
  if (!client.ok()) {
    *exit_code = UsageError(command, absl::StrCat("--", client.status().message()));
    return nullptr;
  }
  const absl::Status status = (*client)->Connect(options.connect.deadline);
  if (!status.ok()) {
    *exit_code = CallError(command, status, options);
    return nullptr;
  }
  return *std::move(client);
}

// Texts from the arguments or from standard input, in batches.
class Input {
 public:
  struct Item {
    int64_t line = 0;  // from 1
    std::string text;
  };

  explicit Input(std::vector<std::string> texts) : texts_(std::move(texts)), reader_(0) {
    from_stdin_ = texts_.empty();
    if (from_stdin_ && isatty(STDIN_FILENO) != 0) {
      std::cerr << "reading texts from the terminal, one per line; end with Ctrl-D\n";
    }
  }

  bool from_stdin() const { return from_stdin_; }

  // Empty at the end.
  std::vector<Item> Next(int max_items) {
    std::vector<Item> items;
    while (items.empty()) {
      std::vector<std::string> lines;
      if (from_stdin_) {
        lines = reader_.NextBatch(max_items);
      } else {
        const size_t end = std::min(texts_.size(), next_ + max_items);
        lines.assign(texts_.begin() + next_, texts_.begin() + end);
        next_ = end;
      }
      if (lines.empty()) break;
      for (std::string& line : lines) {
        ++line_;
        // An empty argument is a mistake that the server should name; a blank line is not.
        if (from_stdin_ && absl::StripAsciiWhitespace(line).empty()) continue;
        items.push_back({line_, std::move(line)});
      }
    }
    return items;
  }

 private:
  std::vector<std::string> texts_;
  size_t next_ = 0;
  bool from_stdin_ = false;
  int64_t line_ = 0;
  LineReader reader_;
};

v1::Sequence MakeSequence(const std::string& text, bool tokens) {
  if (!tokens) return TextSequence(text);
  return TokensSequence(
      std::vector<std::string>(absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())));
}

// Says on standard error how far the work is, once it takes more than two seconds, unless the
// answers themselves show it.
class ProgressLine {
 public:
  ProgressLine() : enabled_(isatty(STDERR_FILENO) != 0 && isatty(STDOUT_FILENO) == 0) {}
  ~ProgressLine() {
    if (printed_) std::fputs("\r\x1b[K", stderr);
  }

  void Add(size_t sequences) {
    done_ += static_cast<int64_t>(sequences);
    const absl::Time now = absl::Now();
    if (!enabled_ || now - start_ < kProgressAfter || now - last_ < absl::Milliseconds(200)) return;
    last_ = now;
    printed_ = true;
    absl::FPrintF(stderr, "\r\x1b[K%d texts, %.0f per second", done_,
                  done_ / absl::ToDoubleSeconds(now - start_));
    std::fflush(stderr);
  }

 private:
  const bool enabled_;
  const absl::Time start_ = absl::Now();
  absl::Time last_ = absl::InfinitePast();
  int64_t done_ = 0;
  bool printed_ = false;
};

// Repeats a call that the server refused as too much, after the delay it asked for.
template <typename Response>
absl::StatusOr<Response> CallPatiently(const std::function<absl::StatusOr<Response>()>& call) {
  for (int retry = 0;; ++retry) {
    absl::StatusOr<Response> response = call();
    if (response.ok() || retry == kMaxOverloadRetries) return response;
    const auto delay = RetryDelay(response.status());
    if (response.status().code() != absl::StatusCode::kResourceExhausted || !delay.has_value()) {
      return response;
    }
    absl::SleepFor(std::clamp(*delay, absl::Milliseconds(1), absl::Seconds(5)));
  }
}

// Sends everything in batches. `call` sends one batch, `print` prints its answers with the time the
// call took. When a batch is refused for one of its texts, they are sent one by one, so that only
// the bad one fails.
template <typename Response>
int RunBatches(const std::string& command, const CommonOptions& common, const InputOptions& options,
               Input* input,
               const std::function<absl::StatusOr<Response>(const std::vector<Input::Item>&)>& call,
               const std::function<absl::Status(const std::vector<Input::Item>&, const Response&,
                                                absl::Duration)>& print) {
  int exit_code = kExitOk;
  ProgressLine progress;
  const auto send = [&](const std::vector<Input::Item>& items) {
    const absl::Time start = absl::Now();
    absl::StatusOr<Response> response = CallPatiently<Response>([&] { return call(items); });
    if (!response.ok()) return response.status();
    return print(items, *response, absl::Now() - start);
  };
  for (;;) {
    const std::vector<Input::Item> items = input->Next(options.batch);
    if (items.empty()) return exit_code;
    absl::Status status = send(items);
    if (status.code() == absl::StatusCode::kInvalidArgument && items.size() > 1) {
      for (const Input::Item& item : items) {
        status = send({item});
        if (status.ok()) continue;
        std::cerr << "sru_client " << command << ": " << (input->from_stdin() ? "line " : "text ")
                  << item.line << ": "
                  << ExplainError(status, common.connect.address, common.connect.deadline) << "\n";
        exit_code = kExitFailed;
        if (status.code() != absl::StatusCode::kInvalidArgument) return exit_code;
      }
    } else if (!status.ok()) {
      std::cerr << "sru_client " << command << ": ";
      if (input->from_stdin()) std::cerr << "line " << items.front().line << ": ";
      std::cerr << ExplainError(status, common.connect.address, common.connect.deadline) << "\n";
      exit_code = kExitFailed;
      // The next batch may be good only if it was this one's texts that were wrong.
      if (status.code() != absl::StatusCode::kInvalidArgument) return exit_code;
    }
    progress.Add(items.size());
    if (!std::cout) return kExitFailed;
  }
}

// JSON numbers that read back as the same float.
double Exact(float value) { return std::strtod(absl::StrFormat("%.9g", value).c_str(), nullptr); }

Json TimesJson(const v1::StageTimes& times) {
  return {{"tokenize_us", times.tokenize_us()},
          {"queue_us", times.queue_us()},
          {"compute_us", times.compute_us()},
          {"total_us", times.total_us()}};
}

std::string Milliseconds(double us) { return absl::StrFormat("%.2f ms", us / 1000); }

// Parses flags and arguments. Returns the exit code when the program should end.
std::optional<int> ParseArgs(const std::string& command, const char* usage,
                             const std::vector<std::string>& args, FlagSet* flags,
                             std::vector<std::string>* positional) {
  auto parsed = flags->Parse(args);
  if (!parsed.ok()) return UsageError(command, parsed.status().message());
  if (flags->help_requested()) {
    std::cout << usage << "\nflags:\n" << flags->Help();
    return kExitOk;
  }
  *positional = *std::move(parsed);
  return std::nullopt;
}

absl::Status CheckInput(const InputOptions& options, v1::Priority* priority) {
  if (options.batch < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--batch: expected at least 1, found ", options.batch));
  }
  if (options.version < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--version: expected 0 or more, found ", options.version));
  }
  return ParsePriority(options.priority, priority);
}

int Classify(const std::vector<std::string>& args) {
  CommonOptions common;
  InputOptions options;
  int top_k = 1;
  bool times = false;
  FlagSet flags;
  AddInputFlags(&options, &flags);
  flags.Add("top_k", &top_k, "labels per text, the most probable first; 0 = all");
  flags.Add("times", &times, "also show how long each call took, here and inside the server");
  AddCommonFlags(&common, &flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs("classify", kClassifyUsage, args, &flags, &texts)) return *code;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  if (absl::Status status = CheckInput(options, &priority); !status.ok()) {
    return UsageError("classify", status.message());
  }
  if (top_k < 0) {
    return UsageError("classify", absl::StrCat("--top_k: expected 0 or more, found ", top_k));
  }
  int exit_code = kExitOk;
  const auto client = MakeClient("classify", common, &exit_code);
  if (client == nullptr) return exit_code;

  std::vector<TextTable::Column> columns = {{"LABEL"}, {"PROBABILITY", true}};
  if (times) {
    columns.push_back({"LATENCY", true});
    columns.push_back({"IN SERVER", true});
  }
  columns.push_back({"TOKENS", true});
  columns.push_back({"TEXT"});
  TextTable table(columns, &std::cout);

  const auto call = [&](const std::vector<Input::Item>& items) {
    v1::ClassifyRequest request;
    request.set_model(options.model);
    request.set_version(options.version);
    request.set_top_k(top_k);
    request.set_truncate(options.truncate);
    request.set_priority(priority);
    for (const Input::Item& item : items) {
      *request.add_sequences() = MakeSequence(item.text, options.tokens);
    }
    return client->Classify(request);
  };
  const auto print = [&](const std::vector<Input::Item>& items,
                         const v1::ClassifyResponse& response, absl::Duration latency) {
    if (response.classifications_size() != static_cast<int>(items.size())) {
      return absl::InternalError(absl::StrCat(
          "the server answered ", response.classifications_size(), " of ", items.size(), " texts"));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      const v1::Classification& result = response.classifications(static_cast<int>(i));
      if (common.json) {
        Json json = {{"line", items[i].line},          {"text", items[i].text},
                     {"model", response.model()},      {"version", response.version()},
                     {"labels", Json::array()},        {"token_count", result.token_count()},
                     {"truncated", result.truncated()}};
        for (const v1::Label& label : result.labels()) {
          json["labels"].push_back({{"name", label.name()},
                                    {"index", label.index()},
                                    {"probability", Exact(label.probability())},
                                    {"logit", Exact(label.logit())}});
        }
        json["latency_us"] = absl::ToDoubleMicroseconds(latency);
        json["times"] = TimesJson(response.times());
        std::cout << Dump(json) << "\n";
        continue;
      }
      for (int rank = 0; rank < result.labels_size(); ++rank) {
        const v1::Label& label = result.labels(rank);
        const bool first = rank == 0;
        std::vector<std::string> row = {label.name(), absl::StrFormat("%.4f", label.probability())};
        if (times) {
          row.push_back(first ? Milliseconds(absl::ToDoubleMicroseconds(latency)) : "");
          row.push_back(first ? Milliseconds(response.times().total_us()) : "");
        }
        row.push_back(first ? absl::StrCat(result.token_count(), result.truncated() ? " (cut)" : "")
                            : "");
        row.push_back(first ? OneLine(items[i].text, kTextWidth) : "");
        table.AddRow(std::move(row));
      }
    }
    if (common.json) {
      std::cout.flush();
    } else {
      table.Flush();
    }
    return absl::OkStatus();
  };
  Input input(std::move(texts));
  return RunBatches<v1::ClassifyResponse>("classify", common, options, &input, call, print);
}

int Encode(const std::vector<std::string>& args) {
  CommonOptions common;
  InputOptions options;
  std::string pooling_name = "default";
  std::string format_name = "float32";
  bool normalize = false;
  bool raw = false;
  FlagSet flags;
  AddInputFlags(&options, &flags);
  flags.Add("pooling", &pooling_name, "default (the model's own), none, last, max or mean");
  flags.Add("normalize", &normalize, "scale each vector to length 1");
  flags.Add("output_format", &format_name, "values on the wire: float32, float16 or bfloat16");
  flags.Add("raw", &raw, "write nothing but the values, little-endian, in --output_format");
  AddCommonFlags(&common, &flags);
  std::vector<std::string> texts;
  if (auto code = ParseArgs("encode", kEncodeUsage, args, &flags, &texts)) return *code;
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  v1::Pooling pooling = v1::POOLING_DEFAULT;
  v1::OutputFormat format = v1::OUTPUT_FORMAT_RAW_FLOAT32;
  absl::Status status = CheckInput(options, &priority);
  status.Update(ParsePooling(pooling_name, &pooling));
  status.Update(ParseOutputFormat(format_name, &format));
  if (status.ok() && raw && common.json) {
    status = absl::InvalidArgumentError("--raw and --json exclude each other");
  }
  if (status.ok() && raw && isatty(STDOUT_FILENO) != 0) {
    status = absl::InvalidArgumentError(
        "--raw writes bytes, which a terminal cannot show: send them to a file with > FILE");
  }
  if (!status.ok()) return UsageError("encode", status.message());
  int exit_code = kExitOk;
  const auto client = MakeClient("encode", common, &exit_code);
  if (client == nullptr) return exit_code;

  TextTable table({{"SHAPE"}, {"LENGTH", true}, {"TOKENS", true}, {"FIRST VALUES"}, {"TEXT"}},
                  &std::cout);
  const auto call = [&](const std::vector<Input::Item>& items) {
    v1::EncodeRequest request;
    request.set_model(options.model);
    request.set_version(options.version);
    request.set_truncate(options.truncate);
    request.set_pooling(pooling);
    request.set_normalize(normalize);
    request.set_output_format(format);
    request.set_priority(priority);
    for (const Input::Item& item : items) {
      *request.add_sequences() = MakeSequence(item.text, options.tokens);
    }
    return client->Encode(request);
  };
  const auto print = [&](const std::vector<Input::Item>& items, const v1::EncodeResponse& response,
                         absl::Duration latency) {
    if (response.encodings_size() != static_cast<int>(items.size())) {
      return absl::InternalError(absl::StrCat("the server answered ", response.encodings_size(),
                                              " of ", items.size(), " texts"));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      const v1::Encoding& result = response.encodings(static_cast<int>(i));
      if (raw) {
        std::cout.write(result.data().data(), static_cast<std::streamsize>(result.data().size()));
        continue;
      }
      absl::StatusOr<std::vector<float>> values = EncodingValues(result, format);
      if (!values.ok()) {
        return absl::InternalError(
            absl::StrCat("the answer is not consistent: ", values.status().message()));
      }
      if (common.json) {
        Json json = {{"line", items[i].line},
                     {"text", items[i].text},
                     {"model", response.model()},
                     {"version", response.version()},
                     {"shape", Json::array()},
                     {"values", Json::array()},
                     {"token_count", result.token_count()},
                     {"truncated", result.truncated()}};
        for (const int64_t size : result.shape()) json["shape"].push_back(size);
        for (const float value : *values) json["values"].push_back(Exact(value));
        json["latency_us"] = absl::ToDoubleMicroseconds(latency);
        json["times"] = TimesJson(response.times());
        std::cout << Dump(json) << "\n";
        continue;
      }
      const size_t width = result.shape().empty() ? 0 : *result.shape().rbegin();
      double squares = 0;
      std::vector<std::string> first;
      for (size_t k = 0; k < std::min(width, values->size()); ++k) {
        squares += static_cast<double>((*values)[k]) * (*values)[k];
        if (k < 4) first.push_back(absl::StrFormat("%7.4f", (*values)[k]));
      }
      table.AddRow({absl::StrCat("[", absl::StrJoin(result.shape(), ", "), "]"),
                    absl::StrFormat("%.4f", std::sqrt(squares)),
                    absl::StrCat(result.token_count(), result.truncated() ? " (cut)" : ""),
                    absl::StrCat(absl::StrJoin(first, " "), width > 4 ? " ..." : ""),
                    OneLine(items[i].text, kTextWidth / 2)});
    }
    if (common.json || raw) {
      std::cout.flush();
    } else {
      table.Flush();
    }
    return absl::OkStatus();
  };
  Input input(std::move(texts));
  return RunBatches<v1::EncodeResponse>("encode", common, options, &input, call, print);
}

Json ModelJson(const v1::ModelInfo& model) {
  Json json = {{"name", model.name()},
               {"version", model.version()},
               {"description", model.description()},
               {"input_size", model.input_size()},
               {"output_size", model.output_size()},
               {"hidden_size", model.hidden_size()},
               {"num_layers", model.num_layers()},
               {"bidirectional", model.bidirectional()},
               {"pooling", PoolingName(model.pooling())},
               {"labels", Json::array()},
               {"vocabulary_size", model.vocabulary_size()},
               {"preprocessing", model.preprocessing()},
               {"max_sequence_tokens", model.max_sequence_tokens()},
               {"backend", model.backend()},
               {"backend_description", model.backend_description()},
               {"dtype", model.dtype()},
               {"instances", model.instances()},
               {"parameter_count", model.parameter_count()}};
  for (const std::string& label : model.labels()) json["labels"].push_back(label);
  return json;
}

// Prints states, as objects or as a table.
void PrintStatuses(const google::protobuf::RepeatedPtrField<v1::ModelStatus>& statuses, bool json) {
  if (json) {
    for (const v1::ModelStatus& status : statuses) {
      std::cout << Dump({{"name", status.model()},
                         {"version", status.version()},
                         {"state", ModelStateName(status.state())},
                         {"message", status.message()}})
                << "\n";
    }
    return;
  }
  TextTable table({{"NAME"}, {"VERSION", true}, {"STATE"}, {"MESSAGE"}}, &std::cout);
  for (const v1::ModelStatus& status : statuses) {
    table.AddRow({status.model(), status.version() == 0 ? "-" : absl::StrCat(status.version()),
                  ModelStateName(status.state()), status.message()});
  }
  table.Flush();
}

int Models(const std::vector<std::string>& args) {
  CommonOptions common;
  int64_t version = 0;
  bool status = false;
  FlagSet flags;
  flags.Add("status", &status, "show the state of each version, and why one could not be loaded");
  flags.Add("version", &version, "with NAME: version of the model; 0 = the latest");
  AddCommonFlags(&common, &flags);
  std::vector<std::string> names;
  if (auto code = ParseArgs("models", kModelsUsage, args, &flags, &names)) return *code;
  if (names.size() > 1) {
    return UsageError("models", absl::StrCat("expected at most one name, found ", names.size()));
  }
  if (names.empty() && version != 0) return UsageError("models", "--version needs a NAME");
  if (!names.empty() && status) return UsageError("models", "--status takes no NAME");
  common.connect.only_serving = false;  // it is asked why there is nothing to serve
  int exit_code = kExitOk;
  const auto client = MakeClient("models", common, &exit_code);
  if (client == nullptr) return exit_code;

  std::vector<v1::ModelInfo> models;
  if (names.empty()) {
    auto response = client->ListModels();
    if (!response.ok()) return CallError("models", response.status(), common);
    if (status) {
      PrintStatuses(response->statuses(), common.json);
      return kExitOk;
    }
    models.assign(response->models().begin(), response->models().end());
  } else {
    auto model = client->GetModel(names[0], version);
    if (!model.ok()) return CallError("models", model.status(), common);
    models.push_back(*std::move(model));
  }
  if (common.json) {
    for (const v1::ModelInfo& model : models) std::cout << Dump(ModelJson(model)) << "\n";
    return kExitOk;
  }
  TextTable table({{"NAME"},
                   {"VERSION", true},
                   {"LAYERS"},
                   {"POOLING"},
                   {"WORDS", true},
                   {"WEIGHTS", true},
                   {"BACKEND"},
                   {"INSTANCES", true},
                   {"LABELS"}},
                  &std::cout);
  for (const v1::ModelInfo& model : models) {
    table.AddRow(
        {model.name(), absl::StrCat(model.version()),
         absl::StrCat(model.num_layers(), " x ", model.bidirectional() ? "2 x " : "",
                      model.hidden_size()),
         PoolingName(model.pooling()), absl::StrCat(model.vocabulary_size()),
         absl::StrCat(model.parameter_count()), absl::StrCat(model.backend(), " ", model.dtype()),
         absl::StrCat(model.instances()),
         model.labels().empty() ? "(no classifier)"
                                : OneLine(absl::StrJoin(model.labels(), " "), kTextWidth)});
  }
  table.Flush();
  if (models.empty()) std::cerr << "the server has loaded no model\n";
  return kExitOk;
}

int Health(const std::vector<std::string>& args) {
  CommonOptions common;
  common.connect.deadline = absl::Seconds(3);
  common.connect.max_attempts = 1;
  common.connect.only_serving = false;
  std::string service;
  FlagSet flags;
  flags.Add("service", &service, "a model's name; empty = the server as a whole");
  AddCommonFlags(&common, &flags);
  std::vector<std::string> rest;
  if (auto code = ParseArgs("health", kHealthUsage, args, &flags, &rest)) return *code;
  if (!rest.empty()) {
    return UsageError("health", absl::StrCat("unexpected argument '", rest[0],
                                             "'; a model is named with --service"));
  }
  int exit_code = kExitOk;
  const auto client = MakeClient("health", common, &exit_code);
  if (client == nullptr) return exit_code;
  auto health = client->Health(service);
  if (!health.ok()) return CallError("health", health.status(), common);
  if (common.json) {
    std::cout << Dump({{"service", service}, {"status", ServingStatusName(*health)}}) << "\n";
  } else {
    std::cout << ServingStatusName(*health) << "\n";
  }
  return *health == ServingStatus::kServing ? kExitOk : kExitFailed;
}

int Admin(const std::vector<std::string>& args) {
  CommonOptions common;
  common.connect.address = "localhost:50052";
  common.connect.deadline = absl::Minutes(10);
  common.connect.max_attempts = 1;
  common.connect.only_serving = false;
  FlagSet flags;
  AddCommonFlags(&common, &flags, "HOST:PORT of the server's --admin_listen", "SRU_ADMIN_ADDRESS");
  std::vector<std::string> rest;
  if (auto code = ParseArgs("admin", kAdminUsage, args, &flags, &rest)) return *code;
  if (rest.size() != 2 || (rest[0] != "load" && rest[0] != "unload")) {
    return UsageError("admin", "expected 'load NAME' or 'unload NAME'");
  }
  int exit_code = kExitOk;
  const auto client = MakeClient("admin", common, &exit_code);
  if (client == nullptr) return exit_code;
  if (rest[0] == "load") {
    auto response = client->LoadModel(rest[1]);
    if (!response.ok()) {
      std::cerr << "sru_client admin: "
                << ExplainAdminError(response.status(), common.connect.address,
                                     common.connect.deadline)
                << "\n";
      return kExitFailed;
    }
    PrintStatuses(response->statuses(), common.json);
    return kExitOk;
  }
  if (absl::Status status = client->UnloadModel(rest[1]); !status.ok()) {
    return CallError("admin", status, common);
  }
  if (common.json) {
    std::cout << Dump({{"name", rest[1]}, {"unloaded", true}}) << "\n";
  } else {
    std::cout << "unloaded " << rest[1] << "\n";
  }
  return kExitOk;
}

int Main(const std::vector<std::string>& args) {
  if (args.empty()) {
    std::cerr << kUsage;
    return kExitUsage;
  }
  const std::string& command = args[0];
  const std::vector<std::string> rest(args.begin() + 1, args.end());
  if (command == "classify") return Classify(rest);
  if (command == "encode") return Encode(rest);
  if (command == "models") return Models(rest);
  if (command == "health") return Health(rest);
  if (command == "admin") return Admin(rest);
  if (command == "help" || command == "--help" || command == "-h") {
    std::cout << kUsage;
    return kExitOk;
  }
  std::cerr << "sru_client: there is no subcommand '" << command << "'\n\n" << kUsage;
  return kExitUsage;
}

}  // namespace
}  // namespace sru::client

int main(int argc, char** argv) {
  // gRPC's own log lines would stand between the user and the message that matters.
  setenv("GRPC_VERBOSITY", "NONE", /*replace=*/0);
  return sru::client::Main(std::vector<std::string>(argv + 1, argv + argc));
}
