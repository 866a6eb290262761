// Messages of protobuf as the bytes of an exchange. Pure functions.
#ifndef SRU_SERVER_CALLS_MESSAGE_CORD_H_
#define SRU_SERVER_CALLS_MESSAGE_CORD_H_

#include "absl/strings/cord.h"
#include "google/protobuf/message_lite.h"

namespace sru::server::calls {

// False if the bytes are not such a message, or if the thread's work was interrupted
// (server/base/interruption.h) meanwhile.
bool ParseCord(const absl::Cord& bytes, google::protobuf::MessageLite* message);

// In one piece. False if the message is too large for protobuf.
bool SerializeToCord(const google::protobuf::MessageLite& message, absl::Cord* bytes);
// The same for a message that cannot be too large.
absl::Cord ToCord(const google::protobuf::MessageLite& message);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_MESSAGE_CORD_H_
