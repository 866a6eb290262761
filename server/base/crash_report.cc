#include "server/base/crash_report.h"

#include <cxxabi.h>
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

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "absl/base/internal/raw_logging.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/build_info.h"

// Of libgcc, without a header.
extern "C" const void* _Unwind_Find_FDE(void* address, void** bases);

namespace sru::server::crash {
namespace {

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS};

// The signal's frame has all registers, with AMX some 11 KB, and the unwinder takes a few more.
constexpr size_t kStackBytes = size_t{64} << 10;
constexpr int kMostFrames = 128;
constexpr size_t kPageBytes = 4096;
constexpr size_t kMostScanned = size_t{64} << 10;
constexpr int kWriteWaitMs = 1000;
// A second thread looks so often whether the first one has written.
constexpr int kMostLooks = 200;
constexpr timespec kLook = {0, 10'000'000};

// Constant once installed, and never freed.
std::atomic<bool> installed{false};
const char* build_line = "";
const char* program_path = "";

thread_local char reason[512] = "";

void SetReason(absl::string_view text) { reason[text.copy(reason, sizeof(reason) - 1)] = '\0'; }

struct Hex {
  uint64_t number;
};

// Writes the block a few lines at a time, so that a fault while it is made leaves its beginning.
class Block {
 public:
  ~Block() { Flush(); }

  Block& operator<<(char c) {
    if (size_ == sizeof(buffer_)) Flush();
    buffer_[size_++] = c;
    return *this;
  }
  // Control characters become question marks: a text may come from elsewhere.
  Block& operator<<(absl::string_view text) {
    for (const char c : text) *this << (c >= 0x20 && c < 0x7f ? c : '?');
    return *this;
  }
  Block& operator<<(Hex hex) { return *this << "0x", Digits(hex.number, 16); }
  Block& operator<<(int64_t number) {
    if (number < 0) *this << "-";
    return Digits(static_cast<uint64_t>(number < 0 ? -number : number), 10);
  }

  void Flush() {
    const char* next = buffer_;
    pollfd out = {STDERR_FILENO, POLLOUT, 0};
    while (size_ > 0 && poll(&out, 1, kWriteWaitMs) == 1) {
      const ssize_t written = write(STDERR_FILENO, next, size_);
      if (written <= 0) break;
      next += written;
      size_ -= static_cast<size_t>(written);
    }
    size_ = 0;
  }

 private:
  Block& Digits(uint64_t number, unsigned base) {
    char digits[20];
    size_t begin = sizeof(digits);
    do {
      digits[--begin] = "0123456789abcdef"[number % base];
      number /= base;
    } while (number > 0);
    return *this << absl::string_view(digits + begin, sizeof(digits) - begin);
  }

  size_t size_ = 0;
  char buffer_[2048];  // less than PIPE_BUF: where poll() finds room, so much does not wait
};

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

// Adds what looks like return addresses from `stack` on, until there are `most` frames.
void AddFound(uintptr_t stack, int most, Frames* frames) {
  uintptr_t words[kPageBytes / sizeof(uintptr_t)];
  for (const uintptr_t end = stack + kMostScanned; stack < end && frames->count < most;) {
    const size_t size = kPageBytes - stack % kPageBytes;
    const iovec from = {reinterpret_cast<void*>(stack), size};
    const iovec to = {words, size};
    // An error, and no fault, where the stack ends.
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) < static_cast<ssize_t>(size)) return;
    for (size_t i = 0; i < size / sizeof(uintptr_t); ++i) {
      if (words[i] <= kPageBytes || !IsInFunction(words[i] - 1)) continue;
      if (frames->count < most) frames->Add(words[i]);
    }
    stack += size;
  }
}

