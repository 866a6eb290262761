// FailingAllocations: operator new of a test program, which fails where a test wants it to. A program that
// compiles failing_allocations.cc has every form of operator new and delete replaced; they fail only on a
// thread that has armed them.
#ifndef SRU_TESTS_TESTING_FAILING_ALLOCATIONS_H_
#define SRU_TESTS_TESTING_FAILING_ALLOCATIONS_H_

#include <cstdint>

namespace sru::testing {

// Of the calling thread: from now on the allocation number `first`, counted from 1, fails, and with
// `for_good` all later ones too. The counts below begin again.
void ArmAllocations(int64_t first, bool for_good);
// No allocation fails any more. The counts stay.
void DisarmAllocations();

// While this thread was armed: how many allocations failed, and the bytes that the others took, by the
// size that was asked for; what was freed meanwhile is not subtracted.
int64_t FailedAllocations();
int64_t AllocatedBytes();

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FAILING_ALLOCATIONS_H_
