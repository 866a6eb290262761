#include "server/rest/gateway.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/hash/hash.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status.h"
#include "grpcpp/alarm.h"
#include "server/base/clock.h"
#include "server/base/interruption.h"
#include "server/base/retry.h"
#include "server/callers/trusted_proxies.h"
#include "server/calls/local_calls.h"
#include "server/http/allowed_origins.h"
#include "server/http/page_host.h"
#include "server/rest/alarm.h"
#include "server/rest/api_routes.h"
#include "server/rest/error_response.h"
#include "server/rest/method_call.h"
#include "server/rest/openapi.h"
#include "server/rest/packed_body.h"
#include "server/rest/route.h"
#include "server/rest/web_protocol.h"

namespace sru::server::rest {
namespace {

constexpr char kAuthorization[] = "authorization";
// To read a body of this size takes a fraction of a millisecond.
constexpr size_t kLongBody = 8 << 10;
// An answer of this size is charged to no budget, like those of the native transport
// (server/door/stream.cc).
constexpr int64_t kUnchargedBytes = 1 << 10;
// Answers that no call has made, and requests whose sender is not known yet, may each take the
// memory of all calls divided by this.
constexpr int kSmallPart = 8;
// To free an answer of this size would hold up a loop: it takes a millisecond for each 10 MiB.
constexpr size_t kCostlyBytes = 1 << 20;
constexpr int64_t kMostTimeoutMs = 24 * 60 * 60 * 1000;

// What a page of a browser sends and programs do not. Browsers leave Origin out of a GET for the
// page's own origin, and the Sec-Fetch headers where the page came over plain HTTP.
bool IsFromBrowser(const http::PageRequest& request) {
  return request.headers.count("origin") > 0 || request.headers.count("sec-fetch-site") > 0 ||
         absl::StartsWith(request.header("user-agent"), "Mozilla/");
}

// Reads the header that all routes have; infinite without it.
absl::StatusOr<absl::Duration> ReadTimeout(const http::PageRequest& request) {
  const std::string* const text = request.headers.Find("x-request-timeout-ms");
  if (text == nullptr) return absl::InfiniteDuration();
  int64_t milliseconds = 0;
  if (std::all_of(text->begin(), text->end(), absl::ascii_isdigit) &&
      absl::SimpleAtoi(*text, &milliseconds) && milliseconds >= 1 &&
      milliseconds <= kMostTimeoutMs) {
    return absl::Milliseconds(milliseconds);
  }
  return InvalidArgument("X-Request-Timeout-Ms: expected a whole number from 1 to ", kMostTimeoutMs,
                         ", found '", text->substr(0, 32), "'");
}

void AddRateLimits(const callers::Caller* caller, http::PageResponse* response) {
  if (caller == nullptr) return;
  for (auto& header : caller->RateLimitHeaders()) response->headers.push_back(std::move(header));
}

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

// The HTTP status of a body that could not be read.
int BodyErrorStatus(const absl::Status& status) {
  return absl::IsInvalidArgument(status)     ? 411
         : absl::IsResourceExhausted(status) ? 413
         : absl::IsDeadlineExceeded(status)  ? 408
                                             : 0;
}

}  // namespace

struct Gateway::State {
  explicit State(Options given)
      : options(std::move(given)),
        pages(options.memory == nullptr ? std::numeric_limits<int64_t>::max()
                                        : options.memory->limit() / kSmallPart),
        strangers(pages.limit()) {}

  // OK, or the refusal of the sender, whatever he asks for.
  absl::Status CheckSender(const http::PageRequest& request) const {
    if (!IsFromBrowser(request) || http::IsFromAllowedOrigin(request, options.allow_origins)) {
      return absl::OkStatus();
    }
    if (http::IsCrossOrigin(request)) {
      return absl::PermissionDeniedError(
          "the request comes from a web page of another origin; this server answers programs, "
          "pages of its own and, on the ports for calls, those of --allow_origins");
    }
    if (!http::IsAllowedPageHost(request.header("host"), options.page_hosts)) {
      return absl::PermissionDeniedError(http::WrongPageHost(request.header("host")));
    }
    return absl::OkStatus();
  }

