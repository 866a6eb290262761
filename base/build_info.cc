#include "base/build_info.h"

#include <link.h>

#include <cstddef>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace sru {
namespace {

const char* build_commit = "unknown";

// Looks at the notes of the first object, which is the program.
int ReadBuildId(dl_phdr_info* info, size_t /*size*/, void* build_id) {
  // The note's length of name, length of contents, type (3) and name.
  constexpr absl::string_view kHead("\4\0\0\0\24\0\0\0\3\0\0\0GNU", 16);
  constexpr size_t kBytes = 20;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const absl::string_view notes(reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr),
                                  segment.p_memsz);
    const size_t found = notes.find(kHead);
    if (found == absl::string_view::npos) continue;
    *static_cast<std::string*>(build_id) =
        absl::BytesToHexString(notes.substr(found + kHead.size(), kBytes));
  }
  return 1;
}

}  // namespace

const char* BuildVersion() { return SRU_VERSION; }

const char* BuildCommit() { return build_commit; }

bool SetBuildCommit(const char* commit) {
  build_commit = commit;
  return true;
}

const std::string& BuildId() {
  static const auto* const kBuildId = [] {
    auto* const build_id = new std::string;
    dl_iterate_phdr(&ReadBuildId, build_id);
    return build_id;
  }();
  return *kBuildId;
}

std::string BuildText(const char* program) {
  return absl::StrCat(program, " ", BuildVersion(), " (commit ", BuildCommit(), ")");
}

}  // namespace sru
