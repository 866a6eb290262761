#include "kernels/state_arena.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <utility>

#include "kernels/mutex.h"

namespace sru::kernels {
namespace {

constexpr size_t kAlignment = 64;  // of pages, in bytes: a cache line, or a vector register

constexpr size_t kMaxBlockPages = 256;  // of tiny ones
// A heap has no need of large blocks. In blocks of one or a few pages, what sessions leave that no
// longer step is not held by those that stay.
constexpr size_t kMaxHostBlockBytes = size_t{128} << 10;
// How often as many pages as are in use are taken before it is judged which of the free ones are needed.
constexpr size_t kRunsOfAWindow = 4;
// Free pages of one field are no use to another, so that all fields' blocks together are at most this
// part of the budget.
constexpr size_t kMinBlocksOfEveryField = 16;

int PagesOf(int rows) { return rows / kStatePageRows + (rows % kStatePageRows != 0 ? 1 : 0); }

Status NoBookkeepingMemory() {
  return Status(StatusCode::kResourceExhausted, "no memory for the bookkeeping of states");
}

class HostMemory final : public ArenaMemory {
 public:
  size_t max_block_bytes() const override { return kMaxHostBlockBytes; }
  Status Allocate(size_t bytes, float** memory) override {
    void* const allocated = ::operator new(bytes, std::align_val_t(kAlignment), std::nothrow);
    if (allocated == nullptr) {
      return Status(StatusCode::kResourceExhausted, "no memory for ", bytes, " bytes of states");
    }
    *memory = static_cast<float*>(allocated);
    return OkStatus();
  }
  void Free(float* memory, size_t /*bytes*/) override {
    ::operator delete(memory, std::align_val_t(kAlignment));
  }
  Status CopyIn(float* to, const float* from, size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
    return OkStatus();
  }
  Status CopyOut(float* to, const float* from, size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
    return OkStatus();
  }
  Status CopyWithin(float* to, const float* from, size_t count) override {
    std::memcpy(to, from, count * sizeof(float));
    return OkStatus();
  }
};

}  // namespace

// Not anonymous, for StateArena::Impl has members of them.
namespace state_arena {

// Pages and blocks are guarded by the arena's mutex, but for `data`, which is constant, and what it
// points to, which is of whoever uses a slot that holds the page.

struct Block;

struct Page {
  float* data = nullptr;
  Block* block = nullptr;
  Page* next_free = nullptr;
  int references = 0;  // slots and runs that hold it; 0 = free
  // The last call that began a run in which slots get pages of their own in place of this one, and how many
  // of the references are theirs.
  uint64_t leaving_call = 0;
  int leaving = 0;
};

// A piece of memory and its pages. It is in one list of its field unless all its pages are in use.
struct Block {
  Block* previous = nullptr;
  Block* next = nullptr;
  float* memory = nullptr;
  std::unique_ptr<Page[]> pages;
  int capacity = 0;
  int used = 0;
  Page* free = nullptr;
};

// Intrusive, so that no change of it allocates.
class BlockList {
 public:
  Block* front() const { return front_; }
  int size() const { return size_; }

  void PushFront(Block* block) {
    block->previous = nullptr;
    block->next = front_;
    if (front_ != nullptr) front_->previous = block;
    front_ = block;
    ++size_;
  }

  void Remove(Block* block) {
    (block->previous == nullptr ? front_ : block->previous->next) = block->next;
    if (block->next != nullptr) block->next->previous = block->previous;
    --size_;
  }

 private:
  Block* front_ = nullptr;
  int size_ = 0;
};

// The pages of one field. Not thread-safe.
class PagePool {
 public:
  PagePool(const FieldSpec& field, size_t max_block_bytes, ArenaBudget* budget, ArenaMemory* memory)
      : budget_(budget), memory_(memory), grows_(field.grows) {
    const size_t values =
        static_cast<size_t>(field.width) * (field.grows ? static_cast<size_t>(kStatePageRows) : 1);
    page_bytes_ =
        std::max((values * sizeof(float) + kAlignment - 1) / kAlignment, size_t{1}) * kAlignment;
    block_pages_ = std::clamp(max_block_bytes / page_bytes_, size_t{1}, kMaxBlockPages);
  }
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool() {
    assert(used_ == 0);
    while (empty_.front() != nullptr) GiveBack(empty_.front());
  }

