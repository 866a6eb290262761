// BackgroundCalls: calls with one request that run while the test goes on.
//
//   BackgroundCalls calls(server.stub(), &AsyncStub::Encode, request, 8);
//   for (const grpc::Status& status : calls.Wait()) ...
#ifndef SRU_TESTS_INTEGRATION_BACKGROUND_CALLS_H_
#define SRU_TESTS_INTEGRATION_BACKGROUND_CALLS_H_

#include <functional>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "grpcpp/grpcpp.h"
#include "sru/v1/inference.grpc.pb.h"

namespace sru::testing {

using AsyncStub = v1::InferenceService::StubInterface::async_interface;

template <typename Request, typename Response>
class BackgroundCalls {
 public:
  // `stub` must outlive the calls.
  BackgroundCalls(v1::InferenceService::Stub& stub,
                  void (AsyncStub::*method)(grpc::ClientContext*, const Request*, Response*,
                                            std::function<void(grpc::Status)>),
                  Request request, int count)
      : request_(std::move(request)),
        done_(count),
        contexts_(count),
        responses_(count),
        statuses_(count) {
    AsyncStub& async = *stub.async();
    for (int i = 0; i < count; ++i) {
      (async.*method)(&contexts_[i], &request_, &responses_[i], [this, i](grpc::Status status) {
        statuses_[i] = std::move(status);
        done_.DecrementCount();
      });
    }
  }
  ~BackgroundCalls() { Wait(); }

  void Cancel() {
    for (grpc::ClientContext& context : contexts_) context.TryCancel();
  }
  // Returns when all calls have ended.
  const std::vector<grpc::Status>& Wait() {
    if (!waited_) done_.Wait();
    waited_ = true;
    return statuses_;
  }
  // Those of calls that have ended.
  const std::vector<Response>& responses() const { return responses_; }

 private:
  const Request request_;
  absl::BlockingCounter done_;
  bool waited_ = false;
  std::vector<grpc::ClientContext> contexts_;
  std::vector<Response> responses_;
  std::vector<grpc::Status> statuses_;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_INTEGRATION_BACKGROUND_CALLS_H_
