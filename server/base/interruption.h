// Interruption: lets work that takes long end early when nobody wants its result any more, such as
// the parsing of a message whose client has left.
//
//   const Interruption interruption([&] { return exchange.is_cancelled(); });
//   Parse(bytes);   // asks Interruption::Asked() now and then
#ifndef SRU_SERVER_BASE_INTERRUPTION_H_
#define SRU_SERVER_BASE_INTERRUPTION_H_

#include <functional>
#include <utility>

namespace sru::server {

// Holds for the thread that made it, until it is destroyed.
class Interruption {
 public:
  explicit Interruption(std::function<bool()> wanted)
      : wanted_(std::move(wanted)), outer_(std::exchange(of_this_thread_, this)) {}
  ~Interruption() { of_this_thread_ = outer_; }
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Whether this thread's work is to end.
  static bool Asked() { return of_this_thread_ != nullptr && of_this_thread_->wanted_(); }

 private:
  static inline thread_local const Interruption* of_this_thread_ = nullptr;

  const std::function<bool()> wanted_;
  const Interruption* const outer_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_INTERRUPTION_H_