  size_t page_bytes() const { return page_bytes_; }
  size_t used_bytes() const { return used_ * page_bytes_; }
  size_t held_bytes() const { return (used_ + free_) * page_bytes_; }
  size_t free_pages() const { return free_; }

  // One more block, smaller than usual where the budget has no room for it. False when the budget
  // does not hold even a page. Throws std::bad_alloc.
  Status Grow(bool* has_room) {
    auto block = std::make_unique<Block>();
    const size_t count = budget_->Take(page_bytes_, block_pages_);
    *has_room = count > 0;
    if (count == 0) return OkStatus();
    Status status;
    try {
      block->pages = std::make_unique<Page[]>(count);
      status = memory_->Allocate(count * page_bytes_, &block->memory);
    } catch (const std::bad_alloc&) {
      budget_->Give(count * page_bytes_);
      throw;
    }
    if (!status.ok()) {
      budget_->Give(count * page_bytes_);
      return status;
    }
    block->capacity = static_cast<int>(count);
    for (size_t i = count; i-- > 0;) {
      Page& page = block->pages[i];
      page.data = block->memory + i * (page_bytes_ / sizeof(float));
      page.block = block.get();
      page.next_free = block->free;
      block->free = &page;
    }
    free_ += count;
    empty_.PushFront(block.release());
    return OkStatus();
  }

  // A page with one reference. There is a free one.
  Page* Take() {
    // The first block with a free page has the fewest, in general, so that the others can become
    // empty.
    Block* block = partly_used_.front();
    if (block == nullptr) {
      block = empty_.front();
      empty_.Remove(block);
      partly_used_.PushFront(block);
    }
    Page* const page = block->free;
    block->free = page->next_free;
    if (++block->used == block->capacity) partly_used_.Remove(block);
    page->references = 1;
    ++used_;
    --free_;
    ++takes_;
    least_free_ = std::min(least_free_, free_);
    return page;
  }

  void Release(Page* page) {
    assert(page->references > 0);
    if (--page->references > 0) return;
    Block* const block = page->block;
    if (block->used-- == block->capacity) partly_used_.PushFront(block);
    page->next_free = block->free;
    block->free = page;
    --used_;
    ++free_;
    if (block->used == 0) {
      partly_used_.Remove(block);
      empty_.PushFront(block);
    }
    GiveBackSurplus();
  }

  // Gives empty blocks back that steady use does not need. A run replaces the rows of fixed fields, so
  // that as many pages as it has sequences become free with it; rows that are added stay. So at most as
  // many pages are kept as are in use, and of those none that was free throughout the last few runs. One
  // empty block is kept in any case: for the next sequence, if this was the last.
  void GiveBackSurplus() {
    const size_t kept = grows_ ? used_ / 4 : used_;
    if (takes_ >= kRunsOfAWindow * std::max(used_, block_pages_)) {
      while (empty_.size() > 1 && least_free_ >= static_cast<size_t>(empty_.front()->capacity)) {
        least_free_ -= static_cast<size_t>(empty_.front()->capacity);
        GiveBack(empty_.front());
      }
      takes_ = 0;
      least_free_ = free_;
    }
    while (empty_.size() > 1 && free_ >= kept + static_cast<size_t>(empty_.front()->capacity)) {
      GiveBack(empty_.front());
    }
  }

  // Gives every empty block back that `needed` free pages do not need.
  void GiveBackAllBut(size_t needed) {
    while (empty_.size() > 0 && free_ >= needed + static_cast<size_t>(empty_.front()->capacity)) {
      GiveBack(empty_.front());
    }
  }

 private:
  void GiveBack(Block* block) {
    empty_.Remove(block);
    const size_t count = static_cast<size_t>(block->capacity);
    memory_->Free(block->memory, count * page_bytes_);
    budget_->Give(count * page_bytes_);
    free_ -= count;
    least_free_ = std::min(least_free_, free_);
    delete block;
  }

