// The memory that this program has taken from the system and does not use.
#ifndef SRU_SERVER_BASE_HEAP_H_
#define SRU_SERVER_BASE_HEAP_H_

namespace sru::server {

// Gives it back. Allocators otherwise keep what the many small and middle-sized parts of a model
// took. Takes milliseconds; for the rare thread that has just freed much.
void ReleaseFreeMemory();

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_HEAP_H_
