#include "tests/simulation/fibers.h"

#include <ucontext.h>

#include <algorithm>
#include <utility>

#include "kernels/turn.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace sru::simulation {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;

// What takes longer does not end.
constexpr absl::Duration kLongest = absl::Hours(1);

Fibers* current = nullptr;
#if defined(__SANITIZE_ADDRESS__)
const void* main_stack = nullptr;
size_t main_bytes = 0;
#endif

// Stacks of fibers that have ended: a history is too short to pay for new ones.
std::vector<std::unique_ptr<char[]>>& Stacks() {
  static auto* const stacks = new std::vector<std::unique_ptr<char[]>>;
  return *stacks;
}

}  // namespace

struct Fibers::Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  std::function<void()> body;
  bool sleeps = false;
  bool ended = false;
  const void* on = nullptr;
  absl::Time until;
};

Fibers::Fibers(uint64_t seed) : random_(seed), main_(std::make_unique<Fiber>()) {}
Fibers::~Fibers() = default;

Fibers* Fibers::Current() { return current; }

void Fibers::Spawn(std::function<void()> body) {
  auto fiber = std::make_unique<Fiber>();
  fiber->body = std::move(body);
  if (Stacks().empty()) Stacks().emplace_back(new char[kStackBytes]);
  fiber->stack = std::move(Stacks().back());
  Stacks().pop_back();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, &Fibers::Enter, 0);
  fibers_.push_back(std::move(fiber));
}

void Fibers::Enter() {
  Fibers& self = *current;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_bytes);
#endif
  self.running_->body();
  self.running_->body = nullptr;
  self.running_->ended = true;
  self.Switch(self.main_.get());
}

void Fibers::Switch(Fiber* to) {
  Fiber* const from = std::exchange(running_, to);
  // What is by thread in the code that is simulated.
  kernels::TurnEnd* const turn_end = kernels::TurnEnd::OfThisThread();
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  const bool to_main = to == main_.get();
  __sanitizer_start_switch_fiber(from->ended ? nullptr : &fake,
                                 to_main ? main_stack : to->stack.get(),
                                 to_main ? main_bytes : kStackBytes);
  swapcontext(&from->context, &to->context);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  swapcontext(&from->context, &to->context);
#endif
  kernels::TurnEnd::OfThisThread() = turn_end;
}

bool Fibers::Run(const std::function<void()>& quiet) {
  current = this;
  running_ = main_.get();
  const absl::Time start = now_;
  std::vector<Fiber*> awake;
  while (!fibers_.empty()) {
    awake.clear();
    for (const auto& fiber : fibers_) {
      if (!fiber->sleeps || fiber->until <= now_) awake.push_back(fiber.get());
    }
    if (awake.empty()) {
      quiet();
      absl::Time first = absl::InfiniteFuture();
      for (const auto& fiber : fibers_)
        first = std::min(first, fiber->sleeps ? fiber->until : now_);
      if (first - start > kLongest) break;
      now_ = first;
      continue;
    }
    Fiber* const next = awake[random_.From(0, static_cast<int64_t>(awake.size()) - 1)];
    next->sleeps = false;
    Switch(next);
    if (!next->ended) continue;
    Stacks().push_back(std::move(next->stack));
    fibers_.erase(std::find_if(fibers_.begin(), fibers_.end(),
                               [next](const auto& fiber) { return fiber.get() == next; }));
  }
  current = nullptr;
  return fibers_.empty();
}

void Fibers::Yield(bool always) {
  if (running_ == main_.get()) return;  // in `quiet`, which nothing interrupts
  if (always || random_.OneIn(4)) Switch(main_.get());
}

void Fibers::Wait(const void* on, absl::Time until) {
  running_->sleeps = true;
  running_->on = on;
  running_->until = until;
  Switch(main_.get());
}

void Fibers::Signal(const void* on, bool all) {
  if (lost_signals > 0 && random_.OneIn(lost_signals)) return;
  std::vector<Fiber*> waiting;
  for (const auto& fiber : fibers_) {
    if (fiber->sleeps && fiber->on == on) waiting.push_back(fiber.get());
  }
  if (waiting.empty()) return;
  const int64_t last = static_cast<int64_t>(waiting.size()) - 1;
  if (!all) waiting = {waiting[random_.From(0, last)]};
  for (Fiber* const fiber : waiting) fiber->sleeps = false;
}

}  // namespace sru::simulation