  // Who sends a request and how long he waits, by its head.
  struct Sender {
    callers::CallerPtr caller;                          // null: unknown, or the token is a field
    absl::Duration timeout = absl::InfiniteDuration();  // that the headers ask for
  };

  RestError Check(const http::PageRequest& request, const RouteTable::Match& match,
                  Sender* sender) const {
    if (closed) return {ShuttingDown()};
    SRU_RETURN_UNLESS_OK(CheckSender(request));
    if (match.route == nullptr && match.allowed.empty()) {
      const std::string nearest = routes.Nearest(request.path);
      return {absl::NotFoundError(
          absl::StrCat("there is nothing at ", request.path.substr(0, 200),
                       nearest.empty() ? "" : absl::StrCat("; the nearest route is ", nearest),
                       options.only.empty() ? "; GET /openapi.json describes all routes" : ""))};
    }
    if (match.route == nullptr) {
      return {absl::UnimplementedError(absl::StrCat(request.path.substr(0, 200), " does not take ",
                                                    request.method.substr(0, 32), "; it takes ",
                                                    match.allowed)),
              405,
              {{"Allow", match.allowed}}};
    }
    const Route& route = *match.route;
    const bool is_open = route.is_probe && !options.auth_probes;
    if (!is_open && !TokenComesLater(request, route) && options.authenticate != nullptr) {
      SRU_ASSIGN_OR_RETURN(sender->caller, options.authenticate(request));
    }
    if (IsWebCall(match.errors)) {
      SRU_ASSIGN_OR_RETURN(sender->timeout, ReadWebHeaders(match.errors, request));
    }
    if (!route.content_types.empty()) {
      if (absl::Status status = CheckBodyEncoding(request); !status.ok()) {
        return {status, 415, {{"Accept-Encoding", kBodyEncodings}}};
      }
      if (absl::Status status = CheckContent(request, route); !status.ok()) {
        return {status, 415};
      }
    }
    const absl::StatusOr<absl::Duration> timeout = ReadTimeout(request);
    if (!timeout.ok()) {
      RestError error(timeout.status());
      error.param = "X-Request-Timeout-Ms";
      return error;
    }
    sender->timeout = std::min(sender->timeout, *timeout);
    if (sender->caller == nullptr || !route.calls.has_value()) return {absl::OkStatus()};
    return {sender->caller->Check(*route.calls)};
  }

  bool TokenComesLater(const http::PageRequest& request, const Route& route) const {
    return options.asks_for_tokens && route.token_in_body &&
           request.headers.count(kAuthorization) == 0;
  }

  static absl::Status CheckContent(const http::PageRequest& request, const Route& route) {
    const std::string* const header = request.headers.Find("content-type");
    // A method can be called by several protocols, and only the type tells them apart.
    if (header == nullptr && !IsWebCall(route.error_form)) return absl::OkStatus();
    const absl::string_view type = header == nullptr ? absl::string_view() : *header;
    const std::string media = MediaType(type);
    for (const std::string& allowed : route.content_types) {
      if (media == allowed) return absl::OkStatus();
    }
    return InvalidArgument("Content-Type: expected ", absl::StrJoin(route.content_types, " or "),
                           ", found '", type.substr(0, 64), "'");
  }

  void Refused(const http::PageRequest& request, callers::Caller* caller, const RestError& error,
               int http_status) const {
    if (caller != nullptr) caller->OnEnd(error.status, 0);
    if (options.on_refused != nullptr) {
      options.on_refused(request, caller, http_status, error.status);
    }
  }

  const Options options;
  calls::ByteBudget pages;  // answers that no call has made; they are part of Options::memory too
  calls::ByteBudget strangers;  // requests until RestCall::Authenticate(), likewise
  RouteTable routes;
  std::atomic<bool> closed{false};
  std::atomic<int> running{0};  // of Options::max_calls
  calls::LocalCalls calls;
};

// An answer that keeps what it reserved, and its place, until the client has taken it.
struct HeldResponse {
  std::shared_ptr<void> place;
  std::shared_ptr<const MemoryHold> memory;
  std::shared_ptr<const MemoryHold> page;  // likewise; may be null
  http::PageResponse response;
};

class Gateway::Call final : public http::HttpCall, public RestCall {
 public:
  Call(std::shared_ptr<State> state, calls::HttpExchange* exchange, http::PageRequest request)
      : HttpCall(exchange, std::move(request)),
        state_(std::move(state)),
        match_(state_->routes.Find(this->request().method, this->request().path)) {}

