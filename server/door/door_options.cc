#include "server/door/door_options.h"

#include <algorithm>

#include "server/base/cores.h"

namespace sru::server::door {
namespace {

constexpr int kMostThreads = 4;

}  // namespace

int TransportOptions::num_io_threads() const {
  if (io_threads > 0) return io_threads;
  return std::min(NumCores(), kMostThreads);
}

void AddFlags(TransportOptions* options, Flags* flags) {
  flags->Group(Flags::kRarelyChanged);
  flags->AddChoice<GrpcTransport>(
      "grpc_transport", &options->transport,
      {{"native", GrpcTransport::kNative}, {"library", GrpcTransport::kLibrary}},
      "native: the server's own event loops. library: gRPC's library, which lacks "
      "bounds against hostile clients (docs/security.md#grpcs-library); for "
      "comparison and as a fallback.");
  flags->Add("io_threads", &options->io_threads, {1, 1024, /*or_zero=*/true},
             "Event loops, which serve the connections. 0 = one per core that the "
             "process may use, at most 4.");
}

}  // namespace sru::server::door
