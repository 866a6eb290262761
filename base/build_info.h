// From which sources a program was built: the version, the commit, and the build id by which its
// symbols are found. Thread-safe.
#ifndef SRU_BASE_BUILD_INFO_H_
#define SRU_BASE_BUILD_INFO_H_

#include <string>

namespace sru {

// The version in the file VERSION, such as "0.2.0".
const char* BuildVersion();

// "f3b37f5e", "f3b37f5e-dirty" if files differed from that commit, or "unknown". Only programs that
// link sru_commit know it, so that a commit does not link each test anew.
const char* BuildCommit();
// Called by sru_commit before main(). The text must stay.
bool SetBuildCommit(const char* commit);

// The GNU build id of the program in hexadecimal digits; empty if the linker made none. A copy of
// the program with symbols has the same. The text is found once and then stays.
const std::string& BuildId();

// The line for --version, such as "sru_client 0.2.0 (commit f3b37f5e)".
std::string BuildText(const char* program);

}  // namespace sru

#endif  // SRU_BASE_BUILD_INFO_H_
