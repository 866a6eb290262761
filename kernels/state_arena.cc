#include "kernels/state_arena.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <deque>
#include <limits>
#include <list>
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
// How often as many pages as are in use are taken before it is judged which of the free ones are
// needed.
constexpr size_t kRunsOfAWindow = 4;
// Free pages of one list are no use to another, so a block for every field takes at most this part
// of the budget.
constexpr size_t kMinBlocksOfEveryField = 16;

// What a field takes of a page: whole cache lines, so that the one after it is aligned too.
size_t ValuesInPage(const FieldSpec& field) {
  constexpr size_t kAligned = kAlignment / sizeof(float);
  const size_t rows = field.grows ? kStatePageRows : 1;
  return std::max((field.width * rows + kAligned - 1) / kAligned, size_t{1}) * kAligned;
}

template <typename T>
void ReserveAsItGrows(std::vector<T>* list, size_t count) {
  if (list->capacity() < count) list->reserve(std::max(count, 2 * list->size()));
}

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
  // The last call that began a run in which slots get pages of their own in place of this one, and
  // how many of the references are theirs.
  uint64_t leaving_call = 0;
  int leaving = 0;
};

// A piece of memory and its pages. No change of its list allocates.
struct Block {
  std::list<Block>::iterator self;
  float* memory = nullptr;
  std::unique_ptr<Page[]> pages;
  int capacity = 0;
  int used = 0;
  Page* free = nullptr;
};

// The fields that share pages: all of an axis that grow, or all that do not.
struct SharedPages {
  AxisId axis = kNone;
  bool grows = false;
  std::vector<FieldId> fields;
  size_t values = 0;  // of a page

  int rows() const { return grows ? kStatePageRows : 1; }  // of each field in a page
  size_t PagesOf(int of_field) const {
    const auto count = static_cast<size_t>(of_field);
    return grows ? (count + kStatePageRows - 1) / kStatePageRows : count;
  }
};

// Pages of one kind. Not thread-safe.
class PagePool {
 public:
  PagePool(const SharedPages& shared, size_t max_block_bytes, ArenaBudget* budget,
           ArenaMemory* memory)
      : budget_(budget),
        memory_(memory),
        grows_(shared.grows),
        page_bytes_(shared.values * sizeof(float)),
        block_pages_(std::clamp(max_block_bytes / page_bytes_, size_t{1}, kMaxBlockPages)) {}
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool() {
    assert(used_ == 0);
    while (!empty_.empty()) GiveBack();
  }

  size_t page_bytes() const { return page_bytes_; }
  size_t used_bytes() const { return used_ * page_bytes_; }
  size_t held_bytes() const { return (used_ + free_) * page_bytes_; }
  size_t free_pages() const { return free_; }

  // One more block, smaller than usual where the budget has no room for it. False when the budget
  // does not hold even a page. Throws std::bad_alloc.
  Status Grow(bool* has_room) {
    std::list<Block> made(1);
    Block* const block = &made.front();
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
      page.block = block;
      page.next_free = block->free;
      block->free = &page;
    }
    free_ += count;
    block->self = made.begin();
    empty_.splice(empty_.begin(), made);
    return OkStatus();
  }

  // A page with one reference. There is a free one.
  Page* Take() {
    // The first block with a free page has the fewest, in general, so that the others can become
    // empty.
    if (partly_used_.empty()) partly_used_.splice(partly_used_.begin(), empty_, empty_.begin());
    Block* const block = &partly_used_.front();
    Page* const page = block->free;
    block->free = page->next_free;
    if (++block->used == block->capacity) full_.splice(full_.begin(), partly_used_, block->self);
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
    if (block->used-- == block->capacity) {
      partly_used_.splice(partly_used_.begin(), full_, block->self);
    }
    page->next_free = block->free;
    block->free = page;
    --used_;
    ++free_;
    if (block->used == 0) empty_.splice(empty_.begin(), partly_used_, block->self);
    GiveBackSurplus();
  }

  // Gives empty blocks back that steady use does not need. A run replaces the rows of fixed fields,
  // so that as many pages as it has sequences become free with it; rows that are added stay. So at
  // most as many pages are kept as are in use, and of those none that was free throughout the last
  // few runs. One empty block is kept in any case: for the next sequence, if this was the last.
  void GiveBackSurplus() {
    const size_t kept = grows_ ? used_ / 4 : used_;
    if (takes_ >= kRunsOfAWindow * std::max(used_, block_pages_)) {
      while (empty_.size() > 1 && least_free_ >= NextPages()) {
        least_free_ -= NextPages();
        GiveBack();
      }
      takes_ = 0;
      least_free_ = free_;
    }
    while (empty_.size() > 1 && free_ >= kept + NextPages()) GiveBack();
  }

  // Gives every empty block back that `needed` free pages do not need.
  void GiveBackAllBut(size_t needed) {
    while (!empty_.empty() && free_ >= needed + NextPages()) GiveBack();
  }

 private:
  // Of the empty block that is given back next, and giving it back.
  size_t NextPages() const { return static_cast<size_t>(empty_.front().capacity); }
  void GiveBack() {
    const size_t count = NextPages();
    memory_->Free(empty_.front().memory, count * page_bytes_);
    budget_->Give(count * page_bytes_);
    free_ -= count;
    least_free_ = std::min(least_free_, free_);
    empty_.pop_front();
  }

  ArenaBudget* const budget_;
  ArenaMemory* const memory_;
  const bool grows_;
  const size_t page_bytes_;
  const size_t block_pages_;
  size_t used_ = 0;  // pages
  size_t free_ = 0;
  // Of the window that GiveBackSurplus() looks at: pages that were taken, and the fewest that were
  // free.
  size_t takes_ = 0;
  size_t least_free_ = 0;
  std::list<Block> partly_used_;
  std::list<Block> empty_;
  std::list<Block> full_;
};

