// The server's options on which transport serves gRPC.
#ifndef SRU_SERVER_DOOR_DOOR_OPTIONS_H_
#define SRU_SERVER_DOOR_DOOR_OPTIONS_H_

#include "base/flags.h"

namespace sru::server::door {

enum class GrpcTransport { kLibrary, kNative };

struct TransportOptions {
  GrpcTransport transport = GrpcTransport::kNative;
  int io_threads = 0;  // of the native one; 0 = as many as cores, at most 4

  int num_io_threads() const;
};

void AddFlags(TransportOptions* options, Flags* flags);

}  // namespace sru::server::door

#endif  // SRU_SERVER_DOOR_DOOR_OPTIONS_H_
