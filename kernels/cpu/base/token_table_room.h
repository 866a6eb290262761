// Memory for token tables. The first layer's U depends on the token alone: of the whole vocabulary
// it is computed at load and looked up while serving, unless a map precedes the layer, where it
// fits into kTokenTableBytes or, beside others, all into kTokenTablesBytes. Of the others the
// largest does not count: a new version has its table while that of the old one is in memory. A
// model that finds no room computes U, with the same bits.
#ifndef SRU_KERNELS_CPU_BASE_TOKEN_TABLE_ROOM_H_
#define SRU_KERNELS_CPU_BASE_TOKEN_TABLE_ROOM_H_

#include <cstddef>
#include <numeric>
#include <set>

#include "kernels/mutex.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

inline constexpr size_t kTokenTableBytes = size_t{64} << 20;   // of one model
inline constexpr size_t kTokenTablesBytes = size_t{32} << 20;  // of several in a process

// The room of one model. Thread-safe, as far as different ones go.
class TokenTableRoom {
 public:
  TokenTableRoom() = default;
  TokenTableRoom(const TokenTableRoom&) = delete;
  TokenTableRoom& operator=(const TokenTableRoom&) = delete;
  ~TokenTableRoom() {
    if (bytes_ == 0) return;
    const MutexLock lock(&Tables().mutex);
    Tables().bytes.erase(Tables().bytes.find(bytes_));
  }

  // Takes the room for a table; false if the model is to have none. Call it once.
  bool Take(const StackSpec& spec, size_t values_per_token) {
    const size_t bytes = spec.vocabulary_size * values_per_token * sizeof(float);
    if (bytes == 0 || !spec.input_to_hidden.empty()) return false;
    const MutexLock lock(&Tables().mutex);
    if (!Tables().Fits(bytes)) return false;
    Tables().bytes.insert(bytes);
    bytes_ = bytes;
    return true;
  }
  // Whether a table would find room now.
  static bool Fits(size_t bytes) {
    const MutexLock lock(&Tables().mutex);
    return Tables().Fits(bytes);
  }

 private:
  struct All {
    bool Fits(size_t table) const SRU_LOCKS_REQUIRED(mutex) {
      const size_t largest = bytes.empty() ? 0 : *bytes.rbegin();
      const size_t others = std::accumulate(bytes.begin(), bytes.end(), size_t{0}) - largest;
      return others == 0 ? table <= kTokenTableBytes : others + table <= kTokenTablesBytes;
    }
    Mutex mutex;
    std::multiset<size_t> bytes SRU_GUARDED_BY(mutex);
  };
  static All& Tables() {
    static All& tables = *new All;
    return tables;
  }

  size_t bytes_ = 0;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_TOKEN_TABLE_ROOM_H_
