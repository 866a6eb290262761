// The recorded graphs of one workspace, by their bucket (of any type with operator<): at most `capacity`, the least recently used one
// goes first. Not thread-safe. A graph must not be in flight when another is added.
#ifndef SRU_KERNELS_CUDA_GRAPH_CACHE_H_
#define SRU_KERNELS_CUDA_GRAPH_CACHE_H_

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "kernels/cuda/bucket.h"
#include "kernels/cuda/device.h"

namespace sru::kernels::cuda {

template <typename Key>
class BasicGraphCache {
 public:
  // `capacity` is at least 1.
  explicit BasicGraphCache(size_t capacity) : capacity_(capacity) {}

  // Null when there is none. The pointer holds until the next Insert().
  Graph* Find(const Key& bucket) {
    const auto found = by_bucket_.find(bucket);
    if (found == by_bucket_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return entries_.front().graph.get();
  }

  // The bucket must not be in the cache.
  Graph* Insert(const Key& bucket, std::unique_ptr<Graph> graph) {
    if (entries_.size() == capacity_) {
      by_bucket_.erase(entries_.back().bucket);
      entries_.pop_back();
    }
    entries_.push_front({bucket, std::move(graph)});
    by_bucket_[bucket] = entries_.begin();
    return entries_.front().graph.get();
  }

  void Clear() {
    by_bucket_.clear();
    entries_.clear();
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Key bucket;
    std::unique_ptr<Graph> graph;
  };

  const size_t capacity_;
  std::list<Entry> entries_;  // the most recently used one first
  std::map<Key, typename std::list<Entry>::iterator> by_bucket_;
};

using GraphCache = BasicGraphCache<Bucket>;

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_GRAPH_CACHE_H_
