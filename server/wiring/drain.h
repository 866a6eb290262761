// Drain: ends what the server does, in an order that loses no call that it has accepted.
#ifndef SRU_SERVER_WIRING_DRAIN_H_
#define SRU_SERVER_WIRING_DRAIN_H_

#include "server/wiring/doors.h"
#include "server/wiring/http_calls.h"
#include "server/wiring/pages.h"
#include "server/wiring/served_models.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

// As Server::Drain(). The server may have started in part.
bool Drain(Shared* shared, ServedModels* models, Doors* doors, HttpCalls* http_calls, Pages* pages);

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_DRAIN_H_