  // HttpHandler:
  bool IsAccepted() const override {
    State::Sender sender;
    const absl::Status status = state_->Check(request(), match_, &sender).status;
    // The call is one of those that its caller may have.
    return status.ok() || absl::IsResourceExhausted(status);
  }

  // RestCall:
  const http::PageRequest& request() const override { return HttpCall::request(); }
  const std::string& parameter(const std::string& name) const override {
    static const auto* const kNone = new std::string();
    const auto found = match_.parameters.find(name);
    return found == match_.parameters.end() ? *kNone : found->second;
  }
  std::string& body() override { return body_; }
  MemoryHold& memory() override { return *memory_; }
  const calls::RequestLimits& limits() const override { return state_->options.limits; }

  absl::Status Authenticate(absl::string_view token) override {
    if (caller_ != nullptr) return absl::OkStatus();  // by the header
    if (!token.empty()) authorization_ = absl::StrCat("Bearer ", token);
    if (state_->options.authenticate != nullptr) {
      http::PageRequest with_token = request();
      if (!token.empty()) with_token.headers[kAuthorization] = authorization_;
      SRU_ASSIGN_OR_RETURN(caller_, state_->options.authenticate(with_token));
      if (caller_ != nullptr) memory_->SetCaller(caller_);
    }
    memory_->LeavePart();
    return EnterRoute();
  }

  absl::Status Enter(calls::MethodId method) override {
    MutexLock lock(&mutex_);
    return lease_.Enter(caller_, method);
  }

  bool MayUse(absl::string_view model) const override {
    return caller_ == nullptr || caller_->CheckModel(model).ok();
  }

  std::shared_ptr<calls::LocalCall> Unary(const std::string& method, absl::Cord request,
                                          calls::LocalCalls::OnDone done) override {
    std::shared_ptr<calls::LocalCall> call =
        state_->calls.Unary(*state_->options.methods->Find(method), std::move(request), Info(),
                            Guarded(std::move(done)));
    CancelIfGone(call);
    return call;
  }

  std::shared_ptr<calls::LocalStream> ServerStream(const std::string& method, absl::Cord request,
                                                   calls::LocalCalls::OnMessage on_message,
                                                   calls::LocalCalls::OnDone done) override {
    std::shared_ptr<calls::LocalStream> call =
        state_->calls.ServerStream(*state_->options.methods->Find(method), std::move(request),
                                   Info(), std::move(on_message), Guarded(std::move(done)));
    CancelIfGone(call);
    return call;
  }

  void RunAside(std::function<void()> work) override {
    auto run = [self = handed_.lock(), work = std::move(work)] {
      const Interruption interruption(
          [&self] { return self->called_ ? self->gone() : self->IsUnwanted(); });
      self->FailIfThrown(work);
    };
    if (state_->options.readers == nullptr) return run();
    state_->options.readers->Post(ReaderKey(), std::move(run));
  }

  // Charges what the handler has not reserved. The unread answers of routes that compute nothing
  // have a part of the memory, so that they do not keep it from calls.
  void Reply(http::PageResponse response) override {
    const int64_t lacking = static_cast<int64_t>(response.body.size()) - memory_->bytes();
    if (lacking <= kUnchargedBytes) return Send(std::move(response));
    std::shared_ptr<MemoryHold> page;
    if (!match_.route->calls.has_value()) {
      const auto keep = [state = state_](MemoryHold* hold) { delete hold; };
      page = std::shared_ptr<MemoryHold>(new MemoryHold(&state_->pages), keep);
      if (!page->Grow(lacking)) return Fail({page->NoMemory()});
    }
    if (!memory_->Grow(lacking)) return Fail({memory_->NoMemory()});
    Send(std::move(response), std::move(page));
  }
  void Fail(const RestError& why) override {
    RestError error = why;
    // Reading the body ended early, and not because the client has left.
    const bool is_for_drain = !called_ && state_->closed && !gone();
    if (is_for_drain && absl::IsCancelled(error.status)) error = ShuttingDown();
    // The services log what they refuse themselves.
    if (!called_) return Refuse(error);
    Send(ErrorResponse(match_.errors, error));
  }