  ArenaBudget* const budget_;
  ArenaMemory* const memory_;
  const bool grows_;
  size_t page_bytes_ = 0;
  size_t block_pages_ = 0;
  size_t used_ = 0;  // pages
  size_t free_ = 0;
  // Of the window that GiveBackSurplus() looks at: pages that were taken, and the fewest that were free.
  size_t takes_ = 0;
  size_t least_free_ = 0;
  BlockList partly_used_;
  BlockList empty_;
};

// What a slot holds of one field.
struct FieldState {
  Page* row = nullptr;       // of a fixed field; null = zeros
  std::vector<Page*> pages;  // of a growing one
  int rows = 0;              // in `pages`
};

// What one field of one sequence has in a run.
struct RunField {
  const float* in = nullptr;
  float* out = nullptr;
  int rows = 0;
  std::vector<float*> pages;
  // Pages of the run's own, which Commit() hands to the slot.
  Page* new_row = nullptr;
  std::vector<Page*> new_pages;
  bool replaces_last_page = false;
  const float* copied_from = nullptr;
};

}  // namespace state_arena

using state_arena::FieldState;
using state_arena::Page;
using state_arena::PagePool;
using state_arena::RunField;

std::unique_ptr<ArenaMemory> HostArenaMemory() { return std::make_unique<HostMemory>(); }

size_t ArenaBudget::Take(size_t bytes_each, size_t count) {
  size_t taken = taken_.load(std::memory_order_relaxed);
  for (;;) {
    const size_t taking = std::min(count, taken >= bytes_ ? 0 : (bytes_ - taken) / bytes_each);
    if (taken_.compare_exchange_weak(taken, taken + taking * bytes_each,
                                     std::memory_order_relaxed)) {
      return taking;
    }
  }
}

void ArenaBudget::Give(size_t bytes) { taken_.fetch_sub(bytes, std::memory_order_relaxed); }

struct StateArena::Run::Impl {
  struct PageCopy {
    float* to;
    const float* from;
    size_t count;
  };

  StateArena::Impl* arena = nullptr;
  std::unique_ptr<Impl> next_idle;
  int num_fields = 0;
  std::vector<Slot> slots;       // [sequence]
  std::vector<int> rows_added;   // [sequence]
  std::vector<char> is_written;  // [field]
  std::vector<RunField> fields;  // [sequence][field]; as many as any run before has had
  std::vector<PageCopy> copies;

  const RunField& at(FieldId field, int sequence) const {
    return fields[static_cast<size_t>(sequence) * num_fields + field];
  }
};

struct StateArena::Impl {
  struct SlotState {
    std::vector<FieldState> fields;
    uint64_t named_by = 0;  // the last call that named it, to find one that names it twice
    bool is_live = false;
  };

  Impl(std::vector<FieldSpec> specs, const ArenaOptions& options,
       std::unique_ptr<ArenaMemory> arena_memory)
      : fields(std::move(specs)),
        budget(options.budget != nullptr ? options.budget
                                         : std::make_shared<ArenaBudget>(options.budget_bytes)),
        memory(std::move(arena_memory)) {
    const size_t max_block_bytes =
        std::min(memory->max_block_bytes(),
                 budget->bytes() / kMinBlocksOfEveryField / std::max(fields.size(), size_t{1}));
    for (const FieldSpec& field : fields) {
      pools.emplace_back(field, max_block_bytes, budget.get(), memory.get());
    }
    needed.resize(fields.size());
  }

  ~Impl() {
    for (SlotState& slot : slots) ReleaseAll(&slot.fields);
  }

  int num_fields() const { return static_cast<int>(fields.size()); }

  Status Find(Slot slot, SlotState** state) SRU_LOCKS_REQUIRED(mutex) {
    if (slot < 0 || static_cast<size_t>(slot) >= slots.size() || !slots[slot].is_live) {
      return InvalidArgument("slot ", slot, " of the state arena is not in use");
    }
    *state = &slots[slot];
    return OkStatus();
  }

  // As Find(), for a call that names several.
  Status FindOnce(Slot slot, uint64_t call, SlotState** state) SRU_LOCKS_REQUIRED(mutex) {
    SRU_RETURN_IF_ERROR(Find(slot, state));
    if ((*state)->named_by == call) {
      return InvalidArgument("slot ", slot, " of the state arena is named twice in one call");
    }
    (*state)->named_by = call;
    return OkStatus();
  }

