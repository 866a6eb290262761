// Watches small files and says when their contents changed: certificates, keys, lists of tokens.
//
// The files of a group belong together (a certificate and its key). A change is reported when the
// contents of the whole group have been the same at two looks in a row, so that files which are
// just being replaced one after the other are seldom seen half done. Contents are compared, not
// times, so that it does not matter how a file is replaced (a write, a rename, a symbolic link that
// points elsewhere, as Kubernetes does it).
#ifndef SRU_SERVER_BASE_FILE_WATCHER_H_
#define SRU_SERVER_BASE_FILE_WATCHER_H_

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server {

inline constexpr size_t kMaxWatchedFileBytes = 4 << 20;

// The contents of `paths`, "" for an empty path. kNotFound or kInvalidArgument names the path and
// says why it cannot be read, or that it is too large or not a regular file. A pipe is not waited
// for.
absl::StatusOr<std::vector<std::string>> ReadFiles(const std::vector<std::string>& paths);

class FileWatcher {
 public:
  // What the files hold, or why they cannot be read.
  using Contents = absl::StatusOr<std::vector<std::string>>;
  using Read = std::function<Contents()>;
  // Returns whether they are in use.
  using OnChange = std::function<bool(const Contents&)>;
  // Contents that are not in use are reported again after so many looks: it may depend on the time
  // (a certificate that begins later), and whoever counts them sees that the fault lasts.
  static constexpr int kLooksToRetry = 60;

  explicit FileWatcher(absl::Duration interval) : interval_(interval) {}
  FileWatcher(const FileWatcher&) = delete;
  FileWatcher& operator=(const FileWatcher&) = delete;
  // Waits for a callback that runs.
  ~FileWatcher();

  // Before Start(). `read` gives what a group holds, and runs on the watcher's thread; `known` is
  // what it gave the caller. `on_change` gets what differs from it, and from what it got last.
  void Watch(Read read, Contents known, OnChange on_change);

  // Before Start(). Runs at the end of each look, for what depends on the time and the contents.
  void EachLook(std::function<void()> action) { each_look_ = std::move(action); }

  // Starts the thread, if there is something to watch.
  void Start();

  // One look at every group; what the thread does once per interval. For tests.
  void Poll();

  // Lets the thread look at once, and take what it finds for settled: whoever asks says that the
  // files are complete. Contents that are not in use are reported again. Thread-safe.
  void LookNow();

 private:
  struct Group {
    Read read;
    Contents reported;
    Contents last_seen;
    OnChange on_change;
    bool is_used = true;
    int looks = 0;  // since it was reported
  };

  void Run();

  const absl::Duration interval_;
  std::vector<Group> groups_;        // constant but for their contents, which only Poll() touches
  std::function<void()> each_look_;  // constant once started
  Mutex mutex_;
  CondVar changed_;  // one of the two below
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool look_now_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_FILE_WATCHER_H_