  void LeavePlaces() override {
    MutexLock lock(&mutex_);
    place_.reset();
    lease_.Leave();
  }

  std::unique_ptr<http::PageStream> ReplyInParts(http::PageResponse head) override {
    answered_ = true;
    return Answer([&] {
      AddHeaders(&head);
      return HttpCall::ReplyInParts(head);
    });
  }

 private:
  // HttpCall:
  Verdict CheckHead() override {
    if (http::IsPreflight(request()) &&
        http::IsFromAllowedOrigin(request(), state_->options.allow_origins)) {
      return {Refusal(http::PreflightResponse())};
    }
    // The content type of a call of a method decides on the form of its answer.
    if (IsWebCall(match_.errors) && match_.route != nullptr &&
        State::CheckContent(request(), *match_.route).ok()) {
      match_.errors = WebFormOf(request()).answer;
    }
    State::Sender sender;
    const RestError error = state_->Check(request(), match_, &sender);
    caller_ = std::move(sender.caller);
    timeout_ = std::min(sender.timeout, state_->options.max_timeout);
    if (error.status.ok()) return {nullptr, caller_.get(), match_.route->max_body()};
    std::shared_ptr<const http::PageResponse> refusal =
        Refusal(ErrorResponse(match_.errors, error));
    state_->Refused(request(), caller_.get(), error, refusal->status);
    return {std::move(refusal)};
  }
  std::shared_ptr<const http::PageResponse> Refusal(http::PageResponse response) const {
    AddHeaders(&response);
    return std::make_shared<const http::PageResponse>(std::move(response));
  }

  void OnRequest(const std::shared_ptr<HttpCall>& self) override {
    handed_ = std::static_pointer_cast<Call>(self);
    deadline_ = SteadyNow() + timeout_;
    memory_ = std::make_shared<MemoryHold>(
        state_->options.memory, caller_,
        state_->TokenComesLater(request(), *match_.route) ? &state_->strangers : nullptr);
    absl::Status status = EnterRoute();
    if (status.ok()) status = TakePlace();
    if (!status.ok()) return Refuse(status);
    if (!memory_->Grow(static_cast<int64_t>(body_bytes()))) return Refuse({memory_->NoMemory()});
    const Options& options = state_->options;
    // A short body may unpack to a long one.
    const bool is_short = body_bytes() <= kLongBody && !IsPacked(request());
    if (options.readers == nullptr || (is_short && !options.reads_all_aside)) return Run();
    options.readers->Post(ReaderKey(), [call = handed_.lock()] {
      const Interruption interruption([&call] { return call->IsUnwanted(); });
      if (!call->gone()) call->Run();
    });
  }

  // Nobody waits for the calls any more.
  void OnGone() override {
    std::vector<std::weak_ptr<calls::LocalCall>> calls;
    {
      MutexLock lock(&mutex_);
      cancels_calls_ = true;
      calls.swap(calls_);
    }
    for (const std::weak_ptr<calls::LocalCall>& call : calls) {
      if (const std::shared_ptr<calls::LocalCall> running = call.lock()) running->Cancel();
    }
  }

  // `page`: the part of State::pages that the answer has reserved.
  void Send(http::PageResponse response, std::shared_ptr<const MemoryHold> page = nullptr) {
    if (answered_.exchange(true)) return;
    Answer([&] { SendWhole(std::move(response), std::move(page)); });
  }

  template <typename Run>
  auto Answer(const Run& run) -> decltype(run()) {
    try {
      return run();
    } catch (...) {
      answered_ = false;  // the error is answered
      throw;
    }
  }

