// chaos_flood: sends unary calls to one server at a rate that may change, compares every answer
// with the right one, and says of every call how it ended.
//
//   chaos_flood ADDRESS CASES SEED DEADLINE_MS GRACE_MS
//
// ADDRESS is on this machine. A line of the file CASES is: kind, method's path, number of the field
// with the times of an answer (0: none), request, right answer of a model of an even version, that
// of an odd one; the last three in base64, without version and times. Standard input takes lines
// with a rate, in calls per second; its end ends the flood. Four times a second a line says what
// has ended since the last one: the time (CLOCK_MONOTONIC, seconds), then KIND:END=COUNT. END is
//
//   a code    the server's own word; CANCELLED is also HTTP/2's CANCEL
//   WRONG     OK, but not the right answer
//   HUNG      no word for GRACE_MS after the deadline, on a connection that lives
//   BROKEN    the connection ended, or the call was reset, and the server may have accepted it
//   REFUSED   the server said on the level of HTTP/2 that it has not accepted it
//
// and unsent=COUNT are arrivals while no connection took a call. A connection that ends is opened
// anew.
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "bench/h2_connection.h"
#include "bench/loopback.h"
#include "google/protobuf/empty.pb.h"
#include "google/protobuf/unknown_field_set.h"

namespace sru::testing {
namespace {

constexpr int kVersionField = 2;
constexpr double kReportS = 0.25;
constexpr double kReconnectS = 0.1;
constexpr double kStallS = 0.5;
// Most calls on one connection, as many as a server allows by default; arrivals beyond that are not
// sent.
constexpr size_t kMaxOpen = 512;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Case {
  std::string kind;
  int times_field = 0;
  std::string request;
  std::string answers[2];  // by the version's last bit
};

// What is right in an answer: all but its times and the version, whose last bit says which answer
// is.
bool IsRight(const Case& one, absl::string_view answer) {
  // To a message without fields all of them are unknown, and it keeps them in their order.
  google::protobuf::Empty fields;
  if (!fields.ParseFromString(std::string(answer))) return false;
  google::protobuf::UnknownFieldSet* const found =
      fields.GetReflection()->MutableUnknownFields(&fields);
  uint64_t version = 0;
  for (int i = 0; i < found->field_count(); ++i) {
    const google::protobuf::UnknownField& field = found->field(i);
    if (field.number() != kVersionField) continue;
    if (field.type() == google::protobuf::UnknownField::TYPE_VARINT) {
      version = field.varint();
    } else if (field.type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED ||
               !absl::SimpleAtoi(field.length_delimited(), &version)) {
      return false;
    }
  }
  found->DeleteByNumber(kVersionField);
  if (one.times_field != 0) found->DeleteByNumber(one.times_field);
  return fields.SerializeAsString() == one.answers[version % 2];
}

// The calls of one method on one connection at a time.
class Lane {
 public:
  Lane(std::string address, std::string method, double deadline_s, double grace_s, uint64_t seed,
       std::map<std::string, int64_t>* ends)
      : address_(std::move(address)),
        method_(std::move(method)),
        deadline_s_(deadline_s),
        grace_s_(grace_s),
        random_(seed),
        ends_(ends) {}

  void Add(Case one) { cases_.push_back(std::move(one)); }
  const std::string& method() const { return method_; }
  size_t cases() const { return cases_.size(); }
  bool idle() const { return open_ == 0; }
  int fd() const { return connection_ == nullptr ? -1 : connection_->fd(); }

  void SetRate(double rate, double now) {
    rate_ = rate;
    next_ = now;
    Schedule();
  }