  // A slot without values. Throws std::bad_alloc.
  Slot NewSlot() SRU_LOCKS_REQUIRED(mutex) {
    if (free_slots.empty()) {
      slots.emplace_back();
      try {
        slots.back().fields.resize(fields.size());
        // So that Free() needs no memory.
        if (free_slots.capacity() < slots.size()) free_slots.reserve(2 * slots.size());
      } catch (const std::bad_alloc&) {
        slots.pop_back();
        throw;
      }
      free_slots.push_back(static_cast<Slot>(slots.size() - 1));
    }
    const Slot slot = free_slots.back();
    free_slots.pop_back();
    slots[slot].is_live = true;
    ++num_slots;
    return slot;
  }

  void FreeSlot(Slot slot) SRU_LOCKS_REQUIRED(mutex) {
    ReleaseAll(&slots[slot].fields);
    slots[slot].is_live = false;
    free_slots.push_back(slot);
    --num_slots;
  }

  static void AddReferences(std::vector<FieldState>* states) {
    for (FieldState& state : *states) {
      if (state.row != nullptr) ++state.row->references;
      for (Page* page : state.pages) ++page->references;
    }
  }

  void ReleaseAll(std::vector<FieldState>* states) SRU_LOCKS_REQUIRED(mutex) {
    for (size_t f = 0; f < states->size(); ++f) {
      FieldState& state = (*states)[f];
      if (state.row != nullptr) pools[f].Release(state.row);
      for (Page* page : state.pages) pools[f].Release(page);
      state.row = nullptr;
      state.pages.clear();
      state.rows = 0;
    }
  }

  // Makes sure that every field has `needed` free pages. Throws std::bad_alloc.
  Status ReserveNeeded() SRU_LOCKS_REQUIRED(mutex) {
    try {
      Status status = TryReserveNeeded();
      if (!status.ok()) ForgetNeeded();
      return status;
    } catch (const std::bad_alloc&) {
      ForgetNeeded();
      throw;
    }
  }

  Status TryReserveNeeded() SRU_LOCKS_REQUIRED(mutex) {
    for (size_t f = 0; f < pools.size(); ++f) {
      while (pools[f].free_pages() < needed[f]) {
        bool has_room = false;
        SRU_RETURN_IF_ERROR(pools[f].Grow(&has_room));
        if (has_room) continue;
        for (size_t g = 0; g < pools.size(); ++g) pools[g].GiveBackAllBut(needed[g]);
        SRU_RETURN_IF_ERROR(pools[f].Grow(&has_room));
        if (!has_room) return NoRoom();
      }
    }
    return OkStatus();
  }

  // After a refusal, nothing is kept for it.
  void ForgetNeeded() SRU_LOCKS_REQUIRED(mutex) {
    std::fill(needed.begin(), needed.end(), 0);
    for (PagePool& pool : pools) pool.GiveBackSurplus();
  }

  Status NoRoom() const SRU_LOCKS_REQUIRED(mutex) {
    size_t asked = 0;
    size_t used = 0;
    for (size_t f = 0; f < pools.size(); ++f) {
      asked += needed[f] * pools[f].page_bytes();
      used += pools[f].used_bytes();
    }
    return Status(StatusCode::kResourceExhausted, "the arena's budget of ", budget->bytes(),
                  " bytes has no room for ", asked, " bytes more of states: ", used,
                  " bytes are in use, and ", budget->taken(), " bytes of the budget are taken");
  }

  // Whether a slot that adds rows to a page in the run that `call` begins needs one of its own. The last of
  // the slots that share it does not, if all others are in the run and leave it: what it adds comes after
  // the rows that they copy.
  static bool MustLeave(Page* page, uint64_t call) {
    if (page->leaving_call != call) {
      page->leaving_call = call;
      page->leaving = 0;
    }
    if (page->references - page->leaving <= 1) return false;
    ++page->leaving;
    return true;
  }

