// StateArena: the states of sequences that go on, kept where the program that made them runs.
//
//   std::unique_ptr<StateArena> arena;
//   Status status = executable->CreateArena(options, &arena);
//   StateArena::Slot slot;
//   status = arena->Allocate(&slot);
//   ... Run() with the slot, any number of times: each goes on where the last one ended ...
//   arena->Free(slot);
//
// A slot holds a row of every fixed field of the program and the rows of every growing one, in
// pages. It costs what it holds: a fresh one nothing. A copy shares its pages with the original
// until one of them is written to, so that forking and reordering move no values.
//
// A run writes all fields of its axis, so the growing ones among them always have the same number
// of rows. They share one list of pages, and the fixed ones another: what a slot costs in
// bookkeeping does not depend on how many layers the program has.
//
// A run is all or nothing: it writes to pages of its own, which replace those of the slot when it
// succeeds. A run that fails leaves every slot as it was.
//
// Errors: kResourceExhausted when the budget does not hold what is asked for, with the figures, or
// there is no memory; kInvalidArgument when what is named is not a slot; kDeviceLost when the
// memory's device has failed for good. After an error nothing has changed.
//
// Thread-safe, but for one slot at a time: two calls that name the same slot must not overlap.
#ifndef SRU_KERNELS_STATE_ARENA_H_
#define SRU_KERNELS_STATE_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/program.h"
#include "kernels/status.h"

namespace sru::kernels {

// Rows of each of its growing fields that one page holds. A page of fixed fields holds a row of
// each.
inline constexpr int kStatePageRows = 16;

// Where the rows of a field are.
struct FieldPlace {
  FieldId first = kNone;  // of the fields that share pages with this one; itself if it is the first
  size_t offset = 0;      // of its first row from the beginning of each page, in values
};
// `axes` has the axis of each field, as ProgramShape::field_axes.
std::vector<FieldPlace> PlaceFields(const std::vector<FieldSpec>& fields,
                                    const std::vector<AxisId>& axes);

// Memory that a backend's kernels read and write. Thread-safe.
class ArenaMemory {
 public:
  virtual ~ArenaMemory() = default;

  // Memory is taken in blocks of at most this size for each field of a page, or of one page if that
  // is larger: large enough that few calls reach the allocator, and no larger, since a block is
  // given back only when all of its pages are free.
  virtual size_t max_block_bytes() const { return size_t{1} << 20; }
  virtual Status Allocate(size_t bytes, float** memory) = 0;
  virtual void Free(float* memory, size_t bytes) = 0;
  // Return when the copy is done.
  virtual Status CopyIn(float* to, const float* from, size_t count) = 0;   // from host memory
  virtual Status CopyOut(float* to, const float* from, size_t count) = 0;  // to host memory
};

// Memory of the processor.
std::unique_ptr<ArenaMemory> HostArenaMemory();

// Bytes that arenas may hold together. Thread-safe.
class ArenaBudget {
 public:
  explicit ArenaBudget(size_t bytes) : bytes_(bytes) {}

  // Takes `bytes_each` as often as there is room, at most `count` times, and returns how often.
  size_t Take(size_t bytes_each, size_t count);
  void Give(size_t bytes);

  size_t bytes() const { return bytes_; }
  size_t taken() const { return taken_.load(std::memory_order_relaxed); }

 private:
  const size_t bytes_;
  std::atomic<size_t> taken_{0};
};

struct ArenaOptions {
  size_t budget_bytes = 0;              // of pages
  std::shared_ptr<ArenaBudget> budget;  // in place of budget_bytes: one that arenas share
  int device = 0;                       // as WorkspaceLimits::device
};

class StateArena {
 public:
  using Slot = int32_t;
  static constexpr Slot kNoSlot = -1;

  // `fields` as in the program, `axes` as for PlaceFields().
  StateArena(std::vector<FieldSpec> fields, const std::vector<AxisId>& axes,
             const ArenaOptions& options, std::unique_ptr<ArenaMemory> memory);
  ~StateArena();  // every run has ended; slots that are left are freed
  StateArena(const StateArena&) = delete;
  StateArena& operator=(const StateArena&) = delete;

  int device() const { return device_; }

  // A fresh slot.
  Status Allocate(Slot* slot);
  // A slot that holds what `from` holds.
  Status Copy(Slot from, Slot* slot);
  // slots[i] holds afterwards what slots[parents[i]] held before, for all i < count at once; a
  // parent may be named any number of times. The slots differ from one another.
  Status Reorder(const Slot* slots, const int* parents, int count);
  void Free(Slot slot);

  // A state as host memory: for each field the number of its rows, then all of these rows, field
  // after field.
  struct State {
    std::vector<int32_t> rows;  // [field]; 0 or 1 of a fixed one
    std::vector<float> values;
  };
  Status Take(Slot slot, State* state) const;
  // The slot holds `state` afterwards. kInvalidArgument when its sizes are not those of the fields,
  // or differ between fields that share pages.
  Status Put(Slot slot, const State& state);

  struct Stats {
    int64_t slots = 0;
    size_t used_bytes = 0;  // of pages that a slot or a run holds, each counted once
    size_t held_bytes = 0;  // of memory that is allocated
    size_t budget_bytes = 0;
  };
  Stats stats() const;

  // The slots of one axis of a batch, while it runs. Made by BeginRun(); its destructor gives up
  // what has not been committed.
  class Run {
   public:
    Run();
    ~Run();
    Run(Run&& other) noexcept;
    Run& operator=(Run&& other) noexcept;

    // Of a fixed field of the run's axis: the row before this run, null for zeros; and where its
    // new one goes, null for a sequence without a slot.
    const float* in(FieldId field, int sequence) const;
    float* out(FieldId field, int sequence) const;
    // Of a growing field: the rows before this run, and the pages that hold them and those that it
    // adds, kStatePageRows rows each, which begin at offset() values in each page.
    int rows(FieldId field, int sequence) const;
    const std::vector<float*>& pages(FieldId field, int sequence) const;
    size_t offset(FieldId field) const;
    // Of a growing field: if another slot shares the page of the last row before this run, that
    // page; pages() has one of the run's own in its place, to which the run copies those of the
    // rows() that were in it. Null if there is nothing to copy.
    const float* copied_from(FieldId field, int sequence) const;
    // Copies them, in memory of the processor.
    void CopySharedRows(FieldId field, int sequence) const;

    // Every slot goes on from what this run has written. This ends the run.
    void Commit();

   private:
    friend class StateArena;
    struct Impl;
    std::unique_ptr<Impl> impl_;
  };

  // The run writes all fields of `axis`. slots[i] is that of sequence i, to whose growing fields of
  // the axis `rows_added[i]` rows are added, none without `rows_added`; kNoSlot for a sequence
  // without one, whose in(), out(), rows() and pages() are null, 0 and empty.
  Status BeginRun(const Slot* slots, const int* rows_added, int count, AxisId axis, Run* run);

 private:
  struct Impl;
  const int device_;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_STATE_ARENA_H_
