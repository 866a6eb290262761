// Client: calls an SRU inference server.
//
//   sru::client::ConnectOptions options;
//   options.address = "localhost:50051";
//   auto client = sru::client::Client::Create(options);
//   sru::v1::ClassifyRequest request;
//   *request.add_sequences() = sru::client::TextSequence("Who wrote Hamlet ?");
//   auto response = (*client)->Classify(request);
//   if (response.ok()) std::cout << response->classifications(0).labels(0).name();
//
// Requests and responses are the messages of sru/v1/inference.proto; their comments say what each
// field means. Calls block until the answer, the deadline or the last attempt.
//
// Errors are the server's, with their codes and messages unchanged (inference.proto lists them),
// and
//   kInvalidArgument   a text is not UTF-8; nothing was sent
//   kUnavailable       no connection or no TLS handshake, after the attempts of ConnectOptions
//   kUnauthenticated   the server requires a token (token_file), or a different one
//   kDeadlineExceeded  the deadline passed, here or on the server
//   kResourceExhausted the server is overloaded, or the answer is larger than max_message_bytes;
//                      RetryDelay() says how long the server asks to be left alone
//
// Thread-safe: all threads of a program may share one Client, and should, because each Client has
// its own connection. No gRPC type appears here, so that users compile without its headers.
#ifndef SRU_CLIENT_CLIENT_H_
#define SRU_CLIENT_CLIENT_H_

#include "client/calls.h"
#include "client/connect_options.h"
#include "sru/v1/admin.pb.h"
#include "sru/v1/inference.pb.h"

#endif  // SRU_CLIENT_CLIENT_H_
