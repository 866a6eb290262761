// Runs the program sru_client, as a user would, against a fake server. Its path is
// SRU_CLIENT_BINARY.
#ifndef SRU_TESTS_TESTING_SRU_CLIENT_FIXTURE_H_
#define SRU_TESTS_TESTING_SRU_CLIENT_FIXTURE_H_

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/fake_server.h"
#include "tests/testing/protos.h"

namespace sru::client {

using ::sru::testing::Message;
using ::sru::testing::Sends;

struct Output {
  int exit_code = -1;
  std::string out;
  std::string err;
};

inline std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Quotes for the shell.
inline std::string Quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// The objects of a text that has one per line.
inline std::vector<nlohmann::json> JsonLines(const std::string& text) {
  std::vector<nlohmann::json> objects;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    objects.push_back(nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(objects.back().is_object()) << line;
  }
  return objects;
}

// Matches a JSON object that has these fields with these values, among others.
MATCHER_P(HasFields, fields, "") {
  return std::all_of(fields.items().begin(), fields.items().end(), [&](const auto& field) {
    return arg.contains(field.key()) && arg[field.key()] == field.value();
  });
}
inline auto Has(nlohmann::json fields) { return HasFields(std::move(fields)); }
inline auto HasJson(const char* text) { return HasFields(nlohmann::json::parse(text)); }

class SruClientTest : public ::testing::Test {
 protected:
  ~SruClientTest() override {
    for (const std::string& path : paths_) unlink(path.c_str());
  }

  // Where a file with this name may be until the test ends.
  std::string Path(const std::string& name) {
    paths_.push_back(::testing::TempDir() + "/sru_client_test_" + std::to_string(getpid()) + "_" +
                     name);
    return paths_.back();
  }
  // The path of a file with this text.
  std::string File(const std::string& name, const std::string& text) {
    std::string path = Path(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Expects this exit code.
  Output Run(const std::vector<std::string>& args, int exit_code) {
    return Run(args, "", exit_code);
  }
  Output Run(const std::vector<std::string>& args, const std::string& input = "",
             int exit_code = 0) {
    const std::string base = ::testing::TempDir() + "/sru_client_test_" + std::to_string(getpid());
    std::ofstream(base + ".in", std::ios::binary) << input;
    // The shell runs it, so that this process, which has gRPC's threads, does not fork.
    std::string command = "SRU_ADDRESS=" + server_.address() + " " + Quote(SRU_CLIENT_BINARY);
    for (const std::string& arg : args) command += " " + Quote(arg);
    command +=
        " < " + Quote(base + ".in") + " > " + Quote(base + ".out") + " 2> " + Quote(base + ".err");
    const int status = std::system(command.c_str());
    Output output;
    output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    output.out = ReadAll(base + ".out");
    output.err = ReadAll(base + ".err");
    EXPECT_EQ(output.exit_code, exit_code) << command << "\n" << output.err;
    for (const char* suffix : {".in", ".out", ".err"}) unlink((base + suffix).c_str());
    return output;
  }

  FakeServer server_;
  std::vector<std::string> paths_;
};

}  // namespace sru::client

#endif  // SRU_TESTS_TESTING_SRU_CLIENT_FIXTURE_H_
