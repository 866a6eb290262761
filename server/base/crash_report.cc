#include "server/base/crash_report.h"

#include <dlfcn.h>
#include <link.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/build_info.h"

// Of libgcc, without a header.
extern "C" const void* _Unwind_Find_FDE(void* address, void** bases);

namespace sru::server::crash {
namespace {

[[maybe_unused]] constexpr int kFaults[] = {SIGSEGV, SIGBUS,  SIGILL, SIGFPE,
                                            SIGABRT, SIGTRAP, SIGSYS};

// The signal's frame has all registers, with AMX some 11 KB, and the unwinder takes a few more.
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kMostFrames = 128;
constexpr uintptr_t kPageBytes = 4096;
constexpr int kWriteWaitMs = 1000;
// A second thread looks so often whether the first one has written.
constexpr int kMostLooks = 200;
constexpr timespec kLook = {0, 10'000'000};

// Constant once installed, and never freed.
std::atomic<bool> installed{false};
const char* build_line = "";
const char* program_path = "";

// Writes a line, unless standard error takes none. Control characters become question marks: a text
// may come from elsewhere. With these formats vsnprintf() takes no lock and no memory.
[[gnu::format(printf, 1, 2)]] void Line(const char* format, ...) {
  static bool gone = false;
  static char line[4096] = "CRASH ";  // PIPE_BUF: where poll() finds room, so much does not wait
  constexpr size_t kHead = 6;
  va_list arguments;
  va_start(arguments, format);
  const int wanted = std::vsnprintf(line + kHead, sizeof(line) - kHead, format, arguments);
  va_end(arguments);
  const size_t size = std::min(kHead + static_cast<size_t>(wanted), sizeof(line) - 1);
  std::replace_if(
      line, line + size, [](char c) { return c < 0x20 || c >= 0x7f; }, '?');
  line[size] = '\n';
  pollfd out = {STDERR_FILENO, POLLOUT, 0};
  gone = gone || poll(&out, 1, kWriteWaitMs) != 1 || write(STDERR_FILENO, line, size + 1) <= 0;
}

// Return addresses, from the instruction on that the signal interrupted.
struct Frames {
  bool begun = false;
  int count = 0;
  uintptr_t addresses[kMostFrames];