// What a slot holds of fields that share pages.
struct PageList {
  std::vector<Page*> pages;
  int rows = 0;  // of each field; of fixed ones 0 = zeros
};

// What a run has of a sequence's page list.
struct RunList {
  int rows = 0;
  int rows_after = 0;
  size_t kept = 0;  // of the slot's pages; if there is one more, the first new page replaces it
  std::vector<float*> pages;
  const float* replaced = nullptr;
  std::vector<Page*> new_pages;  // which Commit() hands to the slot
};

}  // namespace state_arena

using state_arena::Page;
using state_arena::PageList;
using state_arena::PagePool;
using state_arena::RunList;
using state_arena::SharedPages;

std::vector<FieldPlace> PlaceFields(const std::vector<FieldSpec>& fields,
                                    const std::vector<AxisId>& axes) {
  std::vector<FieldPlace> places;
  std::vector<size_t> ends(fields.size());  // [first]
  for (size_t f = 0; f < fields.size(); ++f) {
    size_t first = 0;
    while (axes[first] != axes[f] || fields[first].grows != fields[f].grows) ++first;
    places.push_back({static_cast<FieldId>(first), ends[first]});
    ends[first] += ValuesInPage(fields[f]);
  }
  return places;
}

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
  StateArena::Impl* arena = nullptr;
  std::unique_ptr<Impl> next_idle;
  std::vector<Slot> slots;     // [sequence]
  std::vector<RunList> lists;  // [sequence][list]; as many as any run before has had

  const RunList& at(FieldId field, int sequence) const;
};

struct StateArena::Impl {
  struct SlotState {
    std::vector<PageList> lists;
    uint64_t named_by = 0;  // the last call that named it, to find one that names it twice
    bool is_live = false;
  };

  Impl(std::vector<FieldSpec> specs, const std::vector<AxisId>& axes, const ArenaOptions& options,
       std::unique_ptr<ArenaMemory> arena_memory)
      : fields(std::move(specs)),
        places(PlaceFields(fields, axes)),
        budget(options.budget != nullptr ? options.budget
                                         : std::make_shared<ArenaBudget>(options.budget_bytes)),
        memory(std::move(arena_memory)) {
    for (size_t f = 0; f < fields.size(); ++f) {
      const auto first = static_cast<size_t>(places[f].first);
      list_of.push_back(first == f ? static_cast<int>(shared.size()) : list_of[first]);
      if (first == f) shared.push_back({axes[f], fields[f].grows, {}, 0});
      SharedPages& pages = shared[list_of[f]];
      pages.fields.push_back(static_cast<FieldId>(f));
      pages.values = places[f].offset + ValuesInPage(fields[f]);
    }
    const size_t field_block_bytes =
        std::min(memory->max_block_bytes(),
                 budget->bytes() / kMinBlocksOfEveryField / std::max(fields.size(), size_t{1}));
    for (const SharedPages& pages : shared) {
      pools.emplace_back(pages, pages.fields.size() * field_block_bytes, budget.get(),
                         memory.get());
    }
    needed.resize(shared.size());
  }

