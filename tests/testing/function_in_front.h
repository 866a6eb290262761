// For functions that stand in front of a library's of the same names, so that the library itself
// calls them, too: finds the library's. Thread-safe.
#ifndef SRU_TESTS_TESTING_FUNCTION_IN_FRONT_H_
#define SRU_TESTS_TESTING_FUNCTION_IN_FRONT_H_

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

namespace sru::testing {

// What the next library calls `name`; of the type of `ours`.
template <typename Function>
Function* FunctionBehind(Function* /*ours*/, const char* name) {
  void* const behind = dlsym(RTLD_NEXT, name);
  if (behind == nullptr) std::abort();
  return reinterpret_cast<Function*>(behind);
}

// Of a member function that is not virtual; to be called with the object first.
template <typename Result, typename Class, typename... Arguments>
auto FunctionBehind(Result (Class::*ours)(Arguments...)) {
  const void* address = nullptr;
  static_assert(sizeof(ours) >= sizeof(address));
  std::memcpy(&address, &ours, sizeof(address));  // comes first in a pointer to such a member
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_saddr != address) std::abort();
  using Function = Result(Class*, Arguments...);
  return FunctionBehind<Function>(nullptr, info.dli_sname);
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_FUNCTION_IN_FRONT_H_
