#include "kernels/cpu/base/parallel_runner.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>

namespace sru::kernels::cpu {

int AvailableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

ParallelRunner::ParallelRunner(int threads, int cores) : threads_(threads), cores_(cores) {
  try {
    for (int i = 1; i < threads_; ++i) helpers_.emplace_back([this] { Help(); });
  } catch (...) {  // the system has no more threads
    Stop();
    throw;
  }
}

ParallelRunner::~ParallelRunner() { Stop(); }

void ParallelRunner::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  wake_.SignalAll();
  for (std::thread& helper : helpers_) helper.join();
}

void ParallelRunner::Run(Job& job) {
  const int wanted =
      std::min({threads_ - 1, job.items - 1, cores_ - busy_.load(std::memory_order_relaxed)});
  {
    const MutexLock lock(&mutex_);
    job.following = jobs_;
    jobs_ = &job;
  }
  for (int i = 0; i < wanted; ++i) wake_.Signal();
  Work(job, 0);

  const MutexLock lock(&mutex_);
  Job** link = &jobs_;
  while (*link != &job) link = &(*link)->following;
  *link = job.following;
  while (job.working > 0) job.left.Wait(&mutex_);
  if (job.error != nullptr) std::rethrow_exception(job.error);
}

void ParallelRunner::Work(Job& job, int slot) {
  try {
    while (slot == 0 || busy_.load(std::memory_order_relaxed) <= cores_) {
      const int item = job.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= job.items) return;
      job.call(job.context, item, slot);
    }
  } catch (...) {
    job.next = job.items;
    const MutexLock lock(&mutex_);
    job.error = std::current_exception();
  }
}

ParallelRunner::Job* ParallelRunner::OpenJob() {
  if (busy_.load(std::memory_order_relaxed) >= cores_) return nullptr;
  for (Job* job = jobs_; job != nullptr; job = job->following) {
    // A helper that joined may not have taken an item yet, so the items that are left do not tell
    // how many have joined.
    if (job->joined < std::min(threads_, job->items) - 1 &&
        job->next.load(std::memory_order_relaxed) < job->items) {
      return job;
    }
  }
  return nullptr;
}

void ParallelRunner::Help() {
  omp_set_num_threads(1);  // a product must not start threads of its own
  const MutexLock lock(&mutex_);
  while (!stopping_) {
    Job* const job = OpenJob();
    if (job == nullptr) {
      wake_.Wait(&mutex_);
      continue;
    }
    const int slot = ++job->joined;
    ++job->working;
    ++busy_;
    mutex_.Unlock();
    Work(*job, slot);
    mutex_.Lock();
    --busy_;
    if (--job->working == 0) job->left.Signal();
  }
}

}  // namespace sru::kernels::cpu
