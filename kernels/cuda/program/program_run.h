// One batch of a program: its buckets, its input in the staging memory, its results out of it, the
// states that it reads and writes.
#ifndef SRU_KERNELS_CUDA_PROGRAM_PROGRAM_RUN_H_
#define SRU_KERNELS_CUDA_PROGRAM_PROGRAM_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cuda/program/program_pack.h"
#include "kernels/cuda/program/program_workspace.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

class ProgramRun {
 public:
  // Of a valid batch. All must outlive the object.
  ProgramRun(const PackedProgram& packed, const ProgramBatch& batch, const OutputBatch* outputs,
             CudaProgramWorkspace& workspace);

  // A part of the program for which the batch has something to do.
  struct Part {
    ProgramBucket bucket;
    ProgramLayout layout;
  };
  // Empty if there is nothing to compute.
  const std::vector<Part>& parts() const { return parts_; }

  // Takes the pages that the slots go on to; they are given up with the object unless Commit() is
  // called.
  Status BeginStates();
  // Fills a part's staging memory. Returns the bytes of it that the batch uses.
  size_t WriteInput(const Part& part);
  // Puts the copies of the results on the stream.
  Status EnqueueResults() const;
  // Copies them to where the caller wants them.
  void ReadResults() const;
  // The slots go on.
  void Commit();

 private:
  ProgramBucket MakeBucket();
  bool wants(size_t output) const { return (users_ >> output & 1) != 0; }
  bool runs(ValueId operation) const { return (packed_.shape.users[operation] & users_) != 0; }
  // For every row of which a Predict is asked something, in order: use(row, target, count).
  template <typename Use>
  void ForEachAsked(ValueId predict, const Use& use) const;
  void WriteAxis(const Part& part, AxisId axis);
  void WriteInputs(const Part& part);
  void WritePredict(const Part& part, ValueId predict);
  size_t CandidateBytes(ValueId predict) const {
    return static_cast<size_t>(asked_[predict]) * max_count_[predict] * sizeof(PredictCandidate);
  }
  bool CopiesCandidates(ValueId predict) const {
    return CandidateBytes(predict) > kMaxMappedCandidateBytes;
  }
  // The weights of an Attend, and where those of each sequence begin.
  int64_t CountWeights(ValueId attend, int64_t* begins = nullptr) const;
  // Where a result is, and its bytes.
  struct Result {
    ArrayView host;
    const void* device = nullptr;  // null if the kernels write to the host's memory
    size_t bytes = 0;
  };
  Result ResultOf(size_t output) const;
  size_t WriteFields(const Part& part);
  bool is_of(const Part& part, AxisId axis) const {
    return packed_.parts[axis] == part.bucket.part;
  }
  template <typename T>
  T* Host(const Part& part, size_t offset) const {
    return reinterpret_cast<T*>(ws_.staging[part.bucket.part].host_input.as<char>() + offset);
  }

  const PackedProgram& packed_;
  const ProgramBatch& batch_;
  const OutputBatch* const outputs_;
  CudaProgramWorkspace& ws_;
  const uint64_t users_;
  std::vector<int> rows_;       // [axis]
  std::vector<int> sequences_;  // [axis]
  std::vector<int> asked_;      // [operation]: rows of which a Predict is asked something
  std::vector<int> max_count_;  // [operation]: most candidates that are asked of one of them
  const ProgramBucket bucket_;  // of the whole program
  std::vector<Part> parts_;
  std::vector<StateArena::Run> states_;  // [axis]; begun where there are slots
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_PROGRAM_PROGRAM_RUN_H_