  // Sends what is due. Returns whether something is left to be written.
  bool Step(double now) {
    // What this program has slept too long is no server's fault.
    if (now - last_step_ > kStallS) {
      for (auto& expiry : expiries_) expiry.first += now - last_step_;
    }
    last_step_ = now;
    Connect(now);
    for (; rate_ > 0 && next_ <= now; Schedule()) {
      if (connection_ == nullptr || !connection_->usable() || open_ >= kMaxOpen) {
        ++(*ends_)["unsent"];
        continue;
      }
      const Case& one = cases_[random_() % cases_.size()];
      const uint32_t stream =
          connection_->Start(one.request, static_cast<int64_t>(deadline_s_ * 1e6));
      calls_[stream] = &one;
      expiries_.push_back({now + deadline_s_ + grace_s_, stream});
      ++open_;
    }
    while (!expiries_.empty() && expiries_.front().first <= now) {
      const auto call = calls_.find(expiries_.front().second);
      if (call != calls_.end()) {
        connection_->Cancel(call->first);
        End(call, "HUNG");
      }
      expiries_.pop_front();
    }
    return connection_ != nullptr && connection_->Flush();
  }

  void Read() {
    if (connection_ != nullptr) connection_->ReadAnswers();
  }

 private:
  using Calls = std::map<uint32_t, const Case*>;

  void Schedule() {
    if (rate_ > 0) next_ += std::exponential_distribution<double>(rate_)(random_);
  }

  // A connection that goes away is kept until its last call has ended.
  void Connect(double now) {
    if (connection_ != nullptr && !connection_->alive() && open_ == 0) {
      connection_ = nullptr;
      calls_.clear();
      expiries_.clear();
      connect_at_ = now + kReconnectS;
    }
    if (connection_ != nullptr || rate_ == 0 || now < connect_at_) return;
    auto addresses = bench::ResolveLoopback(address_);
    if (!addresses.ok()) std::abort();  // it was resolved at the start
    auto opened = bench::H2Connection::Open(
        *addresses, method_,
        [this](uint32_t stream, absl::StatusCode code, absl::string_view text) {
          if (auto call = calls_.find(stream); call != calls_.end()) Ended(call, code, text);
        },
        /*keep_answers=*/true);
    if (opened.ok()) connection_ = *std::move(opened);
    connect_at_ = Now() + kReconnectS;
  }

  // The texts are H2Connection's own; a server's never begin like this.
  void Ended(Calls::iterator call, absl::StatusCode code, absl::string_view text) {
    if (code == absl::StatusCode::kOk) {
      End(call, IsRight(*call->second, text) ? "OK" : "WRONG");
    } else if (absl::StartsWith(text, "the call was reset with HTTP/2 error REFUSED_STREAM")) {
      End(call, "REFUSED");
    } else if (absl::StartsWith(text, "the call was reset with HTTP/2 error CANCEL")) {
      End(call, "CANCELLED");
    } else if (absl::StartsWith(text, "the call was reset with") ||
               absl::StartsWith(text, "the connection is lost") ||
               absl::StartsWith(text, "the answer ended without") ||
               absl::StartsWith(text, "the answer has no grpc-status")) {
      if (std::exchange(broken_text_, std::string(text)) != text) {
        std::fprintf(stderr, "%.3f %s: %s\n", Now(), method_.c_str(), broken_text_.c_str());
      }
      End(call, "BROKEN");
    } else {
      End(call, absl::StatusCodeToString(code));
    }
  }

  void End(Calls::iterator call, const std::string& end) {
    ++(*ends_)[call->second->kind + ":" + end];
    calls_.erase(call);
    --open_;
  }

  const std::string address_;
  const std::string method_;
  const double deadline_s_;
  const double grace_s_;
  std::vector<Case> cases_;
  std::mt19937_64 random_;
  std::map<std::string, int64_t>* const ends_;
  double rate_ = 0;
  double next_ = 0;
  double last_step_ = 0;
  double connect_at_ = 0;
  std::unique_ptr<bench::H2Connection> connection_;
  Calls calls_;
  std::deque<std::pair<double, uint32_t>> expiries_;  // all calls have the same deadline
  size_t open_ = 0;
  std::string broken_text_;  // the last one that was reported
};

bool ReadCases(const std::string& path, const std::string& address, double deadline_s,
               double grace_s, uint64_t seed, std::map<std::string, int64_t>* ends,
               std::vector<std::unique_ptr<Lane>>* lanes) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    Case one;
    if (words.size() != 6 || !absl::SimpleAtoi(words[2], &one.times_field) ||
        !absl::Base64Unescape(words[3], &one.request) ||
        !absl::Base64Unescape(words[4], &one.answers[0]) ||
        !absl::Base64Unescape(words[5], &one.answers[1])) {
      return false;
    }
    one.kind = words[0];
    auto lane = std::find_if(lanes->begin(), lanes->end(),
                             [&](const auto& other) { return other->method() == words[1]; });
    if (lane == lanes->end()) {
      lanes->push_back(std::make_unique<Lane>(address, words[1], deadline_s, grace_s,
                                              seed + lanes->size(), ends));
      lane = lanes->end() - 1;
    }
    (*lane)->Add(std::move(one));
  }
  return !lanes->empty();
}