  ~Impl() {
    for (SlotState& slot : slots) ReleaseAll(&slot.lists);
  }

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
        slots.back().lists.resize(shared.size());
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
    ReleaseAll(&slots[slot].lists);
    slots[slot].is_live = false;
    free_slots.push_back(slot);
    --num_slots;
  }

  // Calls use(rows in memory, how many values) for the rows of `lists`, field after field, those of
  // a page together, until an error.
  template <typename Use>
  Status ForEachRows(const std::vector<PageList>& lists, const Use& use) const {
    for (size_t f = 0; f < fields.size(); ++f) {
      const PageList& list = lists[list_of[f]];
      const int page_rows = shared[list_of[f]].rows();
      for (int done = 0; done < list.rows; done += page_rows) {
        SRU_RETURN_IF_ERROR(
            use(list.pages[done / page_rows]->data + places[f].offset,
                std::min(list.rows - done, page_rows) * static_cast<size_t>(fields[f].width)));
      }
    }
    return OkStatus();
  }

  static void AddReferences(std::vector<PageList>* lists) {
    for (PageList& list : *lists) {
      for (Page* page : list.pages) ++page->references;
    }
  }

  void ReleaseAll(std::vector<PageList>* lists) SRU_LOCKS_REQUIRED(mutex) {
    for (size_t l = 0; l < lists->size(); ++l) {
      PageList& list = (*lists)[l];
      for (Page* page : list.pages) pools[l].Release(page);
      list.pages.clear();
      list.rows = 0;
    }
  }

  // Makes sure that every pool has `needed` free pages. Throws std::bad_alloc.
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

  // Whether a slot that adds rows to a page in the run that `call` begins needs one of its own. The
  // last of the slots that share it does not, if all others are in the run and leave it: what it
  // adds comes after the rows that they copy.
  static bool MustLeave(Page* page, uint64_t call) {
    if (page->leaving_call != call) {
      page->leaving_call = call;
      page->leaving = 0;
    }
    if (page->references - page->leaving <= 1) return false;
    ++page->leaving;
    return true;
  }

  // Finds out which pages a run needs, and makes room for the bookkeeping of TakePages() and
  // Commit(). Throws std::bad_alloc.
  Status PlanRun(const Slot* run_slots, const int* rows_added, int count, AxisId axis,
                 Run::Impl* run) SRU_LOCKS_REQUIRED(mutex) {
    const size_t num_lists = shared.size();
    if (run->lists.size() < count * num_lists) run->lists.resize(count * num_lists);
    run->slots.reserve(count);
    const uint64_t call = ++calls;
    std::fill(needed.begin(), needed.end(), 0);
    for (int i = 0; i < count; ++i) {
      if (run_slots[i] == kNoSlot) continue;
      SlotState* slot = nullptr;
      SRU_RETURN_IF_ERROR(FindOnce(run_slots[i], call, &slot));
      const int added = rows_added != nullptr ? rows_added[i] : 0;
      if (added < 0) {
        return InvalidArgument("a run adds ", added, " rows to sequence ", i,
                               ", expected 0 or more");
      }
      for (size_t l = 0; l < num_lists; ++l) {
        PageList& held = slot->lists[l];
        RunList& list = run->lists[i * num_lists + l];
        const bool replaces = shared[l].axis == axis && !shared[l].grows;
        list.rows_after = replaces ? 1 : held.rows;
        list.kept = replaces ? 0 : held.pages.size();
        if (shared[l].axis == axis && shared[l].grows && added > 0) {
          constexpr int kMost = std::numeric_limits<int>::max();
          if (added > kMost - held.rows) {
            return InvalidArgument("a run adds ", added, " rows to the field ",
                                   fields[shared[l].fields.front()].name, ", which has ", held.rows,
                                   ", expected at most ", kMost, " in all");
          }
          list.rows_after += added;
          if (held.rows % kStatePageRows != 0 && MustLeave(held.pages.back(), call)) --list.kept;
        }
        const size_t num_pages = shared[l].PagesOf(list.rows_after);
        needed[l] += num_pages - list.kept;
        list.new_pages.reserve(num_pages - list.kept);
        ReserveAsItGrows(&held.pages, num_pages);
        ReserveAsItGrows(&list.pages, num_pages);
      }
    }
    return OkStatus();
  }

  // Gives the sequences of a run the pages that have been planned and reserved. Nothing fails.
  void TakePages(Run::Impl* run) SRU_LOCKS_REQUIRED(mutex) {
    for (size_t i = 0; i < run->slots.size(); ++i) {
      for (size_t l = 0; l < shared.size(); ++l) {
        RunList& list = run->lists[i * shared.size() + l];
        list.rows = 0;
        list.replaced = nullptr;
        list.pages.clear();
        if (run->slots[i] == kNoSlot) continue;
        const PageList& held = slots[run->slots[i]].lists[l];
        list.rows = held.rows;
        for (size_t p = 0; p < list.kept; ++p) list.pages.push_back(held.pages[p]->data);
        for (size_t more = shared[l].PagesOf(list.rows_after) - list.kept; more > 0; --more) {
          list.new_pages.push_back(pools[l].Take());
          list.pages.push_back(list.new_pages.back()->data);
        }
        if (list.kept < held.pages.size()) list.replaced = held.pages.back()->data;
      }
    }
  }

  // Ends a run: its pages that have not gone to a slot are free again.
  void End(std::unique_ptr<Run::Impl> run) {
    const MutexLock lock(&mutex);
    for (size_t i = 0; i < run->slots.size() * shared.size(); ++i) {
      std::vector<Page*>& pages = run->lists[i].new_pages;
      for (Page* page : pages) pools[i % shared.size()].Release(page);
      pages.clear();
    }
    run->next_idle = std::move(idle_runs);
    idle_runs = std::move(run);
  }

  const std::vector<FieldSpec> fields;
  const std::vector<FieldPlace> places;  // [field]
  std::vector<int> list_of;              // [field]; constant, as `shared`
  std::vector<SharedPages> shared;       // [list]
  const std::shared_ptr<ArenaBudget> budget;
  const std::unique_ptr<ArenaMemory> memory;

  mutable Mutex mutex;
  std::deque<PagePool> pools SRU_GUARDED_BY(mutex);  // [list]
  // A slot stays where it is while others are added. What it holds belongs to whoever uses the
  // slot.
  std::deque<SlotState> slots SRU_GUARDED_BY(mutex);
  std::vector<Slot> free_slots SRU_GUARDED_BY(mutex);
  int64_t num_slots SRU_GUARDED_BY(mutex) = 0;
  uint64_t calls SRU_GUARDED_BY(mutex) = 0;          // that name several slots
  std::vector<size_t> needed SRU_GUARDED_BY(mutex);  // [list]: pages, of the call that is on
  // What slots will hold, of Reorder().
  std::vector<std::vector<PageList>> reordering SRU_GUARDED_BY(mutex);
  // Ended ones, whose vectors the next runs use again.
  std::unique_ptr<Run::Impl> idle_runs SRU_GUARDED_BY(mutex);
};

