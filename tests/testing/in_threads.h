// Runs a function in several threads at a time.
#ifndef SRU_TESTS_TESTING_IN_THREADS_H_
#define SRU_TESTS_TESTING_IN_THREADS_H_

#include <thread>
#include <vector>

namespace sru::testing {

// Calls run(0), ..., run(count - 1), each in a thread of its own, and returns when all have ended.
template <typename Run>
void InThreads(int count, const Run& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_IN_THREADS_H_
