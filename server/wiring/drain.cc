#include <algorithm>

#include "absl/time/clock.h"
#include "server/batching/engine.h"
#include "server/wiring/parts.h"

namespace sru::server::wiring {
namespace {

// How long streams that never end by themselves (health Watch, reflection) may live after the last
// call was answered.
constexpr absl::Duration kStreamGrace = absl::Milliseconds(200);

// How long given answers may take to leave while the server drains: enough for a client that reads,
// and the limit for one that does not.
constexpr absl::Duration kAnswerGrace = absl::Seconds(1);

// How long the last spans may take to reach their collector, within the time of the drain.
constexpr absl::Duration kSpanGrace = absl::Seconds(3);

}  // namespace

bool Drain(Shared* shared, ServedModels* models, Doors* doors, HttpCalls* http_calls,
           Pages* pages) {
  doors->SetRechecks(false);
  models->BeginDrain();
  const std::vector<door::GrpcPort*> call_ports = doors->CallPorts();
  if (call_ports.empty()) return true;
  const Clock& clock = shared->clock;
  const absl::Time deadline = clock.Now() + shared->options.drain_timeout;
  models->health().Shutdown();  // NOT_SERVING, for good
  absl::SleepFor(shared->options.drain_delay);
  // Before the batchers close: what clients have sent before they know is answered.
  for (door::GrpcPort* const port : call_ports) port->BeginDrain();

  bool complete = true;
  // Before the batchers close: streams that wait for their clients end with their states.
  shared->open_streams.Drain();
  http::HttpServer* const call_server = http_calls->server();
  if (call_server != nullptr) call_server->BeginDrain();
  // Likewise: a text is translated by call after call.
  complete &= http_calls->texts_in_flight().WaitUntilNone(deadline - clock.Now());
  // Including those that were unloaded but still have calls.
  std::vector<std::shared_ptr<lifecycle::ServedModel>> served = models->manager()->InMemory();
  for (const auto& model : served) model->engine->Close();
  for (const auto& model : served) complete &= model->engine->Drain(deadline);
  served.clear();
  complete &= shared->in_flight.WaitUntilNone(std::max(deadline - clock.Now(), kStreamGrace));
  // Does not wait for clients that do not read. A call of HTTP has its answer when the client has
  // taken the last part but one.
  const absl::Time sent_by = clock.Now() + kAnswerGrace;
  if (http_calls->gateway() != nullptr) http_calls->gateway()->Close(kAnswerGrace);
  for (door::GrpcPort* const port : call_ports) {
    port->RefuseRest();
    port->WaitUntilSent(sent_by - clock.Now());
  }
  pages->CloseBoxes();
  for (door::GrpcPort* const port : doors->Ports()) port->Shutdown(kStreamGrace);
  if (call_server != nullptr) call_server->Stop();
  if (shared->tracer != nullptr) {
    shared->tracer->Stop(std::min(deadline - clock.Now(), kSpanGrace));
  }
  return complete;
}

}  // namespace sru::server::wiring