// Standard input, which never blocks. Returns false at its end.
bool ReadRate(std::string* buffer, double* rate) {
  char bytes[256];
  for (;;) {
    const ssize_t size = read(STDIN_FILENO, bytes, sizeof(bytes));
    if (size == 0) return false;
    if (size < 0) break;
    buffer->append(bytes, static_cast<size_t>(size));
  }
  for (size_t end; (end = buffer->find('\n')) != std::string::npos; buffer->erase(0, end + 1)) {
    if (!absl::SimpleAtod(buffer->substr(0, end), rate)) return false;
  }
  return true;
}

void Report(double now, std::map<std::string, int64_t>* ends) {
  std::printf("%.3f", now);
  for (const auto& [end, count] : *ends) {
    std::printf(" %s=%lld", end.c_str(), static_cast<long long>(count));
  }
  std::puts("");
  std::fflush(stdout);
  ends->clear();
}

int Main(int argc, char** argv) {
  uint64_t seed = 0;
  double deadline_ms = 0;
  double grace_ms = 0;
  if (argc != 6 || !absl::SimpleAtoi(argv[3], &seed) || !absl::SimpleAtod(argv[4], &deadline_ms) ||
      !absl::SimpleAtod(argv[5], &grace_ms)) {
    std::fputs("usage: chaos_flood ADDRESS CASES SEED DEADLINE_MS GRACE_MS\n", stderr);
    return 2;
  }
  if (auto addresses = bench::ResolveLoopback(argv[1]); !addresses.ok()) {
    std::fprintf(stderr, "%s\n", addresses.status().ToString().c_str());
    return 2;
  }
  std::map<std::string, int64_t> ends;
  std::vector<std::unique_ptr<Lane>> lanes;
  if (!ReadCases(argv[2], argv[1], deadline_ms / 1e3, grace_ms / 1e3, seed, &ends, &lanes)) {
    std::fprintf(stderr, "%s: expected lines of six words\n", argv[2]);
    return 2;
  }
  size_t cases = 0;
  for (const auto& lane : lanes) cases += lane->cases();
  fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);

  std::string input;
  double rate = 0;
  double current = 0;
  double report_at = Now() + kReportS;
  bool sending = true;
  for (;;) {
    if (sending && !ReadRate(&input, &rate)) {
      sending = false;
      rate = 0;
    }
    double now = Now();
    if (rate != current) {
      current = rate;
      for (const auto& lane : lanes) {
        lane->SetRate(rate * static_cast<double>(lane->cases()) / static_cast<double>(cases), now);
      }
    }
    std::vector<pollfd> descriptors;
    bool idle = true;
    for (const auto& lane : lanes) {
      const bool left = lane->Step(now);
      descriptors.push_back({lane->fd(), static_cast<short>(POLLIN | (left ? POLLOUT : 0)), 0});
      idle = idle && lane->idle();
    }
    if (now >= report_at || (idle && !sending)) {
      Report(now, &ends);
      report_at = now + kReportS;
      if (idle && !sending) return 0;
    }
    // Calls that fall due meanwhile are sent together, which leaves more of the machine to the
    // servers.
    poll(descriptors.data(), descriptors.size(), 2);
    for (size_t i = 0; i < lanes.size(); ++i) {
      if ((descriptors[i].revents & ~POLLOUT) != 0) lanes[i]->Read();
    }
  }
}

}  // namespace
}  // namespace sru::testing

int main(int argc, char** argv) { return sru::testing::Main(argc, argv); }
