#include "kernels/cpu/base/run_memory.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <new>

namespace sru::kernels::cpu {
namespace {

constexpr std::align_val_t kAlignment{RunPlan::kLine};

int CoreOfThisThread() {
#ifdef __linux__
  return sched_getcpu();
#else
  return -1;
#endif
}

}  // namespace

void RunMemory::Deleter::operator()(char* p) const { ::operator delete(p, kAlignment); }

void RunMemory::Add(size_t bytes) {
  const MutexLock lock(&mutex_);
  needs_.insert(bytes);
}

void RunMemory::Remove(size_t bytes) {
  const MutexLock lock(&mutex_);
  needs_.erase(needs_.find(bytes));
  size_t most = Largest();
  for (std::vector<Block>& free : free_) {
    const auto dropped = std::partition(free.begin(), free.end(),
                                        [most](const Block& block) { return block.bytes <= most; });
    for (auto block = dropped; block != free.end(); ++block) bytes_ -= block->bytes;
    free.erase(dropped, free.end());
    most /= kSmallPart;
  }
}

size_t RunMemory::block_bytes() const {
  const MutexLock lock(&mutex_);
  return Largest();
}

size_t RunMemory::bytes() const {
  const MutexLock lock(&mutex_);
  return bytes_;
}

RunMemory::Block RunMemory::Take(size_t bytes) {
  const int core = CoreOfThisThread();
  Block block;
  size_t wanted;
  {
    const MutexLock lock(&mutex_);
    const size_t small = Largest() / kSmallPart;
    block.small = bytes <= small;
    wanted = block.small ? small : std::max(Largest(), bytes);
    if (std::vector<Block>& free = free_[block.small ? 1 : 0]; !free.empty()) {
      auto found = std::find_if(free.begin(), free.end(),
                                [core](const Block& other) { return other.core == core; });
      if (found == free.end()) --found;
      block = std::move(*found);
      free.erase(found);
    }
    if (block.bytes >= bytes && block.data != nullptr) return block;
    bytes_ -= block.bytes;
  }
  block.data.reset();  // before the next is there
  block.bytes = 0;
  block.data.reset(static_cast<char*>(::operator new(wanted, kAlignment)));
  block.bytes = wanted;
  const MutexLock lock(&mutex_);
  bytes_ += wanted;
  return block;
}

void RunMemory::Give(Block block) {
  block.core = CoreOfThisThread();
  Block dropped;  // freed without the lock
  const MutexLock lock(&mutex_);
  std::vector<Block>& free = free_[block.small ? 1 : 0];
  if (free.size() < kept_ && block.bytes <= Largest() / (block.small ? kSmallPart : 1)) {
    free.push_back(std::move(block));
    return;
  }
  bytes_ -= block.bytes;
  dropped = std::move(block);
}

}  // namespace sru::kernels::cpu