  // Ends a run: its pages that have not gone to a slot are free again.
  void End(std::unique_ptr<Run::Impl> run) {
    const MutexLock lock(&mutex);
    for (size_t i = 0; i < run->slots.size() * fields.size(); ++i) {
      RunField& field = run->fields[i];
      PagePool& pool = pools[i % fields.size()];
      if (field.new_row != nullptr) pool.Release(field.new_row);
      for (Page* page : field.new_pages) pool.Release(page);
      field.new_row = nullptr;
      field.new_pages.clear();
    }
    run->next_idle = std::move(idle_runs);
    idle_runs = std::move(run);
  }

  const std::vector<FieldSpec> fields;
  const std::shared_ptr<ArenaBudget> budget;
  const std::unique_ptr<ArenaMemory> memory;

  mutable Mutex mutex;
  std::deque<PagePool> pools SRU_GUARDED_BY(mutex);  // [field]
  // A slot stays where it is while others are added. What it holds belongs to whoever uses the slot.
  std::deque<SlotState> slots SRU_GUARDED_BY(mutex);
  std::vector<Slot> free_slots SRU_GUARDED_BY(mutex);
  int64_t num_slots SRU_GUARDED_BY(mutex) = 0;
  uint64_t calls SRU_GUARDED_BY(mutex) = 0;          // that name several slots
  std::vector<size_t> needed SRU_GUARDED_BY(mutex);  // [field]: pages, of the call that is on
  // What slots will hold, of Reorder().
  std::vector<std::vector<FieldState>> reordering SRU_GUARDED_BY(mutex);
  // Ended ones, whose vectors the next runs use again.
  std::unique_ptr<Run::Impl> idle_runs SRU_GUARDED_BY(mutex);
};

StateArena::StateArena(std::vector<FieldSpec> fields, const ArenaOptions& options,
                       std::unique_ptr<ArenaMemory> memory)
    : device_(options.device),
      impl_(std::make_unique<Impl>(std::move(fields), options, std::move(memory))) {}

StateArena::~StateArena() = default;

Status StateArena::Allocate(Slot* slot) try {
  const MutexLock lock(&impl_->mutex);
  *slot = impl_->NewSlot();
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

Status StateArena::Copy(Slot from, Slot* slot) try {
  const MutexLock lock(&impl_->mutex);
  Impl::SlotState* source = nullptr;
  SRU_RETURN_IF_ERROR(impl_->Find(from, &source));
  std::vector<FieldState> states = source->fields;
  const Slot made = impl_->NewSlot();
  Impl::AddReferences(&states);
  impl_->slots[made].fields.swap(states);
  *slot = made;
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

Status StateArena::Reorder(const Slot* slots, const int* parents, int count) try {
  const MutexLock lock(&impl_->mutex);
  const uint64_t call = ++impl_->calls;
  Impl::SlotState* state = nullptr;
  for (int i = 0; i < count; ++i) {
    SRU_RETURN_IF_ERROR(impl_->FindOnce(slots[i], call, &state));
    if (parents[i] < 0 || parents[i] >= count) {
      return InvalidArgument("parent ", i, " is ", parents[i], ", expected 0 to ", count - 1);
    }
  }
  std::vector<std::vector<FieldState>>& reordering = impl_->reordering;
  if (reordering.size() < static_cast<size_t>(count)) reordering.resize(count);
  try {
    for (int i = 0; i < count; ++i) {
      if (parents[i] != i) reordering[i] = impl_->slots[slots[parents[i]]].fields;
    }
  } catch (const std::bad_alloc&) {
    reordering.clear();  // it holds no references yet
    throw;
  }
  for (int i = 0; i < count; ++i) {
    if (parents[i] != i) Impl::AddReferences(&reordering[i]);
  }
  for (int i = 0; i < count; ++i) {
    if (parents[i] == i) continue;
    reordering[i].swap(impl_->slots[slots[i]].fields);
    impl_->ReleaseAll(&reordering[i]);
  }
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

void StateArena::Free(Slot slot) {
  const MutexLock lock(&impl_->mutex);
  Impl::SlotState* state = nullptr;
  const Status status = impl_->Find(slot, &state);
  assert(status.ok());
  if (status.ok()) impl_->FreeSlot(slot);
}

Status StateArena::Take(Slot slot, State* state) const try {
  Impl::SlotState* held = nullptr;
  {
    const MutexLock lock(&impl_->mutex);
    SRU_RETURN_IF_ERROR(impl_->Find(slot, &held));
  }
  // Nobody else uses the slot now, and while it holds a page, what it holds of it does not change.
  size_t count = 0;
  std::vector<int32_t> rows(impl_->fields.size());
  for (size_t f = 0; f < rows.size(); ++f) {
    const FieldState& field = held->fields[f];
    rows[f] = impl_->fields[f].grows ? field.rows : (field.row != nullptr ? 1 : 0);
    count += static_cast<size_t>(rows[f]) * impl_->fields[f].width;
  }
  std::vector<float> values(count);
  float* to = values.data();
  for (size_t f = 0; f < rows.size(); ++f) {
    const FieldState& field = held->fields[f];
    const size_t width = impl_->fields[f].width;
    for (int done = 0; done < rows[f];) {
      const Page* const page =
          impl_->fields[f].grows ? field.pages[done / kStatePageRows] : field.row;
      const int here = std::min(rows[f] - done, kStatePageRows);
      SRU_RETURN_IF_ERROR(impl_->memory->CopyOut(to, page->data, here * width));
      to += here * width;
      done += here;
    }
  }
  state->rows = std::move(rows);
  state->values = std::move(values);
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

Status StateArena::Put(Slot slot, const State& state) try {
  const size_t num_fields = impl_->fields.size();
  if (state.rows.size() != num_fields) {
    return InvalidArgument("the state has ", state.rows.size(), " fields, expected ", num_fields);
  }
  size_t count = 0;  // of values that the rows need
  for (size_t f = 0; f < num_fields; ++f) {
    const FieldSpec& field = impl_->fields[f];
    const int32_t rows = state.rows[f];
    if (rows < 0 || (!field.grows && rows > 1)) {
      return InvalidArgument("the state has ", rows, " rows of the field ", field.name,
                             ", expected ", field.grows ? "0 or more" : "0 or 1");
    }
    const size_t more = static_cast<size_t>(rows) * field.width;
    if (more > state.values.size() - count) {
      return InvalidArgument("the state has ", state.values.size(), " values, expected at least ",
                             count + more, ": ", rows, " rows of the field ", field.name);
    }
    count += more;
  }
  if (count != state.values.size()) {
    return InvalidArgument("the state has ", state.values.size(), " values, expected ", count);
  }

  // The new pages, filled without the mutex before the slot gets them.
  std::vector<FieldState> made(num_fields);
  for (size_t f = 0; f < num_fields; ++f) {
    if (!impl_->fields[f].grows) continue;
    made[f].rows = state.rows[f];
    made[f].pages.reserve(PagesOf(state.rows[f]));
  }
  Impl::SlotState* held = nullptr;
  {
    const MutexLock lock(&impl_->mutex);
    SRU_RETURN_IF_ERROR(impl_->Find(slot, &held));
    for (size_t f = 0; f < num_fields; ++f) {
      impl_->needed[f] = impl_->fields[f].grows ? PagesOf(state.rows[f]) : state.rows[f];
    }
    SRU_RETURN_IF_ERROR(impl_->ReserveNeeded());
    for (size_t f = 0; f < num_fields; ++f) {
      PagePool& pool = impl_->pools[f];
      if (!impl_->fields[f].grows) {
        if (state.rows[f] > 0) made[f].row = pool.Take();
        continue;
      }
      for (int p = PagesOf(state.rows[f]); p > 0; --p) made[f].pages.push_back(pool.Take());
    }
  }
  Status status;
  const float* from = state.values.data();
  for (size_t f = 0; f < num_fields && status.ok(); ++f) {
    const size_t width = impl_->fields[f].width;
    for (int done = 0; done < state.rows[f] && status.ok();) {
      Page* const page =
          impl_->fields[f].grows ? made[f].pages[done / kStatePageRows] : made[f].row;
      const int here = std::min(state.rows[f] - done, kStatePageRows);
      status = impl_->memory->CopyIn(page->data, from, here * width);
      from += here * width;
      done += here;
    }
  }
  const MutexLock lock(&impl_->mutex);
  if (status.ok()) held->fields.swap(made);
  impl_->ReleaseAll(&made);
  return status;
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

StateArena::Stats StateArena::stats() const {
  const MutexLock lock(&impl_->mutex);
  Stats stats;
  stats.slots = impl_->num_slots;
  stats.budget_bytes = impl_->budget->bytes();
  for (const PagePool& pool : impl_->pools) {
    stats.used_bytes += pool.used_bytes();
    stats.held_bytes += pool.held_bytes();
  }
  return stats;
}

Status StateArena::BeginRun(const Slot* slots, const int* rows_added, int count,
                            const std::vector<FieldId>& written, Run* run) try {
  *run = Run();  // what it was before ends now
  const int num_fields = impl_->num_fields();
  const bool runs_copy = impl_->memory->runs_copy_pages();
  std::unique_ptr<Run::Impl> begun;
  {
    const MutexLock lock(&impl_->mutex);
    begun = std::move(impl_->idle_runs);
    if (begun != nullptr) impl_->idle_runs = std::move(begun->next_idle);
  }
  if (begun == nullptr) begun = std::make_unique<Run::Impl>();
  begun->arena = impl_.get();
  begun->num_fields = num_fields;
  begun->slots.clear();
  // From here on it gives back what it holds when this function returns early.
  Run ending;
  ending.impl_ = std::move(begun);
  Run::Impl& r = *ending.impl_;

  r.is_written.assign(num_fields, 0);
  for (FieldId field : written) {
    if (field < 0 || field >= num_fields) {
      return InvalidArgument("a run writes the field ", field, ", expected 0 to ", num_fields - 1);
    }
    r.is_written[field] = 1;
  }
  r.rows_added.assign(count, 0);
  r.copies.clear();
  if (r.fields.size() < static_cast<size_t>(count) * num_fields) {
    r.fields.resize(static_cast<size_t>(count) * num_fields);
  }

  {
    const MutexLock lock(&impl_->mutex);
    // What is needed, and memory for the bookkeeping of this call and of Commit().
    const uint64_t call = ++impl_->calls;
    std::fill(impl_->needed.begin(), impl_->needed.end(), 0);
    size_t num_copies = 0;
    for (int i = 0; i < count; ++i) {
      if (slots[i] == kNoSlot) continue;
      Impl::SlotState* slot = nullptr;
      SRU_RETURN_IF_ERROR(impl_->FindOnce(slots[i], call, &slot));
      if (rows_added != nullptr) r.rows_added[i] = rows_added[i];
      if (r.rows_added[i] < 0) {
        return InvalidArgument("a run adds ", r.rows_added[i], " rows to sequence ", i,
                               ", expected 0 or more");
      }
      for (int f = 0; f < num_fields; ++f) {
        RunField& field = r.fields[static_cast<size_t>(i) * num_fields + f];
        FieldState& state = slot->fields[f];
        if (!impl_->fields[f].grows) {
          if (r.is_written[f] != 0) ++impl_->needed[f];
          continue;
        }
        size_t num_pages = state.pages.size();
        field.replaces_last_page = false;
        if (r.is_written[f] != 0 && r.rows_added[i] > 0) {
          if (r.rows_added[i] > std::numeric_limits<int>::max() - state.rows) {
            return InvalidArgument("a run adds ", r.rows_added[i], " rows to the field ",
                                   impl_->fields[f].name, ", which has ", state.rows,
                                   ", expected at most ", std::numeric_limits<int>::max(),
                                   " in all");
          }
          num_pages = PagesOf(state.rows + r.rows_added[i]);
          field.replaces_last_page =
              state.rows % kStatePageRows != 0 && Impl::MustLeave(state.pages.back(), call);
          const size_t added = num_pages - state.pages.size() + (field.replaces_last_page ? 1 : 0);
          num_copies += field.replaces_last_page ? 1 : 0;
          impl_->needed[f] += added;
          field.new_pages.reserve(added);
          if (state.pages.capacity() < num_pages) {
            state.pages.reserve(std::max(num_pages, 2 * state.pages.size()));
          }
        }
        if (field.pages.capacity() < num_pages) {
          field.pages.reserve(std::max(num_pages, 2 * field.pages.size()));
        }
      }
    }
    r.copies.reserve(num_copies);
    r.slots.reserve(count);
    SRU_RETURN_IF_ERROR(impl_->ReserveNeeded());

    // Nothing fails from here on.
    r.slots.assign(slots, slots + count);
    for (int i = 0; i < count; ++i) {
      for (int f = 0; f < num_fields; ++f) {
        RunField& field = r.fields[static_cast<size_t>(i) * num_fields + f];
        field.in = nullptr;
        field.out = nullptr;
        field.rows = 0;
        field.copied_from = nullptr;
        field.pages.clear();
        if (slots[i] == kNoSlot) continue;
        const FieldState& state = impl_->slots[slots[i]].fields[f];
        PagePool& pool = impl_->pools[f];
        if (!impl_->fields[f].grows) {
          if (state.row != nullptr) field.in = state.row->data;
          if (r.is_written[f] != 0) {
            field.new_row = pool.Take();
            field.out = field.new_row->data;
          }
          continue;
        }
        field.rows = state.rows;
        for (const Page* page : state.pages) field.pages.push_back(page->data);
        if (r.is_written[f] == 0 || r.rows_added[i] == 0) continue;
        if (field.replaces_last_page) {
          Page* const page = pool.Take();
          if (runs_copy) {
            field.copied_from = field.pages.back();
          } else {
            const size_t rows = state.rows % kStatePageRows;
            r.copies.push_back({page->data, field.pages.back(), rows * impl_->fields[f].width});
          }
          field.new_pages.push_back(page);
          field.pages.back() = page->data;
        }
        const size_t num_pages = PagesOf(state.rows + r.rows_added[i]);
        while (field.pages.size() < num_pages) {
          Page* const page = pool.Take();
          field.new_pages.push_back(page);
          field.pages.push_back(page->data);
        }
      }
    }
  }
  for (const Run::Impl::PageCopy& copy : r.copies) {
    SRU_RETURN_IF_ERROR(impl_->memory->CopyWithin(copy.to, copy.from, copy.count));
  }
  *run = std::move(ending);
  return OkStatus();
} catch (const std::bad_alloc&) {
  return NoBookkeepingMemory();
}

StateArena::Run::Run() = default;

StateArena::Run::~Run() {
  if (impl_ != nullptr) {
    StateArena::Impl* const arena = impl_->arena;
    arena->End(std::move(impl_));
  }
}

StateArena::Run::Run(Run&& other) noexcept = default;

StateArena::Run& StateArena::Run::operator=(Run&& other) noexcept {
  Run ending;
  ending.impl_ = std::move(impl_);
  impl_ = std::move(other.impl_);
  return *this;
}

const float* StateArena::Run::in(FieldId field, int sequence) const {
  return impl_->at(field, sequence).in;
}

float* StateArena::Run::out(FieldId field, int sequence) const {
  return impl_->at(field, sequence).out;
}

int StateArena::Run::rows(FieldId field, int sequence) const {
  return impl_->at(field, sequence).rows;
}

const std::vector<float*>& StateArena::Run::pages(FieldId field, int sequence) const {
  return impl_->at(field, sequence).pages;
}

const float* StateArena::Run::copied_from(FieldId field, int sequence) const {
  return impl_->at(field, sequence).copied_from;
}

void StateArena::Run::Commit() {
  if (impl_ == nullptr) return;
  StateArena::Impl& arena = *impl_->arena;
  {
    const MutexLock lock(&arena.mutex);
    for (size_t i = 0; i < impl_->slots.size(); ++i) {
      if (impl_->slots[i] == kNoSlot) continue;
      std::vector<FieldState>& states = arena.slots[impl_->slots[i]].fields;
      for (int f = 0; f < impl_->num_fields; ++f) {
        if (impl_->is_written[f] == 0) continue;
        RunField& field = impl_->fields[i * impl_->num_fields + f];
        FieldState& state = states[f];
        if (!arena.fields[f].grows) {
          std::swap(state.row, field.new_row);  // the old one is released with the run
          continue;
        }
        auto added = field.new_pages.begin();
        if (added != field.new_pages.end() && field.replaces_last_page) {
          std::swap(state.pages.back(), *added++);
        }
        state.pages.insert(state.pages.end(), added, field.new_pages.end());
        field.new_pages.erase(added, field.new_pages.end());
        state.rows += impl_->rows_added[i];
      }
    }
  }
  Run ending;
  ending.impl_ = std::move(impl_);
}

}  // namespace sru::kernels
