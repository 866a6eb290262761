#include "server/transport/receive_ledger.h"

#include <algorithm>
#include <utility>

namespace sru::server::transport {

std::shared_ptr<ReceiveLedger> ReceiveLedger::Create(Options options) {
  return std::shared_ptr<ReceiveLedger>(new ReceiveLedger(std::move(options)));
}

std::shared_ptr<ReceiveLedger::Account> ReceiveLedger::Open(std::string peer) {
  std::shared_ptr<Account> account(new Account(shared_from_this(), std::move(peer)));
  MutexLock lock(&mutex_);
  accounts_.insert(account.get());
  return account;
}

int64_t ReceiveLedger::held_bytes() const {
  MutexLock lock(&mutex_);
  return held_;
}

ReceiveLedger::Account::~Account() {
  MutexLock lock(&ledger_->mutex_);
  if (!closing_) ledger_->held_ -= received_ - freed_;
  ledger_->accounts_.erase(this);
}

void ReceiveLedger::Account::Add(int64_t bytes) {
  const absl::Duration now = ledger_->options_.now();
  std::vector<std::shared_ptr<Account>> closed;
  std::vector<int64_t> held;
  {
    MutexLock lock(&ledger_->mutex_);
    if (now - marked_at_ >= ledger_->options_.held_for) {
      received_before_ = received_at_mark_;
      received_at_mark_ = received_;
      marked_at_ = now;
    }
    received_ += bytes;
    received_last_ = now;
    if (closing_) return;
    ledger_->held_ += bytes;
    if (ledger_->held_ <= ledger_->options_.limit_bytes) return;
    closed = ledger_->Choose(now);
    held.reserve(closed.size());
    for (const auto& account : closed) held.push_back(account->received_ - account->freed_);
  }
  for (size_t i = 0; i < closed.size(); ++i) {
    closed[i]->close_();
    ledger_->Tell(closed[i]->peer_, held[i]);
  }
}

void ReceiveLedger::Account::Free(int64_t bytes) {
  MutexLock lock(&ledger_->mutex_);
  freed_ += bytes;
  if (!closing_) ledger_->held_ -= bytes;
}

void ReceiveLedger::Tell(const std::string& peer, int64_t held) {
  MutexLock lock(&telling_mutex_);
  if (tells_ && options_.on_closed != nullptr) options_.on_closed(peer, held);
}

void ReceiveLedger::StopTelling() {
  MutexLock lock(&telling_mutex_);
  tells_ = false;
}

int64_t ReceiveLedger::HeldForLong(const Account& account, absl::Duration now) const {
  int64_t long_ago = account.received_before_;
  if (now - account.marked_at_ >= options_.held_for) long_ago = account.received_at_mark_;
  if (now - account.received_last_ >= options_.held_for) long_ago = account.received_;
  return std::max<int64_t>(0, long_ago - account.freed_);
}

std::vector<std::shared_ptr<ReceiveLedger::Account>> ReceiveLedger::Choose(absl::Duration now) {
  struct Candidate {
    Account* account;
    int64_t held_for_long;
    int64_t held;
  };
  std::vector<Candidate> candidates;
  for (Account* account : accounts_) {
    const int64_t held = account->received_ - account->freed_;
    if (account->closing_ || held == 0) continue;
    candidates.push_back({account, HeldForLong(*account, now), held});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.held_for_long != b.held_for_long ? a.held_for_long > b.held_for_long : a.held > b.held;
  });
  // A little more than necessary, so that this is not asked at every read.
  const int64_t enough = options_.limit_bytes / 4 * 3;
  std::vector<std::shared_ptr<Account>> chosen;
  for (const Candidate& candidate : candidates) {
    if (held_ <= enough) break;
    std::shared_ptr<Account> account = candidate.account->weak_from_this().lock();
    if (account == nullptr) continue;  // about to go, with all that it held
    account->closing_ = true;
    held_ -= candidate.held;
    chosen.push_back(std::move(account));
  }
  return chosen;
}

}  // namespace sru::server::transport