  void Add(uintptr_t address) {
    if (count < kMostFrames) addresses[count++] = address;
  }
};

_Unwind_Reason_Code AddFrame(_Unwind_Context* context, void* argument) {
  auto* const frames = static_cast<Frames*>(argument);
  int is_interrupted = 0;
  const uintptr_t address = _Unwind_GetIPInfo(context, &is_interrupted);
  frames->begun |= is_interrupted != 0;
  if (frames->begun && (address != 0 || frames->count == 0)) frames->Add(address);
  return frames->count < kMostFrames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// Whether the unwinder knows the function of an instruction.
bool IsInFunction(uintptr_t address) {
  void* bases[3];
  return _Unwind_Find_FDE(reinterpret_cast<void*>(address), bases) != nullptr;
}

// Adds what looks like return addresses on the stack.
void AddFound(uintptr_t stack, Frames* frames) {
  static uintptr_t words[8 * kPageBytes / sizeof(uintptr_t)];
  const iovec from = {reinterpret_cast<void*>(stack), sizeof(words)};
  const iovec to = {words, sizeof(words)};
  // Reads less, and does not fault, where the stack ends.
  const ssize_t size = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
  for (const uintptr_t* word = words; word < words + size / ssize_t{sizeof(*word)}; ++word) {
    if (*word > kPageBytes && IsInFunction(*word - 1)) frames->Add(*word);
  }
}

void WriteFrames(uintptr_t stack) {
  Frames frames;
  _Unwind_Backtrace(&AddFrame, &frames);
  const int unwound = frames.count;
  // Code that was made at run time, such as oneDNN's, or a call of nothing.
  if (unwound > 0 && !IsInFunction(frames.addresses[unwound - 1])) AddFound(stack, &frames);
  char of_program[kMostFrames * 20] = "";
  size_t used = 0;
  for (int i = 0; i < frames.count; ++i) {
    const uintptr_t instruction = frames.addresses[i] - (i > 0 ? 1 : 0);
    const char kind = i < unwound ? '#' : '~';
    dl_find_object found;  // dladdr() takes a lock
    if (_dl_find_object(reinterpret_cast<void*>(instruction), &found) != 0) {
      Line("%c%d 0x%" PRIxPTR, kind, i, frames.addresses[i]);
      continue;
    }
    const link_map& module = *found.dlfo_link_map;
    const uintptr_t offset = instruction - module.l_addr;
    const bool is_program = module.l_name[0] == '\0';
    Line("%c%d 0x%" PRIxPTR " %s+0x%" PRIxPTR, kind, i, frames.addresses[i],
         is_program ? program_path : module.l_name, offset);
    if (!is_program) continue;
    used += static_cast<size_t>(
        std::snprintf(of_program + used, sizeof(of_program) - used, " 0x%" PRIxPTR, offset));
  }
  Line("resolve addr2line -Cfipe %s%s", program_path, of_program);
}

uintptr_t StackOf(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#ifdef __x86_64__
  return static_cast<uintptr_t>(registers.gregs[REG_RSP]);
#else
  return registers.sp;
#endif
}

void WriteBlock(const siginfo_t& info, pid_t thread, uintptr_t stack) {
  const char* const signal = sigabbrev_np(info.si_signo);
  if (info.si_code <= 0) {
    Line("signal SIG%s (%d), code %d, sent by process %d", signal, info.si_signo, info.si_code,
         info.si_pid);
  } else {
    Line("signal SIG%s (%d), code %d, address 0x%" PRIxPTR, signal, info.si_signo, info.si_code,
         reinterpret_cast<uintptr_t>(info.si_addr));
  }
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  Line("thread %d (%s) of process %d, which had up to %ld MB resident", thread, name, getpid(),
       usage.ru_maxrss / 1000);
  Line("build %s", build_line);
  const InFlight* const work = InFlight::innermost;
  const bool has_model = work != nullptr && work->model[0] != '\0';
  char version[32] = "";
  if (work != nullptr && work->version > 0) {
    std::snprintf(version, sizeof(version), " version %" PRId64, work->version);
  }
  Line("in flight %s%s%s%s", work == nullptr ? "nothing" : work->what, has_model ? ", model " : "",
       has_model ? work->model : "", version);
  WriteFrames(stack);
}

// All of kFaults are blocked meanwhile, so a fault in here ends the process.
[[maybe_unused]] void Handle(int signal, siginfo_t* info, void* context) {
  static std::atomic<bool> begun{false};
  static std::atomic<bool> written{false};
  const auto thread = static_cast<pid_t>(syscall(SYS_gettid));
  if (!begun.exchange(true)) {
    WriteBlock(*info, thread, StackOf(context));
    written.store(true);
  }
  for (int i = 0; i < kMostLooks && !written.load(); ++i) nanosleep(&kLook, nullptr);
  std::signal(signal, SIG_DFL);
  // The signal comes again when this returns, so a core dump has the registers of the fault.
  if (syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, signal, info) != 0) {
    syscall(SYS_tgkill, getpid(), thread, signal);
  }
}

}  // namespace

void PrepareThread() {
  if (!installed.load(std::memory_order_relaxed)) return;
  // No page of it is touched before a crash. Without memory there is no report of an overflow.
  thread_local const std::unique_ptr<char[]> memory(new (std::nothrow) char[kStackBytes]);
  const stack_t stack = {memory.get(), 0, kStackBytes};
  if (memory != nullptr) sigaltstack(&stack, nullptr);
}

void Install(absl::string_view program) {
#ifdef SRU_SANITIZE
  static_cast<void>(program);
#else
  const auto* const build = new std::string(absl::StrCat(program, " ", BuildVersion(), ", commit ",
                                                         BuildCommit(), ", build id ", BuildId()));
  build_line = build->c_str();
  char path[2048] = "";
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) > 0) program_path = strdup(path);
  Frames unused;  // loads what the unwinder needs
  _Unwind_Backtrace(&AddFrame, &unused);
  installed.store(true);
  PrepareThread();
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kFaults) sigaddset(&action.sa_mask, signal);
  for (const int signal : kFaults) sigaction(signal, &action, nullptr);
#endif
}

}  // namespace sru::server::crash