  void SendWhole(http::PageResponse response, std::shared_ptr<const MemoryHold> page) {
    std::shared_ptr<void> place;
    {
      MutexLock lock(&mutex_);
      lease_.Leave();  // which the headers count
      place = std::move(place_);
    }
    AddHeaders(&response);
    // The handler is about to drop what a stranger has sent.
    if (memory_->in_part()) memory_->ShrinkTo(static_cast<int64_t>(response.body.size()));
    memory_->LeavePart();
    std::shared_ptr<HeldResponse> held(
        new HeldResponse{std::move(place), memory_, std::move(page), std::move(response)},
        [readers = state_->options.readers, key = ReaderKey()](HeldResponse* given) {
          const std::unique_ptr<HeldResponse> owned(given);
          std::string& body = owned->response.body;
          if (readers == nullptr || body.size() <= kCostlyBytes) return;
          try {
            readers->Post(key, [shared = std::make_shared<std::string>(std::move(body))] {});
          } catch (const std::exception&) {  // the end of the answer must not fail
          }
        });
    std::shared_ptr<const http::PageResponse> answer(held, &held->response);
    // When the client has the answer, this thread must not keep its place.
    held.reset();
    HttpCall::Reply(std::move(answer));
  }

  // Whose turn on Options::readers it is: the caller's, or the address' until a token in the body
  // has told the caller.
  size_t ReaderKey() const {
    if (caller_ != nullptr) return SideThreads::KeyOf(caller_.get());
    return absl::HashOf(callers::TrustedProxies().CallerAddress(request().peer, ""));
  }

  // Whether the client has left, or the services take no calls any more.
  bool IsUnwanted() const { return gone() || state_->closed; }

  void Run() {
    if (state_->closed) return Fail({ShuttingDown()});
    absl::StatusOr<std::string> body = std::string();
    if (match_.route->max_body() > 0) body = TakeBody();
    // A GET seldom has a body, and says nothing of its length then.
    if (match_.route->method == "GET" && absl::IsInvalidArgument(body.status())) body.emplace();
    if (!body.ok()) {
      RestError error(body.status(), BodyErrorStatus(body.status()));
      // No flag sets the bound of a route, nor the part that requests without a token have.
      const Options& options = state_->options;
      if (error.http_status == 413 && match_.route->most_body > options.max_body_bytes &&
          !state_->TokenComesLater(request(), *match_.route)) {
        error.status = absl::ResourceExhaustedError(
            absl::StrCat(body.status().message(), options.max_body_flag));
      }
      return Refuse(error);
    }
    body_ = *std::move(body);
    FailIfThrown([this] {
      const Route& route = *match_.route;
      if (route.max_body() > 0 && IsPacked(request())) {
        const size_t most = std::min(state_->options.max_body_bytes, route.max_body());
        const RestError error = UnpackBody(request(), most, memory_.get(), &body_);
        if (!error.status.ok()) return Fail(error);
      }
      route.handle(handed_.lock());
    });
  }

  // Fails a request before a service has seen it.
  void Refuse(const RestError& error) {
    const http::PageResponse response = ErrorResponse(match_.errors, error);
    state_->Refused(request(), caller_.get(), error, response.status);
    Send(response);
  }

  // Takes the caller's place for what the route calls.
  absl::Status EnterRoute() {
    return match_.route->calls.has_value() ? Enter(*match_.route->calls) : absl::OkStatus();
  }

  // One of Options::max_calls.
  absl::Status TakePlace() {
    const int most = state_->options.max_calls;
    if (most == 0) return absl::OkStatus();
    const int running = ++state_->running;
    std::shared_ptr<void> place(nullptr, [state = state_](void*) { --state->running; });
    if (running > most) {
      return RetryAfter(absl::ResourceExhaustedError(absl::StrCat(
                            "this port answers ", most, " calls at a time; use gRPC for more")),
                        absl::Seconds(1));
    }
    MutexLock lock(&mutex_);
    place_ = std::move(place);
    return absl::OkStatus();
  }

  calls::LocalCallInfo Info() {
    calls::LocalCallInfo info;
    info.peer = request().peer;
    info.deadline = deadline_;
    for (const char* const name : {kAuthorization, "traceparent", "tracestate", "x-request-id"}) {
      const bool is_field = name == kAuthorization && !authorization_.empty();
      const std::string* const value = is_field ? &authorization_ : request().headers.Find(name);
      if (value != nullptr) info.headers.emplace_back(name, *value);
    }
    info.caller = caller_;
    info.http_route = {match_.route->method, match_.route->path};
    info.goes_on = called_.exchange(true);
    AnswerMemory memory = match_.route->answer_memory;
    if (memory == AnswerMemory::kJsonIfAsked) {
      memory = WebFormOf(request()).is_json ? AnswerMemory::kJson : AnswerMemory::kOwn;
    }
    info.answer_expansion = static_cast<int>(memory);
    if (deadline_ != absl::InfiniteFuture()) EndAtDeadline();
    return info;
  }

