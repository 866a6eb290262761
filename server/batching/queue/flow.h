// Flow: the work of one caller, as queues see it. Queues of the same model's batches and steps
// share their workers between flows by weight (fair_order.h). A null pointer stands for the one
// flow of all whom nothing tells apart.
//
// There is one object per caller: queues compare flows by address, and keep one alive while they
// remember its work.
#ifndef SRU_SERVER_BATCHING_QUEUE_FLOW_H_
#define SRU_SERVER_BATCHING_QUEUE_FLOW_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"

namespace sru::server::batching {

// Thread-safe.
class Flow {
 public:
  explicit Flow(std::string id, double weight = 1) : id_(std::move(id)), weight_(weight) {}
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;

  const std::string& id() const { return id_; }
  // Greater than 0: a flow of weight 2 gets twice the work of one of weight 1 while both have work
  // waiting. Work that is taken later counts by a changed weight.
  double weight() const { return weight_.load(std::memory_order_relaxed); }
  void set_weight(double weight) { weight_.store(weight, std::memory_order_relaxed); }

 private:
  const std::string id_;
  std::atomic<double> weight_;
};

using FlowHandle = std::shared_ptr<const Flow>;

// A part of a batch or step: whose it is, and how much of it, in tokens or rows.
struct FlowPart {
  FlowHandle flow;
  int64_t rows = 0;
};
using FlowParts = std::vector<FlowPart>;

// Adds rows to the last part if they are of the same flow.
inline void AddPart(const FlowHandle& flow, int64_t rows, FlowParts* parts) {
  if (parts->empty() || parts->back().flow != flow) parts->push_back({flow, 0});
  parts->back().rows += rows;
}

// What a queue of batches or a scheduler of steps would give a worker next.
struct NextWork {
  // When: at once if it has passed. InfiniteFuture(): not before it has said that it has work.
  absl::Time at = absl::InfiniteFuture();
  const Flow* flow = nullptr;  // whose work goes first; only to compare
  int64_t tokens = 0;          // of a batch: those of its first sequence
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_FLOW_H_
