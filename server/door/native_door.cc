#include "server/door/native_door.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/time/clock.h"
#include "server/base/clock.h"
#include "server/transport/file_limit.h"
#include "server/transport/listening_sockets.h"

namespace sru::server::door {
namespace {

// What one address may take of the memory for what arrives. More than half, as all clients may come
// through one proxy.
constexpr int64_t kAddressPart = 4;
constexpr int64_t kAddressParts = 5;
constexpr int64_t kOpenPart = 8;
constexpr int64_t kOpenParts = 4;
// How long connections may take to notice that they are to go.
constexpr absl::Duration kNoticeTimeout = absl::Seconds(1);
// The time for answers over HTTP/1.1 that are being written when the door is shut.
constexpr absl::Duration kHttp1Grace = absl::Milliseconds(500);

// Waits for something that has no signal, as it is waited for once; false after `timeout`.
template <typename Done>
bool Await(absl::Duration timeout, const Done& done) {
  const absl::Time end = SteadyNow() + timeout;
  while (!done()) {
    if (SteadyNow() >= end) return false;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return true;
}

}  // namespace

DoorContext::DoorContext(DoorOptions given, MemoryCount* receive_memory, SideThreads* side_threads)
    : options(std::move(given)),
      side(*side_threads),
      memory(receive_memory->limit() / kAddressParts * kAddressPart, receive_memory),
      open_memory(receive_memory->limit() / kOpenPart),
      open_memory_of(open_memory.limit() / kOpenParts, nullptr),
      own_connections(static_cast<size_t>(options.limits.max_connections), /*keeps_calls=*/true),
      connections(options.connections == nullptr ? own_connections : *options.connections) {}

// Shelf.

void NativeDoor::Shelf::Add(AcceptedSocket socket) {
  Count(1);
  loop_.TakeIn(
      std::move(socket), [this](AcceptedSocket taken) { Begin(std::move(taken)); },
      [this](const std::string& peer) {
        context_.options.on_refused(transport::kTooManyWaiting, peer);
        Count(-1);
      });
}

void NativeDoor::Shelf::Begin(AcceptedSocket socket) {
  if (closed_) return Count(-1);
  auto connection = std::make_shared<Connection>(&context_, &loop_, this, std::move(socket));
  connections_.emplace(connection.get(), connection);
  connection->Start();
}

void NativeDoor::Shelf::OnClosed(Connection* connection) {
  if (connections_.erase(connection) > 0) Count(-1);
}

std::vector<std::shared_ptr<Connection>> NativeDoor::Shelf::All() const {
  std::vector<std::shared_ptr<Connection>> all;
  all.reserve(connections_.size());
  for (const auto& [key, connection] : connections_) all.push_back(connection);
  return all;
}

void NativeDoor::Shelf::BeginDrain() {
  // In turns: thousands of connections take milliseconds. The door waits until each has been asked.
  for (const auto& connection : All()) {
    loop_.RunInTurn({transport::AddressKey{}, this}, [this, weak = connection->weak_from_this()] {
      const absl::Cleanup asked = [this] { context_.announced.fetch_sub(1); };
      if (const auto open = weak.lock()) open->BeginGoAway(CloseCause::kDrain);
    });
    context_.announced.fetch_add(1);
  }
}

void NativeDoor::Shelf::RefuseRest() {
  for (const auto& connection : All()) connection->RefuseRest();
}

void NativeDoor::Shelf::Recheck() {
  // It takes a tenth of a millisecond to check a certificate.
  for (const auto& connection : All()) {
    loop_.RunInTurn({transport::AddressKey{}, this}, [weak = connection->weak_from_this()] {
      if (const auto open = weak.lock()) open->Recheck();
    });
  }
}

void NativeDoor::Shelf::StopHttp1() {
  for (const auto& connection : All()) connection->StopHttp1();
}

void NativeDoor::Shelf::CloseAll() {
  closed_ = true;
  for (const auto& connection : All()) connection->Close(CloseCause::kDrain);
}

// NativeDoor.

absl::StatusOr<std::unique_ptr<NativeDoor>> NativeDoor::Open(absl::string_view flag,
                                                             ListenAddress address,
                                                             DoorOptions options, LoopSet* loops,
                                                             MemoryCount* memory) {
  absl::StatusOr<std::vector<int>> sockets = transport::OpenListeningSockets(flag, &address);
  if (!sockets.ok()) return sockets.status();
  std::unique_ptr<NativeDoor> door(
      new NativeDoor(std::move(address), std::move(options), loops, memory));
  absl::StatusOr<std::unique_ptr<transport::Acceptor>> acceptor = transport::Acceptor::Create(
      *std::move(sockets), door->address_.ToString(),
      [door = door.get()](int fd, const sockaddr_storage& from) { door->OnConnection(fd, from); },
      [door = door.get()] {
        if (door->context_.options.waits_for_files) door->context_.connections.MakeRoom();
      });
  if (!acceptor.ok()) return acceptor.status();
  door->acceptor_ = *std::move(acceptor);
  return door;
}

NativeDoor::NativeDoor(ListenAddress address, DoorOptions options, LoopSet* loops,
                       MemoryCount* memory)
    : address_(std::move(address)),
      context_(std::move(options), memory, &loops->side()),
      loops_(*loops) {
  for (const auto& loop : loops->loops()) {
    shelves_.push_back(std::make_unique<Shelf>(&context_, loop.get()));
  }
}

NativeDoor::~NativeDoor() {
  if (acceptor_ != nullptr) Shutdown(absl::ZeroDuration());
}

void NativeDoor::Start() { acceptor_->Start(); }

void NativeDoor::OnConnection(int fd, const sockaddr_storage& address) {
  AcceptedSocket socket(fd, address);
  const DoorOptions& options = context_.options;
  const int most = std::max(1, transport::FileLimit() - options.files_left);
  if (fd >= most) {  // counted before its peer can notice that it is closed
    options.on_refused(transport::kTooManyOpen, socket.peer());
    // Another one makes way, soon: until then this one has a descriptor of those that are kept
    // back. Who is on its way to its loop can make way when it has come there, and after the second
    // wait the one that goes is closed.
    const auto wait_for_loops = [this] { loops_.RunOnEach([](size_t /*i*/) {}); };
    if (options.waits_for_files) wait_for_loops();
    if (!options.waits_for_files && fd >= most + options.files_left / 4) return;
    if (!context_.connections.MakeRoom()) return;
    if (options.waits_for_files) wait_for_loops();
  }
  shelves_[loops_.Least()]->Add(std::move(socket));
}

int64_t NativeDoor::OpenOnShelves() const {
  int64_t open = 0;
  for (const auto& shelf : shelves_) open += shelf->size();
  return open;
}

void NativeDoor::OnEachLoop(void (Shelf::*run)()) {
  loops_.RunOnEach([&](size_t i) { (shelves_[i].get()->*run)(); });
}

void NativeDoor::BeginDrain() {
  acceptor_->Stop();
  context_.draining = true;
  OnEachLoop(&Shelf::BeginDrain);
  Await(kNoticeTimeout, [this] { return context_.announced.load() == 0; });
}

void NativeDoor::Recheck() {
  for (const auto& shelf : shelves_)
    shelf->loop().Post([shelf = shelf.get()] { shelf->Recheck(); });
}

void NativeDoor::RefuseRest() { OnEachLoop(&Shelf::RefuseRest); }

bool NativeDoor::WaitUntilSent(absl::Duration timeout) const {
  return Await(timeout, [this] { return num_unsent() == 0; });
}

void NativeDoor::Shutdown(absl::Duration grace) {
  if (!context_.draining) BeginDrain();
  OnEachLoop(&Shelf::StopHttp1);
  Await(kHttp1Grace, [this] { return context_.sessions.load() == 0; });
  Await(grace, [this] { return OpenOnShelves() == 0; });
  OnEachLoop(&Shelf::CloseAll);
  // Calls learn that their callers are gone, and end; the loops forget what they were to do with
  // the shelves.
  Await(absl::InfiniteDuration(), [this] {
    return OpenOnShelves() == 0 && context_.streams.load() == 0 && context_.announced.load() == 0;
  });
}

}  // namespace sru::server::door
