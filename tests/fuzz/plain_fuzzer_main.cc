// A fuzzer for any compiler: inputs by chance, without a look at what they reach.
//
//   plain_fuzzer TARGET [-runs=N] [-max_total_time=SECONDS] [-timeout=SECONDS] [-seed=N]
//                [-artifact_prefix=PATH] DIRECTORY...
//
// The flags are those of libFuzzer, so that scripts/fuzz.sh need not know which of the two it runs.
// Runs the files of the directories once, then N inputs made from them, without -runs until the
// time is over. When an input fails it is written to PATHcrash-TARGET, one that takes longer than
// -timeout (60) to PATHtimeout-TARGET, and those before it, which a server may remember, to
// PATH...-before-1 and so on.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/mutator.h"

// Of the address sanitizer, where the program is built with it.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace sru::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kHistory = 16;
std::string g_history[kHistory];  // g_history[g_count % kHistory] is the latest input
long g_count = 0;
std::string g_target;
std::string g_artifact_prefix;

// May run in a signal handler, in a process that is about to end.
void WriteArtifacts(const char* kind) {
  for (int i = 0; i < kHistory && i <= g_count; ++i) {
    const std::string& input = g_history[(g_count - i) % kHistory];
    char path[4096];
    char suffix[32] = "";
    if (i > 0) std::snprintf(suffix, sizeof(suffix), "-before-%d", i);
    std::snprintf(path, sizeof(path), "%s%s-%s%s", g_artifact_prefix.c_str(), kind,
                  g_target.c_str(), suffix);
    const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) continue;
    const char* const outcome =
        write(file, input.data(), input.size()) == static_cast<ssize_t>(input.size())
            ? "written to"
            : "not written to";
    close(file);
    if (i == 0)
      std::fprintf(stderr, "the input, %zu bytes, was %s %s\n", input.size(), outcome, path);
  }
}

void OnDeath() { WriteArtifacts("crash"); }

void OnSignal(int number) {
  WriteArtifacts(number == SIGALRM ? "timeout" : "crash");
  signal(number == SIGALRM ? SIGABRT : number, SIG_DFL);
  raise(number == SIGALRM ? SIGABRT : number);
}

void CatchFailures() {
  signal(SIGABRT, OnSignal);
  signal(SIGALRM, OnSignal);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(OnDeath);  // it reports the other signals itself
    return;
  }
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, OnSignal);
}

const Target* FindTarget(std::string_view name) {
  for (const Target& target : kReaderTargets) {
    if (name == target.name) return &target;
  }
  for (const Target& target : kWholeTargets) {
    if (name == target.name) return &target;
  }
  return nullptr;
}

int Usage(const char* problem) {
  std::fprintf(stderr,
               "plain_fuzzer: %s\n"
               "usage: plain_fuzzer TARGET [-runs=N] [-max_total_time=SECONDS] [-timeout=SECONDS] "
               "[-seed=N] [-artifact_prefix=PATH] DIRECTORY...\n",
               problem);
  return 2;
}

int Main(int argc, char** argv) {
  if (argc < 2) return Usage("no target");
  const Target* const target = FindTarget(argv[1]);
  if (target == nullptr) return Usage("no such target");
  g_target = target->name;
  std::map<std::string, std::string> flags = {{"runs", "-1"},
                                              {"max_total_time", "0"},
                                              {"timeout", "60"},
                                              {"seed", "1"},
                                              {"artifact_prefix", ""}};
  std::vector<std::string> seeds;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument[0] != '-') {
      for (std::string& input : ReadInputs(argument)) seeds.push_back(std::move(input));
      continue;
    }
    const size_t equals = argument.find('=');
    if (equals == std::string::npos || flags.count(argument.substr(1, equals - 1)) == 0) {
      return Usage(("no such flag, " + argument).c_str());
    }
    flags[argument.substr(1, equals - 1)] = argument.substr(equals + 1);
  }
  if (seeds.empty()) return Usage("the directories have no files");
  g_artifact_prefix = flags["artifact_prefix"];
  const long limit_s = std::atol(flags["max_total_time"].c_str());
  const auto timeout_s = static_cast<unsigned>(std::atol(flags["timeout"].c_str()));
  const long runs = std::atol(flags["runs"].c_str());
  const long last = runs < 0 ? std::numeric_limits<long>::max() : runs;
  const auto num_seeds = static_cast<long>(seeds.size());

  CatchFailures();
  Mutator mutator(*target, seeds, std::strtoull(flags["seed"].c_str(), nullptr, 10));
  const Clock::time_point start = Clock::now();
  Clock::time_point next_line = start + std::chrono::seconds(10);
  double seconds = 0;
  for (g_count = 0; g_count < num_seeds || g_count - num_seeds < last; ++g_count) {
    std::string& input = g_history[g_count % kHistory];
    input = g_count < num_seeds ? seeds[g_count] : mutator.Next();
    input.shrink_to_fit();
    alarm(timeout_s);
    target->run(input);
    const Clock::time_point now = Clock::now();
    seconds = std::chrono::duration<double>(now - start).count();
    if (limit_s > 0 && seconds >= static_cast<double>(limit_s)) {
      ++g_count;
      break;
    }
    if (now < next_line) continue;
    next_line = now + std::chrono::seconds(10);
    std::fprintf(stderr, "#%ld exec/s: %.0f\n", g_count + 1,
                 static_cast<double>(g_count + 1) / seconds);
  }
  alarm(0);
  std::fprintf(stderr, "stat::number_of_executed_units: %ld\nstat::average_exec_per_sec: %.0f\n",
               g_count, seconds > 0 ? static_cast<double>(g_count) / seconds : 0.0);
  return 0;
}

}  // namespace
}  // namespace sru::fuzz

int main(int argc, char** argv) { return sru::fuzz::Main(argc, argv); }
