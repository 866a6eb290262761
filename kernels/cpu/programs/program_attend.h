// Attend of a program (program.h) for one sequence. Keys and values are adjacent rows or the pages
// of a slot; both are walked from key 0 on in the same blocks, so that a row's bits do not depend
// on how the rows before it were cut into runs.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ATTEND_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ATTEND_H_

#include <cstddef>

#include "kernels/state_arena.h"

namespace sru::kernels::cpu {

// Rows of `width` values each.
struct PagedRows {
  const float* rows = nullptr;          // all of them, or
  const float* const* pages = nullptr;  // kStatePageRows rows each, from `offset` on
  size_t offset = 0;
  size_t width = 0;

  const float* Page(size_t page) const {
    return rows != nullptr ? rows + page * kStatePageRows * width : pages[page] + offset;
  }
};

struct AttendCall {
  const float* q = nullptr;  // [rows][keys.width]
  int rows = 0;
  PagedRows keys;
  PagedRows values;
  int num_keys = 0;
  int heads = 1;
  float scale = 1.0f;
  bool causal = false;  // row i sees the first num_keys - (rows - 1 - i) keys, else all
  float* y = nullptr;   // [rows][values.width]
  // [rows][num_keys]: the weights of head 0, 0 where a row does not see a key; null = not wanted.
  float* attention = nullptr;
  // The first page of keys of the call that follows, which is fetched ahead; null = it is not
  // known.
  const float* next_keys = nullptr;
};

// Computes rows [begin, end) of the call's.
void AttendRows(const AttendCall& call, int begin, int end);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_ATTEND_H_
