// Shows the thread sanitizer how the distribution's gRPC, which is built without it, hands our data
// from thread to thread: with atomic operations and queues of its own, so that each hand-over would
// be reported as a race. A test of a whole server that is built with the thread sanitizer is linked
// with this. The functions stand in front of the library's of the same names, for gRPC's C++
// library, too, call those, and tell the sanitizer what they order:
//
// - What a thread did before it started an operation, before what is done by the one that is told
//   of its end. By tag.
// - What a thread did with the bytes of a message before it sent or dropped them, before what is
//   done by the one that reads or frees them: within a process both ends of a call have the same
//   bytes. By slice.
// - What the reactions to a call did, before the last one, OnDone(). By the call's own counters,
//   some of whose changes are compiled into the library.
//
// Nothing is told of two operations of the same call, nor of two calls, so that races between them
// are found.
#include <sanitizer/tsan_interface.h>

#include "grpc/byte_buffer.h"
#include "grpc/grpc.h"
#include "grpc/slice.h"
#include "grpcpp/support/server_callback.h"
#include "tests/testing/function_in_front.h"

namespace {

using ::sru::testing::FunctionBehind;

// The object that stands for the bytes of `slice`; null when they are in the slice itself.
void* SyncOf(const grpc_slice& slice) {
  return slice.refcount == nullptr ? nullptr : slice.data.refcounted.bytes;
}

void AcquireBytes(const grpc_slice& slice) {
  if (void* const sync = SyncOf(slice)) __tsan_acquire(sync);
}

void ReleaseBytes(const grpc_slice& slice) {
  if (void* const sync = SyncOf(slice)) __tsan_release(sync);
}

void ReleaseBytes(const grpc_byte_buffer* buffer) {
  if (buffer == nullptr) return;
  const grpc_slice_buffer& slices = buffer->data.raw.slice_buffer;
  for (size_t i = 0; i < slices.count; ++i) ReleaseBytes(slices.slices[i]);
}

// How the bytes of a slice are freed.
struct Destruction {
  void (*destroy)(void*);
  void* user_data;
  void* bytes;
};

void Destroy(void* argument) {
  auto* const destruction = static_cast<Destruction*>(argument);
  __tsan_acquire(destruction->bytes);
  destruction->destroy(destruction->user_data);
  delete destruction;
}

// Runs the reaction of another one to the end of a call before its answer, once, and is gone.
class CancelReaction final : public grpc::internal::ServerReactor {
 public:
  CancelReaction(ServerReactor* reactor, void* outstanding)
      : reactor_(reactor), outstanding_(outstanding) {}
  void OnCancel() override {
    reactor_->OnCancel();
    __tsan_release(outstanding_);
    delete this;
  }
  void OnDone() override {}
  bool InternalInlineable() override { return reactor_->InternalInlineable(); }

 private:
  ServerReactor* const reactor_;
  void* const outstanding_;
};

}  // namespace

extern "C" {

grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count, void* tag,
                                      void* reserved) {
  static const auto behind = FunctionBehind(&grpc_call_start_batch, "grpc_call_start_batch");
  for (size_t i = 0; i < count; ++i) {
    if (ops[i].op == GRPC_OP_SEND_MESSAGE) ReleaseBytes(ops[i].data.send_message.send_message);
  }
  __tsan_release(tag);
  return behind(call, ops, count, tag, reserved);
}

grpc_event grpc_completion_queue_next(grpc_completion_queue* queue, gpr_timespec deadline,
                                      void* reserved) {
  static const auto behind =
      FunctionBehind(&grpc_completion_queue_next, "grpc_completion_queue_next");
  const grpc_event event = behind(queue, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

grpc_event grpc_completion_queue_pluck(grpc_completion_queue* queue, void* tag,
                                       gpr_timespec deadline, void* reserved) {
  static const auto behind =
      FunctionBehind(&grpc_completion_queue_pluck, "grpc_completion_queue_pluck");
  const grpc_event event = behind(queue, tag, deadline, reserved);
  if (event.type == GRPC_OP_COMPLETE) __tsan_acquire(event.tag);
  return event;
}

int grpc_byte_buffer_reader_next(grpc_byte_buffer_reader* reader, grpc_slice* slice) {
  static const auto behind =
      FunctionBehind(&grpc_byte_buffer_reader_next, "grpc_byte_buffer_reader_next");
  const int found = behind(reader, slice);
  if (found != 0) AcquireBytes(*slice);
  return found;
}

int grpc_byte_buffer_reader_peek(grpc_byte_buffer_reader* reader, grpc_slice** slice) {
  static const auto behind =
      FunctionBehind(&grpc_byte_buffer_reader_peek, "grpc_byte_buffer_reader_peek");
  const int found = behind(reader, slice);
  if (found != 0) AcquireBytes(**slice);
  return found;
}

void grpc_byte_buffer_destroy(grpc_byte_buffer* buffer) {
  static const auto behind = FunctionBehind(&grpc_byte_buffer_destroy, "grpc_byte_buffer_destroy");
  ReleaseBytes(buffer);
  behind(buffer);
}

void grpc_slice_unref(grpc_slice slice) {
  static const auto behind = FunctionBehind(&grpc_slice_unref, "grpc_slice_unref");
  ReleaseBytes(slice);
  behind(slice);
}

grpc_slice grpc_slice_new_with_user_data(void* bytes, size_t size, void (*destroy)(void*),
                                         void* user_data) {
  static const auto behind =
      FunctionBehind(&grpc_slice_new_with_user_data, "grpc_slice_new_with_user_data");
  return behind(bytes, size, &Destroy, new Destruction{destroy, user_data, bytes});
}

}  // extern "C"

namespace grpc::internal {

void ServerCallbackCall::CallOnCancel(ServerReactor* reactor) {
  static const auto behind = FunctionBehind(&ServerCallbackCall::CallOnCancel);
  __tsan_acquire(&on_cancel_conditions_remaining_);
  behind(this, new CancelReaction(reactor, &callbacks_outstanding_));
}

void ServerCallbackCall::ScheduleOnDone(bool at_once) {
  static const auto behind = FunctionBehind(&ServerCallbackCall::ScheduleOnDone);
  __tsan_acquire(&callbacks_outstanding_);
  behind(this, at_once);
}

}  // namespace grpc::internal
