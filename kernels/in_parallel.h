// Work for several devices at a time, such as loading a model onto each of them.
#ifndef SRU_KERNELS_IN_PARALLEL_H_
#define SRU_KERNELS_IN_PARALLEL_H_

#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace sru::kernels {

// Calls run(i) for each i in [0, count), each in a thread of its own as far as the system has
// threads and memory for them, and returns when all have ended. Throws what the first of those that
// failed has thrown.
inline void InParallel(int count, const std::function<void(int)>& run) {
  if (count <= 0) return;
  std::vector<std::exception_ptr> errors(count);
  const auto guarded = [&](int i) noexcept {
    try {
      run(i);
    } catch (...) {
      errors[i] = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(count);
  for (int i = 1; i < count; ++i) {
    try {
      threads.emplace_back(guarded, i);
    } catch (const std::exception&) {
      guarded(i);
    }
  }
  guarded(0);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error != nullptr) std::rethrow_exception(error);
  }
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_IN_PARALLEL_H_
