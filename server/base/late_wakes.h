// LateWakes: while it lives, what its thread hands to event loops is handed over at its end, to
// each loop all at once. A worker has answers for many calls at a time; a loop that it wakes for
// each would interrupt it as often, where they share a core.
//
//   const LateWakes late;
//   for (...) call->Finish(...);
#ifndef SRU_SERVER_BASE_LATE_WAKES_H_
#define SRU_SERVER_BASE_LATE_WAKES_H_

#include <array>
#include <cstddef>
#include <utility>

namespace sru::server {

class LateWakes {
 public:
  struct Link {
    Link* older = nullptr;
  };
  // Takes chains of links; thread-safe.
  class Taker {
   public:
    // `newest` leads to `oldest`.
    virtual void Take(Link* newest, Link* oldest) = 0;

   protected:
    ~Taker() = default;
  };

  // Within another one of its thread it does nothing.
  LateWakes()
      : outer_(
            std::exchange(of_this_thread_, of_this_thread_ == nullptr ? this : of_this_thread_)) {}
  ~LateWakes() {
    if (outer_ != nullptr) return;
    of_this_thread_ = nullptr;
    for (size_t i = 0; i < num_chains_; ++i)
      chains_[i].taker->Take(chains_[i].newest, chains_[i].oldest);
  }
  LateWakes(const LateWakes&) = delete;
  LateWakes& operator=(const LateWakes&) = delete;

  // Hands the link over: later, if the thread has one of these.
  static void HandOver(Taker* taker, Link* link) {
    if (of_this_thread_ == nullptr || !of_this_thread_->Add(taker, link)) taker->Take(link, link);
  }

 private:
  struct Chain {
    Taker* taker = nullptr;
    Link* newest = nullptr;
    Link* oldest = nullptr;
  };
  static constexpr size_t kMostTakers = 8;

  bool Add(Taker* taker, Link* link) {
    size_t i = 0;
    while (i < num_chains_ && chains_[i].taker != taker) ++i;
    if (i == kMostTakers) return false;
    if (i == num_chains_) chains_[num_chains_++] = {taker, nullptr, link};
    link->older = std::exchange(chains_[i].newest, link);
    return true;
  }

  static inline thread_local LateWakes* of_this_thread_ = nullptr;

  LateWakes* const outer_;
  std::array<Chain, kMostTakers> chains_;
  size_t num_chains_ = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_LATE_WAKES_H_
