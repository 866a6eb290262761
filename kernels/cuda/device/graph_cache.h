// The recorded graphs of one workspace, by their bucket (of any type with operator<): at most
// `capacity`, the least recently used one goes first. Not thread-safe. A graph must not be in
// flight when another is added.
#ifndef SRU_KERNELS_CUDA_DEVICE_GRAPH_CACHE_H_
#define SRU_KERNELS_CUDA_DEVICE_GRAPH_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "kernels/cuda/device/bucket.h"
#include "kernels/cuda/device/device.h"

namespace sru::kernels::cuda {

// How often the caches of a device had the graph that was asked for. Thread-safe.
struct GraphUse {
  std::atomic<int64_t> hits{0};
  std::atomic<int64_t> misses{0};
};

template <typename Key>
class BasicGraphCache {
 public:
  // `capacity` is at least 1. `use` counts what Prepare() finds, and must outlive the cache.
  BasicGraphCache(size_t capacity, GraphUse* use) : capacity_(capacity), use_(*use) {}

  // The graph with which a bucket's work is to be launched; null when the work itself, `enqueue`,
  // is to be put on the stream instead. That is so at a bucket's first use, since recording takes
  // longer than the work and many buckets come only once, and where the recording fails, for want
  // of memory or because something has interfered with it: the batch can do without. Such a bucket
  // counts as unused. Only kDeviceLost is an error. The stream is idle.
  Status Prepare(const Key& bucket, Stream& stream, const std::function<Status()>& enqueue,
                 Graph** graph) {
    *graph = Find(bucket);
    ++(*graph != nullptr ? use_.hits : use_.misses);
    if (*graph != nullptr) return OkStatus();
    if (used_.size() >= kMaxUsed) used_.clear();
    if (used_.insert(bucket).second) return OkStatus();
    used_.erase(bucket);
    std::unique_ptr<Graph> recorded;
    Status status = stream.Record(enqueue, &recorded);
    if (status.ok()) *graph = Insert(bucket, std::move(recorded));
    return status.code() == StatusCode::kDeviceLost ? status : OkStatus();
  }

  // Null when there is none. The pointer holds until `capacity` other buckets have been found or
  // inserted.
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
    used_.clear();
  }

  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Key bucket;
    std::unique_ptr<Graph> graph;
  };

  // Buckets that are remembered without a graph; then all are forgotten.
  static constexpr size_t kMaxUsed = 4096;

  const size_t capacity_;
  GraphUse& use_;
  std::list<Entry> entries_;  // the most recently used one first
  std::map<Key, typename std::list<Entry>::iterator> by_bucket_;
  std::set<Key> used_;  // once, and not recorded yet
};

using GraphCache = BasicGraphCache<Bucket>;

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_DEVICE_GRAPH_CACHE_H_
