// StateKeys: the secrets by which the replicas of a fleet know the states that one of them made
// (state_codec.h).
//
// Thread-safe.
#ifndef SRU_MODELS_STATE_KEYS_H_
#define SRU_MODELS_STATE_KEYS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace sru::models {

class StateKeys {
 public:
  // The first one signs; states of all of them are accepted. Never empty.
  using List = std::vector<std::string>;

  // Reads a key a line, of at least 32 visible ASCII characters; blank lines and lines that begin
  // with # are skipped. kInvalidArgument begins with `source` and repeats no key;
  // kFailedPrecondition when OpenSSL cannot compute HMAC-SHA256 here.
  static absl::StatusOr<List> Parse(absl::string_view text, absl::string_view source);

  explicit StateKeys(List keys) { Use(std::move(keys)); }

  void Use(List keys) {
    auto list = std::make_shared<const List>(std::move(keys));
    MutexLock lock(&mutex_);
    list_ = std::move(list);
  }
  std::shared_ptr<const List> Get() const {
    MutexLock lock(&mutex_);
    return list_;
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const List> list_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sru::models

#endif  // SRU_MODELS_STATE_KEYS_H_
