#include "server/wiring/state_key_file.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/log.h"

namespace sru::server::wiring {
namespace {

constexpr char kFlag[] = "--state_key_file";

FileWatcher::Contents Read(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && (info.st_mode & (S_IROTH | S_IWOTH)) != 0) {
    return InvalidArgument("'", path,
                           "' may be read or written by every user of the machine, expected by its "
                           "owner and group only: chmod o-rw, or a defaultMode of 0440 where "
                           "Kubernetes mounts it");
  }
  return ReadFiles({path});
}

absl::StatusOr<models::StateKeys::List> Parse(const FileWatcher::Contents& contents) {
  if (contents.ok()) return models::StateKeys::Parse((*contents)[0], kFlag);
  return absl::Status(contents.status().code(),
                      absl::StrCat(kFlag, ": ", contents.status().message()));
}

}  // namespace

absl::StatusOr<std::shared_ptr<models::StateKeys>> WatchStateKeys(
    const std::string& path, FileWatcher* watcher, transport::SecurityMetrics* metrics) {
  if (path.empty()) return nullptr;
  FileWatcher::Contents contents = Read(path);
  SRU_ASSIGN_OR_RETURN(models::StateKeys::List list, Parse(contents));
  LogInfo(absl::StrCat("states: keys ", list.size()));
  auto keys = std::make_shared<models::StateKeys>(std::move(list));
  watcher->Watch([path] { return Read(path); }, std::move(contents),
                 [keys, metrics](const FileWatcher::Contents& changed) {
                   absl::StatusOr<models::StateKeys::List> newer = Parse(changed);
                   metrics->OnStateKeysReload(newer.ok());
                   if (!newer.ok()) {
                     LogError(
                         absl::StrCat("the file of state keys changed but the earlier ones "
                                      "stay in use: ",
                                      newer.status().message()));
                     return false;
                   }
                   LogInfo(absl::StrCat("states: keys now ", newer->size()));
                   keys->Use(*std::move(newer));
                   return true;
                 });
  return keys;
}

}  // namespace sru::server::wiring
