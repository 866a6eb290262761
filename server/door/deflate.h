// Compresses messages of answers.
#ifndef SRU_SERVER_DOOR_DEFLATE_H_
#define SRU_SERVER_DOOR_DEFLATE_H_

#include "absl/strings/cord.h"

namespace sru::server::door {

// Compresses a message with gzip, in favor of speed. False, and the message stays as it is, if that
// would take as many bytes as the message, or if there is no memory. Thread-safe.
bool Gzip(absl::Cord* message);

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_DEFLATE_H_