  // Ends the calls of the request at its deadline.
  void EndAtDeadline() {
    MutexLock lock(&mutex_);
    if (alarm_.has_value()) return;
    alarm_.emplace();
    SetAlarm(&*alarm_, deadline_ - SteadyNow(), handed_, &Call::OnGone);
  }

  void CancelIfGone(const std::shared_ptr<calls::LocalCall>& call) {
    {
      MutexLock lock(&mutex_);
      calls_.push_back(call);
      if (!cancels_calls_) return;
    }
    call->Cancel();
  }

  void AddHeaders(http::PageResponse* response) const {
    http::AddCorsHeaders(request(), state_->options.allow_origins, response);
    AddRateLimits(caller_.get(), response);
  }

  template <typename Run>
  void FailIfThrown(const Run& run) {
    Guard(run, [this](const RestError& error) { Fail(error); });
  }

  calls::LocalCalls::OnDone Guarded(calls::LocalCalls::OnDone done) {
    return [self = handed_.lock(), done = std::move(done)](calls::LocalAnswer answer) {
      self->FailIfThrown([&] { done(std::move(answer)); });
    };
  }

  const std::shared_ptr<State> state_;
  RouteTable::Match match_;
  callers::CallerPtr caller_;  // null until Authenticate() where the token is a field
  absl::Duration timeout_ = absl::InfiniteDuration();
  // Locked, this keeps the request open for a route's handler. When the handler drops its last copy
  // without an answer, HttpCall answers with 503.
  std::weak_ptr<Call> handed_;
  // One for all calls of the request, so that none of them is cancelled before it knows that its
  // deadline has passed.
  absl::Time deadline_ = absl::InfiniteFuture();
  // The handler's: it sees to it that one thread at a time uses them.
  std::string body_;
  std::string authorization_;  // with the token of a field
  // Shared with the answer and not moved into it: when a handler throws, what else it has under way
  // may be at work with it.
  std::shared_ptr<MemoryHold> memory_;
  std::atomic<bool> answered_{false};
  std::atomic<bool> called_{false};  // a service has seen the request
  Mutex mutex_;
  callers::Lease lease_ ABSL_GUARDED_BY(mutex_);         // until the request is answered
  std::shared_ptr<void> place_ ABSL_GUARDED_BY(mutex_);  // one of Options::max_calls
  std::optional<grpc::Alarm> alarm_ ABSL_GUARDED_BY(mutex_);
  bool cancels_calls_ ABSL_GUARDED_BY(mutex_) = false;  // the client is gone, or it is late
  std::vector<std::weak_ptr<calls::LocalCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

std::vector<RouteGroup> ApiRoutes(const calls::MethodTable& methods) {
  return {V1Routes(methods), CompletionsRoutes(), ClientRoutes(), OpenInferenceRoutes(),
          MethodRoutes(methods)};
}

Gateway::Gateway(Options options) : state_(std::make_shared<State>(std::move(options))) {
  std::vector<RouteGroup> groups = ApiRoutes(*state_->options.methods);
  groups.insert(groups.end(), state_->options.more.begin(), state_->options.more.end());
  const std::vector<std::string>& only = state_->options.only;
  if (only.empty()) {
    Route route(AnswerMemory::kOwn, "GET", "/openapi.json");
    route.handle = [description = OpenApiText(groups)](const SharedCall& call) {
      call->Reply(JsonResponse(description));
    };
    state_->routes.Add(std::move(route));
  }
  for (RouteGroup& group : groups) {
    for (Route& route : group.routes) {
      const bool wanted = std::find(only.begin(), only.end(), route.path) != only.end();
      if (only.empty() || wanted) state_->routes.Add(std::move(route));
    }
  }
}

Gateway::~Gateway() { Close(); }

std::shared_ptr<http::HttpCall> Gateway::Start(calls::HttpExchange* exchange,
                                               http::PageRequest request) {
  return std::make_shared<Call>(state_, exchange, std::move(request));
}

void Gateway::Close(absl::Duration grace) {
  state_->closed = true;
  state_->calls.Close(grace);
}

}  // namespace sru::server::rest
