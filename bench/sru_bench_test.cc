// The subcommands of sru_bench that need no server, run as a user would. Its path is
// SRU_BENCH_BINARY.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::bench {
namespace {

using models::Safetensors;
using models::TempDirectory;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

class SruBenchTest : public ::testing::Test {
 protected:
  // `args` must need no quoting.
  Output Run(const std::string& args) {
    const std::string out = directory_.path("out");
    const std::string err = directory_.path("err");
    const int status =
        std::system(absl::StrCat(SRU_BENCH_BINARY, " ", args, " >", out, " 2>", err).c_str());
    Output output;
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output.out = models::ReadWholeFile(out);
    output.err = models::ReadWholeFile(err);
    return output;
  }

  // Writes an encoder of 2 features, hidden size 2, one direction and zero weights.
  std::string WriteFeatureModel(const std::string& pooling) {
    models::TestTensors tensors;
    tensors["encoder.rnn_lst.0.weight"] = models::MakeTensor({2, 6});
    tensors["encoder.rnn_lst.0.weight_c"] = models::MakeTensor({4});
    tensors["encoder.rnn_lst.0.bias"] = models::MakeTensor({4});
    tensors["encoder.rnn_lst.0.scale_x"] = models::MakeTensor({1});
    for (auto& [name, tensor] : tensors)
      std::fill(tensor.values.begin(), tensor.values.end(), 0.0f);
    const json config = {{"format_version", 1},
                         {"encoder", {{"input_size", 2}, {"hidden_size", 2}, {"num_layers", 1}}},
                         {"pooling", pooling}};
    directory_.Write("models/encoder/1/config.json", config.dump());
    directory_.Write("models/encoder/1/model.safetensors", Safetensors(tensors));
    return directory_.path("models");
  }

  TempDirectory directory_;
};

TEST_F(SruBenchTest, WrongFlagsAreNamed) {
  const struct {
    const char* args;
    const char* named;
  } cases[] = {{"model --batch=1,,2", "--batch: expected numbers from 1 to 65536"},
               {"model --batch=", "--batch"},
               {"model --length=1,65537", "--length"},
               {"model --batch=1.5", "--batch"},
               {"model --dtype=half", "--dtype"},
               {"model --length=0", "--length"},
               {"model --length=65536 --batch=65536", "--length"},
               {"model --rounds=0", "--rounds"},
               {"model --model=war_and_peace", "found 'war_and_peace', which is a language_model"},
               {"model --model=absent", "absent"}};
  for (const auto& test : cases) {
    const Output output = Run(test.args);
    EXPECT_EQ(output.exit_code, 2) << test.args << ": " << output.err;
    EXPECT_THAT(output.out, IsEmpty()) << test.args;
    if (std::string(test.named) != "absent") {
      EXPECT_THAT(output.err, HasSubstr(test.named)) << test.args;
    } else {
      EXPECT_THAT(output.err, AllOf(HasSubstr("--model"), HasSubstr("trec version 1")));
    }
  }
  const Output output = Run("model --model_repository=/nowhere");
  EXPECT_EQ(output.exit_code, 1);
  EXPECT_THAT(output.err, HasSubstr("/nowhere"));
}

TEST_F(SruBenchTest, ModelPrintsARowPerShape) {
  const std::string flags = "model --length=1,3 --batch=1,4 --rounds=1";
  const Output text = Run(flags);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("model trec version 1"), HasSubstr("us per batch")));
  const std::vector<std::string> lines = absl::StrSplit(text.out, '\n', absl::SkipEmpty());
  EXPECT_THAT(lines, SizeIs(2 + 4));
  const Output output = Run(flags + " --json");
  EXPECT_EQ(output.exit_code, 0) << output.err;
  const json result = json::parse(output.out);
  ASSERT_THAT(result["batches"], SizeIs(4));
  EXPECT_EQ(result["batches"][1]["batch"], 4);
  EXPECT_GT(result["batches"][1]["batch_us"], 0.0);
  EXPECT_GT(result["batches"][1]["tokens_per_s"], 0.0);
}

TEST_F(SruBenchTest, EncodersOfFeaturesAreTimed) {
  for (const char* pooling : {"max", "none"}) {
    const Output output =
        Run("model --length=3 --batch=2 --json --model_repository=" + WriteFeatureModel(pooling));
    EXPECT_EQ(output.exit_code, 0) << output.err;
    EXPECT_GT(json::parse(output.out)["batches"][0]["batch_us"], 0.0) << pooling;
  }
}

TEST_F(SruBenchTest, LoadNamesTheFlag) {
  const struct {
    const char* args;
    const char* message;
  } cases[] = {{"--address=192.0.2.1:50051", "192.0.2.1"},
               {"--requets=x", "unknown flag --requets; did you mean --requests?"},
               {"--rate=x", "--rate: expected a number, found 'x'"},
               {"--in_flight=0", "--in_flight: expected 1 to 100000, found 0"},
               {"--sequences=0", "--sequences: expected 1 to 100000, found 0"},
               {"--method=translate", "--method: expected classify, encode or score"},
               {"--requests=/nowhere", "--requests: cannot read the file '/nowhere'"},
               {"text", "unexpected argument 'text'"}};
  for (const auto& c : cases) {
    const Output output = Run(absl::StrCat("load ", c.args));
    EXPECT_EQ(output.exit_code, 2) << c.args;
    EXPECT_THAT(output.err, AllOf(HasSubstr("sru_bench load"), HasSubstr(c.message)));
    EXPECT_THAT(output.out, IsEmpty());
  }
  const Output help = Run("load --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("examples:"), HasSubstr("lognormal:MEDIAN:SIGMA:MAX"),
                              HasSubstr("--requests"), HasSubstr("--max_outstanding")));
}

// What is wrong is said before anything is sent.
TEST_F(SruBenchTest, GenerateNamesTheFlag) {
  const struct {
    const char* args;
    const char* message;
  } cases[] = {{"--address=192.0.2.1:50051", "192.0.2.1"},
               {"--session=3", "unknown flag --session; did you mean --sessions?"},
               {"--rate=-1", "--rate: expected 0 to 1000000, found -1"},
               {"--sessions=0", "--sessions: expected 1 or more, found 0"},
               {"--distinct=0", "--distinct: expected 1 to 100000, found 0"},
               {"text", "unexpected argument 'text'"}};
  for (const auto& c : cases) {
    const Output output = Run(absl::StrCat("generate ", c.args));
    EXPECT_EQ(output.exit_code, 2) << c.args;
    EXPECT_THAT(output.err, HasSubstr(c.message));
    EXPECT_THAT(output.out, IsEmpty());
  }
  const Output help = Run("generate --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("examples:"), HasSubstr("lognormal:MEDIAN:SIGMA:MAX"),
                              HasSubstr("--check")));
}

TEST_F(SruBenchTest, OutputThatIsLostIsAnError) {
  for (const std::string command :
       {"model --help", "model --length=1 --batch=1 --rounds=1 --json"}) {
    const int status = std::system(
        absl::StrCat(SRU_BENCH_BINARY, " ", command, " >/dev/full 2>", directory_.path("err"))
            .c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << command;
    EXPECT_THAT(models::ReadWholeFile(directory_.path("err")),
                HasSubstr("cannot write to standard output"));
  }
}

TEST_F(SruBenchTest, HelpTeaches) {
  const Output output = Run("model --help");
  EXPECT_EQ(output.exit_code, 0);
  EXPECT_THAT(output.out, AllOf(HasSubstr("examples:"), HasSubstr("--dtype")));
}

}  // namespace
}  // namespace sru::bench