StateArena::StateArena(std::vector<FieldSpec> fields, const std::vector<AxisId>& axes,
                       const ArenaOptions& options, std::unique_ptr<ArenaMemory> memory)
    : device_(options.device),
      impl_(std::make_unique<Impl>(std::move(fields), axes, options, std::move(memory))) {}

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
  std::vector<PageList> lists = source->lists;
  const Slot made = impl_->NewSlot();
  Impl::AddReferences(&lists);
  impl_->slots[made].lists.swap(lists);
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
  std::vector<std::vector<PageList>>& reordering = impl_->reordering;
  if (reordering.size() < static_cast<size_t>(count)) reordering.resize(count);
  try {
    for (int i = 0; i < count; ++i) {
      if (parents[i] != i) reordering[i] = impl_->slots[slots[parents[i]]].lists;
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
    reordering[i].swap(impl_->slots[slots[i]].lists);
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
    rows[f] = held->lists[impl_->list_of[f]].rows;
    count += static_cast<size_t>(rows[f]) * impl_->fields[f].width;
  }
  std::vector<float> values(count);
  float* to = values.data();
  SRU_RETURN_IF_ERROR(impl_->ForEachRows(held->lists, [&](const float* from, size_t more) {
    Status status = impl_->memory->CopyOut(to, from, more);
    to += more;
    return status;
  }));
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
    const FieldId first = impl_->places[f].first;
    if (rows != state.rows[first]) {
      return InvalidArgument("the state has ", rows, " rows of the field ", field.name,
                             ", expected ", state.rows[first], " as of the field ",
                             impl_->fields[first].name);
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
  std::vector<PageList> made(impl_->shared.size());
  for (size_t l = 0; l < made.size(); ++l) {
    made[l].rows = state.rows[impl_->shared[l].fields.front()];
    made[l].pages.reserve(impl_->shared[l].PagesOf(made[l].rows));
  }
  Impl::SlotState* held = nullptr;
  {
    const MutexLock lock(&impl_->mutex);
    SRU_RETURN_IF_ERROR(impl_->Find(slot, &held));
    for (size_t l = 0; l < made.size(); ++l) {
      impl_->needed[l] = impl_->shared[l].PagesOf(made[l].rows);
    }
    SRU_RETURN_IF_ERROR(impl_->ReserveNeeded());
    for (size_t l = 0; l < made.size(); ++l) {
      while (made[l].pages.size() < impl_->needed[l]) {
        made[l].pages.push_back(impl_->pools[l].Take());
      }
    }
  }
  const float* from = state.values.data();
  const Status status = impl_->ForEachRows(made, [&](float* to, size_t more) {
    Status copied = impl_->memory->CopyIn(to, from, more);
    from += more;
    return copied;
  });
  const MutexLock lock(&impl_->mutex);
  if (status.ok()) held->lists.swap(made);
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

Status StateArena::BeginRun(const Slot* slots, const int* rows_added, int count, AxisId axis,
                            Run* run) try {
  *run = Run();  // what it was before ends now
  std::unique_ptr<Run::Impl> begun;
  {
    const MutexLock lock(&impl_->mutex);
    begun = std::move(impl_->idle_runs);
    if (begun != nullptr) impl_->idle_runs = std::move(begun->next_idle);
  }
  if (begun == nullptr) begun = std::make_unique<Run::Impl>();
  begun->arena = impl_.get();
  begun->slots.clear();
  // From here on it gives back what it holds when this function returns early.
  Run ending;
  ending.impl_ = std::move(begun);
  {
    const MutexLock lock(&impl_->mutex);
    SRU_RETURN_IF_ERROR(impl_->PlanRun(slots, rows_added, count, axis, ending.impl_.get()));
    SRU_RETURN_IF_ERROR(impl_->ReserveNeeded());
    ending.impl_->slots.assign(slots, slots + count);
    impl_->TakePages(ending.impl_.get());
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

const RunList& StateArena::Run::Impl::at(FieldId field, int sequence) const {
  return lists[sequence * arena->shared.size() + arena->list_of[field]];
}

const float* StateArena::Run::in(FieldId field, int sequence) const {
  const RunList& list = impl_->at(field, sequence);
  return list.replaced != nullptr ? list.replaced + offset(field) : nullptr;
}

float* StateArena::Run::out(FieldId field, int sequence) const {
  const RunList& list = impl_->at(field, sequence);
  return list.new_pages.empty() ? nullptr : list.new_pages.front()->data + offset(field);
}

int StateArena::Run::rows(FieldId field, int sequence) const {
  return impl_->at(field, sequence).rows;
}

const std::vector<float*>& StateArena::Run::pages(FieldId field, int sequence) const {
  return impl_->at(field, sequence).pages;
}

size_t StateArena::Run::offset(FieldId field) const { return impl_->arena->places[field].offset; }

const float* StateArena::Run::copied_from(FieldId field, int sequence) const {
  return impl_->at(field, sequence).replaced;
}

void StateArena::Run::CopySharedRows(FieldId field, int sequence) const {
  const float* const from = copied_from(field, sequence);
  if (from == nullptr) return;
  const int before = rows(field, sequence);
  std::copy_n(from + offset(field),
              static_cast<size_t>(impl_->arena->fields[field].width) * (before % kStatePageRows),
              pages(field, sequence)[before / kStatePageRows] + offset(field));
}

void StateArena::Run::Commit() {
  if (impl_ == nullptr) return;
  StateArena::Impl& arena = *impl_->arena;
  {
    const MutexLock lock(&arena.mutex);
    const size_t num_lists = arena.shared.size();
    for (size_t i = 0; i < impl_->slots.size(); ++i) {
      if (impl_->slots[i] == kNoSlot) continue;
      std::vector<PageList>& lists = arena.slots[impl_->slots[i]].lists;
      for (size_t l = 0; l < num_lists; ++l) {
        RunList& list = impl_->lists[i * num_lists + l];
        PageList& held = lists[l];
        auto added = list.new_pages.begin();
        // The old page is released with the run.
        if (list.kept < held.pages.size()) std::swap(held.pages.back(), *added++);
        held.pages.insert(held.pages.end(), added, list.new_pages.end());
        list.new_pages.erase(added, list.new_pages.end());
        held.rows = list.rows_after;
      }
    }
  }
  Run ending;
  ending.impl_ = std::move(impl_);
}

}  // namespace sru::kernels