void WriteFrames(uintptr_t stack, Block* block) {
  Frames frames;
  _Unwind_Backtrace(&AddFrame, &frames);
  const int unwound = frames.count;
  // Code that was made at run time, such as oneDNN's, or a call of nothing.
  if (unwound > 0 && !IsInFunction(frames.addresses[unwound - 1])) {
    AddFound(stack, kMostFrames / 2, &frames);
    // Such code may use the stack's register for something else.
    AddFound(reinterpret_cast<uintptr_t>(InFlight::innermost), kMostFrames, &frames);
  }
  uintptr_t of_program[kMostFrames];
  int in_program = 0;
  for (int i = 0; i < frames.count; ++i) {
    const uintptr_t address = frames.addresses[i];
    const uintptr_t instruction = address - (i > 0 ? 1 : 0);
    *block << "CRASH " << (i < unwound ? '#' : '~') << int64_t{i} << " " << Hex{address};
    dl_find_object found;  // dladdr() takes a lock
    if (_dl_find_object(reinterpret_cast<void*>(instruction), &found) == 0) {
      const link_map& module = *found.dlfo_link_map;
      const uintptr_t offset = instruction - module.l_addr;
      const bool is_program = module.l_name[0] == '\0';
      *block << " " << (is_program ? program_path : module.l_name) << "+" << Hex{offset};
      if (is_program) of_program[in_program++] = offset;
    }
    *block << '\n';
  }
  *block << "CRASH resolve addr2line -Cfipe " << program_path;
  for (int i = 0; i < in_program; ++i) *block << " " << Hex{of_program[i]};
  *block << '\n';
}

uintptr_t StackOf(const void* context) {
  const mcontext_t& registers = static_cast<const ucontext_t*>(context)->uc_mcontext;
#ifdef __x86_64__
  return static_cast<uintptr_t>(registers.gregs[REG_RSP]);
#else
  return registers.sp;
#endif
}

void WriteBlock(const siginfo_t& info, int64_t thread, uintptr_t stack) {
  Block block;
  block << "CRASH signal SIG" << sigabbrev_np(info.si_signo) << " (" << int64_t{info.si_signo}
        << "), code " << int64_t{info.si_code};
  if (info.si_code <= 0) {
    block << ", sent by process " << int64_t{info.si_pid} << '\n';
  } else {
    block << ", address " << Hex{reinterpret_cast<uintptr_t>(info.si_addr)} << '\n';
  }
  if (reason[0] != '\0') block << "CRASH reason " << reason << '\n';
  char name[16] = "";
  prctl(PR_GET_NAME, name);
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  block << "CRASH thread " << thread << " (" << name << ") of process " << int64_t{getpid()}
        << ", which had up to " << int64_t{usage.ru_maxrss / 1000} << " MB resident" << '\n';
  block << "CRASH build " << build_line << '\n';
  block.Flush();
  const InFlight* const work = InFlight::innermost;
  block << "CRASH in flight " << (work == nullptr ? "nothing" : work->what);
  if (work != nullptr && work->model[0] != '\0') block << ", model " << work->model;
  if (work != nullptr && work->version > 0) block << " version " << work->version;
  block << '\n';
  block.Flush();
  WriteFrames(stack, &block);
}

// All of kFaults are blocked meanwhile, so a fault in here ends the process.
void Handle(int signal, siginfo_t* info, void* context) {
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

[[noreturn]] void Terminate() {
  SetReason("std::terminate() without an exception");
  if (const std::type_info* const type = abi::__cxa_current_exception_type()) {
    char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, nullptr);
    const char* what = "";
    try {
      throw;
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {
    }
    // There may be no memory for a std::string.
    std::snprintf(reason, sizeof(reason), "uncaught %s %s", name ? name : type->name(), what);
  }
  std::abort();
}

// Abseil has written the same line.
void OnFailedCheck(const char* /*file*/, int /*line*/, const char* begin,
                   const char* /*prefix_end*/, const char* end) {
  const absl::string_view text(begin, static_cast<size_t>(end - begin));
  SetReason(text.substr(0, text.find('\n')));
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
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof(path) - 1) > 0) program_path = strdup(path);
  Frames unused;  // loads what the unwinder needs
  _Unwind_Backtrace(&AddFrame, &unused);
  installed.store(true);
  PrepareThread();
  absl::raw_logging_internal::RegisterAbortHook(&OnFailedCheck);
  std::set_terminate(&Terminate);
  struct sigaction action = {};
  action.sa_sigaction = &Handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int signal : kFaults) sigaddset(&action.sa_mask, signal);
  for (const int signal : kFaults) sigaction(signal, &action, nullptr);
#endif
}

}  // namespace sru::server::crash
